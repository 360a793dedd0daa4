"""`loom-audit workspaces`: those of the store."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

from loom_audit.cli.shared import exits
from loom_audit.cli.shared.command import command
from loom_audit.cli.shared.invocation import Invocation
from loom_audit.cli.shared.output import Line
from loom_audit.cli.shared.parameters import argument, option
from loom_audit.cli.shared.records import plain
from loom_audit.errors import InvalidArguments

if TYPE_CHECKING:
    from loom_audit.api.face import WorkspaceEntry


@command(
    examples=("loom-audit workspaces --json", "loom-audit workspaces move OLD NEW"),
    codes={exits.CONFLICT: "both are in place, it is another folder, or it is in use"},
)
def workspaces(
    invocation: Invocation,
    action: Annotated[str, argument("move", help="Take a log along.")] = "",
    old: Annotated[str, argument("OLD", help="The folder as it is on record.")] = "",
    new: Annotated[str, argument("NEW", help="Where it is now.")] = "",
    same: Annotated[
        bool, option("--same", help="A copy, or on another disk: all in it must be equal.")
    ] = False,
) -> None:
    """List the workspaces of the store, or say where one is now.

    A workspace whose folder was moved is known by the folder's identity, and its log goes on at
    the new place.
    """
    if action not in ("", "move"):
        raise InvalidArguments(
            f"unknown action {action}", hint="There is one: `loom-audit workspaces move OLD NEW`."
        )
    if action and not (old and new):
        raise InvalidArguments(
            "both folders are needed", hint="Write `loom-audit workspaces move OLD NEW`."
        )
    output = invocation.output
    with invocation.store() as store:
        if action:
            from loom_audit.api.upkeep.moving import move_workspace

            moved = move_workspace(store, old, new, same=same)
            output.note(f"the log of {moved.id} goes on in {moved.root}")
        entries = [one for one in store.workspaces() if not action or one.id == moved.id]
        cut_off = store.cut_off(entries)
        for entry in entries:
            if entry.id in cut_off:
                output.note(f"of {entry.root}:")
                invocation.note_stopped(cut_off[entry.id])
        output.each(entries, plain, _lines)


def _lines(entry: "WorkspaceEntry") -> Iterator[Line]:
    begun = "" if entry.baseline_done else "  (baseline not finished: `loom-audit init`)"
    yield ((entry.root, "bold"), f"  {entry.id}  log at {entry.head}", begun)
