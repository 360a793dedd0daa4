"""Which gate stands before calls when the program names none."""

import os

from loom_audit.config import Settings, read_approvals
from loom_audit.errors import InvalidArguments
from loom_audit.tools.approval import AllowAll, ApprovalGate
from loom_audit.tools.asking import Asked, AskingGate


def default_gate(
    settings: Settings, *, root: str | None = None, ask: Asked | None = None
) -> ApprovalGate:
    """The gate of `approvals.toml`; where there is none, every call is allowed.

    InvalidArguments when the file is not valid, or lies in the workspace at `root`: an agent
    could write its own rules there.
    """
    policy = read_approvals(settings)
    if policy is None:
        return AllowAll()
    folder = os.path.realpath(settings.configuration)
    if root is not None and (folder + os.sep).startswith(os.path.realpath(root) + os.sep):
        raise InvalidArguments(
            f"{settings.configuration} lies in the workspace {root}",
            hint="Move the configuration folder, or attach another directory.",
        )
    return AskingGate(policy, ask=ask)
