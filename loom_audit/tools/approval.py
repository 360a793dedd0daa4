"""The gate: says whether a call may run. The policies that ask people build on this port."""

from dataclasses import dataclass
from typing import Any, Literal, Protocol

from loom_audit.tools.tool import Tool


@dataclass(frozen=True, slots=True)
class Decision:
    """A gate's answer, by whom and why; `arguments` replace the caller's when given."""

    decision: Literal["allowed", "denied"]
    by: str
    reason: str = ""
    arguments: dict[str, Any] | None = None


class ApprovalGate(Protocol):
    """Says whether a call may run. May wait for a person; denies when it cannot ask."""

    async def decide(self, tool: Tool, args: Any, call_id: str, *, asked: str = "") -> Decision:
        """Decide on valid arguments; `asked` is why the tool itself wants somebody asked.

        An exception counts as a denial. Arguments it puts in place are validated again.
        """
        ...


class AllowAll:
    """Lets every call run: there is no gate. Nobody is asked, and no decision is recorded."""

    async def decide(self, tool: Tool, args: Any, call_id: str, *, asked: str = "") -> Decision:
        return Decision("allowed", "gate:allow-all")


class DenyAll:
    """Lets no call run, or none of the effects it is given."""

    def __init__(self, *effects: str, reason: str = "Nobody could be asked") -> None:
        self._effects = effects
        self._reason = reason

    async def decide(self, tool: Tool, args: Any, call_id: str, *, asked: str = "") -> Decision:
        if self._effects and tool.effect not in self._effects:
            return Decision("allowed", "gate:deny-all")
        return Decision("denied", "gate:deny-all", asked or self._reason)
