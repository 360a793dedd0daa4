"""The test frame itself: what is installed, what CI must not skip, what is drawn, the samples."""

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.places.temporary import MEMORY, TEMPORARY_ROOT, has_room, room_in_memory
from tests.processes.ci_scripts import ci_script

ROOT = Path(__file__).parents[1]
CONFTEST = (ROOT / "tests" / "conftest.py").read_text().replace('"pytester", ', "")
SKIPPING = """
import pytest

def test_runs():
    pass

def test_needs():
    pytest.skip("needs a browser")

@pytest.mark.skipif(True, reason="needs strace")
def test_marked():
    pass

def test_other():
    pytest.skip("this filesystem folds case")

@pytest.mark.xfail
def test_expected():
    raise AssertionError
"""


def run(pytester: pytest.Pytester, *options: str) -> pytest.RunResult:
    pytester.makeconftest(CONFTEST)
    pytester.makeini(
        f"[pytest]\npythonpath = {ROOT}\nmarkers =\n    deep\n    drawn\n    few\n"
        "addopts = -p no:playwright -p no:langsmith_plugin -p no:cacheprovider -m 'not deep'"
    )
    return pytester.runpytest_subprocess(*options)


def test_a_skip_for_a_missing_need_is_a_skip_at_home(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CI", raising=False)
    pytester.makepyfile(SKIPPING)
    run(pytester).assert_outcomes(passed=1, skipped=3, xfailed=1)


def test_a_skip_for_a_missing_need_fails_on_ci(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CI", "true")
    pytester.makepyfile(SKIPPING)
    result = run(pytester)
    result.assert_outcomes(passed=1, failed=1, errors=1, skipped=1, xfailed=1)
    result.stdout.fnmatch_lines(["*skipped on CI: needs a browser*"])


def test_a_module_skipped_for_a_missing_need_fails_on_ci(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CI", "true")
    pytester.makepyfile('import pytest\npytest.skip("needs x", allow_module_level=True)')
    run(pytester).assert_outcomes(errors=1)


DEEP = """
import pytest

@pytest.mark.deep
@pytest.mark.parametrize("n", range(30))
def test_deep(n):
    print("ran", n)

def test_quick():
    pass
"""


@pytest.mark.deep
def test_a_sample_takes_the_same_deep_tests_for_the_same_seed(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(DEEP)

    def ran(seed: str) -> list[str]:
        result = run(pytester, "-m", "deep", "-s", "--sample", "4", "--seed", seed)
        result.assert_outcomes(passed=4, deselected=27)
        return [line for line in result.outlines if "ran " in line]

    assert ran("abc") == ran("abc") != ran("abd")


@pytest.mark.deep
def test_a_sample_is_taken_from_the_tests_that_are_asked_for(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(DEEP)
    result = run(pytester, "-m", "deep", "-k", "1 or 2", "--sample", "4")
    result.assert_outcomes(passed=4, deselected=27)
    run(pytester, "-k", "quick", "--sample", "4").assert_outcomes(passed=1, deselected=30)


@pytest.mark.deep
def test_without_a_sample_every_deep_test_runs(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(DEEP)
    run(pytester, "-m", "deep").assert_outcomes(passed=30, deselected=1)
    run(pytester).assert_outcomes(passed=1, deselected=30)


WITHOUT_A_QUICK_ONE = """
import pytest

@pytest.mark.few(0)
@pytest.mark.parametrize("n", [1, pytest.param(2, marks=pytest.mark.deep)])
def test_both(n):
    pass
"""


def test_few_may_not_leave_out_the_quick_case_beside_a_deep_one(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(WITHOUT_A_QUICK_ONE)
    result = run(pytester)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*test_both: few(0) leaves out its quick cases too*"])
    pytester.makepyfile(WITHOUT_A_QUICK_ONE.replace("few(0)", "few(1)"))
    run(pytester).assert_outcomes(passed=1, deselected=1)


DRAWN = """
import os
import random
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

def drawn(name, value):
    with open("drawn", "a") as file:
        print(name, repr(value), file=file)

@given(st.integers(), st.text())
def test_default(number, text):
    drawn("default", (number, text))

@settings(max_examples=20, deadline=None)
@given(st.floats())
def test_own_settings(number):
    drawn("own", number)

class Machine(RuleBasedStateMachine):
    @rule(number=st.integers())
    def step(self, number):
        drawn("machine", number)

Machine.TestCase.settings = settings(max_examples=5, stateful_step_count=5)
TestMachine = Machine.TestCase

def test_run_as_test():
    run_state_machine_as_test(Machine, settings=settings(max_examples=5))

def test_own(seed):
    drawn("seed", random.Random(seed).random())

def test_plain():
    pass
"""


def drawn(pytester: pytest.Pytester, *options: str) -> list[str]:
    """What the tests of DRAWN drew, in a folder without memory of earlier runs."""
    pytester.makepyfile(DRAWN)
    (pytester.path / "drawn").unlink(missing_ok=True)
    run(pytester, *options).assert_outcomes(passed=6)
    assert not (pytester.path / ".hypothesis" / "examples").exists()
    return (pytester.path / "drawn").read_text().splitlines()


@pytest.mark.deep
def test_the_same_examples_are_drawn_every_time_whatever_else_was_imported(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CI", raising=False)
    first = drawn(pytester)
    assert {line.split()[0] for line in first} == {"default", "own", "machine", "seed"}
    monkeypatch.setenv("CI", "true")
    pytester.makepyfile(ours=f"NUMBERS = {list(range(10**6, 10**6 + 500))}")
    assert drawn(pytester, "-p", "ours") == first


@pytest.mark.deep
def test_a_seed_draws_other_examples_and_the_same_ones_again(pytester: pytest.Pytester) -> None:
    first = drawn(pytester, "--seed", "one/1")
    assert first == drawn(pytester, "--seed", "one/1")
    other = drawn(pytester, "--seed", "two")
    for name in ("default", "own", "machine", "seed"):
        sides = [[line for line in lines if line.startswith(name)] for lines in (first, other)]
        assert sides[0] != sides[1], name


@pytest.mark.deep
def test_a_seed_is_chosen_said_and_given_again(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        from hypothesis import given, strategies as st

        @given(st.integers())
        def test_fails(number):
            print("drew", number)
            assert number < 1000
        """
    )
    found = run(pytester, "--seed", "new", "-n", "2")
    found.assert_outcomes(failed=1)
    (seed,) = re.findall(r"^seed: (\d+)$", found.stdout.str(), re.M)
    found.stdout.fnmatch_lines([f"Seed {seed}.*", f"*--seed {seed} TEST", "*@example(...)*"])

    def drew(result: pytest.RunResult) -> list[str]:
        return [line for line in result.outlines if line.startswith("drew")]

    assert drew(found) == drew(run(pytester, "--seed", seed))
    plain = run(pytester)
    assert drew(plain) != drew(found) and "Seed" not in plain.stdout.str()


@pytest.mark.deep
def test_what_draws_is_marked(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(DRAWN)
    run(pytester, "-m", "drawn").assert_outcomes(passed=4, deselected=2)


@pytest.mark.deep
def test_no_test_begins_when_the_time_is_up(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_one(): pass")
    late = run(pytester, "-n", "2", "--until", str(time.time()))
    late.assert_outcomes()
    assert late.ret == 0
    run(pytester, "--until", str(time.time() + 600)).assert_outcomes(passed=1)


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
@pytest.mark.parametrize(
    ("target", "locks"),
    [
        ("run", ["run.lock"]),
        ("bench", ["run.lock"]),
        *(
            (name, ["run.lock", "test.lock"])
            for name in ("quick", "test", "check", "explore", "test-deep")
        ),
    ],
)
def test_running_installs_no_test_tools(tmp_path: Path, target: str, locks: list[str]) -> None:
    shutil.copy(ROOT / "Makefile", tmp_path)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    shutil.copytree(ROOT / ".ci", tmp_path / ".ci")
    done = subprocess.run(
        ["make", "--dry-run", target], cwd=tmp_path, check=True, capture_output=True, text=True
    )
    assert sorted(set(re.findall(r"-r \.ci/(\S+)", done.stdout))) == locks


PLACES = """
def test_place(tmp_path_factory, tmp_path):
    (tmp_path / "file").touch()
    print("place", tmp_path_factory.getbasetemp())
"""


def places(pytester: pytest.Pytester, *options: str) -> list[Path]:
    """Where tests keep temporary files, and where those do that are about the disk."""
    pytester.makeconftest(CONFTEST)
    about_the_disk = "from tests.places.on_disk import tmp_path_factory"
    for name, text in (("a", ""), ("b", about_the_disk)):
        folder = pytester.mkdir(name)
        (folder / f"test_{name}.py").write_text(PLACES)
        (folder / "conftest.py").write_text(text)
    pytester.makeini(
        f"[pytest]\npythonpath = {ROOT}\ntmp_path_retention_policy = failed\n"
        "addopts = -p no:playwright -p no:langsmith_plugin -p no:cacheprovider"
        " --import-mode=importlib"
    )
    done = pytester.run(sys.executable, "-m", "pytest", "-s", *options)
    assert done.ret == 0
    return [Path(place) for place in re.findall(r"\bplace (\S+)$", done.stdout.str(), re.M)]


def test_tests_run_in_memory_but_for_those_of_the_disk_and_leave_nothing(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(TEMPORARY_ROOT, raising=False)
    if not has_room():
        pytest.skip("this machine has no room in memory")
    memory, disk = places(pytester)
    assert MEMORY in memory.parents and MEMORY not in disk.parents
    assert not memory.exists() and not disk.exists()


def test_a_place_that_is_asked_for_holds_for_all_tests(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = pytester.path / "asked"
    monkeypatch.delenv(TEMPORARY_ROOT, raising=False)
    assert places(pytester, f"--basetemp={asked}") == [asked, asked]


def test_memory_has_the_room_of_the_smaller_of_folder_and_machine(tmp_path: Path) -> None:
    mount = f"tmpfs {tmp_path} tmpfs rw,nosuid 0 0\n"
    memory = "MemFree: 1 kB\nMemAvailable:       3 kB\n"
    assert room_in_memory(tmp_path, mount, memory) == 3072
    free = shutil.disk_usage(tmp_path).free
    assert 0 < room_in_memory(tmp_path, mount, memory.replace("3", "9" * 15)) <= free * 1.1
    assert room_in_memory(tmp_path, mount.replace("tmpfs rw", "ext4 rw"), memory) == 0
    assert room_in_memory(tmp_path, mount.replace(str(tmp_path), "/"), memory) == 0
    assert room_in_memory(tmp_path, mount, "MemFree: 9 kB\n") == 0


@pytest.mark.parametrize(("first", "second"), [(0, 0), (3, 0), (0, 4), (3, 4)])
def test_two_parts_run_side_by_side_and_both_count(
    capfdbinary: pytest.CaptureFixture[bytes], tmp_path: Path, first: int, second: int
) -> None:
    """Each waits for the other's file; what the second printed comes last."""
    script = (
        "import sys, time; from pathlib import Path; own, other = map(Path, sys.argv[1:3])\n"
        "print(own.name, flush=True); own.touch(); end = time.monotonic() + 60\n"
        "while not other.exists() and time.monotonic() < end: time.sleep(0.01)\n"
        "sys.exit(int(sys.argv[3]) if other.exists() else 99)"
    )
    a, b = str(tmp_path / "a"), str(tmp_path / "b")
    commands = [
        [sys.executable, "-c", script, *arguments]
        for arguments in ((a, b, str(first)), (b, a, str(second)))
    ]
    assert ci_script("all").side_by_side(*commands) == (first or second)
    assert capfdbinary.readouterr().out == b"a\nb\n"


def planned(*words: str) -> str:
    """What `make test` would do where nothing is installed yet."""
    # make runs this test too: what that one was told, the one within it is not
    of_make = ("MAKEFLAGS", "MAKEOVERRIDES", "MAKELEVEL", "MFLAGS", "PYTHON", "BROWSER", "FIFTH")
    return subprocess.run(
        ["make", "--dry-run", "--always-make", "test", *words],
        env={name: value for name, value in os.environ.items() if name not in of_make},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout


def test_a_fifth_of_the_files_is_another_for_another_seed_and_in_time_all_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(ROOT)
    every = {str(one) for one in Path("tests").rglob("test_*.py")}
    drawn = [ci_script("all").a_fifth(str(seed)) for seed in range(80)]
    assert drawn[0] == ci_script("all").a_fifth("0") != drawn[1]
    assert all(len(every) / 7 < len(some) < len(every) / 3 for some in drawn)
    assert every.difference(*drawn) == set()


def test_make_test_says_how_long_it_takes_before_it_installs() -> None:
    plan = planned("PYTHON=python3")
    assert "minutes" in plan.splitlines()[0] and "pip install" in plan


def test_make_test_takes_the_python_that_is_named_and_leaves_the_browser_out_when_asked() -> None:
    plan = planned("PYTHON=/opt/python", "BROWSER=no")
    assert "/opt/python -m venv" in plan and plan.endswith("all.py --no-browser\n")
    assert "--no-browser" not in planned("PYTHON=/opt/python")
    assert planned("FIFTH=7").endswith("all.py --fifth 7\n")
