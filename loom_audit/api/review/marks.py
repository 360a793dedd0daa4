"""What people note while they review: parts that they viewed, and how far they have read.

Notes of a person, not evidence: they are in no event, and nothing is verified by them.
"""

from collections.abc import Collection, Sequence

from msgspec import Struct

from loom_audit.api.workspace import AuditedWorkspace
from loom_audit.errors import InvalidArguments, NotFound
from loom_audit.history.read.review import sessions_in
from loom_audit.model.records import Session
from loom_audit.model.text.summaries import plain_text
from loom_audit.ports import CallFilter

MOST_UNREAD = 50
"""The number of sessions with unread changes that are looked for, also those within others."""

NAME_LENGTH = 32


class Unread(Struct, frozen=True):
    """A session that changed files, itself or within it, after the event `after`, up to which it
    was read.
    """

    session: Session
    after: int


def viewed_among(
    workspace: AuditedWorkspace, names: Collection[str], *, actor: str | None = None
) -> frozenset[str]:
    """The names, of these, of parts that a person has viewed, in whatever scope."""
    return workspace.adapters.marks(workspace.id).viewed(_person(workspace, actor), names)


def mark_viewed(
    workspace: AuditedWorkspace,
    names: Collection[str],
    *,
    viewed: bool = True,
    actor: str | None = None,
) -> None:
    """Note that a person has viewed parts, named as in `NetRun.part`; or take that back.

    InvalidArguments for what is not a name; AuditUnavailable where the store cannot be written.
    """
    for name in names:
        if len(name) != NAME_LENGTH or not {*name} <= {*"0123456789abcdef"}:
            raise InvalidArguments(
                "that is not the name of a part",
                hint="The names are those in `NetFile.named` of a net change.",
            )
    marks = workspace.adapters.marks(workspace.id)
    marks.view(_person(workspace, actor), names, viewed=viewed)


def last_read(workspace: AuditedWorkspace, session: str, *, actor: str | None = None) -> int | None:
    """The event up to which a person has read a session; None where they have not said."""
    marks = workspace.adapters.marks(workspace.id)
    return marks.read_to(_person(workspace, actor), [session]).get(session)


def read_up_to(
    workspace: AuditedWorkspace, session: str, seq: int | None = None, *, actor: str | None = None
) -> int:
    """Note that a person has read a session, with those within it, up to an event, by default all
    that is on record; the event that is noted.

    That is before the request of every call that had not ended then: what such a call changed comes
    later, and is read with it. NotFound; InvalidArguments for an event that there is not.
    """
    head = workspace.timeline.log.head()
    wanted = head if seq is None else seq
    if not 0 < wanted <= head:
        raise InvalidArguments(
            f"there is no event {wanted} to have read up to", hint=f"The last event is {head}."
        )
    sessions = _with_those_within(workspace, session)
    noted = _before_open_calls(workspace, sessions, wanted)
    marks = workspace.adapters.marks(workspace.id)
    marks.read(_person(workspace, actor), dict.fromkeys(sessions, noted))
    return noted


def mark_unread(workspace: AuditedWorkspace, session: str, *, actor: str | None = None) -> None:
    """Take back how far a person has read a session, and those within it. NotFound."""
    sessions = _with_those_within(workspace, session)
    marks = workspace.adapters.marks(workspace.id)
    marks.read(_person(workspace, actor), dict.fromkeys(sessions))


def unread_sessions(
    workspace: AuditedWorkspace, *, most: int = MOST_UNREAD, actor: str | None = None
) -> Sequence[Unread]:
    """The sessions with changes that a person has not read, newest first, at most `most`.

    What sessions within one changed counts for it. Sessions in which that person acted, such as
    those of taking back, are not among them.
    """
    projections = workspace.timeline.projections
    found: dict[str, Unread] = {}
    marks = workspace.adapters.marks(workspace.id)
    for one in marks.unread(_person(workspace, actor), MOST_UNREAD):
        session = projections.session(one.session)
        seen = {session.id}
        while session.parent and session.parent not in seen:
            seen.add(session.parent)
            try:
                session = projections.session(session.parent)
            except NotFound:
                break
        known = found.get(session.id)
        after = one.after if known is None else min(one.after, known.after)
        found[session.id] = Unread(session, after)
        if len(found) == most:
            break
    return [*found.values()]


def _before_open_calls(workspace: AuditedWorkspace, sessions: Sequence[str], seq: int) -> int:
    """The last event up to this one at which no call of the sessions that changes files is open."""
    timeline = workspace.timeline
    still_open = [call for call in timeline.open_calls() if call.session in sessions]
    while True:
        spanning = [call.requested for call in still_open if call.requested <= seq]
        for id in sessions:
            wanted = CallFilter(
                session=id, before=seq + 1, ended_after=seq, changed_only=True, limit=None
            )
            spanning += [call.requested for call in timeline.calls(wanted)]
        if not spanning:
            return seq
        seq = min(spanning) - 1


def _with_those_within(workspace: AuditedWorkspace, session: str) -> list[str]:
    """The ids of a session and of the sessions within it. NotFound."""
    projections = workspace.timeline.projections
    return [
        projections.session(session).id,
        *(one.id for one in sessions_in(projections, session)),
    ]


def _person(workspace: AuditedWorkspace, actor: str | None) -> str:
    return plain_text(actor or workspace.actor)
