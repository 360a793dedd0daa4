"""`loom-audit connect`: a client's every call on record, through its own hooks."""

import difflib
import os
import shlex
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import click

from loom_audit.cli.shared import exits
from loom_audit.cli.shared.command import command
from loom_audit.cli.shared.invocation import Invocation
from loom_audit.cli.shared.output import Output
from loom_audit.cli.shared.parameters import argument, option
from loom_audit.cli.shared.under_audit import (
    ask_what_to_record,
    note_owner,
    note_repository,
    put_under_audit,
)
from loom_audit.clients.programs import NAMED, PROGRAMS, client_named
from loom_audit.errors import AuditError, InvalidArguments, NotFound, NoWorkspace
from loom_audit.model.text.display import visible

if TYPE_CHECKING:
    from loom_audit.api.agents.connect import Change
    from loom_audit.api.face import AuditedWorkspace, AuditStore


@command(
    examples=(
        "loom-audit connect claude-code",
        "loom-audit connect --print codex",
        "loom-audit connect --remove claude-code",
    ),
    codes={exits.FAILED: "", exits.UNAVAILABLE: "", exits.CONFLICT: ""},
)
def connect(
    invocation: Invocation,
    client: Annotated[
        str,
        argument(
            "CLIENT",
            help=f"{NAMED}, or what starts it (claude); else those found, with --remove all.",
        ),
    ] = "",
    user: Annotated[
        bool, option("--user", help="For all of your projects, not this folder alone.")
    ] = False,
    strict: Annotated[
        bool, option("--strict", help="Let no call run that could not be recorded.")
    ] = False,
    no_prompts: Annotated[
        bool, option("--no-prompts", help="Keep what you and the agent say off the record.")
    ] = False,
    remove: Annotated[bool, option("--remove", help="Take our hook out again.")] = False,
    show: Annotated[
        bool, option("--print", help="Print what would be written; change nothing.")
    ] = False,
) -> None:
    """Record every call of a client, through its own hooks.

    Puts this folder under audit when it is not, and our hook into the client's settings for this
    folder, which are not committed. Comments and everything else in them stay. Done twice is done
    once; --remove takes out our part only.
    """
    clients = _clients(client, remove=remove)
    flags = ["--strict"] * strict + ["--no-prompts"] * no_prompts
    if show or remove:
        root = None if user else _root(invocation)
        for one in clients:
            if remove:
                _remove(invocation, one, root, show=show)
            else:
                _show(invocation, one, root, flags)
        return
    root = None if user else _root(invocation, ask=True)
    changes = _changes(invocation, clients, root, flags)
    with invocation.store(create=True) as store:
        taking_back = ExitStack()
        try:
            workspace = None
            if root is not None and (workspace := _workspace_of(store, root)) is None:
                taking_back.callback(_forget, invocation, store, root)
                workspace = _put_under_audit(invocation, store, root)
                taking_back.callback(_disconnect_all, invocation, changes, root)
            for change in changes:
                _connect(invocation, change, workspace, flags)
            if root is not None:
                note_owner(invocation.output, root)
        except AuditError:
            taking_back.close()
            raise


def _clients(named: str, *, remove: bool) -> list[str]:
    """The client that is named, else those that are found, and to remove all: one whose program is
    gone may be connected. InvalidArguments, NotFound.
    """
    from loom_audit.api.agents.connect import installed_clients

    if named and not client_named(named):
        raise InvalidArguments(
            f"{visible(named[:50])} is not a client that can be connected",
            hint=f"There are: {', '.join(PROGRAMS)}.",
        )
    if not named and remove:
        return list(PROGRAMS)
    clients = [client_named(named)] if named else list(installed_clients())
    if not clients:
        raise NotFound("no client was found", hint=f"Name one: {', '.join(PROGRAMS)}.")
    return clients


def _root(invocation: Invocation, *, ask: bool = False) -> str:
    """The folder whose settings are meant: that of the workspace, else the one we are in.

    With `ask` a person at a terminal chooses where there is a choice; Abort when they want none.
    """
    try:
        with invocation.store() as store:
            return store.workspace(invocation.shared.workspace or Path.cwd()).root
    except NoWorkspace as error:
        if invocation.shared.workspace:
            raise
        is_moved = "moved" in error.details
    if not ask or is_moved or not invocation.output.interactive:
        return os.path.realpath(Path.cwd())
    if chosen := ask_what_to_record(invocation, only_repository=True):
        return chosen
    raise click.Abort


