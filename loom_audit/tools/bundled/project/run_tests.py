"""run_tests: the project's tests by pytest, unittest or npm, with what failed and where."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal
from uuid import uuid4

from pydantic import Field

from loom_audit.errors import AuditError, ExecutionFailed, InvalidArguments, NotFound
from loom_audit.model.text.cutting import cut
from loom_audit.ports import CommandResult
from loom_audit.tools.bundled.environment import find_programs, python_of, system_program
from loom_audit.tools.bundled.printed import printed_text
from loom_audit.tools.bundled.process import (
    MAX_SECONDS,
    MORE_TIME,
    SCAN_SECONDS,
    TIMEOUT_NAMES,
    changes_text,
    files_changed,
    killed_error,
    process_data,
    result_of,
)
from loom_audit.tools.bundled.text import decode
from loom_audit.tools.calls.context import ToolContext
from loom_audit.tools.calls.models import Arguments, NonEmpty, Output
from loom_audit.tools.calls.result import ToolResult
from loom_audit.tools.calls.tool import Preview, Tool

MAX_STREAM = 1024 * 1024
SHOWN_STREAM = 64 * 1024
COUNTS = ("passed", "failed", "errors", "skipped", "xfailed", "xpassed")
SHOWN_WHOLE = 6_000
"""Characters of a framework's own report that a model is shown; of a longer one, a list of ours."""
LAST = 2_000
"""Characters of what a run that ran nothing printed last."""
ENDINGS = {
    2: "The tests were interrupted",
    3: "pytest failed inside, or a plugin of it did",
    4: "pytest could not begin: an option, a path or a conftest.py is wrong",
}
"""What pytest's exit codes say beyond tests that failed: `pytest.ExitCode`."""
_NO_TESTS = {
    "pytest": "Check paths and pattern.",
    "unittest": "Check paths and pattern. Tests for pytest are found where it is installed: "
    "install_package installs it.",
}
PYTHON_SIGNS = ("pytest.ini", "pyproject.toml", "setup.cfg", "setup.py", "tox.ini", "conftest.py")
_PROGRAM = Path(__file__).with_name("tests_program.py")
_TEST_FILE = re.compile(r"test.*\.py|.*_test\.py")


class TestsInput(Arguments):
    framework: Annotated[
        Literal["auto", "pytest", "unittest", "npm"], Field(description="What runs the tests")
    ] = "auto"
    paths: Annotated[
        list[NonEmpty] | None,
        Field(description="Files or directories; for pytest also FILE::NAME", max_length=200),
    ] = None
    pattern: Annotated[
        NonEmpty | None, Field(description="Only tests whose name holds it (pytest's -k)")
    ] = None
    timeout: Annotated[
        int | None,
        Field(
            ge=1,
            le=MAX_SECONDS,
            description=f"Seconds until it is killed: 120, at most {MAX_SECONDS}",
        ),
    ] = None


class Failure(Output):
    """`file` is a workspace path where it is known, `source` the line of it that failed."""

    name: str
    file: str | None
    line: int | None
    source: str | None = None
    message: str


class TestsOutput(Output):
    """Counts are None where the framework's output does not tell them.

    `xfailed` were expected to fail and did, `xpassed` did not.
    """

    framework: str
    passed: int | None
    failed: int | None
    errors: int | None
    skipped: int | None
    xfailed: int | None
    xpassed: int | None
    failures: list[Failure]
    left_out: int
    exit_code: int | None
    stdout: str
    stderr: str
    timed_out: bool
    truncated: bool
    duration: int
    sandbox: str


