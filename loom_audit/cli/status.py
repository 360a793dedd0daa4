"""`loom-audit status`: the disk compared with the log."""

from typing import TYPE_CHECKING, Annotated, Any

from loom_audit.api.ground.watched import watched_text
from loom_audit.cli.shared.command import command
from loom_audit.cli.shared.failed_hooks import failed_hook_records, note_failed_hooks
from loom_audit.cli.shared.holds import hold_record, note_holds
from loom_audit.cli.shared.invocation import Invocation
from loom_audit.cli.shared.lines import call_line, change_lines, half_move_lines
from loom_audit.cli.shared.lookup import (
    listed_lines,
    note_baseline,
    note_stopped,
    record_of,
)
from loom_audit.cli.shared.parameters import option
from loom_audit.cli.shared.records import plain
from loom_audit.cli.shared.taking_back.plans import note_line
from loom_audit.model.text.display import visible

if TYPE_CHECKING:
    from loom_audit.api.face import AuditedWorkspace


@command(
    examples=("loom-audit status", "loom-audit status --exit-code"),
    codes={1: "with --exit-code: disk and log differ, or something was interrupted"},
)
def status(
    invocation: Invocation,
    exit_code: Annotated[
        bool, option("--exit-code", help="Exit with 1 when there is anything to see.")
    ] = False,
    rehash: Annotated[
        bool, option("--rehash", help="Read every file, and believe no cache.")
    ] = False,
) -> int:
    """Compare the disk with the log, naming every drift.

    Names open calls and interrupted changes, too. Nothing is recorded by looking.
    """
    with invocation.workspace() as workspace:
        note_stopped(invocation, workspace)
        note_baseline(invocation, workspace)
        status = workspace.status(rehash=rehash)
        anything = bool(status.drift or status.begun or status.untracked or status.interrupted)
        if invocation.output.json:
            invocation.output.record(
                {
                    "workspace": workspace.id,
                    "root": workspace.root,
                    "head": status.head,
                    "watched": status.watched,
                    "drift": plain(status.drift),
                    "begun": plain(status.begun),
                    "half_moved": [[move.source, move.target] for move in status.halves],
                    "kept": plain(status.kept),
                    "untracked": plain(status.untracked),
                    "open_calls": [record_of(workspace, one) for one in status.open_calls],
                    "interrupted": [record_of(workspace, one) for one in status.interrupted],
                    "held": [hold_record(held) for held in workspace.timeline.holds()],
                    "failed_hooks": failed_hook_records(workspace),
                }
            )
        else:
            _print_status(invocation, workspace, status)
        return 1 if exit_code and anything else 0


def _print_status(invocation: Invocation, workspace: "AuditedWorkspace", status: Any) -> None:
    output = invocation.output
    output.line((f"workspace {workspace.root}", "bold"), f"  (log at {status.head})")
    output.line((watched_text(watched=status.watched), "dim"))
    note_holds(workspace, output)
    note_failed_hooks(workspace, output)
    if status.drift:
        output.line("changed on disk and not on record yet:")
        output.lines(change_lines(status.drift))
    if status.untracked:
        output.line("on record, but cannot be looked at now:")
        output.lines((f"  {visible(one.path)}: {one.reason}",) for one in status.untracked)
    gone = {call.requested for call in status.interrupted}
    if still_open := [call for call in status.open_calls if call.requested not in gone]:
        output.line("open calls:")
        output.lines(line for _, _, line in listed_lines(output, workspace, still_open))
    if status.interrupted:
        output.line(("interrupted; see `loom-audit recover`:", "yellow"))
        output.lines(call_line(call, width=output.width) for call in status.interrupted)
        if status.begun:
            output.line("changed by it, and not on record yet:")
            output.lines(change_lines(status.begun))
        output.lines(half_move_lines(status.halves))
        if status.kept:
            output.line("kept as it is when that is finished:")
            output.lines(map(note_line, status.kept))
    if not (status.drift or status.untracked or status.interrupted):
        output.line("the disk is as the log says")
