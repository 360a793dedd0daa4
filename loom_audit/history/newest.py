"""Which call bare `undo` and `redo` mean: the newest one that acted and is not taken back."""

from collections.abc import Callable

from loom_audit.errors import NotFound
from loom_audit.history.attachment import Attachment, is_undo
from loom_audit.model.events import Call
from loom_audit.ports import CallFilter

STEPPING = frozenset({"undo", "redo"})


def newest_undoable(at: Attachment, session: str | None) -> Call:
    """The newest call with changes that is not taken back, of one session or of any. NotFound."""
    return _newest(at, session, lambda call: not _is_step(call, *STEPPING), "undo")


def newest_undo(at: Attachment, session: str | None) -> Call:
    """The newest undo that is not taken back, of one session or of any. NotFound."""
    return _newest(at, session, lambda call: _is_step(call, "undo"), "redo")


def _newest(at: Attachment, session: str | None, wanted: Callable[[Call], bool], verb: str) -> Call:
    before: int | None = None
    size = 10
    while page := at.projections.calls(CallFilter(session=session, before=before, limit=size)):
        for call in page:
            acted = call.changed > 0 or (
                call.status == "ok" and call.reverts and _is_step(call, "undo")
            )
            if call.seq and acted and call.undone_by is None and wanted(call):
                return call
        before, size = page[-1].requested, min(2 * size, 500)
    where = f"in session {session}" if session else "in any session"
    raise NotFound(
        f"nothing to {verb} {where}",
        hint="`loom-audit log` lists the calls, and by which each was taken back.",
    )


def _is_step(call: Call, *verbs: str) -> bool:
    return is_undo(call) and call.tool in verbs
