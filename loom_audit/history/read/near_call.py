"""What lies around a call in its session: the calls before and after it, and why it was made.

Every event near it is read; what the tables say counts only of what lies further away.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from loom_audit.history.read.conversation import Conversation, Said, Why, said_in
from loom_audit.history.read.timeline import Timeline
from loom_audit.history.read.verified import NEAR
from loom_audit.model.conversation import SAID_KINDS
from loom_audit.model.events import CallFinished, CallRequested
from loom_audit.model.records import Call, Session
from loom_audit.ports import CallFilter

_AFTER = 64
"""The number of events after the request of the next call in which its end is looked for."""


class NearCall(Struct, frozen=True):
    """Why a call was made, and the numbers of the calls of its session before and after it.

    A call that ends far from its request is named by that. `far` says that what was asked and said
    is so far back that nothing but the tables tells that nothing came since.
    """

    why: Why
    older: int | None
    newer: int | None
    far: bool = False


def near_call(timeline: Timeline, call: Call, session: Session) -> NearCall:
    """What lies around a call of a session. Corrupt."""
    listed = timeline.projections.calls
    older = listed(CallFilter(before=call.requested, session=call.session, limit=1))
    newer = listed(
        CallFilter(after=call.requested, session=call.session, newest_first=False, limit=1)
    )
    talk = Conversation(timeline.log, timeline.projections, timeline.proven)
    asked = talk.asked(call.session, before=call.requested)
    begin = min(
        asked.seq if asked else session.started,
        older[0].requested if older else session.started,
    )
    low = max(begin - 1, call.requested - 1 - NEAR, 0)
    end = newer[0].requested + _AFTER if newer else session.ended or timeline.proven.head()
    high = min(end, call.requested + NEAR, timeline.proven.head())
    read = _Read(call)
    said = [*map(said_in, timeline.proven.events(low, high, read.wants))]
    told = [one for one in said if one is not None]
    whole = low < session.started
    why, far = _why(talk, call, told, low, whole)
    before = [one for one in read.requests if one < call.requested]
    after = [one for one in read.requests if one > call.requested]
    rows: Sequence[Call] = () if before or whole else older
    return NearCall(
        why,
        read.number(before[-1]) if before else rows[0].requested if rows else None,
        read.number(after[0]) if after else None,
        far,
    )


class _Read:
    """The calls that are requested and end in what is read."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self.requests: dict[int, str] = {}
        self._ends: dict[str, int] = {}

    def wants(self, envelope: Mapping[str, Any]) -> bool:
        """Whether an event tells what was said before the call, by its envelope."""
        if envelope.get("session", "") != self._call.session:
            return False
        kind, seq = envelope.get("kind"), int(envelope["seq"])
        if kind == CallRequested.kind:
            self.requests[seq] = envelope.get("call_id", "")
        elif kind == CallFinished.kind:
            self._ends.setdefault(envelope.get("call_id", ""), seq)
        return kind in SAID_KINDS and seq < self._call.requested

    def number(self, requested: int) -> int:
        """The number of a call; its request where it does not end here."""
        return self._ends.get(self.requests[requested], requested)


def _why(
    talk: Conversation, call: Call, said: Sequence[Said], low: int, whole: bool
) -> tuple[Why, bool]:
    """Why a call was made, and whether only the tables tell that nothing came since."""
    prompts = [one for one in said if one.role == "prompt"]
    prompt = prompts[-1] if prompts else talk.prompt_before(call.session, call.requested)
    own = prompt if prompt and prompt.session == call.session else None
    words = [one for one in said if one.role == "assistant" and (not own or one.seq > own.seq)]
    far = not prompts and not whole
    if words or not far:
        return Why(prompt, words[-1] if words else None), far
    after = own.seq if own else 0
    return Why(prompt, talk.last_words(call.session, after=after, before=low + 1)), far
