"""What `run_tests` runs with the project's own Python: standard library and pytest only.

Reads nothing of ours. Takes a request as JSON in its argument, runs the tests in the working
directory and prints, after everything they print, one line: the request's mark and a tally.
"""

from __future__ import annotations

import json
import linecache
import os
import sys
import unittest
from types import TracebackType
from typing import Any

MAX_FAILURES = 200
MAX_TEXT = 1000
OUTCOMES = ("passed", "failed", "errors", "skipped", "xfailed", "xpassed")


class Tally:
    """Counts how many tests ended how, and keeps what is known of the ones that did not pass."""

    def __init__(self, framework: str) -> None:
        self.framework = framework
        self.counts = dict.fromkeys(OUTCOMES, 0)
        self.failures: list[dict[str, Any]] = []
        self.left_out = 0

    def add(
        self,
        outcome: str,
        name: str = "",
        file: str | None = None,
        line: int | None = None,
        message: str = "",
    ) -> None:
        """Count one test; of one that did not pass keep name, place and message, up to 200."""
        self.counts[outcome] += 1
        if outcome in ("failed", "errors"):
            if len(self.failures) == MAX_FAILURES:
                self.left_out += 1
                return
            source = None
            if file is not None:
                source = linecache.getline(file, line).strip()[:MAX_TEXT] if line else None
                file = os.path.relpath(file) if os.path.isabs(file) else file
            text = message if len(message) <= MAX_TEXT else message[:MAX_TEXT] + "…"
            self.failures.append(
                {
                    "name": name[:MAX_TEXT],
                    "file": file,
                    "line": line,
                    "source": source or None,
                    "message": text,
                }
            )

    def say(self, mark: str) -> None:
        """Print the tally as one line of JSON behind the mark of the request."""
        body = {"framework": self.framework, "failures": self.failures, "left_out": self.left_out}
        sys.stdout.flush()
        sys.stderr.flush()
        os.write(1, f"\n{mark} {json.dumps({**body, **self.counts})}\n".encode())


class PytestPlugin:
    """Adds each phase of each test to a tally: `pytest_runtest_logreport` in pytest's reference."""

    def __init__(self, tally: Tally) -> None:
        self.tally = tally

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed:
            self._failed("failed" if report.when == "call" else "errors", report)
        elif report.skipped:
            self.tally.add("xfailed" if hasattr(report, "wasxfail") else "skipped")
        elif report.when == "call":
            self.tally.add("xpassed" if hasattr(report, "wasxfail") else "passed")

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed:
            self._failed("errors", report)
        elif report.skipped:
            self.tally.add("skipped")

    def _failed(self, outcome: str, report: Any) -> None:
        crash = getattr(report.longrepr, "reprcrash", None)
        location = getattr(report, "location", None) or (report.nodeid.split("::")[0], None, "")
        file, line = location[0], None if location[1] is None else location[1] + 1
        message = str(report.longrepr)[-MAX_TEXT:]
        if crash is not None:
            message = crash.message
            for step in self._steps(report):
                # the innermost line of the test itself: what it called may have failed
                if os.path.basename(str(step.path)) == os.path.basename(str(file)):
                    line = step.lineno
        self.tally.add(outcome, report.nodeid, file, line, message)

    def _steps(self, report: Any) -> list[Any]:
        """The places of a traceback, as pytest holds them, the innermost last."""
        entries = getattr(getattr(report.longrepr, "reprtraceback", None), "reprentries", [])
        places = [getattr(entry, "reprfileloc", None) for entry in entries]
        return [*(place for place in places if place is not None), report.longrepr.reprcrash]


class UnittestResult(unittest.TextTestResult):
    """The result class of unittest that also fills a tally."""

    tally: Tally

    def addSuccess(self, test: unittest.TestCase) -> None:
        super().addSuccess(test)
        self.tally.add("passed")

    def addFailure(self, test: unittest.TestCase, err: Any) -> None:
        super().addFailure(test, err)
        self._add("failed", test, err)

    def addError(self, test: unittest.TestCase, err: Any) -> None:
        super().addError(test, err)
        self._add("errors", test, err)

    def addSubTest(self, test: unittest.TestCase, subtest: unittest.TestCase, err: Any) -> None:
        super().addSubTest(test, subtest, err)
        if err is not None:
            failed = issubclass(err[0], test.failureException)
            self._add("failed" if failed else "errors", subtest, err)

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:
        super().addSkip(test, reason)
        self.tally.add("skipped")

    def addExpectedFailure(self, test: unittest.TestCase, err: Any) -> None:
        super().addExpectedFailure(test, err)
        self.tally.add("xfailed")

    def addUnexpectedSuccess(self, test: unittest.TestCase) -> None:
        super().addUnexpectedSuccess(test)
        self.tally.add("failed", test.id(), None, None, "unexpected success")

    def _add(self, outcome: str, test: unittest.TestCase, err: Any) -> None:
        file: str | None = None
        line: int | None = None
        step: TracebackType | None = err[2]
        while step is not None:
            name = step.tb_frame.f_code.co_filename
            if f"{os.sep}unittest{os.sep}" not in name and os.path.isabs(name):
                file, line = name, step.tb_lineno
                if os.path.basename(name).startswith("test"):
                    break
            step = step.tb_next
        self.tally.add(outcome, test.id(), file, line, f"{err[0].__name__}: {err[1]}")


def run_pytest(request: dict[str, Any]) -> int:
    """Run the tests by pytest; return its exit code."""
    import pytest

    tally = Tally("pytest")
    # each failure once: not again in a summary
    options = ["-p", "no:cacheprovider", "--color=no", "--tb=short", "-q", "-rN"]
    if request["pattern"]:
        options += ["-k", request["pattern"]]
    code = pytest.main([*options, *request["paths"]], plugins=[PytestPlugin(tally)])
    tally.say(request["mark"])
    return int(code)


def run_unittest(request: dict[str, Any]) -> int:
    """Run the tests by unittest; return 0, 1 for failures, or as pytest does 5 for no tests."""
    tally = Tally("unittest")
    UnittestResult.tally = tally
    kept: Any = UnittestResult
    suite = unittest.TestSuite()
    for path in request["paths"] or ["."]:
        folder, name = (path, "test*.py") if os.path.isdir(path) else os.path.split(path)
        top = folder = os.path.abspath(folder)
        while os.path.exists(os.path.join(top, "__init__.py")):
            top = os.path.dirname(top)
        loader = unittest.TestLoader()  # a new one, as it remembers the top of the last
        if request["pattern"]:
            loader.testNamePatterns = [f"*{request['pattern']}*"]
        suite.addTests(loader.discover(folder, name, top))
    runner = unittest.TextTestRunner(resultclass=kept, stream=sys.stdout)
    done = runner.run(suite)
    tally.say(request["mark"])
    return 5 if not sum(tally.counts.values()) else int(not done.wasSuccessful())


def main() -> None:
    """Run the tests that the request in the first argument names, and exit with their exit code."""
    request = json.loads(sys.argv[1])
    sys.argv = ["tests"]
    os.environ.pop("FORCE_COLOR", None)  # pytest colours for any value of it
    framework = request["framework"]
    if framework == "auto":
        try:
            import pytest  # noqa: F401

            framework = "pytest"
        except ModuleNotFoundError as error:
            if error.name != "pytest":
                raise  # it is there, and broken
            framework = "unittest"
    sys.exit(run_pytest(request) if framework == "pytest" else run_unittest(request))


if __name__ == "__main__":
    main()