class RunTests(Tool):
    """Runs the tests of the project."""

    name = "run_tests"
    description = (
        "Run the project's tests with pytest, unittest or `npm test`; gives counts and each "
        "failure with file, line and message. Uses the workspace's .venv when there is one."
    )
    input = TestsInput
    output = TestsOutput
    effect = "execute"
    timeout_seconds = 120
    confinement = "preferred"
    other_names = TIMEOUT_NAMES

    def limit(self, args: TestsInput) -> float:
        return (args.timeout or self.timeout_seconds) + SCAN_SECONDS

    def preview(self, args: TestsInput, ctx: ToolContext) -> Preview:
        return Preview(f"run the tests ({args.framework}) {' '.join(args.paths or ())}\n")

    async def execute(self, args: TestsInput, ctx: ToolContext) -> ToolResult:
        for path in args.paths or ():
            if path.startswith("-") or "\0" in path:
                raise InvalidArguments(f"{path!r:.100} is not a path", hint="Write ./ in front.")
            file = path.partition("::")[0]
            await ctx.stat(file)
        framework = await self._framework(args, ctx)
        seconds = args.timeout or self.timeout_seconds
        # the tests print too, and cannot know this mark beforehand
        mark = f"report-{uuid4().hex}"
        programs = await find_programs(ctx)
        done = await ctx.run(
            *(await _argv(framework, args, ctx, mark)),
            timeout=seconds,
            limit=MAX_STREAM,
            final=True,
            environment={
                **programs.variables,
                "PYTHONDONTWRITEBYTECODE": "1",
                "npm_config_update_notifier": "false",
                "PY_COLORS": "0",
                "NO_COLOR": "1",
            },
        )
        if framework == "npm":
            tally, stdout = _npm_tally(decode(done.stdout)), decode(done.stdout)
        else:
            tally, stdout = _tally(decode(done.stdout), mark)
        changed = changes_text(files_changed(ctx))
        return _result(framework, tally, stdout, done, seconds, changed)

    async def _framework(self, args: TestsInput, ctx: ToolContext) -> str:
        """`auto` is left to our program for Python, which knows whether pytest is there."""
        if args.framework != "auto":
            return args.framework
        if args.paths and all(p.partition("::")[0].endswith(".py") for p in args.paths):
            return "auto"
        found = await ctx.in_thread(lambda: [name for name in PYTHON_SIGNS if ctx.exists(name)])
        if found or not await ctx.in_thread(lambda: ctx.exists("package.json")):
            entries = await ctx.walk(
                enter=lambda e, depth: depth < 6 and e.name not in ("node_modules", ".git", ".venv")
            )
            if not any(e.type == "file" and _TEST_FILE.fullmatch(e.name) for e in entries):
                raise NotFound(
                    "no tests were found", hint="Name the framework, or the paths of the tests."
                )
            return "auto"
        return "npm"


def _result(
    framework: str,
    tally: dict[str, Any],
    stdout: str,
    done: CommandResult,
    seconds: float,
    changed: Sequence[str],
) -> ToolResult:
    data = {
        "framework": framework,
        **dict.fromkeys(COUNTS),
        "failures": [],
        "left_out": 0,
        **tally,
        **process_data(done, TestsOutput.model_fields),
    }
    data |= {"stdout": cut(stdout, SHOWN_STREAM), "stderr": cut(data["stderr"], SHOWN_STREAM)}
    output = "\n".join([*_lines(data, tally, done), *changed])
    bad = (data["failed"] or 0) + (data["errors"] or 0)
    error: AuditError | None = None
    if done.timed_out:
        error = killed_error("The tests were", seconds, MORE_TIME)
    elif bad:
        error = ExecutionFailed(f"{bad} of {_total(data)} tests did not pass")
    # what pytest exits with when there are no tests, and so our program for unittest
    elif done.exit_code == 5 and framework != "npm" and tally:
        error = NotFound("no tests were found", hint=_NO_TESTS[tally["framework"]])
    elif done.exit_code:
        said = ENDINGS.get(done.exit_code, "") if tally else ""
        error = ExecutionFailed(said or f"The tests ended with exit code {done.exit_code}")
    elif not tally and framework != "npm":
        error = ExecutionFailed("The tests ended without a report: one of them left the process")
    return result_of(error, output, data)


async def _argv(framework: str, args: TestsInput, ctx: ToolContext, mark: str) -> list[str]:
    paths = args.paths or []
    if framework == "npm":
        if args.pattern:
            raise InvalidArguments("npm test takes no pattern", hint="Name paths instead.")
        if not await ctx.in_thread(lambda: ctx.exists("package.json")):
            raise NotFound(
                "there is no package.json in the workspace", hint="Name another framework."
            )
        unset = [system_program("env"), "-u", "FORCE_COLOR"]  # node warns where both are set
        return [*unset, "npm", "test", *(["--", *paths] if paths else [])]
    request = {
        "framework": framework,
        "paths": paths,
        "pattern": args.pattern or "",
        "mark": mark,
    }
    python = await ctx.in_thread(lambda: python_of(ctx))
    return [*python, "-c", _PROGRAM.read_text("utf-8"), json.dumps(request)]


