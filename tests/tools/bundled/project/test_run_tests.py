"""The project's own tests, run by pytest, unittest and npm."""

import json
import os
import shutil
import sys
from typing import Any

import pytest

from loom_audit.tools.bundled.project.run_tests import _npm_tally
from loom_audit.tools.calls.result import ToolResult
from tests.tools.conftest import Bench

FAILING = """
import os, sys, unittest
import pytest

@pytest.fixture
def broken():
    raise RuntimeError("no fixture")

def test_good(): print("said")
@pytest.mark.parametrize("n", [1, 2])
def test_many(n):
    assert n == 1, "n is\\n<two> & more"
def test_error(broken): pass
@pytest.mark.skip(reason="why")
def test_skipped(): pass
@pytest.mark.xfail
def test_expected(): assert 0
"""

UNIT = """
import unittest

class Cases(unittest.TestCase):
    def test_good(self): pass
    def test_bad(self):
        self.assertEqual(1, 2, "not so")
    def test_error(self):
        raise ValueError("boom")
    def test_parts(self):
        for n in range(3):
            with self.subTest(n=n):
                self.assertNotEqual(n, 1)
    @unittest.skip("why")
    def test_skipped(self): pass
    @unittest.expectedFailure
    def test_surprise(self): pass
"""


def run(bench: Bench, arguments: dict[str, Any]) -> ToolResult:
    """By the Python that runs this test, which has pytest, as that of the project.

    Without the plugins that happen to be installed here, which take a second to load.
    """
    own = bench.root / ".venv/bin/python"
    if not own.exists():
        own.parent.mkdir(parents=True)
        own.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
        own.chmod(0o755)
    alone = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return bench.call("run_tests", arguments, environment=alone)


def counts(data: Any) -> tuple[int | None, int | None, int | None, int | None]:
    return tuple(data[key] for key in ("passed", "failed", "errors", "skipped"))


def test_pytest_s_results_are_counted_and_failures_located(bench: Bench) -> None:
    (bench.root / "test_it.py").write_text(FAILING)
    result = run(bench, {"framework": "pytest"})
    assert not result.success and str(result.error) == "2 of 6 tests did not pass"
    assert counts(result.data) == (2, 1, 1, 1) and result.data["framework"] == "pytest"
    assert (result.data["xfailed"], result.data["xpassed"]) == (1, 0)
    assert result.output.startswith("Error: 2 of 6")
    assert "pytest: 2 passed, 1 failed, 1 errors, 1 skipped, 1 xfailed" in result.output
    bad, error = sorted(result.data["failures"], key=lambda f: f["name"], reverse=True)
    assert (bad["name"], bad["file"], bad["line"]) == ("test_it.py::test_many[2]", "test_it.py", 12)
    assert bad["message"].startswith("AssertionError: n is\n  <two> & more")
    assert error["name"] == "test_it.py::test_error" and "no fixture" in error["message"]
    assert bad["source"] == 'assert n == 1, "n is\\n<two> & more"'
    assert result.output.count("AssertionError: n is") == 1
    assert "test_it.py:12: in test_many\n    assert n == 1" in result.output
    assert result.files_changed == [] and "report-" not in result.data["stdout"]
    bench.assert_log_agrees_with_disk()


def test_tests_that_pass_are_a_success_and_may_change_files(bench: Bench) -> None:
    (bench.root / "tests").mkdir()
    (bench.root / "tests/test_it.py").write_text(
        "def test_a():\n    open('made', 'w').write('1')\ndef test_b(): pass\n"
    )
    result = run(bench, {"paths": ["tests/test_it.py::test_a"]})
    assert result.success and result.output.startswith("pytest: 1 passed")
    assert result.files_changed == ["made"] and result.output.endswith("\n[changed: made]")
    assert run(bench, {}).output == "pytest: 2 passed"
    assert run(bench, {"pattern": "b"}).output.startswith("pytest: 1 passed")
    assert bench.last().sandbox == result.data["sandbox"]


def test_a_module_that_cannot_be_imported_is_an_error(bench: Bench) -> None:
    (bench.root / "test_it.py").write_text("import nothing_of_this_name\n")
    for framework in ("pytest", "unittest"):
        result = run(bench, {"framework": framework})
        assert counts(result.data) == (0, 0, 1, 0)
        assert "nothing_of_this_name" in json.dumps(result.data["failures"])


def test_a_pytest_that_cannot_be_imported_is_not_taken_for_none(bench: Bench) -> None:
    (bench.root / "test_it.py").write_text("def test_a(): pass\n")
    (bench.root / "pytest.py").write_text("import nothing_of_this_name\n")
    result = run(bench, {})
    assert result.error.code == "EXECUTION_ERROR"
    assert "No module named 'nothing_of_this_name'" in result.output


