"""`loom-audit run`: a command recorded with what it changed."""

import json
import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from loom_audit.cli.shared import exits
from loom_audit.cli.shared.command import command
from loom_audit.cli.shared.invocation import Invocation
from loom_audit.cli.shared.lines import counted
from loom_audit.cli.shared.options import COMMAND_LINE, AgentOption, actor_named, workspace_path
from loom_audit.cli.shared.records import call_record
from loom_audit.errors import AuditError, AuditUnavailable, ExecutionFailed, InvalidArguments

if TYPE_CHECKING:
    from loom_audit.api import AuditedWorkspace, Session
    from loom_audit.history.recorder import OpenCall
    from loom_audit.ports import CommandResult, Confinement


@command(
    examples=("loom-audit run -- make test", "loom-audit run --agent codex -- codex"),
    codes={exits.OUR_FAILURE: "", 126: "cannot be run", 127: "command not found"}
    | {exits.OK: "the command's own exit code, 128+N when it died of signal N"},
    failure=exits.OUR_FAILURE,
    passes_on=True,
)
def run(
    invocation: Invocation,
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
    with invocation.workspace() as workspace:
        inside = _inside(workspace)
        with workspace.session(agent, actor=actor_named(agent), title=title) as session:
            return _run(invocation, session, words, inside, sandbox)  # type: ignore[arg-type]


def _inside(workspace: "AuditedWorkspace") -> str:
    """The workspace path of the current directory; the workspace itself when outside it."""
    here, root = os.path.realpath(Path.cwd()), os.path.realpath(workspace.root)
    return workspace_path(workspace.root, ".") if here.startswith(root) else ""


def _run(
    invocation: Invocation,
    session: "Session",
    words: list[str],
    inside: str,
    sandbox: "Confinement",
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
        invocation.output.error(error)
        return int(error.details.get("exit_code", exits.OUR_FAILURE))
    except AuditError as error:
        opened.finish("error", _result(opened, error=error))
        raise
    except BaseException as error:
        opened.finish("cancelled", _result(opened, error=ExecutionFailed(repr(error))))
        raise
    if completed.unconfined:
        invocation.output.note(f"[loom-audit] not confined: {completed.unconfined}")
    status = "ok" if completed.exit_code == 0 else "error"
    event = opened.finish(status, _result(opened, completed))  # type: ignore[arg-type]
    if invocation.output.json:
        found = session.recorder.attachment.projections.call(session.id, opened.call_id)
        line = call_record(found, event.id) | {"exit_code": completed.exit_code}
        invocation.output.stderr.write(json.dumps(line) + "\n")
    elif opened.files_changed or opened.coverage.level != "full":
        paths = counted(len(opened.files_changed), "path")
        gap = "" if opened.coverage.level == "full" else f", coverage {opened.coverage.level}: "
        why = "; ".join(opened.coverage.reasons)
        invocation.output.note((f"[loom-audit] call {event.seq}: {paths} changed{gap}{why}", "dim"))
    return completed.exit_code


def _result(
    opened: "OpenCall", completed: "CommandResult | None" = None, *, error: AuditError | None = None
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