def _changes(
    invocation: Invocation, clients: Sequence[str], root: str | None, flags: Sequence[str]
) -> "Sequence[Change]":
    """What is to be written into the clients' settings; all that may be refused is asked for here.

    Nothing is written. InvalidArguments, InvalidPath, PermissionDenied, StorageFailed.
    """
    from loom_audit.api.agents.connect import (
        check_writable,
        connecting,
        kept_file,
        settings_file,
    )
    from loom_audit.api.agents.launcher import check_lasting, launcher_words
    from loom_audit.api.store import check_root

    check_lasting(invocation.settings)
    if root is not None:
        check_root(root, invocation.shared.store)
    words = launcher_words(invocation.settings)
    changes = [connecting(one, settings_file(one, root), [*words, one, *flags]) for one in clients]
    written = [change.path for change in changes if change.before != change.after]
    hooks = invocation.settings.hooks
    for file in (*(kept_file(hooks, change.path) for change in changes), *written):
        check_writable(file)
    return changes


def _workspace_of(store: "AuditStore", root: str) -> "AuditedWorkspace | None":
    with suppress(NoWorkspace):
        return store.workspace(root)
    return None


def _put_under_audit(invocation: Invocation, store: "AuditStore", root: str) -> "AuditedWorkspace":
    """The workspace of the folder whose settings are changed, which is put under audit."""
    output = invocation.output
    workspace = put_under_audit(invocation, store, root)
    if not output.json:
        output.line((f"{visible(root)} is under audit", "green"))
    note_repository(output, root)
    return workspace


def _disconnect_all(invocation: Invocation, changes: "Sequence[Change]", root: str) -> None:
    """Take our hook out again, where these changes put it in."""
    from loom_audit.api.agents.connect import (
        carry_out,
        disconnecting,
        let_git_see,
        puts_hook_in,
        settings_file,
    )

    hooks = invocation.settings.hooks
    for client in (change.client for change in changes if puts_hook_in(change)):
        path = settings_file(client, root)
        carry_out(disconnecting(client, path, hooks), hooks, connect=False)
        let_git_see(root, path)


def _forget(invocation: Invocation, store: "AuditStore", root: str) -> None:
    """Take back that a folder was put under audit."""
    from loom_audit.api.upkeep.forgetting import forget_workspace

    output, name = invocation.output, visible(root)
    try:
        forget_workspace(store, root, reason="it could not be connected")
        output.note(f"{name} is not under audit: what was begun is taken back")
    except NoWorkspace:
        pass
    except AuditError as error:
        output.note((f"{name} is under audit: ", "yellow"), error.message)
        output.note(f"`loom-audit workspaces forget {shlex.quote(name)}` takes that back")


def _connect(
    invocation: Invocation,
    change: "Change",
    workspace: "AuditedWorkspace | None",
    flags: Sequence[str],
) -> None:
    from loom_audit.api.agents.connect import (
        carry_out,
        leave_out_of_git,
        record_as_it_is,
        record_written,
        settings_file,
    )
    from loom_audit.api.agents.launcher import write_launcher
    from loom_audit.clients.known import CLIENTS

    output, settings, client = invocation.output, invocation.settings, change.client
    root = None if workspace is None else workspace.root
    path = settings_file(client, root)
    write_launcher(settings)
    if workspace is not None:
        record_as_it_is(workspace)
    carry_out(change, settings.hooks, connect=True)
    if workspace is not None:
        record_written(workspace, change)
    is_ours = change.before is None or CLIENTS[client].place.personal
    ignored = root is not None and is_ours and leave_out_of_git(root, path)
    if output.json:
        output.record({"client": client, "file": str(change.path), "connected": True})
    else:
        _say(output, change, path, flags, ignored=ignored, root=root)


