"""Calls of a client that our own MCP server carried out, and so has put on record itself."""

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
    """Whether a client's tool is one of our MCP server."""
    return _OURS.fullmatch(tool) is not None


class ServedCalls:
    """Which calls of a client's session are on record in the sessions of our server within it."""

    def __init__(self, attachment: Attachment, session: str) -> None:
        self._attachment = attachment
        self._tables = attachment.stored.tables
        self._session = session
        self._known: set[str] = set()
        self._taken = {True: set[int](), False: set[int]()}

    def has(self, began: CallBegan, *, heard: bool) -> bool:
        """Whether this call is on record there: by the client's id, else one with its arguments.

        One without the client's id is that of one call only, the oldest first; hooks (`heard`) and
        the transcript each tell of all. Not one that is on record in the client's own session, as
        those are that were denied before they got there.
        """
        name, call_id = _OURS.fullmatch(began.tool), safe_id(began.call_id)
        if name is None or (call_id and self._find(self._session, call_id)):
            return False
        if call_id in self._known:
            return True
        found = self._match(call_id, name[1], began.arguments or {}, self._taken[heard])
        if found is None:
            return False
        self._taken[heard].add(found.requested)
        if call_id:  # both name it so
            self._known.add(call_id)
            self._taken[not heard].add(found.requested)
        return True

    def _match(self, call_id: str, tool: str, arguments: Any, taken: set[int]) -> Call | None:
        within = [*self._sessions()]
        for session in within if call_id else ():
            if found := self._find(session, call_id):
                return found
        listed = [
            call
            for session in within
            for call in self._tables.calls(CallFilter(session=session, tool=tool))
            if call.requested not in taken and self._arguments(call) == arguments
        ]
        return min(listed, key=lambda call: call.requested, default=None)

    def _find(self, session: str, call_id: str) -> Call | None:
        with suppress(NotFound):
            return self._tables.call(session, call_id)
        return None

    def _sessions(self) -> Iterator[str]:
        for one in self._tables.sessions():
            if self._attachment.session_state(one.id).parent == self._session:
                yield one.id

    def _arguments(self, call: Call) -> Any:
        return request_event(self._attachment.stored, call)[1].arguments
