"""`loom-audit workspaces`: those of the store."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import click

from loom_audit.cli.shared import exits
from loom_audit.cli.shared.command import command
from loom_audit.cli.shared.invocation import Invocation
from loom_audit.cli.shared.lines import local_time
from loom_audit.cli.shared.output import Line, Output, progress
from loom_audit.cli.shared.parameters import argument, option
from loom_audit.cli.shared.records import plain, time_text
from loom_audit.errors import InvalidArguments, NoWorkspace
from loom_audit.model.text.display import count_text, one_line, size_text, visible

if TYPE_CHECKING:
    from loom_audit.api.face import AuditStore, WorkspaceEntry
    from loom_audit.api.upkeep.forgetting import Forgettable, ForgottenWorkspace

_FORGET = "`loom-audit workspaces forget FOLDER`"
_MOVE = "`loom-audit workspaces move OLD NEW`"


@command(
    examples=(
        "loom-audit workspaces --json",
        "loom-audit workspaces move OLD NEW",
        "loom-audit workspaces forget FOLDER --dry-run",
    ),
    codes={
        exits.FAILED: "",
        exits.UNAVAILABLE: "",
        exits.CONFLICT: "both are in place, it is another folder, or it is in use",
    },
)
def workspaces(
    invocation: Invocation,
    action: Annotated[
        str, argument("move | forget", help="Take a log along, or erase what it says.")
    ] = "",
    old: Annotated[str, argument("FOLDER", help="As it is on record, or its id.")] = "",
    new: Annotated[str, argument("NEW", help="Where it is now.")] = "",
    same: Annotated[
        bool, option("--same", help="A copy, or on another disk: all in it must be equal.")
    ] = False,
    dry_run: Annotated[
        bool, option("--dry-run", help="Say what would be erased, and how much it is.")
    ] = False,
    yes: Annotated[bool, option("--yes", "-y", help="Erase without asking.")] = False,
    reason: Annotated[
        str, option(metavar="TEXT", help="Why it is forgotten, which stays on record.")
    ] = "",
) -> int:
    """List the workspaces, say where one is now, or forget one.

    A workspace whose folder was moved is known by the folder's identity, and its log goes on at
    the new place.

    `forget` erases for good what is on record of a workspace: arguments, results, prompts, names
    and contents of files, but for contents that another workspace has too. That it was forgotten,
    by whom and why, stays, and the hashes by which the log is verified: who did something when,
    with which tool and how it ended. The files in the folder stay as they are. What was interrupted
    is finished when it is done again.
    """
    _check(action, old, new)
    with invocation.store() as store:
        if action == "forget":
            return _forget(invocation, store, old, reason, dry_run=dry_run, yes=yes)
        _print_all(
            invocation, store, _moved(invocation, store, old, new, same=same) if action else ""
        )
    return exits.OK


def _check(action: str, old: str, new: str) -> None:
    """InvalidArguments for words that do not say what to do."""
    if action not in ("", "move", "forget"):
        raise InvalidArguments(f"unknown action {action}", hint=f"There are {_MOVE} and {_FORGET}.")
    if action == "move" and not (old and new):
        raise InvalidArguments("both folders are needed", hint=f"Write {_MOVE}.")
    if action == "forget" and (not old or new):
        raise InvalidArguments("one workspace is to be named", hint=f"Write {_FORGET}.")


def _moved(invocation: Invocation, store: "AuditStore", old: str, new: str, *, same: bool) -> str:
    from loom_audit.api.upkeep.moving import move_workspace

    moved = move_workspace(store, old, new, same=same)
    invocation.output.note(f"the log of {moved.id} goes on in {moved.root}")
    return moved.id


def _print_all(invocation: Invocation, store: "AuditStore", only: str) -> None:
    from loom_audit.api.upkeep.forgetting import forgotten_workspaces

    output = invocation.output
    entries = [one for one in store.workspaces() if only in ("", one.id)]
    cut_off = store.why_cut_off(entries)
    for entry in entries:
        if entry.id in cut_off:
            output.note(f"of {entry.root}:")
            invocation.note_stopped(cut_off[entry.id])
    output.each(entries, plain, _lines)
    if not only:
        output.each(forgotten_workspaces(store), _forgotten_record, _forgotten_lines)


def _lines(entry: "WorkspaceEntry") -> Iterator[Line]:
    begun = "" if entry.baseline_done else "  (baseline not finished: `loom-audit init`)"
    yield ((entry.root, "bold"), f"  {entry.id}  log at {entry.head}", begun)


# --- forgetting ---------------------------------------------------------------------------


def _forget(
    invocation: Invocation,
    store: "AuditStore",
    named: str,
    reason: str,
    *,
    dry_run: bool,
    yes: bool,
) -> int:
    from loom_audit.api.upkeep.forgetting import forget_workspace, forgettable

    output = invocation.output
    try:
        told = forgettable(store, named)
    except NoWorkspace as error:
        if error.details:
            raise
        raise NoWorkspace(error.message, hint="`loom-audit workspaces` lists them.") from error
    if not output.json:
        _say(output, told)
    if dry_run:
        if output.json:
            output.record({**plain(told), "dry_run": True})
        return exits.OK
    if not yes and not output.interactive:
        raise InvalidArguments(
            "what is erased cannot be brought back, and nobody can be asked",
            hint="Say --yes; --dry-run says what would be erased.",
        )
    output.stdout.flush()  # what cannot be shown is not done
    if not yes and not _confirmed(invocation, told.root):
        output.note("nothing was erased")
        return exits.FAILED
    with progress(output) as report:
        done = forget_workspace(store, named, reason=reason, report=report)
    if output.json:
        output.record(_forgotten_record(done))
        return exits.OK
    output.line(
        (f"{visible(told.root)} is forgotten", "green"), f"; event {done.event.seq} says so"
    )
    for client in told.connected:
        text = f"{client} still runs our hook there: `loom-audit connect --remove {client}` in it"
        output.note(text)
    for copy in told.copies:
        output.note(f"{visible(copy)} is a copy of the whole store and holds it too; delete it")
    return exits.OK


def _say(output: Output, told: "Forgettable") -> None:
    """What would go, and how much it is."""
    amount = told.amount
    begun = " (it was begun, and is not finished)" if told.begun else ""
    output.line((f"forget {visible(told.root)}", "bold"), f"  {told.id}{begun}")
    payloads, contents = (
        count_text(amount.payloads, "payload"),
        count_text(amount.contents, "content"),
    )
    output.line(f"  erased: {payloads}; {contents} that no other workspace has,")
    output.line(f"          {size_text(amount.size)} as stored; all lists, and the search index")
    output.line(
        "  stays:  the hashes of its events, by which they are verified, with times, actors,"
    )
    output.line("          tools and how they ended; the files in the folder, as they are")


def _confirmed(invocation: Invocation, root: str) -> bool:
    try:
        return click.confirm(
            f"Forget {visible(root)}? It cannot be brought back.", default=False, err=True
        )
    except click.Abort:
        invocation.output.note("")
        raise


def _forgotten_record(entry: "ForgottenWorkspace") -> dict[str, Any]:
    event = entry.event
    return {
        "id": event.log,
        "forgotten": True,
        "finished": entry.is_finished,
        "head": event.seq,
        "forgotten_at": time_text(event.at),
        "by": event.actor,
        **plain(event.fact),
    }


def _forgotten_lines(entry: "ForgottenWorkspace") -> Iterator[Line]:
    event, fact = entry.event, entry.event.fact
    root, reason = getattr(fact, "root", ""), getattr(fact, "reason", "")
    why = f": {one_line(reason, 200)}" if reason else ""
    yield ((root, "dim"), f"  {event.log}  forgotten {local_time(event.at)} by {event.actor}{why}")
    if not entry.is_finished:
        again = f"`loom-audit workspaces forget {event.log}`"
        yield (("  erasing it was interrupted: ", "yellow"), f"{again} finishes it")
