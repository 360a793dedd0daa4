"""The test frame itself: a skip that CI must not have, and the sample of slow tests."""

from pathlib import Path

import pytest

CONFTEST = (
    (Path(__file__).parent / "conftest.py").read_text().replace('pytest_plugins = ["pytester"]', "")
)
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
    pytester.makeini("[pytest]\nmarkers = deep\naddopts = -p no:playwright -m 'not deep'")
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


def test_a_sample_takes_the_same_deep_tests_for_the_same_seed(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(DEEP)

    def ran(seed: str) -> list[str]:
        result = run(pytester, "-m", "deep", "-s", "--sample", "4", "--sample-seed", seed)
        result.assert_outcomes(passed=4, deselected=27)
        return [line for line in result.outlines if "ran " in line]

    assert ran("abc") == ran("abc") != ran("abd")


def test_a_sample_is_taken_from_the_tests_that_are_asked_for(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(DEEP)
    result = run(pytester, "-m", "deep", "-k", "1 or 2", "--sample", "4")
    result.assert_outcomes(passed=4, deselected=27)
    run(pytester, "-k", "quick", "--sample", "4").assert_outcomes(passed=1, deselected=30)


def test_without_a_sample_every_deep_test_runs(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(DEEP)
    run(pytester, "-m", "deep").assert_outcomes(passed=30, deselected=1)
    run(pytester).assert_outcomes(passed=1, deselected=30)
