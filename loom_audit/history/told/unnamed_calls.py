"""Finds which call a client means whose hooks give no id of a call, as those of Gemini CLI."""

from collections.abc import Collection
from typing import Any

from loom_audit.history.ground.attachment import Attachment
from loom_audit.history.ground.client_ids import is_unnamed, new_id_made
from loom_audit.history.look.attribution import request_event
from loom_audit.ports import CallFilter


class UnnamedCalls:
    """The calls of one session that its client's hooks give no id.

    The oldest call of the same tool and arguments is the one that is meant, else the oldest of the
    same tool.
    """

    def __init__(self, attachment: Attachment, session: str) -> None:
        self._attachment = attachment
        self._session = session
        self._loaded: dict[str, tuple[str, Any]] | None = None
        self._paired: dict[str, str] = {}

    def add(self, tool: str, arguments: Any) -> str:
        """The id under which a call that begins goes on record."""
        id = new_id_made()
        self._unpaired()[id] = (tool, arguments)
        return id

    def match(self, tool: str, arguments: Any, among: Collection[str] | None = None) -> str:
        """The id on record of the call that is meant, "" where there is none.

        `among` are the ids of the calls that it can be; by default all that the transcript has not
        told yet.
        """
        left = {id: one for id, one in self._unpaired().items() if among is None or id in among}
        same = [id for id, one in left.items() if one == (tool, arguments)]
        return next(iter([*same, *(id for id, one in left.items() if one[0] == tool)]), "")

    def pair(self, call_id: str, tool: str, arguments: Any) -> str:
        """The id on record of the call that the transcript tells under the client's own id.

        The client's own id where no call on record is meant.
        """
        if call_id not in self._paired and (made := self.match(tool, arguments)):
            self._paired[call_id] = made
            del self._unpaired()[made]
        return self._paired.get(call_id, call_id)

    def _unpaired(self) -> dict[str, tuple[str, Any]]:
        """The tool and the arguments of each call that no transcript told yet, by id, in order.

        Loaded from the log when it is asked for first: another process may have begun the calls.
        """
        if self._loaded is None:
            self._loaded = {}
            mine = CallFilter(session=self._session, newest_first=False, limit=None)
            for call in self._attachment.stored.reading.calls(mine):
                if is_unnamed(call):
                    request = request_event(self._attachment.stored, call)[1]
                    self._loaded[call.call_id] = (request.tool, request.arguments)
        return self._loaded
