"""Flight recorder and time machine for AI-agent workspaces.

The names it gives are those of `loom_audit.public`, each loaded when it is used.
"""

import re
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from loom_audit.public import *  # noqa: F403 - the one list of them is there

__version__ = "0.2.0"


@cache
def _modules() -> dict[str, str]:
    """The module of each public name, by the lines of `public`: they are read, not run."""
    lines = Path(__file__).with_name("public.py").read_text("utf-8")
    found = re.findall(r"^from (\S+) import (\w+) as \2$", lines, re.MULTILINE)
    return {name: module for module, name in found}


def __getattr__(name: str) -> Any:
    if name == "__all__":
        return [*_modules()]
    if name in _modules():
        return getattr(import_module(_modules()[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
