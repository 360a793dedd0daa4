"""A workspace that is gone: its calls are refused, and on record."""

from typing import Any, NoReturn, cast

from loom_audit.errors import NoWorkspace
from loom_audit.ports import Workspace


def vanished_workspace(root: str) -> Workspace:
    """A workspace of which only the root's path is known; all else raises NoWorkspace.

    So that calls in it can be refused, and put on record, like any other.
    """
    return cast("Workspace", _VanishedWorkspace(root))


class _VanishedWorkspace:
    def __init__(self, root: str) -> None:
        self.root = root

    def __getattr__(self, _: str) -> Any:
        return self._refuse

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise NoWorkspace(
            f"the workspace {self.root} is gone",
            hint="Move it back, or rebuild it from the record: `loom-audit replay POINT --to DIR`.",
            details={"root": self.root},
        )
