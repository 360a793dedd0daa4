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
    """The answer of a gate: by whom and why; `arguments` replace the caller's when given.

    A `lasting` answer holds for the session. `recorded` says that the answer is on record already,
    and `states` to which files, by path, the answer is bound. With `flaw` nobody decided: the call
    cannot work.
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
    """Decides whether a call may run; may wait for a person, and denies when it cannot ask."""

    async def decide(
        self, tool: "Tool", args: Any, ctx: "ToolContext", *, asked: str = ""
    ) -> Decision:
        """Decide on valid arguments; `asked` is why the tool itself wants a person to be asked.

        An exception of a gate counts as a denial. Arguments that a gate puts in place are validated
        again.
        """
        ...


async def approval_reason(tool: "Tool", args: Any, ctx: "ToolContext") -> str:
    """Return why the tool itself wants a person to be asked; empty when the tool does not."""
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
    """Lets every call run without asking anybody and without a decision on record."""

    async def decide(
        self, tool: "Tool", args: Any, ctx: "ToolContext", *, asked: str = ""
    ) -> Decision:
        return Decision("allowed", "gate:allow-all")


class UnlessHeld:
    """Denies every call of a session while it is held; else another gate decides.

    A call that a person allowed is denied too when the session was held while the person thought.
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
    """Denies every call, or every call of the given effects."""

    def __init__(self, *effects: str, reason: str = "Nobody could be asked") -> None:
        self._effects = effects
        self._reason = reason

    async def decide(
        self, tool: "Tool", args: Any, ctx: "ToolContext", *, asked: str = ""
    ) -> Decision:
        if self._effects and tool.effects(args).isdisjoint(self._effects):
            return Decision("allowed", "gate:deny-all")
        return Decision("denied", "gate:deny-all", asked or self._reason)
