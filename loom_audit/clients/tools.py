"""What a client's own tools may do, and which paths their arguments name."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from msgspec import Struct

from loom_audit.clients import fields
from loom_audit.clients.reports import CallBegan
from loom_audit.model.coverage import Effect

Names = tuple[str, ...]
"""Names of one argument: the first that is there counts."""


class ClientTools(Struct, frozen=True, kw_only=True):
    """The tools of a client, by what they may do; one that is not among them executes.

    `writes` and `patches` are by tool the argument that is the path, or the patch; a patch may be
    all there is of arguments. `folders` are by tool the argument that is the working directory.
    """

    read: frozenset[str]
    network: frozenset[str]
    writes: Mapping[str, Names] = {}
    patches: Mapping[str, Names] = {}
    folders: Mapping[str, Names] = {}

    def effect(self, tool: str) -> Effect:
        """The effect of the client's tool of this name; `execute` for one that is not listed."""
        if tool in self.writes or tool in self.patches:
            return "write"
        if tool in self.read:
            return "read"
        return "network" if tool in self.network else "execute"

    def began(
        self,
        session: str,
        call_id: str,
        tool: str,
        arguments: Any,
        at: datetime | None = None,
        cwd: str = "",
    ) -> CallBegan:
        """The report that a call was asked for in `cwd`, unless its arguments name another one."""
        given = arguments if isinstance(arguments, dict) else {}
        paths: tuple[str, ...] | None = None
        if tool in self.writes:
            paths = fields.as_paths([fields.text(given, *self.writes[tool])]) or None
        elif tool in self.patches:
            paths = fields.paths_of_patch(fields.text(given, *self.patches[tool]) or arguments)
        chosen = fields.text(given, *self.folders.get(tool, ()))
        return CallBegan(
            session=session,
            call_id=call_id,
            tool=tool,
            arguments=arguments,
            effect=self.effect(tool),
            at=at,
            cwd=chosen if chosen.startswith("/") else cwd,
            paths=paths,
        )