def _tally(stdout: str, mark: str) -> tuple[dict[str, Any], str]:
    """The tally that our program printed, and what was printed beside it."""
    before, found, after = stdout.rpartition(f"\n{mark} ")
    line, _, rest = after.partition("\n")
    try:
        tally = TestsTally.model_validate_json(line) if found else None
    except ValueError:
        tally = None
    return (tally.model_dump(), before + rest) if tally else ({}, stdout)


class TestsTally(Output):
    """What our program says at its end. Tests can write it too, so it is checked."""

    framework: Literal["pytest", "unittest"]
    passed: int
    failed: int
    errors: int
    skipped: int
    xfailed: int
    xpassed: int
    failures: Annotated[list[Failure], Field(max_length=1_000)]
    left_out: int


_SUMMARY = re.compile(r"^(?:#|ℹ) (pass|fail|cancelled|skipped|todo) (\d+)\s*$", re.MULTILINE)
_JEST = re.compile(r"^Tests:\s+(.*)\btotal", re.MULTILINE)
_MOCHA = re.compile(r"^\s+(\d+) (passing|failing|pending)\b", re.MULTILINE)
_NOT_OK = re.compile(r"^ *not ok \d+ - (.*)\n((?: +.*\n)*)", re.MULTILINE)


def _npm_tally(stdout: str) -> dict[str, Any]:
    """What node's own runner (TAP or spec), jest or mocha say; nothing when none is known."""
    counted = {word: int(number) for word, number in _SUMMARY.findall(stdout)}
    if "pass" not in counted:
        jest = _JEST.search(stdout)
        said = re.findall(r"(\d+) (passed|failed|skipped|todo)", jest[1]) if jest else []
        names = {"passing": "pass", "failing": "fail", "pending": "skipped"}
        names |= {"passed": "pass", "failed": "fail", "skipped": "skipped", "todo": "todo"}
        counted = {names[word]: int(n) for n, word in said}
        counted = counted or {names[word]: int(n) for n, word in _MOCHA.findall(stdout)}
    if not counted:
        return {}
    return {
        "passed": counted.get("pass", 0),
        "failed": counted.get("fail", 0),
        "errors": counted.get("cancelled", 0),
        "skipped": counted.get("skipped", 0) + counted.get("todo", 0),
        "failures": [*_tap_failures(stdout)][:200],
    }


def _tap_failures(stdout: str) -> Iterator[dict[str, Any]]:
    """Failing tests of node's TAP with the place and the message of its YAML block."""
    for name, block in _NOT_OK.findall(stdout):
        if "failureType: 'subtestsFailed'" in block or re.search(r"# (T[O]DO|SKIP)\b", name):
            continue
        place = re.search(r"location: '(.*?):(\d+):\d+'", block)
        message = re.search(r"error: (?:'(.*)'|\|-\n((?: +.*\n)*?) +code:)", block)
        text = (message[1] or message[2] or "") if message else ""
        yield {
            "name": name.strip(),
            "file": place[1] if place else None,
            "line": int(place[2]) if place else None,
            "source": None,
            "message": re.sub(r"\n +", "\n", text).strip()[:1000],
        }


def _total(data: dict[str, Any]) -> int:
    return sum(data[key] or 0 for key in COUNTS)


def _lines(data: dict[str, Any], tally: dict[str, Any], done: CommandResult) -> Iterator[str]:
    """What a model is told: counts, then each failure once, or why nothing ran."""
    if tally:
        counts = ", ".join(f"{data[key]} {key}" for key in COUNTS if data[key])
        yield f"{data['framework']}: {counts or 'no tests'}"
    stdout = printed_text(data["stdout"]).strip()
    stderr = printed_text(data["stderr"]).strip()
    if tally and not data["failures"]:
        yield from (text[-LAST:] for text in (stdout, stderr) if text and done.exit_code)
    elif tally and len(stdout) > SHOWN_WHOLE:
        for failure in data["failures"][:50]:
            yield from _failure_lines(failure)
        yield "[the whole report is longer: run one of these by paths or pattern to see its own]"
    else:
        yield from (text for text in (stdout, stderr) if text)
    if done.unconfined:
        yield f"[not confined: {done.unconfined}]"


def _failure_lines(failure: Mapping[str, Any]) -> Iterator[str]:
    place = f" ({failure['file']}:{failure['line']})" if failure["file"] else ""
    first = (failure["message"].strip().splitlines() or [""])[0]
    yield f"- {failure['name']}{place}: {first}"
    if failure["source"]:
        yield f"    {failure['source']}"
