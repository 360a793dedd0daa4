"""`loom-audit connect`: a client's every call on record, through its own hooks."""

import difflib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from loom_audit.cli.shared import exits
from loom_audit.cli.shared.command import command
from loom_audit.cli.shared.invocation import Invocation
from loom_audit.cli.shared.output import Output, progress
from loom_audit.cli.shared.parameters import argument, option
from loom_audit.clients.programs import NAMED, PROGRAMS
from loom_audit.errors import InvalidArguments, NotFound, NoWorkspace
from loom_audit.model.text.display import visible

if TYPE_CHECKING:
    from loom_audit.api.agents.connect import Change
    from loom_audit.api.face import AuditStore


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
    client: Annotated[str, argument("CLIENT", help=f"{NAMED}; else those found.")] = "",
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
    from loom_audit.api.agents.connect import installed_clients

    if client and client not in PROGRAMS:
        raise InvalidArguments(
            f"{visible(client[:50])} is not a client that can be connected",
            hint=f"There are: {', '.join(PROGRAMS)}.",
        )
    clients = [client] if client else list(installed_clients())
    if not clients:
        raise NotFound("no client was found", hint=f"Name one: {', '.join(PROGRAMS)}.")
    flags = ["--strict"] * strict + ["--no-prompts"] * no_prompts
    looks = show or remove
    with invocation.store(create=not looks) as store:
        root = None if user else _root(invocation, store, make=not looks)
        for one in clients:
            if remove:
                _remove(invocation.output, store, one, root, show=show)
            else:
                _connect(invocation.output, store, one, root, flags, show=show)


def _root(invocation: Invocation, store: "AuditStore", *, make: bool) -> str:
    """The folder whose settings are changed: that of the workspace, put under audit if need be."""
    try:
        return store.workspace(invocation.shared.workspace or Path.cwd()).root
    except NoWorkspace:
        if not make or invocation.shared.workspace:
            if invocation.shared.workspace:
                raise
            return os.path.realpath(Path.cwd())
    with progress(invocation.output) as report:
        root = store.attach(Path.cwd(), report=report).root
    if not invocation.output.json:
        invocation.output.line((f"{visible(root)} is under audit", "green"))
    return root


def _connect(
    output: Output,
    store: "AuditStore",
    client: str,
    root: str | None,
    flags: list[str],
    *,
    show: bool,
) -> None:
    from loom_audit.api.agents import launcher
    from loom_audit.api.agents.connect import (
        carry_out,
        connecting,
        leave_out_of_git,
        record_as_it_is,
        settings_file,
    )
    from loom_audit.clients.known import CLIENTS
    from loom_audit.config import read_settings

    settings = read_settings(store.url)
    words = (launcher.launcher_words if show else launcher.install_launcher)(settings)
    path = settings_file(client, root)
    change = connecting(client, path, [*words, client, *flags])
    if show:
        _print(output, change)
        return
    carry_out(change, store.home, connect=True)
    if root is not None:
        record_as_it_is(store.workspace(root))
    is_ours = change.before is None or CLIENTS[client].place.personal
    ignored = root is not None and is_ours and leave_out_of_git(root, path)
    if output.json:
        output.record({"client": client, "file": str(change.path), "connected": True})
    else:
        _say(output, change, path, flags, ignored=ignored, user=root is None)


def _say(
    output: Output, change: "Change", path: Path, flags: list[str], *, ignored: bool, user: bool
) -> None:
    """What is on record from now on, what is not, what to type next, and how to undo this."""
    from loom_audit.clients.known import CLIENTS

    client, known = change.client, CLIENTS[change.client]
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
    if known.trust:
        output.line((f"  {known.trust}", "yellow"))
    output.note(f"next: `{PROGRAMS[client]}`, then `loom-audit log`; `loom-audit undo` takes back")
    output.note(f"`loom-audit connect --remove{' --user' if user else ''} {client}` undoes this")


def _remove(
    output: Output, store: "AuditStore", client: str, root: str | None, *, show: bool
) -> None:
    from loom_audit.api.agents.connect import carry_out, disconnecting, let_git_see, settings_file

    path = settings_file(client, root)
    change = disconnecting(client, path, store.home)
    if show:
        _print(output, change)
        return
    carry_out(change, store.home, connect=False)
    if root is not None:
        let_git_see(root, path)
    if output.json:
        output.record({"client": client, "file": str(change.path), "connected": False})
        return
    was = "is not connected any more" if change.before != change.after else "was not connected"
    output.line(f"{client} {was}: {visible(str(path))}")


def _print(output: Output, change: "Change") -> None:
    """What would change in a settings file, as a diff."""
    texts = [(one or b"").decode("utf-8", "replace") for one in (change.before, change.after)]
    old, new = (text.splitlines(keepends=True) for text in texts)
    name = str(change.path)
    for line in difflib.unified_diff(old, new, fromfile=name, tofile=name):
        output.line(visible(line.rstrip("\n")))
