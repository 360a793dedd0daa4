"""What an interruption let earlier releases record twice.

A signal that came when `files.changed` was durable, and not yet noted as such, let the end of the
call record it once more. Such a repeat changes nothing: no tree folds it.
"""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from loom_audit.model.events import CallFinished, FilesChanged

REPEATED = "recorded twice by an interruption"
_OLDER = ("1.0", "2.0")


class Repeat(Struct, frozen=True):
    """An event that repeats what another event of its call says happened of an intention.

    It is `explained` where an earlier release recorded it before a finish that was cancelled.
    """

    seq: int
    intention: int
    explained: bool


class Repeats:
    """Finds the repeats in a log, whose envelopes it is given in order."""

    def __init__(self) -> None:
        self._older = True
        self._named: dict[tuple[str, str], Any] = {}
        self._repeats: dict[tuple[str, str], Repeat] = {}
        self._seqs: set[int] = set()

    def follow(self, seq: int, envelope: Mapping[str, Any]) -> Repeat | None:
        """Return the repeat that an event, the finish of its call, explains or leaves unexplained.

        A repeat that is not the first of its call is returned too.
        """
        self._older = self._older and envelope["v"] in _OLDER
        if envelope["kind"] not in (FilesChanged.kind, CallFinished.kind):
            return None
        call = envelope.get("session", ""), envelope.get("call_id", "")
        if envelope["kind"] == CallFinished.kind:
            self._named.pop(call, None)
            found = self._repeats.pop(call, None)
            if found is None or envelope.get("status") == "cancelled":
                return found
            return Repeat(found.seq, found.intention, explained=False)
        intention = envelope.get("intention")
        if type(intention) is not int or self._named.get(call) != intention:
            self._named[call] = intention
            return None
        self._seqs.add(seq)
        if call in self._repeats:
            return Repeat(seq, intention, explained=False)
        self._repeats[call] = Repeat(seq, intention, explained=self._older)
        return None

    def is_repeat(self, seq: int) -> bool:
        """Return whether the event of this seq, which was followed, is a repeat."""
        return seq in self._seqs

    def unfinished(self) -> list[Repeat]:
        """Return, at the end of the log, the repeats of calls without a finish.

        Nothing explains these.
        """
        left = [Repeat(one.seq, one.intention, explained=False) for one in self._repeats.values()]
        self._repeats.clear()
        return left
