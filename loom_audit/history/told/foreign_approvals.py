"""Questions about calls of other programs: asked before they run, while their hook waits."""

from loom_audit.history.ground.writer import Writer
from loom_audit.history.look.kept_looks import keep_look
from loom_audit.history.record import approvals
from loom_audit.history.record.approvals import ApprovalRequest
from loom_audit.history.record.call import OpenCall, exclusive
from loom_audit.history.record.looks import look_before
from loom_audit.model.events import ApprovalRequested
from loom_audit.model.records import Call


def ask(writer: Writer, call: Call, fact: ApprovalRequested) -> ApprovalRequest:
    """Put a question about a call that has begun on record, durably."""
    return approvals.ask(OpenCall.resumed(writer, call), fact, requested=call.requested)


def let_run(writer: Writer, call: Call) -> None:
    """Look again, once a call may run that had to wait: until now it changed nothing."""
    if call.effect not in ("write", "execute"):
        return
    attachment = writer.attachment
    with exclusive(attachment):
        record = OpenCall.resumed(writer, call).record
        look_before(record)
        keep_look(attachment, *record.key)
