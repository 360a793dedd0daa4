"""Commands that record: init, run, call, scope."""

import asyncio
import json
import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from loom_audit.cli import exits
from loom_audit.cli.approvals import prompt
from loom_audit.cli.lines import counted
from loom_audit.cli.options import Invocation, command, folder, workspace_path
from loom_audit.cli.progress import progress
from loom_audit.cli.records import call_record
from loom_audit.errors import AuditError, AuditUnavailable, ExecutionFailed, InvalidArguments
from loom_audit.model.display import size_text

if TYPE_CHECKING:
    from loom_audit.api import AuditedWorkspace, Session
    from loom_audit.history.recorder import OpenCall
    from loom_audit.ports import Completed, Confinement
    from loom_audit.tools.calls.result import ToolResult

COMMAND_LINE = "command-line"

AgentOption = Annotated[
    str, typer.Option("--agent", metavar="NAME", help="The agent that acts, by name; else you.")
]


def add(app: typer.Typer) -> None:
    """Put these commands on the application."""
    section = "Record"
    command(
        app,
        "init",
        section=section,
        examples=("loom-audit init", "loom-audit init ~/project --max-file-bytes 1073741824"),
        codes={exits.FAILED: "", exits.UNAVAILABLE: ""},
    )(init)
    command(
        app,
        "run",
        section=section,
        examples=("loom-audit run -- make test", "loom-audit run --agent codex -- codex"),
        codes={exits.OUR_FAILURE: "", 126: "cannot be run", 127: "command not found"}
        | {exits.OK: "the command's own exit code, 128+N when it died of signal N"},
        failure=exits.OUR_FAILURE,
        passes_on=True,
    )(run)
    command(
        app,
        "call",
        section=section,
        examples=(
            """loom-audit call write_file '{"path": "a.txt", "content": "hello"}'""",
            'echo \'{"command": "ls"}\' | loom-audit call shell_execute -',
        ),
        codes={
            exits.FAILED: "the tool failed or was denied",
            exits.UNAVAILABLE: "",
            exits.CONFLICT: "",
            exits.CORRUPT: "",
        },
    )(call)
    command(
        app,
        "scope",
        section=section,
        examples=("loom-audit scope", "loom-audit scope accept"),
        codes={exits.UNAVAILABLE: ""},
    )(scope)


def init(
    at: Invocation,
    path: Annotated[str, typer.Argument(metavar="PATH", help="The folder.")] = ".",
    max_file_bytes: Annotated[
        int | None,
        typer.Option(
            min=0, metavar="N", help="Larger files are recorded by hash only; 0 is 256 MiB."
        ),
    ] = None,
    ignore: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="Rules in gitignore syntax, by default the folder's .loomignore."
        ),
    ] = None,
) -> None:
    """Put a folder under audit.

    Records what is in it now; doing it again changes nothing, but for another --max-file-bytes,
    which holds from then on. An interrupted first recording goes on where it stopped.
    """
    from loom_audit.config import read_settings
    from loom_audit.disk.roots import check_root

    rules = None if ignore is None else Path(ignore).read_text("utf-8", "replace")
    # Before a store is made, which would else stand in the folder that is then refused.
    check_root(folder(path), store_dir=read_settings(at.shared.store).home, others=())
    with at.store(create=True) as store:
        with progress(at.output) as report:
            workspace = store.attach(
                folder(path), report=report, ignore=rules, max_file_bytes=max_file_bytes
            )
        head = workspace.log.head()
        tree = workspace.timeline.tree()
        files = sum(1 for state in tree.values() if state.kind != "directory")
        size = sum(state.size for state in tree.values())
        if at.output.json:
            at.output.record(
                {
                    "workspace": workspace.id,
                    "root": workspace.root,
                    "store": store.url,
                    "head": head,
                    "files": files,
                    "size": size,
                }
            )
            return
        at.output.line((f"{workspace.root} is under audit", "green"))
        at.output.line(
            f"{counted(files, 'file')}, {size_text(size)}; workspace {workspace.id}, log at {head}"
        )
        at.output.note("next: `loom-audit run -- COMMAND`, then `loom-audit log`")


