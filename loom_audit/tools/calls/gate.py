"""The gate: says whether a call may run; `approvals/asking_gate.py` asks people."""

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Protocol

from msgspec import Struct

from loom_audit.errors import AuditError
from loom_audit.model.files import FileState
from loom_audit.model.records import SessionHold
from loom_audit.tools.calls.thread import in_thread

if TYPE_CHECKING:
    from loom_audit.tools.calls.context import ToolContext
    from loom_audit.tools.calls.tool import Tool


class Decision(Struct, frozen=True):
    """A gate's answer, by whom and why; `arguments` replace the caller's when given.

    A `lasting` one holds for the session. `recorded` says that it is on record already, and
    `states` what it is bound to, by path. With `flaw` nobody decided: the call cannot work.
    """

    decision: Literal["allowed", "denied"]
    by: str
    reason: str = ""
    arguments: dict[str, Any] | None = None
    lasting: bool = False
    recorded: bool = False
    states: Mapping[str, FileState | None] | None = None
    flaw: AuditError | None = None


class ApprovalGate(Protocol):
    """Says whether a call may run. May wait for a person; denies when it cannot ask."""

    async def decide(
        self, tool: "Tool", args: Any, ctx: "ToolContext", *, asked: str = ""
    ) -> Decision:
        """Decide on valid arguments; `asked` is why the tool itself wants somebody asked.

        An exception counts as a denial. Arguments it puts in place are validated again.
        """
        ...


async def approval_reason(tool: "Tool", args: Any, ctx: "ToolContext") -> str:
    """Why the tool itself wants a person to be asked; empty when it does not."""
    own = tool.requires_approval
    wanted: object = own
    if not isinstance(own, bool):
        given = (args, ctx)[: _taken(own)]
        wanted = await in_thread(partial(own, *given))
        if inspect.isawaitable(wanted):
            wanted = await wanted
    return wanted if isinstance(wanted, str) else f"{tool.name} asks first" if wanted else ""


def _taken(approval: Callable[..., Any]) -> int:
    """How many of arguments and context it takes: one where it cannot take both."""
    try:
        signature = inspect.signature(approval)
    except ValueError:
        return 2
    try:
        signature.bind(None, None)
    except TypeError:
        return 1
    return 2


class AllowAll:
    """Lets every call run: there is no gate. Nobody is asked, and no decision is recorded."""

    async def decide(
        self, tool: "Tool", args: Any, ctx: "ToolContext", *, asked: str = ""
    ) -> Decision:
        return Decision("allowed", "gate:allow-all")


class UnlessHeld:
    """Another gate, of a session that may be held: then it denies.

    Also what the other one allowed once somebody had answered, when it was held meanwhile.
    """

    def __init__(self, gate: ApprovalGate, held: Callable[[], SessionHold | None]) -> None:
        self._gate = gate
        self._held = held

    async def decide(
        self, tool: "Tool", args: Any, ctx: "ToolContext", *, asked: str = ""
    ) -> Decision:
        if held := self._held():
            return Decision("denied", held.by, held.refusal)
        answer = await self._gate.decide(tool, args, ctx, asked=asked)
        if answer.recorded and answer.decision == "allowed" and (held := self._held()):
            return Decision("denied", held.by, held.refusal)
        return answer


class DenyAll:
    """Lets no call run, or none of the effects it is given."""

    def __init__(self, *effects: str, reason: str = "Nobody could be asked") -> None:
        self._effects = effects
        self._reason = reason

    async def decide(
        self, tool: "Tool", args: Any, ctx: "ToolContext", *, asked: str = ""
    ) -> Decision:
        if self._effects and tool.effect not in self._effects:
            return Decision("allowed", "gate:deny-all")
        return Decision("denied", "gate:deny-all", asked or self._reason)
