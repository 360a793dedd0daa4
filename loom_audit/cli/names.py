"""Sessions named on the command line by the start of their ids, also within a point."""

from typing import TYPE_CHECKING

from loom_audit.cli.options import point_text
from loom_audit.errors import InvalidArguments, NotFound
from loom_audit.model.display import one_line

if TYPE_CHECKING:
    from loom_audit.api import AuditedWorkspace

SESSION = "session:"

_LIST = "`loom-audit session` lists them."
_PAGE = 500
_SHOWN = 5


def session_id(at: "AuditedWorkspace", text: str) -> str:
    """The id that a text is, or begins as no other does. InvalidArguments, NotFound."""
    if not text:
        raise InvalidArguments("a session is named by its id, or by the start of it", hint=_LIST)
    try:
        return at.timeline.session(text).id
    except NotFound:
        found = _beginning_with(at, text)
    if len(found) == 1:
        return found[0]
    shown = one_line(text, 80)
    if not found:
        raise NotFound(f"there is no session {shown}", hint=_LIST)
    more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    raise InvalidArguments(
        f"{len(found)} sessions begin with {shown}: {', '.join(found[:_SHOWN])}{more}",
        hint="Type more of the id.",
        details={"sessions": found[:100]},
    )


def _beginning_with(at: "AuditedWorkspace", start: str) -> list[str]:
    """The ids that begin so, newest first."""
    found = []
    before: int | None = None
    while page := at.timeline.sessions(before=before, limit=_PAGE):
        found += [one.id for one in page if one.id.startswith(start)]
        before = page[-1].started
    return found


def named_point(at: "AuditedWorkspace", text: str) -> str:
    """A point as the log reads it: local times with their zone, sessions with their whole id."""
    if text.startswith(SESSION):
        return SESSION + session_id(at, text.removeprefix(SESSION))
    return point_text(text)
