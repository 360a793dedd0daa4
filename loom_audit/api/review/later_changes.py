"""What became of what a call changed."""

from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from loom_audit.api.workspace import AuditedWorkspace
from loom_audit.history.read.aftermath import Aftermath, aftermath
from loom_audit.history.read.call_detail import CallDetail
from loom_audit.history.read.lines.contents import Contents
from loom_audit.model.authorship.clashes import Stretch, clashes
from loom_audit.model.authorship.net import NetFile, NetHunk, NetRun
from loom_audit.model.authorship.walk import UnreadableLines
from loom_audit.model.records import RecordedChange
from loom_audit.ports import Projections

__all__ = [
    "MOST",
    "Aftermath",
    "ChangedAgain",
    "LaterChanges",
    "RunsChangedAgain",
    "aftermath_of",
    "changed_later",
]

MOST = 200
"""The number of paths of a call that are looked up."""
MOST_LATER = 50
"""The number of later changes of a file that are followed."""
MOST_BYTES = 1024 * 1024
"""The number of bytes over which it is not told what became of a content's lines."""


def aftermath_of(workspace: AuditedWorkspace, detail: CallDetail) -> list[Aftermath]:
    """Whether the first `MOST` paths that a call changed are as it left them."""
    return aftermath(workspace.timeline.projections, detail.changes[:MOST], detail.recorded)


class ChangedAgain(Struct, frozen=True):
    """What changed a part again later, oldest first; `asks`: to take the part back now would ask
    which lines to keep.
    """

    by: tuple[RecordedChange, ...]
    asks: bool


class RunsChangedAgain:
    """What became of the parts of a net change up to an event; each file is looked at once, when it
    is asked for.

    By the contents on record and by which events the tables list for the path of the file.
    """

    def __init__(self, workspace: AuditedWorkspace, until: int) -> None:
        self._timeline = workspace.timeline
        self._read = Contents(workspace.blobs, MOST_BYTES).lines
        self._until = until
        self._known: dict[tuple[str, ...], Mapping[str, ChangedAgain]] = {}

    def of(self, file: NetFile) -> Mapping[str, ChangedAgain]:
        """The parts of a file that were changed again, by their names; none where that is not told:
        without lines, over 1 MiB, after more than 50 later changes, and where the file is gone.
        """
        key = (file.path, *(run.part for hunk in file.hunks for run in hunk.runs))
        if key not in self._known:
            self._known[key] = self._told_of(file)
        return self._known[key]

    def _told_of(self, file: NetFile) -> Mapping[str, ChangedAgain]:
        runs = [(hunk, run) for hunk in file.hunks for run in hunk.runs if run.part]
        text = self._read(file.after)
        if not runs or file.after is None or isinstance(text, UnreadableLines):
            return {}
        listed = self._timeline.history(file.path, limit=MOST_LATER + 1)
        later = [one for one in reversed(listed) if one.seq > self._until]
        if not later or len(later) > MOST_LATER or later[-1].change.after is None:
            return {}
        versions = [self._read(one.change.after) for one in later]
        told = [one for one in versions if not isinstance(one, UnreadableLines)]
        if len(told) < len(versions):
            return {}
        found = clashes(text, told, [_stretch(*one) for one in runs])
        return {
            run.part: ChangedAgain(tuple(later[n] for n in one.versions), one.asks)
            for (_, run), one in zip(runs, found, strict=True)
            if one.versions
        }


def _stretch(hunk: NetHunk, run: NetRun) -> Stretch:
    """Where a part is at the end of what is reviewed, counted from 0."""
    above = [line.new for line in hunk.lines[: run.start] if line.new is not None]
    own = hunk.lines[run.start : run.end]
    start = above[-1] if above else hunk.new_start - (hunk.new_count > 0)
    gone = tuple(line.content for line in own if line.kind == "-")
    return Stretch(start, start + sum(line.new is not None for line in own), gone)


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
