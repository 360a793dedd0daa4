"""Which prompts and messages of a session are on record, told by hooks and by its transcript."""

from collections import Counter
from datetime import datetime
from hashlib import sha256

from msgspec.structs import replace

from loom_audit.history.ground.writer import Writer
from loom_audit.history.told.copied import (
    Connected,
    is_before_start,
    is_beyond,
    is_known_text,
)
from loom_audit.model.conversation import MessageReceived, PromptSubmitted
from loom_audit.model.events import Event
from loom_audit.ports import EventFilter, EventLog

_KINDS = (PromptSubmitted.kind, MessageReceived.kind)


class ToldTexts:
    """Counts texts: the transcript's third of one is the third of it on record.

    A message that a hook tells is one of the turn that it ends, when the same is on record there.
    """

    def __init__(self) -> None:
        self._loaded = False
        self._kept: Counter[bytes] = Counter()
        self._read: Counter[bytes] = Counter()
        self._in_turn: set[bytes] = set()
        self._ids: set[tuple[str, str]] = set()

    def add(
        self,
        writer: Writer,
        fact: PromptSubmitted | MessageReceived,
        at: datetime | None,
        connected: Connected,
        *,
        heard: bool,
    ) -> None:
        """Put a text on record unless it is there: told by a hook, or here in the transcript."""
        if not self._loaded:  # also where another process began the session
            self._load(writer.attachment.stored.log, writer.session)
        count = self._count(fact, heard=heard)
        if count is None or not fact.text.strip() or is_beyond(writer, connected, at):
            return
        if is_before_start(writer, at) and is_known_text(writer, fact):
            return
        head = writer.attachment.stored.log.head()
        while _append(replace(writer, occurred_at=at), fact, count).seq <= head and heard:
            count += 1  # a hook tells a new one, and others that were told are not on record

    def _load(self, log: EventLog, session: str) -> None:
        """Count what is on record of a session."""
        for event in log.read(EventFilter(kinds=_KINDS, session=session)):
            if isinstance(event.fact, PromptSubmitted | MessageReceived):
                self._note(event.fact)
        self._loaded = True

    def _count(self, fact: PromptSubmitted | MessageReceived, *, heard: bool) -> int | None:
        """Which one of its text this is, from 1; None when it is on record already."""
        key = _key(fact)
        if heard:
            known = isinstance(fact, MessageReceived) and key in self._in_turn
        else:
            self._read[key] += 1
            known = self._read[key] <= self._kept[key]
        if known or _id(fact) in self._ids:
            return None
        self._note(fact)
        return self._kept[key]

    def _note(self, fact: PromptSubmitted | MessageReceived) -> None:
        key = _key(fact)
        self._kept[key] += 1
        if any(_id(fact)[1:]):
            self._ids.add(_id(fact))
        if isinstance(fact, PromptSubmitted):
            self._in_turn.clear()
        else:
            self._in_turn.add(key)


def _append(writer: Writer, fact: PromptSubmitted | MessageReceived, count: int) -> Event:
    """Put a text on record that is the session's one of this count, once; the event."""
    key = "\0".join((writer.session, fact.kind, fact.text, str(count)))
    id = sha256(key.encode("utf-8", "surrogatepass")).hexdigest()[:32]
    [event] = writer.attachment.stored.log.append([replace(writer.draft(fact), id=id)])
    return event


def _id(fact: PromptSubmitted | MessageReceived) -> tuple[str, str]:
    """The client's name for a text, of which there is one; that of a turn is one of its prompt."""
    if isinstance(fact, PromptSubmitted):
        return fact.kind, fact.prompt_id and f"{fact.prompt_id}\0{fact.text.strip()}"
    return fact.kind, fact.message_id and f"{fact.message_id}\0{fact.text.strip()}"


def _key(fact: PromptSubmitted | MessageReceived) -> bytes:
    text = f"{fact.kind}\0{fact.text.strip()}"
    return sha256(text.encode("utf-8", "surrogatepass")).digest()