def _show(invocation: Invocation, client: str, root: str | None, flags: Sequence[str]) -> None:
    """Print what would be written into the client's settings, for which no store is needed."""
    from loom_audit.api.agents.connect import connecting, settings_file
    from loom_audit.api.agents.launcher import launcher_words

    words = launcher_words(invocation.settings)
    path = settings_file(client, root)
    _print(invocation.output, connecting(client, path, [*words, client, *flags]))


def _say(
    output: Output,
    change: "Change",
    path: Path,
    flags: Sequence[str],
    *,
    ignored: bool,
    root: str | None,
) -> None:
    """What is on record from now on, what is not, what to type next, and how to undo this."""
    from loom_audit.api.agents.connect import is_linked_worktree, is_on_path
    from loom_audit.clients.known import CLIENTS

    client, known, user = change.client, CLIENTS[change.client], root is None
    already = " already" if change.before == change.after else ""
    output.line((f"{client} is connected{already}: {visible(str(path))}", "green"))
    said = "not what is said" if "--no-prompts" in flags else "what you and the agent say"
    output.line(f"  on record: every call, its arguments, result and changes; {said}")
    output.line(f"  it does not tell {known.untold}")
    if "--strict" in flags:
        output.line("  strict: a call that cannot be recorded is denied")
    if ignored:
        output.line("  git does not see that file, by a line in .git/info/exclude")
    if not user and change.before not in (None, change.after) and not known.place.personal:
        text = "  that file was there: where it is committed, this is seen by git; --user is not"
        output.line((text, "yellow"))
    if not user and not known.place.reads_below:
        text = (
            f"  `{PROGRAMS[client]}` reads that file only when it is started in this very folder; "
        )
        output.line((f"{text}--user is for every folder", "yellow"))
    if root is not None and not known.place.reads_worktrees and is_linked_worktree(root):
        text = f"  in a linked worktree of git `{PROGRAMS[client]}` does not read that file: "
        again = f"loom-audit connect --user {client}"
        output.line((f"{text}use `{again}`, which is for every folder", "yellow"))
    if not is_on_path(client):
        text = f"  `{PROGRAMS[client]}` is not found on your PATH: is it installed?"
        output.line((text, "yellow"))
    if known.trust:
        output.line((f"  {known.trust}", "yellow"))
    output.note(f"next: `{PROGRAMS[client]}`, then `loom-audit log`; `loom-audit undo` takes back")
    output.note(f"`loom-audit connect --remove{' --user' if user else ''} {client}` undoes this")


def _remove(invocation: Invocation, client: str, root: str | None, *, show: bool) -> None:
    from loom_audit.api.agents.connect import disconnecting, let_git_see, settings_file

    output, hooks = invocation.output, invocation.settings.hooks
    path = settings_file(client, root)
    change = disconnecting(client, path, hooks)
    if show:
        _print(output, change)
        return
    _carry_out_removal(invocation, change, root)
    if root is not None:
        let_git_see(root, path)
    if output.json:
        output.record({"client": client, "file": str(change.path), "connected": False})
        return
    was = "is not connected any more" if change.before != change.after else "was not connected"
    output.line(f"{client} {was}: {visible(str(path))}")


def _carry_out_removal(invocation: Invocation, change: "Change", root: str | None) -> None:
    """Take our hook out, and put that on record where the folder is under audit.

    A log that cannot be written does not keep the hook in.
    """
    from loom_audit.api.agents.connect import carry_out, record_as_it_is, record_written

    with ExitStack() as stack:
        workspace = None
        if root is not None and change.before != change.after:
            with suppress(NoWorkspace):
                workspace = stack.enter_context(invocation.store()).workspace(root)
        try:
            if workspace is not None:
                record_as_it_is(workspace)
        finally:
            carry_out(change, invocation.settings.hooks, connect=False)
        if workspace is not None:
            record_written(workspace, change)


def _print(output: Output, change: "Change") -> None:
    """What would change in a settings file, as a diff."""
    texts = [(one or b"").decode("utf-8", "replace") for one in (change.before, change.after)]
    old, new = (text.splitlines(keepends=True) for text in texts)
    name = str(change.path)
    for line in difflib.unified_diff(old, new, fromfile=name, tofile=name):
        output.line(visible(line.rstrip("\n")))
