"""Recognizes the calls of a client that our own MCP server carried out.

The server has put them on record itself, in a session of its own within that of the client. The
client's hooks and transcript tell of them once more.
"""

import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from loom_audit.clients.reports import CallBegan
from loom_audit.errors import NotFound
from loom_audit.history.ground.attachment import Attachment
from loom_audit.history.look.attribution import request_event
from loom_audit.history.told.reported import safe_id
from loom_audit.model.records import Call
from loom_audit.ports import CallFilter

_OURS = re.compile(r"(?:mcp_{1,2})?loom[-_]audit_{1,2}(\w+)")
"""How clients name a tool of the MCP server called loom-audit: Claude Code and Codex
`mcp__loom-audit__read_file`, Gemini CLI `mcp_loom-audit_read_file`, opencode
`loom-audit_read_file`."""


def is_served(tool: str) -> bool:
    """Whether a client's tool is one of our MCP server, by its name."""
    return _OURS.fullmatch(tool) is not None


class ServedCalls:
    """The calls on record in the sessions of our server within one session of a client."""

    def __init__(self, attachment: Attachment, session: str) -> None:
        self._attachment = attachment
        self._tables = attachment.stored.tables
        self._session = session
        self._known: set[str] = set()
        self._taken = {True: set[int](), False: set[int]()}
        """The calls on record that hooks (True) and the transcript (False) have told already."""

    def has(self, began: CallBegan, *, by_hook: bool) -> bool:
        """Whether the server has put a call on record that a hook or the transcript tells.

        It is the one of the client's id; where none has that id, the oldest of the same tool and
        arguments that was not taken for another one. Hooks (`by_hook`) and the transcript each tell
        all calls, so for each a call is taken once. False for a call that is on record in the
        client's own session: it was denied before it came to the server.
        """
        name, call_id = _OURS.fullmatch(began.tool), safe_id(began.call_id)
        if name is None or (call_id and self._find(self._session, call_id)):
            return False
        if call_id in self._known:
            return True
        found = self._match(call_id, name[1], began.arguments or {}, self._taken[by_hook])
        if found is None:
            return False
        self._taken[by_hook].add(found.requested)
        if call_id:  # hooks and transcript both tell it by this id
            self._known.add(call_id)
            self._taken[not by_hook].add(found.requested)
        return True

    def _match(self, call_id: str, tool: str, arguments: Any, taken: set[int]) -> Call | None:
        within = [*self._sessions()]
        for session in within if call_id else ():
            if found := self._find(session, call_id):
                return found
        alike = [
            call
            for session in within
            for call in self._tables.calls(CallFilter(session=session, tool=tool))
            if call.requested not in taken and self._arguments(call) == arguments
        ]
        return min(alike, key=lambda call: call.requested, default=None)

    def _find(self, session: str, call_id: str) -> Call | None:
        with suppress(NotFound):
            return self._tables.call(session, call_id)
        return None

    def _sessions(self) -> Iterator[str]:
        """The sessions within that of the client."""
        for one in self._tables.sessions():
            if self._attachment.session_state(one.id).parent == self._session:
                yield one.id

    def _arguments(self, call: Call) -> Any:
        return request_event(self._attachment.stored, call)[1].arguments
