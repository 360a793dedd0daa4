"""Calls that a client's hooks tell without an id: which of them is told to have ended."""

from collections.abc import Collection
from typing import Any

from loom_audit.history.ground.attachment import Attachment
from loom_audit.history.ground.client_ids import is_unnamed, new_id_made
from loom_audit.history.look.attribution import request_event
from loom_audit.ports import CallFilter


class UnnamedCalls:
    """Those of one session. The oldest call of the same tool and arguments is the one meant."""

    def __init__(self, attachment: Attachment, session: str) -> None:
        self._attachment = attachment
        self._session = session
        self._unpaired: dict[str, tuple[str, Any]] | None = None
        self._paired: dict[str, str] = {}

    def add(self, tool: str, arguments: Any) -> str:
        """An id for a call that begins."""
        id = new_id_made()
        self._left()[id] = (tool, arguments)
        return id

    def match(self, tool: str, arguments: Any, among: Collection[str] | None = None) -> str:
        """The first call of these, or of all that no transcript told yet; "" for none."""
        left = {id: one for id, one in self._left().items() if among is None or id in among}
        same = [id for id, one in left.items() if one == (tool, arguments)]
        return next(iter([*same, *(id for id, one in left.items() if one[0] == tool)]), "")

    def pair(self, call_id: str, tool: str, arguments: Any) -> str:
        """The id on record of the call that a transcript tells by an id of the client's own."""
        if call_id not in self._paired and (made := self.match(tool, arguments)):
            self._paired[call_id] = made
            del self._left()[made]
        return self._paired.get(call_id, call_id)

    def _left(self) -> dict[str, tuple[str, Any]]:
        """By id, in order: those that no transcript told yet, at first all on record."""
        if self._unpaired is None:
            self._unpaired = {}
            mine = CallFilter(session=self._session, newest_first=False, limit=None)
            for call in self._attachment.stored.reading.calls(mine):
                if is_unnamed(call):
                    request = request_event(self._attachment.stored, call)[1]
                    self._unpaired[call.call_id] = (request.tool, request.arguments)
        return self._unpaired
