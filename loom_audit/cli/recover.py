"""`loom-audit recover`: close the calls of processes that are gone."""

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Annotated, Literal, get_args

from loom_audit.cli.shared import exits
from loom_audit.cli.shared.command import command
from loom_audit.cli.shared.invocation import Invocation
from loom_audit.cli.shared.lines import call_line, half_move_lines
from loom_audit.cli.shared.lookup import record_of
from loom_audit.cli.shared.output import Line
from loom_audit.cli.shared.parameters import option
from loom_audit.cli.shared.records import Record, plain
from loom_audit.cli.shared.taking_back.plans import CODES, section_lines
from loom_audit.errors import Conflict, InvalidArguments
from loom_audit.model.plans.lists import KEPT
from loom_audit.model.plans.request import Verb
from loom_audit.model.text.display import visible

if TYPE_CHECKING:
    from loom_audit.api.face import AuditedWorkspace, RecoveredCall
    from loom_audit.model.records import Call

TAKING_BACK = get_args(Verb)


@command(examples=("loom-audit recover", "loom-audit recover --continue"), codes=CODES)
def recover(
    invocation: Invocation,
    go_on: Annotated[
        bool, option("--continue", help="Finish an interrupted undo or rollback.")
    ] = False,
    abandon: Annotated[
        bool, option("--abandon", help="Leave an interrupted undo or rollback as it is.")
    ] = False,
    relist: Annotated[
        bool, option("--relist", help="List what is on disk anew, after what cannot have been.")
    ] = False,
) -> int:
    """Close the calls of processes that are gone.

    Records what is on disk now. Changes no file, except to finish an interrupted undo with
    --continue; temporary files that a crash left are removed, what is in them is on record.
    What somebody changed since the undo stopped stays as it is, and is listed.

    Where `verify` names an event inconsistent nothing more is recorded, until --relist has put all
    that is on disk on record, as from outside. What happened before it is no longer taken back.
    """
    output = invocation.output
    if go_on + abandon + relist > 1:
        raise InvalidArguments(
            "--continue, --abandon and --relist cannot be given together",
            hint="Give one of them.",
        )
    mode: Literal["auto", "continue", "abandon"] = (
        "continue" if go_on else "abandon" if abandon else "auto"
    )
    from loom_audit.api.ground.held import agree

    with invocation.workspace() as workspace:
        if relist:
            event = workspace.relist()
            if output.json:
                output.record({"relisted": event.seq})
            else:
                output.line(f"all that is on disk is on record anew, with event {event.seq}")
            return exits.OK
        agree(workspace)
        recovered = workspace.recover(mode)
        output.each(
            recovered,
            partial(_record, workspace),
            partial(_lines, output.width),
            none="nothing to recover",
        )
        if abandon and not output.json:
            for one in recovered:
                if one.call.changed and one.call.tool in TAKING_BACK:
                    output.note(f"`loom-audit revert {one.call.seq}` takes back what it had done")
        if any(one.waiting for one in recovered):
            raise Conflict(
                "an interrupted change waits for a decision",
                hint="`loom-audit recover --continue` finishes it, `--abandon` leaves it as it is.",
            )
        if unbegun := [one.call for one in recovered if go_on and _is_unbegun(one)]:
            for call in unbegun:
                output.note(_how_to_ask_again(call))
            return exits.IN_PART
        done = [one.call.status for one in recovered if one.kept]
        if not done:
            return exits.OK
        return exits.IN_PART if "ok" in done else exits.CONFLICT


def _is_unbegun(one: "RecoveredCall") -> bool:
    """Whether this is an undo that was closed, as it had not begun to change anything."""
    is_ours = one.call.tool in TAKING_BACK and one.call.effect == "write"
    is_closed = one.call.status == "interrupted"
    return is_ours and is_closed and not (one.outcomes or one.call.changed)


def _how_to_ask_again(call: "Call") -> str:
    again = "undo` does" if call.tool == "undo" else f"{call.tool}`, asked for again, does"
    return (
        f"{call.tool} {call.seq} had replaced nothing, so there is nothing to go on from; "
        f"`loom-audit {again} it"
    )


def _record(workspace: "AuditedWorkspace", one: "RecoveredCall") -> Record:
    return {
        "call": record_of(workspace, one.call),
        "outcomes": [{"path": p, "outcome": o} for p, o in one.outcomes],
        "waiting": one.waiting,
        "half_moved": [[move.source, move.target] for move in one.halves],
        "kept": plain(one.kept),
    }


def _lines(width: int | None, one: "RecoveredCall") -> Iterator[Line]:
    yield call_line(one.call, width=width)
    yield from ((f"  {visible(path)}: {outcome}",) for path, outcome in one.outcomes)
    yield from half_move_lines(one.halves)
    yield from section_lines(KEPT, one.kept)
