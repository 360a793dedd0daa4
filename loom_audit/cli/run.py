"""`loom-audit run`: a command recorded with what it changed."""

import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

from msgspec import Struct

from loom_audit.cli.shared import exits
from loom_audit.cli.shared.command import command
from loom_audit.cli.shared.invocation import Invocation
from loom_audit.cli.shared.lookup import record_of
from loom_audit.cli.shared.options import COMMAND_LINE, AgentOption, actor_of, workspace_path
from loom_audit.cli.shared.output import Output
from loom_audit.cli.shared.parameters import argument, option
from loom_audit.cli.shared.under_audit import ask_what_to_record, note_repository, put_under_audit
from loom_audit.errors import ExecutionFailed, InvalidArguments, NoWorkspace
from loom_audit.model.text.display import count_text, first_few, one_line, visible

if TYPE_CHECKING:
    from loom_audit.api.agents.hooked import Hooked
    from loom_audit.api.face import AuditedWorkspace, CommandRun, Session
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
    init: Annotated[
        bool, option("--init", help="Put this folder under audit where it is not.")
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
    record, in a session of its own. In a folder that is not under audit you are asked on a terminal
    whether to put it there; with --init you are not asked.
    """
    if words and words[0] == "--":
        words = words[1:]
    if not words:
        raise InvalidArguments("no command given", hint="Write `loom-audit run -- COMMAND`.")
    if sandbox not in ("required", "preferred", "off"):
        raise InvalidArguments(
            f"--sandbox {sandbox!r:.40} is not known", hint="Use required, preferred or off."
        )
    with _workspace(invocation, words[0], init=init) as workspace:
        inside, actor = _inside(workspace), actor_of(agent, workspace.actor)
        hooked = _hooked(invocation, workspace, words) if sandbox == "off" else None
        variables = hooked.variables if hooked else {}
        with (
            workspace.session(agent, actor=actor, title=title, environment=variables) as session,
            _answering(invocation, session, hooked) as has_heard,
        ):
            start = partial(
                session.run,
                [*hooked.words] if hooked else words,
                typed=words,
                cwd=inside,
                confinement=cast("Confinement", sandbox),
                keep=keep,
            )
            ended = _run(invocation.output, session, start, has_heard)
            if verbose:
                _say_what_was_looked_at(invocation.output, session)
        if ended.run is not None and has_heard():
            _say_what_is_on_record(invocation.output, workspace, ended.run)
        return ended.code


@contextmanager
def _workspace(invocation: Invocation, program: str, *, init: bool) -> Iterator["AuditedWorkspace"]:
    """The workspace, which is made where that is wanted. NoWorkspace, ExecutionFailed."""
    with ExitStack() as stack:
        try:
            workspace = stack.enter_context(invocation.workspace())
        except NoWorkspace as error:
            folder = _folder_to_take(invocation, error, program, init=init)
            store = stack.enter_context(invocation.store(create=True))
            workspace = put_under_audit(invocation, store, folder)
            invocation.output.note((f"{visible(workspace.root)} is under audit", "green"))
            if init:
                note_repository(invocation.output, workspace.root)
        yield workspace


def _folder_to_take(invocation: Invocation, error: NoWorkspace, program: str, *, init: bool) -> str:
    """The folder to put under audit before the command runs.

    The error is raised where nobody wants one put there, or one is that cannot be seen now;
    ExecutionFailed where there is no such command to run.
    """
    from loom_audit.api.store import check_root, lost_store_hint

    is_lost = "moved" in error.details or lost_store_hint(invocation.settings)
    if invocation.shared.workspace or is_lost or not (init or invocation.output.interactive):
        if not is_lost:
            error.hint = f"{error.hint} Or `loom-audit run --init -- COMMAND` does so here first."
        raise error
    if shutil.which(program) is None:
        raise ExecutionFailed(
            f"Command not found: {program}",
            hint="Install it, or check the name and PATH. Nothing was put under audit.",
            details={"program": program, "exit_code": 127},
        )
    chosen = os.path.realpath(Path.cwd()) if init else ask_what_to_record(invocation)
    if not chosen:
        raise NoWorkspace(
            "nothing was run: the folder is not under audit",
            hint="Run the command alone, or answer that the folder is to be put under audit.",
        )
    check_root(chosen, invocation.shared.store)
    return chosen


def _hooked(
    invocation: Invocation, workspace: "AuditedWorkspace", words: list[str]
) -> "Hooked | None":
    """The command with our hooks, when it is a client that we know."""
    from loom_audit.clients.programs import client_run_by

    client = client_run_by(words[0])
    if not client or shutil.which(words[0]) is None:
        return None
    from loom_audit.api.agents.hooked import hooked

    return hooked(client, words, workspace.root, invocation.settings)


@contextmanager
def _answering(
    invocation: Invocation, session: "Session", hooked: "Hooked | None"
) -> Iterator[Callable[[], bool]]:
    """Answer the client's hooks meanwhile; say so where none came, since it is one call then.

    Yields what says whether a hook came.
    """
    if hooked is None or not hooked.variables:
        if hooked is not None:
            invocation.output.note(f"[loom-audit] this run is one call: {hooked.untold}")
        yield lambda: False
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
            yield heard
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


def _say_what_is_on_record(
    output: Output, workspace: "AuditedWorkspace", ran: "CommandRun"
) -> None:
    """How many calls of the client are on record, and what to type to see them."""
    from loom_audit.api.agents.ran import ran_within

    found = ran_within(workspace, ran.event.seq)
    calls, files = count_text(found.calls, "call"), count_text(len(found.files), "file")
    output.note(f"[loom-audit] {calls} on record, {files} changed: `loom-audit log`")


class Ended(Struct, frozen=True):
    """How a command ended: the exit code, and its run; None for one that could not be run."""

    code: int
    run: "CommandRun | None" = None


def _run(
    output: Output,
    session: "Session",
    start: Callable[..., "CommandRun"],
    has_heard: Callable[[], bool],
) -> Ended:
    """Run it, and print what is on record of it unless its client tells of each call."""
    try:
        # The command gets signals while it runs. Once it has ended, what it did is put on record.
        started = partial(exits.keep_from_interrupting, starting=True)
        ran = start(started=started)
        exits.keep_from_interrupting()
    except ExecutionFailed as error:
        output.error(error)
        return Ended(int(error.details.get("exit_code", exits.OUR_FAILURE)))
    result, coverage = ran.result, ran.coverage
    if left := session.workspace.lacks_room():
        output.note(f"[loom-audit] {left}: no other session begins until some is freed")
    if result.unconfined:
        output.note(f"[loom-audit] not confined: {result.unconfined}")
    if output.json:
        call = session.workspace.timeline.call(ran.event.seq).call
        line = record_of(session.workspace, call) | {"exit_code": result.exit_code}
        output.stderr.write(json.dumps(line) + "\n")
    elif coverage.level != "full" or ((ran.files_changed or ran.git_changed) and not has_heard()):
        paths = count_text(len(ran.files_changed), "path")
        gap = "" if coverage.level == "full" else f", coverage {coverage.level}: "
        why = "; ".join(coverage.reasons)
        words = first_few([one_line(text, 100) for text in ran.git_changed], 5, str)
        git = f"; {words}" if words else ""
        output.note((f"[loom-audit] call {ran.event.seq}: {paths} changed{git}{gap}{why}", "dim"))
    return Ended(result.exit_code, ran)
