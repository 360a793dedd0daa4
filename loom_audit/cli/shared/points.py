"""Points, times and sessions as they are typed; a session by the start of its id."""

import re
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from loom_audit.errors import InvalidArguments, NotFound
from loom_audit.model.text.display import first_few, one_line
from loom_audit.model.text.times import is_time, read_time

if TYPE_CHECKING:
    from loom_audit.api.face import AuditedWorkspace
    from loom_audit.cli.shared.invocation import Invocation

_POINT = re.compile(r"\d+|head(~\d*)?|@.+|session:.+")


def typed_time(text: str) -> datetime:
    """The moment that a text names, in UTC; without a zone it is meant as local time."""
    return read_time(text, datetime.now(UTC))


def is_point(text: str) -> bool:
    """Whether a text has the form of a point: 42, head~3, a time, @name, session:ID."""
    return _POINT.fullmatch(text) is not None or is_time(text)


def point_text(text: str) -> str:
    """A point as the log reads it: a time as people type it is one in UTC."""
    return typed_time(text).isoformat() if is_time(text) else text


_NUMBERS = "`loom-audit log` lists the numbers, `log --events` those of all events."
_DIGITS = 18
"""As many as a number of an event may have."""


def call_number(text: str) -> int:
    """The number of a call or of any of its events, as typed.

    NotFound for a number that no event can have, InvalidArguments for another text.
    """
    if text.isdecimal() and text.isascii() and (number := int(text[:_DIGITS])) > 0:
        if len(text) > _DIGITS:
            raise NotFound(f"there is no event {one_line(text, 40)}", hint=_NUMBERS)
        return number
    raise InvalidArguments(
        f"not the number of a call: {one_line(text, 80) or 'an empty text'}",
        hint=_NUMBERS,
    )


SESSION = "session:"
_LISTED = "`loom-audit session` lists them."
_PAGE = 500
_SHOWN = 5


def session_id(workspace: "AuditedWorkspace", text: str) -> str:
    """The id that a text is, or that alone begins with it. InvalidArguments, NotFound."""
    if not text:
        raise InvalidArguments("a session is named by its id, or by the start of it", hint=_LISTED)
    try:
        return workspace.timeline.session(text).id
    except NotFound:
        found = _beginning_with(workspace, text)
    parent = min(found, key=len, default="")
    if found and all(one.startswith(parent) for one in found):
        return parent  # the others are of its subagents, whose ids begin with it
    shown = one_line(text, 80)
    if not found:
        with suppress(NotFound):  # one that is on record and not listed is Corrupt
            workspace.timeline.point(SESSION + text)
        raise NotFound(f"there is no session {shown}", hint=_LISTED)
    raise InvalidArguments(
        f"{len(found)} sessions begin with {shown}: {first_few(found, _SHOWN)}",
        hint="Type more of the id.",
        details={"sessions": found[:100]},
    )


def _beginning_with(workspace: "AuditedWorkspace", start: str) -> list[str]:
    """The ids that begin so, newest first."""
    found = []
    before: int | None = None
    while page := workspace.timeline.sessions(before=before, limit=_PAGE):
        found += [one.id for one in page if one.id.startswith(start)]
        before = page[-1].started
    return found


def read_point(invocation: "Invocation", workspace: "AuditedWorkspace", text: str) -> int:
    """The seq of a point that is read, with a note where clocks went back around a time."""
    earlier, later = workspace.timeline.meanings(named_point(workspace, text))
    if earlier != later:
        invocation.output.note(
            f"clocks went back around {one_line(text, 80)}: this is point {earlier}; "
            f"the last event that is not later is {later}"
        )
    return earlier


def named_point(workspace: "AuditedWorkspace", text: str) -> str:
    """A point as the log reads it: local times with their zone, sessions with their whole id."""
    if text.startswith(SESSION):
        return SESSION + session_id(workspace, text.removeprefix(SESSION))
    return point_text(text)
