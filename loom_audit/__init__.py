"""Flight recorder and time machine for AI-agent workspaces.

The names it gives are those of `loom_audit.public`, each loaded when it is used.
"""

TYPE_CHECKING = False  # as of `typing`, which is not imported for it
if TYPE_CHECKING:
    from typing import Any

    from loom_audit.public import *  # noqa: F403 - the one list of them is there

__version__ = "0.2.0"


def __getattr__(name: str) -> "Any":
    from importlib import import_module

    from loom_audit.names import MODULES

    if name == "__all__":
        return [*MODULES]
    if name in MODULES:
        return getattr(import_module(MODULES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