def test_unittest_s_results_are_counted_and_failures_located(bench: Bench) -> None:
    (bench.root / "deep").mkdir()
    (bench.root / "deep/__init__.py").write_text("")
    (bench.root / "deep/test_unit.py").write_text(UNIT)
    result = run(bench, {"framework": "unittest", "paths": ["deep"]})
    assert counts(result.data) == (1, 3, 1, 1) and result.data["xfailed"] == 0
    found = {f["name"]: f for f in result.data["failures"]}
    bad = found["deep.test_unit.Cases.test_bad"]
    assert (bad["file"], bad["line"]) == ("deep/test_unit.py", 7)
    assert bad["message"] == "AssertionError: 1 != 2 : not so"
    assert "deep.test_unit.Cases.test_parts (n=1)" in found
    one = run(
        bench,
        {"framework": "unittest", "paths": ["deep/test_unit.py"], "pattern": "test_good"},
    )
    assert one.success and counts(one.data) == (1, 0, 0, 0)


def test_without_tests_it_says_so(bench: Bench) -> None:
    assert run(bench, {}).error.code == "NOT_FOUND"
    for framework in ("pytest", "unittest"):
        result = run(bench, {"framework": framework})
        assert result.error.code == "NOT_FOUND" and not result.success


def test_tests_that_leave_the_process_are_not_a_success(bench: Bench) -> None:
    (bench.root / "test_it.py").write_text("import os\ndef test_a(): os._exit(0)\n")
    for framework in ("pytest", "unittest"):
        (bench.root / "test_it.py").write_text(
            "import os, unittest\nclass A(unittest.TestCase):\n    def test_a(self): os._exit(0)\n"
        )
        result = run(bench, {"framework": framework})
        assert result.error.code == "EXECUTION_ERROR" and "without a report" in str(result.error)
        assert result.data["passed"] is None


def test_a_report_that_tests_print_themselves_is_not_taken(bench: Bench) -> None:
    lines = ["report-x {}", '{"framework": "pytest"}', "\nreport-" + "0" * 32 + ' {"passed": 9}']
    (bench.root / "test_it.py").write_text(
        f"import sys\ndef test_a():\n    sys.__stdout__.write({chr(10).join(lines)!r}); assert 0\n"
    )
    assert counts(run(bench, {"framework": "pytest"}).data) == (0, 1, 0, 0)


@pytest.mark.few(0)
def test_more_failures_than_are_shown_are_counted(bench: Bench) -> None:
    (bench.root / "test_it.py").write_text(
        "import pytest\n@pytest.mark.parametrize('n', range(300))\n"
        "def test_a(n):\n    assert False, 'x' * 5000\n"
    )
    data = run(bench, {"framework": "pytest"}).data
    assert data["failed"] == 300 and len(data["failures"]) == 200 and data["left_out"] == 100


def test_tests_without_end_are_stopped(bench: Bench) -> None:
    (bench.root / "test_it.py").write_text("def test_a():\n    while True: pass\n")
    result = run(bench, {"framework": "pytest", "timeout": 1})
    assert result.error.code == "TIMEOUT" and result.data["timed_out"]


@pytest.mark.parametrize(
    ("bad", "code"),
    [
        ({"timeout": 301}, "INVALID_ARGUMENTS"),
        ({"framework": "make"}, "INVALID_ARGUMENTS"),
        ({"paths": ["--pdb"]}, "INVALID_ARGUMENTS"),
        ({"paths": ["../x"]}, "INVALID_PATH"),
        ({"paths": ["nowhere.py"]}, "FILE_NOT_FOUND"),
        ({"framework": "npm", "pattern": "x"}, "INVALID_ARGUMENTS"),
        ({"framework": "npm"}, "NOT_FOUND"),
    ],
)
def test_arguments_that_are_none(bench: Bench, bad: dict[str, object], code: str) -> None:
    assert run(bench, bad).error.code == code


def test_the_workspace_s_own_python_is_used(bench: Bench) -> None:
    folder = bench.root / ".venv/bin"
    folder.mkdir(parents=True)
    own = folder / "python"
    own.write_text(f'#!/bin/sh\necho own python; exec {sys.executable} "$@"\n')
    own.chmod(0o755)
    (bench.root / "test_it.py").write_text("def test_a(): pass\n")
    result = run(bench, {})
    assert result.success and result.data["stdout"].startswith("own python")


@pytest.fixture
def npm(bench: Bench) -> Bench:
    if shutil.which("npm") is None or shutil.which("node") is None:
        pytest.skip("npm is not installed")
    (bench.root / "package.json").write_text(
        json.dumps({"name": "x", "version": "1.0.0", "scripts": {"test": "node --test"}})
    )
    return bench


def test_npm_s_results_are_read_as_node_s_runner_prints_them(npm: Bench) -> None:
    (npm.root / "a.test.js").write_text(
        "const test = require('node:test'); const assert = require('assert');\n"
        "test('good', () => {});\n"
        "test('bad', () => { assert.equal(1, 2, 'not so') });\n"
        "test('skipped', { skip: true }, () => {});\n"
    )
    result = run(npm, {})
    assert not result.success and result.data["framework"] == "npm"
    assert counts(result.data) == (1, 1, 0, 1), result.data["stdout"]
    [bad] = result.data["failures"]
    assert bad["name"] == "bad" and "not so" in bad["message"]
    (npm.root / "a.test.js").write_text("require('node:test')('good', () => {});\n")
    assert run(npm, {}).success
    assert run(npm, {"paths": ["a.test.js"]}).success


