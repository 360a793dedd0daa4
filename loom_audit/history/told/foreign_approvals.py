"""Questions about calls of other programs: asked before they run, while their hook waits."""

from loom_audit.history.ground.writer import Writer
from loom_audit.history.look.kept_looks import keep_look
from loom_audit.history.record.call import OpenCall, exclusive
from loom_audit.history.record.looks import look_before
from loom_audit.model.records import Call


def let_run(writer: Writer, call: Call) -> None:
    """Look again, once a call may run that had to wait: until now it changed nothing."""
    if call.effect not in ("write", "execute"):
        return
    attachment = writer.attachment
    with exclusive(attachment):
        record = OpenCall.resumed(writer, call).record
        look_before(record)
        keep_look(attachment, *record.key)
