"""What became of what a call changed."""

from collections.abc import Iterator, Mapping

from msgspec import Struct

from loom_audit.api.workspace import AuditedWorkspace
from loom_audit.history.read.aftermath import Aftermath, LaterReading, aftermath
from loom_audit.history.read.call_detail import CallDetail
from loom_audit.history.read.lines.contents import Contents
from loom_audit.model.authorship.clashes import Stretch, clashes
from loom_audit.model.authorship.net import NetFile, NetHunk, NetRun
from loom_audit.model.authorship.net_change import NetChange
from loom_audit.model.authorship.walk import UnreadableLines
from loom_audit.model.records import RecordedChange

__all__ = [
    "MOST",
    "Aftermath",
    "ChangedAgain",
    "LaterChanges",
    "aftermath_of",
]

MOST = 200
"""The number of paths of a call that are looked up."""
MOST_LATER = 50
"""The number of later changes of a file that are followed."""
MOST_BYTES = 1024 * 1024
"""The number of bytes over which it is not told what became of a content's lines."""


def aftermath_of(workspace: AuditedWorkspace, detail: CallDetail) -> list[Aftermath]:
    """Whether the first `MOST` paths that a call changed are as it left them. Corrupt."""
    return aftermath(workspace.timeline, detail.changes[:MOST], detail.recorded)


class ChangedAgain(Struct, frozen=True):
    """What changed a part again later, oldest first; `asks`: to take the part back now would ask
    which lines to keep.
    """

    by: tuple[RecordedChange, ...]
    asks: bool


class LaterChanges(Mapping[str, tuple[RecordedChange, RecordedChange]]):
    """What changed the files of a net change after its end: the first and the last change of each,
    of those that were, and what became of their parts.

    Each file is looked at once, when it is asked for: of hundreds of files a page shows a few.
    Every change is read from its event, and they lead to the file that is there now. Corrupt.
    """

    def __init__(self, workspace: AuditedWorkspace, net: NetChange) -> None:
        self._timeline = workspace.timeline
        self._read = Contents(workspace.blobs, MOST_BYTES).lines
        self._later = LaterReading(workspace.timeline)
        self._until = net.calls.until
        self._at_end = {file.path: file.after for file in net.files}
        self._ends: dict[str, tuple[RecordedChange, RecordedChange] | None] = {}
        self._known: dict[tuple[str, ...], Mapping[str, ChangedAgain]] = {}

    def __getitem__(self, path: str) -> tuple[RecordedChange, RecordedChange]:
        if path not in self._ends:
            self._ends[path] = self._later.ends(path, self._until, self._at_end[path])
        found = self._ends[path]
        if found is None:
            raise KeyError(path)
        return found

    def __iter__(self) -> Iterator[str]:
        return (path for path in self._at_end if path in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)

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
        if file.path not in self:
            return {}
        listed = self._timeline.history(file.path, limit=MOST_LATER + 1)
        later = [one for one in reversed(listed) if one.seq > self._until]
        if not later or len(later) > MOST_LATER:
            return {}
        later = self._later.all(file.path, self._until, file.after, later)
        if later[-1].change.after is None:
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
