"""A workspace whose folder is gone or hidden: calls in it are refused, and on record."""

from collections.abc import Callable
from typing import Any, NoReturn, cast

from loom_audit.errors import NoWorkspace
from loom_audit.ports import Workspace


def gone(root: str) -> NoWorkspace:
    """The error about a workspace whose folder is not there."""
    return NoWorkspace(
        f"the workspace {root} is gone",
        hint="Move it back, say where it is (`loom-audit workspaces move OLD NEW`), or rebuild it "
        "from the record: `loom-audit replay POINT --to DIR`.",
        details={"root": root},
    )


def hidden(root: str) -> NoWorkspace:
    """The error about a workspace where a filesystem was mounted or unmounted.

    Nothing that is on record is there.
    """
    return NoWorkspace(
        f"the workspace {root} is hidden: something was mounted or unmounted there, and nothing "
        "that is on record is in it",
        hint="Unmount what covers it, or mount it again; nothing was recorded as deleted.",
        details={"root": root},
    )


def vanished_workspace(root: str, refusal: Callable[[str], NoWorkspace] = gone) -> Workspace:
    """A workspace of which only the root's path is known; all else raises NoWorkspace.

    So that calls in it can be refused, and put on record, like any other.
    """
    return cast("Workspace", _VanishedWorkspace(root, refusal))


class _VanishedWorkspace:
    def __init__(self, root: str, refusal: Callable[[str], NoWorkspace]) -> None:
        self.root = root
        self._error = refusal

    def __getattr__(self, _: str) -> Any:
        return self._refuse

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise self._error(self.root)
