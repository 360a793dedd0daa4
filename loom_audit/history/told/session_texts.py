"""Puts the prompts and messages of a session on record once, though hooks and transcript tell them.

Not every client names its texts, and the same text may be said twice. So the texts that are alike
are counted: the third in the transcript is the third on record.
"""

from collections import Counter
from datetime import datetime
from hashlib import sha256

from msgspec.structs import replace

from loom_audit.history.ground.writer import Writer
from loom_audit.history.told.copied_reports import (
    Connected,
    is_before_start,
    is_known_text,
    was_without_hooks,
)
from loom_audit.model.conversation import SAID_KINDS, MessageReceived, PromptSubmitted
from loom_audit.model.events import Event
from loom_audit.ports import EventFilter, EventLog


class ReportedTexts:
    """The texts of one session that are on record, and those that its transcript told by now.

    A message that a hook tells is the last of a turn: where the same is on record in that turn, it
    is that one.
    """

    def __init__(self) -> None:
        self._loaded = False
        self._recorded: Counter[bytes] = Counter()
        self._in_transcript: Counter[bytes] = Counter()
        self._in_turn: set[bytes] = set()
        self._ids: set[tuple[str, str]] = set()

    def add(
        self,
        writer: Writer,
        fact: PromptSubmitted | MessageReceived,
        at: datetime | None,
        connected: Connected,
        *,
        by_hook: bool,
    ) -> None:
        """Put a text on record, unless it is there; `by_hook` says that a hook tells it.

        Else the transcript does. `at` is when it was said, by the client's clock. An empty one is
        not put on record, nor one that was said while the client did not run our hooks.
        """
        if not self._loaded:  # also where another process began the session
            self._load(writer.attachment.stored.log, writer.session)
        count = self._count(fact, by_hook=by_hook)
        if count is None or not fact.text.strip() or was_without_hooks(writer, connected, at):
            return
        if is_before_start(writer, at) and is_known_text(writer, fact):
            return
        head = writer.attachment.stored.log.head()
        while _append(replace(writer, occurred_at=at), fact, count).seq <= head and by_hook:
            # that id is on record: of a text that was not counted here. A hook tells a new one
            count += 1

    def _load(self, log: EventLog, session: str) -> None:
        """Count the texts of a session that are on record."""
        for event in log.read(EventFilter(kinds=SAID_KINDS, session=session)):
            if isinstance(event.fact, PromptSubmitted | MessageReceived):
                self._note(event.fact)
        self._loaded = True

    def _count(self, fact: PromptSubmitted | MessageReceived, *, by_hook: bool) -> int | None:
        """The number of a text among those alike, from 1; None when it is on record already."""
        key = _key(fact)
        if by_hook:
            known = isinstance(fact, MessageReceived) and key in self._in_turn
        else:
            self._in_transcript[key] += 1
            known = self._in_transcript[key] <= self._recorded[key]
        if known or _id(fact) in self._ids:
            return None
        self._note(fact)
        return self._recorded[key]

    def _note(self, fact: PromptSubmitted | MessageReceived) -> None:
        key = _key(fact)
        self._recorded[key] += 1
        if any(_id(fact)[1:]):
            self._ids.add(_id(fact))
        if isinstance(fact, PromptSubmitted):
            self._in_turn.clear()
        else:
            self._in_turn.add(key)


def _append(writer: Writer, fact: PromptSubmitted | MessageReceived, count: int) -> Event:
    """Append a text under an id that follows from the session, the text and its number.

    The event; the one on record where that id is there already.
    """
    key = "\0".join((writer.session, fact.kind, fact.text, str(count)))
    id = sha256(key.encode("utf-8", "surrogatepass")).hexdigest()[:32]
    [event] = writer.attachment.stored.log.append([replace(writer.draft(fact), id=id)])
    return event


def _id(fact: PromptSubmitted | MessageReceived) -> tuple[str, str]:
    """The kind of a text and the client's id of it, with the text; "" where it has no id.

    With the text, since a client may give all texts of one turn the id of their prompt.
    """
    if isinstance(fact, PromptSubmitted):
        return fact.kind, fact.prompt_id and f"{fact.prompt_id}\0{fact.text.strip()}"
    return fact.kind, fact.message_id and f"{fact.message_id}\0{fact.text.strip()}"


def _key(fact: PromptSubmitted | MessageReceived) -> bytes:
    """What texts that are alike have in common: their kind, and the text without outer spaces."""
    text = f"{fact.kind}\0{fact.text.strip()}"
    return sha256(text.encode("utf-8", "surrogatepass")).digest()
