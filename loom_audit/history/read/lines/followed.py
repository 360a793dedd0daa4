"""The lines of one file followed over its versions, from the newest line map that is kept."""

from collections.abc import Sequence

from msgspec import Struct, field

from loom_audit.model.authorship.blame import Blame, blame_runs
from loom_audit.model.authorship.line_map import (
    LineMap,
    begun_walk,
    decoded_map,
    encoded_map,
    is_borne_out,
    last_steps,
    line_map,
    names_of,
)
from loom_audit.model.authorship.versions import Version
from loom_audit.model.authorship.walk import Read, UnreadableLines, Walk, walked
from loom_audit.model.files import FileState
from loom_audit.ports import LineMaps, OnProgress, Progress

FROM_BYTES = 1024 * 1024
"""Where the contents of all versions are fewer bytes together, the lines are followed each time."""

_ALWAYS = 4
"""The number of the last versions that have maps of their own: the next may take them back."""


class FileVersions(Struct, frozen=True):
    """The verified versions that led to what a file is at a point.

    `names` are those of their maps, none where no maps are used. The map `kept`, if there is one,
    is of the version `start`; it is checked when lines are told by it.
    """

    path: str
    at: int
    state: FileState
    versions: tuple[Version, ...]
    names: Sequence[bytes] = ()
    start: int = -1
    kept: LineMap | None = None

    @property
    def work(self) -> int:
        """The bytes of the contents that have to be read to follow the lines."""
        return _bytes(self.versions[self.start + 1 :])


class FollowedFile(Struct):
    """A file at a point with the map of its lines, or the reason why they cannot be told.

    With `unproven` the map was made from a kept one; `proven` are the windows that were checked.
    """

    file: FileVersions
    map: LineMap
    reason: str = ""
    unproven: bool = False
    proven: set[tuple[int, int]] = field(default_factory=set)


def with_maps(file: FileVersions, maps: LineMaps) -> FileVersions:
    """Return the versions with the newest map from which the lines can be followed."""
    if _bytes(file.versions) < FROM_BYTES:
        return file
    names = names_of(file.versions)
    steps = last_steps(file.versions)
    found = maps.newest([names[n] for n in steps])
    kept, start = None, -1
    if found is not None:
        start = steps[found[0]]
        kept = decoded_map(found[1], start)
        if kept is None:
            maps.discard(names[start])
            start = -1
    return FileVersions(file.path, file.at, file.state, file.versions, names, start, kept)


def without_map(file: FileVersions) -> FileVersions:
    """Return the same, to be followed from the first version."""
    return FileVersions(file.path, file.at, file.state, file.versions, file.names)


def follow(
    file: FileVersions, read: Read, maps: LineMaps | None, progress: OnProgress | None = None
) -> FollowedFile:
    """Follow the lines to the last version, and keep the maps of some on the way."""
    versions, start, begun = file.versions, file.start, None
    if file.kept is not None and start == len(versions) - 1:
        return FollowedFile(file, file.kept, unproven=True)
    if file.kept is not None:
        begun = begun_walk(file.kept, read(versions[start].after))
        if begun is None:
            return follow(without_map(file), read, maps, progress)
    total, made = len(versions), dict[bytes, bytes]()
    kept = _kept_steps(start, total) if file.names and maps else frozenset[int]()
    done = Walk()
    for n, done in walked(versions, read, start=start, begun=begun):
        if n in kept and not done.reason:
            made[file.names[n]] = encoded_map(line_map(done))
        if progress is not None:
            progress(Progress("following the lines", n + 1, total, "versions"))
    if made and maps:
        maps.keep(made)
    return FollowedFile(file, line_map(done), done.reason, unproven=begun is not None)


def window(
    followed: FollowedFile,
    read: Read,
    maps: LineMaps | None,
    first: int,
    last: int | None,
) -> Blame:
    """Tell who wrote the lines `first` to `last`.

    A map that was kept and is not borne out by the contents is forgotten, and the lines are
    followed from the first version.
    """
    file = followed.file
    texts: Sequence[bytes] = ()
    if not followed.reason:
        found = read(file.state)
        if isinstance(found, UnreadableLines):
            followed.reason = found.reason
        else:
            texts = found
    count = len(texts)
    end = count if last is None else min(last, count)
    start = min(first, end + 1)
    shown = tuple(texts[start - 1 : end])
    if followed.unproven and (start, end) not in followed.proven:
        borne_out = is_borne_out(followed.map, file.versions, read, shown, start)
        if borne_out and followed.map.count == count:
            followed.proven.add((start, end))
        else:
            if maps:
                maps.discard(file.names[file.start])
            again = follow(without_map(file), read, maps)
            followed.map, followed.unproven = again.map, False
    return Blame(
        path=file.path,
        at=file.at,
        state=file.state,
        lines=count,
        first=start,
        last=end,
        runs=blame_runs(followed.map, file.versions, start, end),
        texts=shown,
        versions=len(file.versions),
        reason=followed.reason,
    )


def _kept_steps(start: int, total: int) -> frozenset[int]:
    """The versions after `start` of which maps are kept: the last few, and before them fewer and
    fewer, so that what is taken back later, or asked at an earlier point, is near one.
    """
    found, back = set[int](), 1
    while (n := total - back) > start:
        found.add(n)
        back = back + 1 if back < _ALWAYS else back * 2
    return frozenset(found)


def _bytes(versions: Sequence[Version]) -> int:
    return sum(one.after.size for one in versions if one.after is not None)
