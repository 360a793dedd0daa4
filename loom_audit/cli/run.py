"""`loom-audit run`: a command recorded with what it changed."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

from loom_audit.cli.shared import exits
from loom_audit.cli.shared.command import command
from loom_audit.cli.shared.invocation import Invocation
from loom_audit.cli.shared.lookup import record_of
from loom_audit.cli.shared.options import COMMAND_LINE, AgentOption, actor_of, workspace_path
from loom_audit.cli.shared.output import Output
from loom_audit.cli.shared.parameters import argument, option
from loom_audit.errors import ExecutionFailed, InvalidArguments
from loom_audit.model.text.display import count_text

if TYPE_CHECKING:
    from loom_audit.api.agents.hooked import Hooked
    from loom_audit.api.face import AuditedWorkspace, Session
    from loom_audit.ports import Confinement


@command(
    examples=(
        "loom-audit run -- make test",
        "loom-audit run --agent codex -- codex",
        "loom-audit run --keep -- sh -c 'npm run dev &'",
    ),
    codes={exits.OUR_FAILURE: "", 126: "cannot be run", 127: "command not found"}
    | {exits.OK: "the command's own exit code, 128+N when it died of signal N"},
    failure=exits.OUR_FAILURE,
    passes_on=True,
)
def run(
    invocation: Invocation,
    words: Annotated[list[str], argument("COMMAND")],
    agent: AgentOption = COMMAND_LINE,
    title: Annotated[str, option(metavar="TEXT", help="What the session is about.")] = "",
    sandbox: Annotated[
        str, option(metavar="required|preferred|off", help="Whether it is confined.")
    ] = "off",
    keep: Annotated[
        bool, option("--keep", help="Leave alive what the command leaves running.")
    ] = False,
    verbose: Annotated[
        bool, option("--verbose", help="Say whether all of the workspace was looked at, and why.")
    ] = False,
) -> int:
    """Run a command and record what it changed.

    The terminal is passed through. It is one call of the tool `run` in a session of its own.
    Signals are forwarded, and what the command leaves running is killed, or with --keep named and
    left alive. With --json the call
    is printed on standard error, because standard output is the command's.

    Claude Code, Codex and opencode are run with our hooks, for this run: each of their calls is on
    record, in a session of its own.
    """
    if words and words[0] == "--":
        words = words[1:]
    if not words:
        raise InvalidArguments("no command given", hint="Write `loom-audit run -- COMMAND`.")
    if sandbox not in ("required", "preferred", "off"):
        raise InvalidArguments(
            f"--sandbox {sandbox!r:.40} is not known", hint="Use required, preferred or off."
        )
    with invocation.workspace() as workspace:
        inside, actor = _inside(workspace), actor_of(agent, workspace.actor)
        confinement = cast("Confinement", sandbox)
        hooked = _hooked(invocation, workspace, words) if sandbox == "off" else None
        variables, words = (hooked.variables, [*hooked.words]) if hooked else ({}, words)
        with (
            workspace.session(agent, actor=actor, title=title, environment=variables) as session,
            _answering(invocation, session, hooked),
        ):
            code = _run(invocation.output, session, words, inside, confinement, keep=keep)
            if verbose:
                _say_what_was_looked_at(invocation.output, session)
            return code


def _hooked(
    invocation: Invocation, workspace: "AuditedWorkspace", words: list[str]
) -> "Hooked | None":
    """The command with our hooks, when it is a client that we know."""
    from loom_audit.clients.programs import client_run_by

    client = client_run_by(words[0])
    if not client:
        return None
    from loom_audit.api.agents.hooked import hooked

    return hooked(client, words, workspace.root, invocation.settings)


@contextmanager
def _answering(
    invocation: Invocation, session: "Session", hooked: "Hooked | None"
) -> Iterator[None]:
    """Answer the client's hooks meanwhile; say so where none came, since it is one call then."""
    if hooked is None or not hooked.variables:
        if hooked is not None:
            invocation.output.note(f"[loom-audit] this run is one call: {hooked.untold}")
        yield
        return
    from loom_audit.api.agents.conversations import Container
    from loom_audit.api.agents.heard import telling_when_silent
    from loom_audit.api.agents.hooked import SOCKET
    from loom_audit.daemon import HookServer

    path, output = Path(hooked.variables[SOCKET]), invocation.output
    container = Container(session.workspace.id, session.id)
    told: list[str] = []
    said: list[str] = []
    unheard = f"[loom-audit] no hook of {hooked.client} came: this run is one call"

    def say() -> None:
        if not said:
            output.note(unheard)
        said.append(unheard)

    with (
        invocation.store() as store,
        HookServer(store, path.parent, path.name, told.append, container) as server,
    ):
        # nothing is written where the client draws: there it is said at the end
        drawn = os.isatty(1) or os.isatty(2)
        root, heard = session.workspace.root, lambda: server.has_heard
        with nullcontext() if drawn else telling_when_silent(hooked.client, root, heard, say):
            yield
    for text in told[:5]:
        output.note(f"[loom-audit] hooks: {text}")
    if not server.has_heard:
        say()


def _say_what_was_looked_at(output: Output, session: "Session") -> None:
    why = session.looked_at_everything
    seen = f"everything: {why}" if why else "what the kernel told of"
    output.note((f"[loom-audit] looked at {seen}", "dim"))


def _inside(workspace: "AuditedWorkspace") -> str:
    """The workspace path of the current directory; the workspace itself when outside it."""
    here, root = os.path.realpath(Path.cwd()), os.path.realpath(workspace.root)
    return workspace_path(workspace.root, ".") if here.startswith(root) else ""


def _run(
    output: Output,
    session: "Session",
    words: list[str],
    inside: str,
    sandbox: "Confinement",
    *,
    keep: bool,
) -> int:
    """Run it and print what is on record of it; the exit code."""
    try:
        # The command gets signals while it runs. Once it has ended, what it did is put on record.
        started = partial(exits.keep_from_interrupting, starting=True)
        ran = session.run(words, cwd=inside, confinement=sandbox, keep=keep, started=started)
        exits.keep_from_interrupting()
    except ExecutionFailed as error:
        output.error(error)
        return int(error.details.get("exit_code", exits.OUR_FAILURE))
    result, coverage = ran.result, ran.coverage
    if left := session.workspace.lacks_room():
        output.note(f"[loom-audit] {left}: no other session begins until some is freed")
    if result.unconfined:
        output.note(f"[loom-audit] not confined: {result.unconfined}")
    if output.json:
        call = session.workspace.timeline.call(ran.event.seq).call
        line = record_of(session.workspace, call) | {"exit_code": result.exit_code}
        output.stderr.write(json.dumps(line) + "\n")
    elif ran.files_changed or coverage.level != "full":
        paths = count_text(len(ran.files_changed), "path")
        gap = "" if coverage.level == "full" else f", coverage {coverage.level}: "
        why = "; ".join(coverage.reasons)
        output.note((f"[loom-audit] call {ran.event.seq}: {paths} changed{gap}{why}", "dim"))
    return result.exit_code