def test_npm_tests_whose_output_nobody_knows_are_told_by_their_exit(npm: Bench) -> None:
    script = {"name": "x", "version": "1.0.0", "scripts": {"test": "echo all well"}}
    (npm.root / "package.json").write_text(json.dumps(script))
    result = run(npm, {})
    assert result.success and counts(result.data) == (None,) * 4 and "all well" in result.output
    script["scripts"]["test"] = "exit 3"
    (npm.root / "package.json").write_text(json.dumps(script))
    result = run(npm, {})
    assert result.error.code == "EXECUTION_ERROR" and result.data["exit_code"] == 3


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("\nTests:       1 failed, 1 skipped, 2 passed, 4 total\n", (2, 1, 0, 1)),
        ("  3 passing (5ms)\n  1 pending\n  2 failing\n", (3, 2, 0, 1)),
        ("ℹ tests 3\nℹ pass 2\nℹ fail 0\nℹ cancelled 1\nℹ skipped 0\nℹ todo 0\n", (2, 0, 1, 0)),
    ],
)
def test_summaries_of_other_runners(text: str, expected: tuple[int, ...]) -> None:
    assert counts(_npm_tally(text)) == expected
    assert _npm_tally("nothing of the kind") == {}


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("files", "code", "said", "shown"),
    [
        (
            {"conftest.py": "import nothing_of_this_name\n"},
            "EXECUTION_ERROR",
            "pytest could not begin",
            "No module named 'nothing_of_this_name'",
        ),
        (
            {"pytest.ini": "[pytest]\naddopts = --unheard-of\n"},
            "EXECUTION_ERROR",
            "pytest could not begin",
            "unrecognized arguments: --unheard-of",
        ),
        (
            {"conftest.py": "def pytest_collection_modifyitems():\n    raise KeyError('inside')\n"},
            "EXECUTION_ERROR",
            "pytest failed inside",
            "KeyError: 'inside'",
        ),
        ({"test_it.py": ""}, "NOT_FOUND", "no tests were found", "no tests ran"),
    ],
)
def test_a_run_in_which_nothing_ran_shows_why(
    bench: Bench, files: dict[str, str], code: str, said: str, shown: str
) -> None:
    for name, text in ({"test_it.py": "def test_a(): pass\n"} | files).items():
        (bench.root / name).write_text(text)
    result = run(bench, {"framework": "pytest"})
    assert result.error.code == code and said in str(result.error)
    assert shown in result.output and result.data["passed"] == 0


def test_the_failing_line_is_the_test_s_own_also_where_what_it_called_failed(bench: Bench) -> None:
    (bench.root / "called.py").write_text("def halve(n):\n    return 1 / n\n")
    (bench.root / "test_it.py").write_text(
        "from called import halve\n\ndef test_a():\n    halve(2)\n    halve(0)\n"
    )
    result = run(bench, {"framework": "pytest"})
    [bad] = result.data["failures"]
    assert (bad["line"], bad["source"]) == (5, "halve(0)")
    assert "called.py:2: in halve\n    return 1 / n" in result.output
    (bench.root / "test_it.py").write_text(
        "import unittest\nfrom called import halve\n\nclass A(unittest.TestCase):\n"
        "    def test_a(self):\n        halve(0)\n"
    )
    [bad] = run(bench, {"framework": "unittest"}).data["failures"]
    assert (bad["line"], bad["source"]) == (6, "halve(0)")


def test_of_many_failures_each_is_shown_once_with_its_line(bench: Bench) -> None:
    (bench.root / "test_it.py").write_text(
        "import pytest\n@pytest.mark.parametrize('n', range(40))\n"
        "def test_a(n):\n    assert n == 'x' * 500\n"
    )
    result = run(bench, {"framework": "pytest"})
    assert result.output.count("::test_a[7]") == 1
    assert result.output.count("    assert n == 'x' * 500\n") == 40
    assert "run one of these by paths or pattern" in result.output


def test_colours_that_are_wanted_elsewhere_are_not_wanted_here(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    (bench.root / "pytest.ini").write_text("[pytest]\naddopts = --color=yes\n")
    (bench.root / "test_it.py").write_text(
        "import os\ndef test_a():\n    said = os.environ['PY_COLORS'] + os.environ['NO_COLOR']\n"
        "    assert said == ''\n"
    )
    result = run(bench, {"framework": "pytest"})
    assert "\x1b" not in result.data["stdout"] and "assert '01' == ''" in result.output


def test_without_an_environment_the_python_is_none_of_ours(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    (bench.root / "test_it.py").write_text(
        "import sys, unittest\nclass A(unittest.TestCase):\n"
        "    def test_a(self): print('in', sys.prefix)\n"
    )
    monkeypatch.setenv("PATH", f"{sys.prefix}/bin:{os.environ['PATH']}")
    result = bench.call("run_tests", {"framework": "unittest"})
    assert result.success and f"in {sys.prefix}\n" not in result.data["stdout"]
