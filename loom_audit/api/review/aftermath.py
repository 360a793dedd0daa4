"""What became of what a call changed."""

from collections.abc import Iterator, Mapping, Sequence

from loom_audit.api.workspace import AuditedWorkspace
from loom_audit.history.read.aftermath import Aftermath, aftermath
from loom_audit.history.read.call_detail import CallDetail
from loom_audit.model.records import RecordedChange
from loom_audit.ports import Projections

__all__ = ["MOST", "Aftermath", "LaterChanges", "aftermath_of", "changed_later"]

MOST = 200
"""So many paths of a call are looked up."""


def aftermath_of(workspace: AuditedWorkspace, detail: CallDetail) -> list[Aftermath]:
    """Whether the first `MOST` paths that a call changed are as it left them."""
    return aftermath(workspace.timeline.projections, detail.changes[:MOST], detail.recorded)


class LaterChanges(Mapping[str, tuple[RecordedChange, RecordedChange]]):
    """The first and the last change after an event of each of some paths, where there are any.

    Each is looked up when it is asked for: of hundreds of files a page shows a few.
    """

    def __init__(self, projections: Projections, paths: Sequence[str], after: int) -> None:
        self._projections = projections
        self._paths = dict.fromkeys(paths)
        self._after = after

    def __getitem__(self, path: str) -> tuple[RecordedChange, RecordedChange]:
        if path not in self._paths:
            raise KeyError(path)
        return self._projections.ends([path], self._after)[path]

    def __iter__(self) -> Iterator[str]:
        return iter(self._projections.ends([*self._paths], self._after))

    def __len__(self) -> int:
        return sum(1 for _ in self)


def changed_later(workspace: AuditedWorkspace, paths: Sequence[str], after: int) -> LaterChanges:
    """The first and the last change of each of these paths after an event, of those changed."""
    return LaterChanges(workspace.timeline.projections, paths, after)