def run(
    at: Invocation,
    words: Annotated[list[str], typer.Argument(metavar="COMMAND")],
    agent: AgentOption = COMMAND_LINE,
    title: Annotated[str, typer.Option(metavar="TEXT", help="What the session is about.")] = "",
    sandbox: Annotated[
        str, typer.Option(metavar="required|preferred|off", help="Whether it is confined.")
    ] = "off",
) -> int:
    """Run a command and record what it changed.

    The terminal is passed through. It is one call of the tool `run` in a session of its own.
    Signals are forwarded, and what the command leaves running is killed. With --json the call
    is printed on standard error, because standard output is the command's.
    """
    if words and words[0] == "--":
        words = words[1:]
    if not words:
        raise InvalidArguments("no command given", hint="Write `loom-audit run -- COMMAND`.")
    if sandbox not in ("required", "preferred", "off"):
        raise InvalidArguments(
            f"--sandbox {sandbox!r:.40} is none", hint="Use required, preferred or off."
        )
    with at.workspace() as workspace:
        inside = _inside(workspace)
        with workspace.session(agent, actor=_actor(agent), title=title) as session:
            return _run(at, session, words, inside, sandbox)  # type: ignore[arg-type]


def _actor(agent: str) -> str:
    """Who acts: the agent that was named, else the person at the command line."""
    from loom_audit.api import person

    return person() if agent == COMMAND_LINE else f"agent:{agent}"


def _inside(workspace: "AuditedWorkspace") -> str:
    """The workspace path of the current directory; the workspace itself when outside it."""
    here, root = os.path.realpath(Path.cwd()), os.path.realpath(workspace.root)
    return workspace_path(workspace.root, ".") if here.startswith(root) else ""


def _run(
    at: Invocation, session: "Session", words: list[str], inside: str, sandbox: "Confinement"
) -> int:
    from uuid import uuid4

    from loom_audit.ports import Command, Limits
    from loom_audit.tools.calls.values import as_json

    runner = session.recorder.attachment.runner
    if runner is None:
        raise AuditUnavailable("no commands can be run here")
    arguments = as_json({"command": shlex.join(words), "argv": words, "cwd": inside})
    opened = session.recorder.begin("run", arguments, "execute", call_id=uuid4().hex)
    order = Command(
        tuple(words),
        cwd=inside,
        timeout=None,
        stdio="inherit",
        confinement=sandbox,
        network=session.settings.network,
        readable=session.settings.readable,
        limits=Limits() if sandbox == "off" else session.settings.limits,
    )
    try:
        completed = opened.run(runner, order, final=True)
    except ExecutionFailed as error:
        opened.finish("error", _result(opened, error=error))
        if words[0].startswith("-"):
            error.hint = "It was taken for the command: `loom-audit run --help` lists the options."
        at.output.error(error)
        return int(error.details.get("exit_code", exits.OUR_FAILURE))
    except AuditError as error:
        opened.finish("error", _result(opened, error=error))
        raise
    except BaseException as error:
        opened.finish("cancelled", _result(opened, error=ExecutionFailed(repr(error))))
        raise
    if completed.unconfined:
        at.output.note(f"[loom-audit] not confined: {completed.unconfined}")
    status = "ok" if completed.exit_code == 0 else "error"
    event = opened.finish(status, _result(opened, completed))  # type: ignore[arg-type]
    if at.output.json:
        found = session.recorder.attachment.projections.call(session.id, opened.call_id)
        line = call_record(found, event.id) | {"exit_code": completed.exit_code}
        at.output.stderr.write(json.dumps(line) + "\n")
    elif opened.files_changed or opened.coverage.level != "full":
        paths = counted(len(opened.files_changed), "path")
        gap = "" if opened.coverage.level == "full" else f", coverage {opened.coverage.level}: "
        why = "; ".join(opened.coverage.reasons)
        at.output.note((f"[loom-audit] call {event.seq}: {paths} changed{gap}{why}", "dim"))
    return completed.exit_code


