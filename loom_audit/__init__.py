"""Flight recorder and time machine for AI-agent workspaces.

The names it gives are those of `loom_audit.public`, loaded when the first of them is used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from loom_audit.public import *  # noqa: F403 - the one list of them is there

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name == "__all__" or not name.startswith("_"):
        public = import_module("loom_audit.public")
        if name == "__all__":
            return [one for one in vars(public) if not one.startswith("_")]
        if hasattr(public, name):
            return getattr(public, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
