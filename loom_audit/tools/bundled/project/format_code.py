"""format_code: ruff, black or prettier over files, by their type and by what is installed."""

import shutil
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import Field

from loom_audit.errors import ExecutionFailed, InvalidArguments, NotFound
from loom_audit.model.scope import HEAVY
from loom_audit.model.text.display import count_text
from loom_audit.ports import CommandResult
from loom_audit.tools.bundled.process import (
    SCAN_SECONDS,
    changes_text,
    files_changed,
    killed_error,
    output_text,
    result_of,
)
from loom_audit.tools.bundled.text import decode
from loom_audit.tools.calls.context import ToolContext
from loom_audit.tools.calls.models import Arguments, NonEmpty, Output
from loom_audit.tools.calls.result import ToolResult
from loom_audit.tools.calls.tool import Preview, Tool

SECONDS = 60.0
MAX_FILES = 5_000
AT_ONCE = 500
MAX_STREAM = 64 * 1024
PYTHON = (".py", ".pyi")
WEB = (
    ".js",
    ".jsx",
    ".mjs",
    ".cjs",
    ".ts",
    ".tsx",
    ".mts",
    ".cts",
    ".json",
    ".css",
    ".scss",
    ".less",
    ".html",
    ".vue",
    ".md",
    ".yaml",
    ".yml",
    ".graphql",
)
TYPES = {"ruff": PYTHON, "black": PYTHON, "prettier": WEB}
OPTIONS = {
    "ruff": ("format", "--no-cache", "--force-exclude"),
    "black": ("--quiet",),
    "prettier": ("--no-color", "--log-level=warn"),
}
WRITE: dict[str, list[str]] = {"ruff": [], "black": [], "prettier": ["--write"]}


class FormatInput(Arguments):
    paths: Annotated[
        list[NonEmpty] | None,
        Field(description="Files or directories; the whole workspace", max_length=200),
    ] = None
    check: Annotated[bool, Field(description="Only say whether something would change")] = False
    formatter: Annotated[
        Literal["auto", "ruff", "black", "prettier"], Field(description="By file type when auto")
    ] = "auto"


class FormatOutput(Output):
    """`formatters` ran over `files` files; `formatted` is False when a check found work to do."""

    formatters: list[str]
    files: int
    formatted: bool
    changed: list[str]
    stdout: str
    stderr: str


class FormatCode(Tool):
    """Formats files by the program that fits their type."""

    name = "format_code"
    description = (
        "Format files with ruff, black or prettier as the project configures them; with check "
        "only say whether they are formatted."
    )
    input = FormatInput
    output = FormatOutput
    effect = "execute"
    timeout_seconds = 2 * SECONDS + SCAN_SECONDS
    confinement = "preferred"

    def preview(self, args: FormatInput, ctx: ToolContext) -> Preview:
        return Preview(f"format {', '.join(args.paths or ['the workspace'])}\n")

    async def execute(self, args: FormatInput, ctx: ToolContext) -> ToolResult:
        files = await _find_files(args.paths, ctx)
        plan = await _plan(args.formatter, files, ctx)
        if not plan:
            raise NotFound(
                "there are no files to format", hint="Python, or what prettier knows, is meant."
            )
        done: list[CommandResult] = []
        for name, program, chosen in plan:
            done += await _run(name, program, chosen, args.check, ctx)
        fine = (0, 1) if args.check else (0,)  # 1: a check found something to format
        failed = [one for one in done if one.exit_code not in fine]
        changed = files_changed(ctx)
        data: dict[str, Any] = {
            "formatters": [name for name, _, _ in plan],
            "files": sum(len(chosen) for _, _, chosen in plan),
            "formatted": not any(one.exit_code for one in done),
            "changed": changed,
            "stdout": "".join(decode(one.stdout) for one in done)[:MAX_STREAM],
            "stderr": "".join(decode(one.stderr) for one in done)[:MAX_STREAM],
        }
        said = "\n".join([*map(output_text, done), *changes_text(changed)])
        if any(one.timed_out for one in done):
            return result_of(killed_error("The formatter was", SECONDS), said, data)
        if failed:
            error = ExecutionFailed("The formatter could not format everything")
            return result_of(error, said, data)
        head = ", ".join(data["formatters"]) + f": {count_text(data['files'], 'file')}"
        if args.check:
            head += ", all formatted" if data["formatted"] else ", not all formatted"
        else:
            head += f", {len(changed)} changed"
        return ToolResult(True, f"{head}\n{said}", data)


async def _find_files(paths: list[str] | None, ctx: ToolContext) -> list[str]:
    """Files of known types; those that are named themselves are taken of any type."""
    known = (*PYTHON, *WEB)
    skipped = HEAVY | {".git"}
    found: dict[str, None] = {}
    for path in paths or ["."]:
        entry = await ctx.stat(path)
        if entry.type != "directory":
            found[entry.path] = None
            continue
        listed = await ctx.walk(
            entry.path, enter=lambda e, _: e.name not in skipped, limit=20 * MAX_FILES
        )
        found |= {e.path: None for e in listed if e.type == "file" and e.name.endswith(known)}
    if len(found) > MAX_FILES:
        raise InvalidArguments(
            f"these are {len(found)} files, more than {MAX_FILES}", hint="Name fewer paths."
        )
    return sorted(found)


async def _plan(
    formatter: str, files: Sequence[str], ctx: ToolContext
) -> list[tuple[str, str, list[str]]]:
    """Which formatter runs, as which program, over which files. NotFound for one not here."""
    groups = [("ruff", "black"), ("prettier",)] if formatter == "auto" else [(formatter,)]
    plan: list[tuple[str, str, list[str]]] = []
    missing: list[str] = []
    for names in groups:
        chosen = [file for file in files if file.endswith(TYPES[names[0]])]
        if not chosen:
            continue
        for name in names:
            if program := await _find_program(name, ctx):
                plan.append((name, program, chosen))
                break
        else:
            missing.append(" or ".join(names))
    if missing and not plan:
        raise NotFound(
            f"{' and '.join(missing)} is not installed here",
            hint="Install it into the workspace with install_package, or on this machine.",
        )
    return plan


async def _find_program(name: str, ctx: ToolContext) -> str | None:
    """The workspace's own, else what PATH names."""
    own = f"node_modules/.bin/{name}" if name == "prettier" else f".venv/bin/{name}"
    if await ctx.in_thread(lambda: ctx.exists(own)):
        return f"{ctx.workspace}/{own}"
    return shutil.which(name)


async def _run(
    name: str, program: str, files: Sequence[str], check: bool, ctx: ToolContext
) -> list[CommandResult]:
    """Run it over the files, some hundred at a time, until one takes too long."""
    done: list[CommandResult] = []
    for n in range(0, len(files), AT_ONCE):
        chosen = [f"./{file}" for file in files[n : n + AT_ONCE]]
        words = (program, *OPTIONS[name], *(["--check"] if check else WRITE[name]), "--", *chosen)
        done.append(await ctx.run(*words, timeout=SECONDS, limit=MAX_STREAM))
        if done[-1].timed_out:
            break
    return done
