"""Which gate stands before calls, and what holds for tools, when the program names neither."""

import os
from typing import TYPE_CHECKING

from loom_audit.config import Settings, read_approvals, read_tool_settings
from loom_audit.errors import InvalidArguments
from loom_audit.tools.calls.gate import AllowAll, ApprovalGate
from loom_audit.tools.calls.settings import ToolSettings

if TYPE_CHECKING:
    from loom_audit.tools.approvals.asking_gate import AskCallback
    from loom_audit.tools.approvals.policy import Policy


def default_gate(
    settings: Settings, *, root: str | None = None, ask: "AskCallback | None" = None
) -> ApprovalGate:
    """The gate of `approvals.toml`; where there is none, every call is allowed.

    InvalidArguments when the file is not valid, or lies in the workspace at `root`: an agent
    could write its own rules there.
    """
    policy = policy_of(settings, root)
    if policy is None:
        return AllowAll()
    from loom_audit.tools.approvals.asking_gate import AskingGate

    return AskingGate(policy, ask=ask)


def policy_of(settings: Settings, root: str | None) -> "Policy | None":
    """The policy of `approvals.toml`; None without the file. InvalidArguments as `default_gate`."""
    policy = read_approvals(settings)
    if policy is not None and root is not None:
        _check_outside(settings, root)
    return policy


def default_settings(settings: Settings, root: str) -> ToolSettings:
    """The settings of `tools.toml`. InvalidArguments as `default_gate`."""
    chosen = read_tool_settings(settings)
    if chosen != ToolSettings():
        _check_outside(settings, root)
    return chosen


def _check_outside(settings: Settings, root: str) -> None:
    folder = os.path.realpath(settings.configuration)
    if (folder + os.sep).startswith(os.path.realpath(root) + os.sep):
        raise InvalidArguments(
            f"{settings.configuration} lies in the workspace {root}",
            hint="Move the configuration folder, or attach another directory.",
        )
