"""Which prompts and messages of a session are on record, told by hooks and by its transcript."""

from collections import Counter
from hashlib import sha256

from msgspec.structs import replace

from loom_audit.history.writer import Writer
from loom_audit.model.conversation import MessageReceived, PromptSubmitted
from loom_audit.ports import EventFilter, EventLog

_KINDS = (PromptSubmitted.kind, MessageReceived.kind)


class ToldTexts:
    """Counts texts: the transcript's third of one is the third of it on record.

    A message that a hook tells is one of the turn that it ends, when the same is on record there.
    """

    def __init__(self) -> None:
        self.loaded = False
        self._kept: Counter[bytes] = Counter()
        self._read: Counter[bytes] = Counter()
        self._in_turn: set[bytes] = set()
        self._ids: set[tuple[str, str]] = set()

    def load(self, log: EventLog, session: str) -> None:
        """Count what is on record of a session."""
        self.loaded = True
        for event in log.read(EventFilter(kinds=_KINDS, session=session)):
            if isinstance(event.fact, PromptSubmitted | MessageReceived):
                self._note(event.fact)

    def count(self, fact: PromptSubmitted | MessageReceived, *, heard: bool) -> int | None:
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


def append_text(writer: Writer, fact: PromptSubmitted | MessageReceived, count: int) -> None:
    """Put a text on record that is the session's one of this count, once."""
    key = "\0".join((writer.session, fact.kind, fact.text, str(count)))
    id = sha256(key.encode("utf-8", "surrogatepass")).hexdigest()[:32]
    writer.attachment.log.append([replace(writer.draft(fact), id=id)])


def _id(fact: PromptSubmitted | MessageReceived) -> tuple[str, str]:
    """The client's name for a text, of which there is one; that of a turn is one of its prompt."""
    if isinstance(fact, PromptSubmitted):
        return fact.kind, fact.prompt_id and f"{fact.prompt_id}\0{fact.text.strip()}"
    return fact.kind, fact.message_id and f"{fact.message_id}\0{fact.text.strip()}"


def _key(fact: PromptSubmitted | MessageReceived) -> bytes:
    text = f"{fact.kind}\0{fact.text.strip()}"
    return sha256(text.encode("utf-8", "surrogatepass")).digest()
