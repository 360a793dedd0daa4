"""What hooks noted that they could not hand over.

A line is a hint and no evidence: from it alone comes only that a hook failed. What the session did
is asked of its transcript (`finding.own_transcripts`).
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from hashlib import sha256

from msgspec import Struct

from loom_audit.api.workspace import AuditedWorkspace
from loom_audit.clients.programs import PROGRAMS
from loom_audit.config import Settings
from loom_audit.errors import NotFound
from loom_audit.history.ground.attachment import CLIENT
from loom_audit.history.told.reported import safe_id
from loom_audit.model.actors import OUTSIDE
from loom_audit.model.events import Draft, HookFailed
from loom_audit.model.text.display import count_text, one_line
from loom_audit.ports import EventFilter
from loom_audit.wiring.files import Spool

_BEGIN = b"loom-failed 1 "
_FIELDS = 6
_LONGEST_AGO = timedelta(days=30)
MOST = 1000
"""The number of sessions that are told of at once; a client has few."""


class FailedSession(Struct, frozen=True):
    """The failed hooks of a session, and all folders and transcripts that they name.

    One that lies takes the place of no other. `prompts`: what people and the model say may be
    recorded.
    """

    client: str
    session: str
    first: datetime
    last: datetime
    count: int
    folders: tuple[str, ...]
    transcripts: tuple[str, ...]
    prompts: bool
    lines: tuple[bytes, ...]

    @property
    def text(self) -> str:
        """How many hooks of which client failed, and from when to when (UTC), in one line."""
        since = f"{self.first:%Y-%m-%d %H:%M:%SZ}"
        until = f" to {self.last:%H:%M:%SZ}" if self.count > 1 else ""
        return f"{count_text(self.count, 'hook')} of {self.client} failed: {since}{until}"


def waiting(settings: Settings) -> Sequence[FailedSession]:
    """The failed hooks that are not on record yet, by session; nothing is changed."""
    return by_session(Spool(settings.hooks).waiting(), datetime.now(UTC))


def waiting_in(workspace: AuditedWorkspace) -> Sequence[FailedSession]:
    """The failed hooks of sessions that are of a workspace, or say that they are in its folder."""
    return [
        one
        for one in waiting(workspace.adapters.settings)
        if any(_is_below(folder, workspace.root) for folder in one.folders)
        or is_of(workspace, one.session)
    ]


def is_of(workspace: AuditedWorkspace, session: str) -> bool:
    """Whether a session is on record in a workspace."""
    with suppress(NotFound):
        return bool(workspace.timeline.projections.session(session))
    return False


def _is_below(path: str, root: str) -> bool:
    real = os.path.realpath(path) if os.path.isabs(path) and "\0" not in path else ""
    return (real + os.sep).startswith(root.rstrip(os.sep) + os.sep)


def failures_of(workspace: AuditedWorkspace) -> Mapping[str, int]:
    """How many hooks are on record as failed in a workspace, by client."""
    found: dict[str, int] = {}
    for event in workspace.timeline.events(EventFilter(kinds=(HookFailed.kind,))):
        if isinstance(event.fact, HookFailed):
            found[event.fact.client] = found.get(event.fact.client, 0) + event.fact.count
    return found


def last_words(settings: Settings) -> str:
    """The last line of what the warm process noted that went wrong."""
    with suppress(OSError):
        lines = (settings.hooks / "daemon.log").read_bytes().splitlines()
        return one_line(lines[-1].decode("utf-8", "replace"), 300) if lines else ""
    return ""


def by_session(lines: Iterable[bytes], now: datetime) -> Sequence[FailedSession]:
    """The failed hooks that these lines tell, by session; what else they say is passed over."""
    found: dict[tuple[str, str], FailedSession] = {}
    for line in dict.fromkeys(lines):
        one = _parsed(line, now)
        if one is None:
            continue
        key = one.client, one.session
        if (known := found.get(key)) is not None:
            found[key] = _joined(known, one)
        elif len(found) < MOST:
            found[key] = one
    return [*found.values()]


def _joined(one: FailedSession, other: FailedSession) -> FailedSession:
    return FailedSession(
        client=one.client,
        session=one.session,
        first=min(one.first, other.first),
        last=max(one.last, other.last),
        count=one.count + other.count,
        folders=tuple(dict.fromkeys([*one.folders, *other.folders]))[:MOST],
        transcripts=tuple(dict.fromkeys([*one.transcripts, *other.transcripts]))[:MOST],
        prompts=one.prompts and other.prompts,
        lines=(*one.lines, *other.lines),
    )


def record_failed(workspace: AuditedWorkspace, failed: FailedSession) -> None:
    """Put on record that hooks failed, each once. Corrupt where nothing may be recorded.

    Their lines may have waited on since some of them were: then only the others are new.
    """
    key = [failed.client, failed.session, failed.first.isoformat()]
    with workspace.attachment.exclusive():
        if stopped := workspace.why_stopped():  # else it would be gone, and nothing more recorded
            raise stopped
        known = 0
        while known < failed.count:
            named = "\0".join([*key, str(known)] if known else key)
            id = sha256(named.encode("utf-8", "surrogatepass")).hexdigest()[:32]
            fact = HookFailed(failed.client, failed.session, failed.count - known)
            at = failed.last if known else failed.first
            draft = Draft(fact, "", OUTSIDE, id=id, occurred_at=at, source=CLIENT)
            [event] = workspace.log.append([draft])
            assert isinstance(event.fact, HookFailed)
            known += event.fact.count


def _parsed(line: bytes, now: datetime) -> FailedSession | None:
    """What a line says of a hook; None for what no hook of a known client wrote, or not lately."""
    if not line.startswith(_BEGIN):
        return None
    time, *fields = line.removeprefix(_BEGIN).split(b"\t")
    if len(fields) > _FIELDS:
        return None
    texts = [os.fsdecode(one) for one in fields] + [""] * (_FIELDS - len(fields))
    said, _, session, _, cwd, transcript = texts
    client, _, flags = said.partition(" ")
    if client not in PROGRAMS or safe_id(session) != session:
        return None
    try:
        at = datetime.fromtimestamp(float(time), UTC)
    except (ValueError, OverflowError, OSError):
        return None
    if not now - _LONGEST_AGO < at < now + timedelta(minutes=1):
        return None
    return FailedSession(
        client=client,
        session=session,
        first=at,
        last=at,
        count=1,
        folders=(cwd,) if os.path.isabs(cwd) else (),
        transcripts=(transcript,) if os.path.isabs(transcript) else (),
        prompts="no-prompts" not in flags,
        lines=(line,),
    )
