"""What an agent was asked and what it said, beside its calls.

Where the texts are, the tables say; each is read from its event, which is checked.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from msgspec import Struct

from loom_audit.errors import NotFound
from loom_audit.history.ground.proven_log import ProvenLog
from loom_audit.history.read.verified import NEAR, listed_error
from loom_audit.model.conversation import MessageReceived, PromptSubmitted, Role
from loom_audit.model.events import Event, SessionStarted
from loom_audit.model.records import Call, Session, Spoken
from loom_audit.ports import EventFilter, EventLog, Projections

_DEEPEST = 20
"""The number of sessions, each within the next, that are looked through for a prompt."""


class Said(Struct, frozen=True):
    """A prompt or a message with its text, by the event `seq`."""

    seq: int
    at: datetime
    session: str
    role: Role
    text: str


class Why(Struct, frozen=True):
    """What came before a call: the last prompt, perhaps to a session that contains the call's, and
    what the agent said since, in the call's session.
    """

    prompt: Said | None = None
    words: Said | None = None


class Conversation(Struct, frozen=True):
    """The prompts and messages of one workspace's sessions.

    With a `proven` log the events between a session's begin and the prompt that was its reason are
    read, as far as they are near.
    """

    log: EventLog
    projections: Projections
    proven: ProvenLog | None = None

    def first_asked(self, session: str) -> Said | None:
        """The first prompt of a session. Corrupt."""
        return self.one(session, self.projections.spoken(session, roles=("prompt",), limit=1))

    def asked(self, session: str, *, before: int | None = None) -> Said | None:
        """The last prompt of a session before an event, or its last of all. Corrupt."""
        return self.one(
            session,
            self.projections.spoken(
                session, roles=("prompt",), before=before, newest_first=True, limit=1
            ),
        )

    def last_words(self, session: str, *, after: int = 0, before: int | None = None) -> Said | None:
        """What the agent of a session said last, between two events. Corrupt."""
        return self.one(
            session,
            self.projections.spoken(
                session,
                roles=("assistant",),
                after=after,
                before=before,
                newest_first=True,
                limit=1,
            ),
        )

    def why(self, call: Call) -> Why:
        """What came before a call. Corrupt."""
        prompt = self.prompt_before(call.session, call.requested)
        own = prompt if prompt and prompt.session == call.session else None
        after = own.seq if own else 0
        return Why(prompt, self.last_words(call.session, after=after, before=call.requested))

    def prompt_before(self, session: str, seq: int) -> Said | None:
        """The last prompt before an event of a session: to it, else to one that contains it, before
        that had begun it.

        Corrupt.
        """
        prompt = self.asked(session, before=seq)
        for _ in range(_DEEPEST):
            if prompt is not None or not session:
                break
            started, session = self._begun(session)
            # what was asked of it later is not the reason for a session that it had begun
            prompt = self._asked_near(session, started) if session else None
        return prompt

    def _asked_near(self, session: str, before: int) -> Said | None:
        """The last prompt of a session before an event, also one that the tables do not have."""
        prompt = self.asked(session, before=before)
        if self.proven is None:
            return prompt

        def is_prompt(envelope: Mapping[str, Any]) -> bool:
            own = envelope.get("session", "") == session
            return own and envelope.get("kind") == PromptSubmitted.kind

        after = max(prompt.seq if prompt else 0, before - 1 - NEAR)
        later = [said_in(event) for event in self.proven.events(after, before - 1, is_prompt)]
        return later[-1] if later else prompt

    def _begun(self, session: str) -> tuple[int, str]:
        """Where a session began, and which session contains it: "" for none that is known."""
        started, parent = 0, ""
        kinds = EventFilter(kinds=(SessionStarted.kind,), session=session)
        for event in self.log.read(kinds):
            if isinstance(event.fact, SessionStarted):
                started, parent = started or event.seq, event.fact.parent or ""
        return started, parent

    def some(
        self, session: str, *, after: int, before: int | None, newest_first: bool, limit: int
    ) -> Sequence[Said]:
        """The prompts and messages of a session between two events, at most `limit`. Corrupt."""
        return self.read(
            session,
            self.projections.spoken(
                session, after=after, before=before, newest_first=newest_first, limit=limit
            ),
        )

    def sessions_within(self, session: str) -> Sequence[Session]:
        """The sessions that are parts of a session, oldest first."""
        return self.projections.sessions_within(session)

    def at(self, seq: int) -> Said:
        """The prompt or message that an event tells. NotFound for another event; Corrupt."""
        found = next(map(said_in, self.log.read(EventFilter.only(seq))), None)
        if found is None:
            raise NotFound(
                f"event {seq} is neither a prompt nor a message",
                hint="Run `loom-audit log --events` to list the events.",
            )
        return found

    def read(self, session: str, places: Sequence[Spoken]) -> list[Said]:
        """The texts of these events, each of which must be what is listed of the session."""
        events = {event.seq: event for event in self.log.picked([one.seq for one in places])}
        found: list[Said] = []
        for place in places:
            event = events.get(place.seq)
            said = said_in(event) if event else None
            if said is None or (said.session, said.role) != (session, place.role):
                raise listed_error(place.seq)
            found.append(said)
        return found

    def one(self, session: str, places: Sequence[Spoken]) -> Said | None:
        """The text of the first of these events. Corrupt."""
        return next(iter(self.read(session, places)), None)


def said_in(event: Event) -> Said | None:
    """The prompt or message that an event tells; None for another event."""
    fact = event.fact
    if isinstance(fact, PromptSubmitted):
        return Said(event.seq, event.at, event.session, "prompt", fact.text)
    if isinstance(fact, MessageReceived):
        return Said(event.seq, event.at, event.session, fact.role, fact.text)
    return None
