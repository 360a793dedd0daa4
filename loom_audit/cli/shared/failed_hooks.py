"""Hooks that failed and of which nothing is on record yet, as they are printed."""

from typing import TYPE_CHECKING, Any

from loom_audit.cli.shared.output import Output
from loom_audit.cli.shared.records import time_text

if TYPE_CHECKING:
    from loom_audit.api.face import AuditedWorkspace


def note_failed_hooks(workspace: "AuditedWorkspace", output: Output) -> None:
    """Say which hooks failed; the next process that answers hooks puts it on record."""
    from loom_audit.api.agents.failed_hooks import waiting_in

    for one in waiting_in(workspace):
        output.note((f"{one.text}; not on record yet (`loom-audit doctor`)", "yellow"))


def failed_hook_records(workspace: "AuditedWorkspace") -> list[dict[str, Any]]:
    """A record of each session of which hooks failed tells how many did, from when to when."""
    from loom_audit.api.agents.failed_hooks import waiting_in

    return [
        {
            "client": one.client,
            "session": one.session,
            "count": one.count,
            "first": time_text(one.first),
            "last": time_text(one.last),
        }
        for one in waiting_in(workspace)
    ]