def _result(
    opened: "OpenCall", completed: "Completed | None" = None, *, error: AuditError | None = None
) -> dict[str, Any]:
    code = completed.exit_code if completed else None
    failed = code != 0
    if error is None and failed:
        error = ExecutionFailed(f"exit code {code}")
    return {
        "success": not failed,
        "output": "",
        "data": {"exit_code": code, "survivors": list(completed.survivors) if completed else []},
        "files_changed": list(opened.files_changed),
        "error": error.to_dict() if error else None,
    }


def call(
    at: Invocation,
    tool: Annotated[str, typer.Argument(metavar="TOOL")],
    arguments: Annotated[
        str, typer.Argument(metavar="JSON|-", help="The arguments, or - for standard input.")
    ] = "{}",
    agent: AgentOption = COMMAND_LINE,
) -> int:
    """Call one bundled tool and print its result.

    Arguments that are not JSON are refused by the tool, and on record as the text they are.
    """
    if arguments == "-":
        arguments = sys.stdin.buffer.read().decode("utf-8", "backslashreplace")
    try:
        values = json.loads(arguments)
    except (ValueError, RecursionError):
        values = arguments  # which the tool refuses, and says where
    with at.workspace() as workspace:
        gate = workspace.default_gate(ask=prompt(at))
        with workspace.session(agent, actor=_actor(agent), gate=gate) as session:
            result = asyncio.run(session.call(tool, values))
    if at.output.json:
        at.output.record(result.to_dict())
    else:
        _print_result(at, result)
    if result.success:
        return exits.OK
    return exits.FAILED if result.error is None else exits.exit_code(result.error.code)


def _print_result(at: Invocation, result: "ToolResult") -> None:
    """The output on standard output; an error, which the output begins with, on the other."""
    text = result.output.removesuffix("\n")
    error = result.error
    if error is not None:
        for said in (f"Error: {error.message}", error.hint):
            if said and text.startswith(said):
                text = text.removeprefix(said).removeprefix("\n")
    if text:
        at.output.text(text)
    if error is not None:
        at.output.note(("error: ", "red"), error.message)
        if error.hint:
            at.output.note(("hint: ", "yellow"), error.hint)


def scope(
    at: Invocation,
    action: Annotated[
        str, typer.Argument(metavar="accept", help="Accept .loomignore as it is now.")
    ] = "",
) -> None:
    """Show what is recorded, or accept .loomignore.

    Until a person accepts it, a changed .loomignore changes nothing.
    """
    if action not in ("", "accept"):
        raise InvalidArguments(
            f"unknown action {action}", hint="There is one: `loom-audit scope accept`."
        )
    with at.workspace() as workspace:
        if action:
            workspace.accept_scope()
        rules = workspace.attachment.scope
        if at.output.json:
            at.output.record(
                {
                    "workspace": workspace.id,
                    "accepted": bool(action),
                    "ignore": rules.ignore,
                    "max_file_bytes": rules.max_file_bytes,
                    "heavy": sorted(rules.heavy),
                }
            )
            return
        if action:
            at.output.line(("accepted", "green"), "; from now on this holds")
        at.output.line(("never: ", "bold"), ".git and the store")
        at.output.line(("heavy folders left out: ", "bold"), ", ".join(sorted(rules.heavy)))
        at.output.line(("by hash only: ", "bold"), f"over {size_text(rules.max_file_bytes)}")
        at.output.line(("ignored by the accepted .loomignore:", "bold"))
        at.output.text(rules.ignore.rstrip("\n") or "(nothing)", indent="  ")
