"""A look at the folders in which something happened, with the same result as a look at all."""

from collections.abc import Iterator
from stat import S_ISDIR

from msgspec.structs import replace

from loom_audit.disk.access.paths import join, split
from loom_audit.disk.looking.told_folders import ToldFolders
from loom_audit.disk.looking.walk import Scan, find_differences, walk
from loom_audit.model.files import parents
from loom_audit.ports import Stamp

Differences = Iterator[tuple[str, Stamp | str | None]]


def find_watched_differences(scan: Scan, watch: ToldFolders) -> Differences:
    """The differences by the folders in which something happened; of all where unknown."""
    if watch.begin(scan.scope, scan.excluded):
        yield from _TouchedFolders(scan, watch).differences()
    else:
        yield from find_differences(scan)
    for folder in scan.visited:
        if found := scan.linked.get(folder):
            watch.linked[folder] = found
        else:
            watch.linked.pop(folder, None)
    watch.mapped = _folders_of_mapped(scan)
    watch.end(scan.left_out)


def _folders_of_mapped(scan: Scan) -> set[str]:
    return {split(path)[0] for path in scan.mapped.values()}


class _TouchedFolders:
    """The folders that a look is of, each read once.

    `renewed` are the paths at which there may be another folder than the known one: what is there
    is read with all that is below. `closed` could not be entered, `gone` are not there any more.
    """

    def __init__(self, scan: Scan, watch: ToldFolders) -> None:
        self._watch = watch
        self._scan = replace(scan, part=self._enters)
        self._searched: set[int] = set()
        self._renewed = watch.renewed | scan.expected.unsettled
        self._closed: set[str] = set()
        self._gone: set[str] = set()
        self._reported: set[str] = set()
        self._first = {
            *watch.touched,
            *watch.linked,
            *(split(path)[0] for path in scan.expected.unsettled),
            *watch.folders.keys() & (watch.mapped | _folders_of_mapped(scan)),
        }
        watch.touched, watch.renewed = set(), set()

    def differences(self) -> Differences:
        scan = self._scan
        waiting = self._first
        while waiting:
            for folder in sorted(waiting):
                yield from self._look_at(folder)
            waiting = {split(folder)[0] for folder in self._gone} | self._with_other_names()
            waiting -= scan.visited | self._gone | self._closed
        yield from self._missing()
        for (folder, why), counted in self._watch.left_out.items():
            if folder not in scan.visited and not self._is_lost(folder):
                scan.left_out[folder, why] = counted

    def _look_at(self, folder: str) -> Differences:
        scan = self._scan
        above = (folder, *parents(folder))
        if folder in scan.visited or not self._closed.isdisjoint(above):
            return
        if any(path in scan.excluded for path in above):
            return
        for path, seen in walk(scan, folder):
            self._reported.add(path)
            if isinstance(seen, str):
                self._closed.add(path)
            elif S_ISDIR(seen.mode):
                self._renewed.add(path)
            yield path, seen
        if folder not in scan.visited and folder not in self._closed:
            self._gone.add(folder)

    def _enters(self, child: str) -> bool:
        """Whether a folder is read that was met in another that is read."""
        known = child in self._watch.folders and child in self._scan.expected.directories
        if known and self._renewed.isdisjoint((child, split(child)[0])):
            return False
        self._renewed.add(child)
        return True

    def _with_other_names(self) -> set[str]:
        """The folders of other names of files that have got several: they changed with them."""
        was = self._watch.linked
        new = {
            inode
            for folder, names in self._scan.linked.items()
            for name, inode in names.items()
            if was.get(folder, {}).get(name) != inode
        }
        new -= self._searched
        self._searched |= new
        if not new:
            return set()
        return {
            folder
            for folder, names in self._scan.expected.files.items()
            if any(stamp.ino in new for stamp in names.values())
        }

    def _missing(self) -> Differences:
        """The known paths that are there no more, of folders that are gone and of read ones."""
        scan, watch = self._scan, self._watch
        missing = scan.missing
        if any(
            path in scan.expected.directories
            or (path in watch.folders and path not in scan.visited)
            for path in self._renewed | self._gone
        ):
            for folder, names in scan.expected.files.items():
                if self._is_lost(folder):
                    missing += [join(folder, name) for name in names]
            missing += [folder for folder in scan.expected.directories if self._is_lost(folder)]
            for watched in (watch.folders, watch.linked):
                watch.forget([folder for folder in watched if self._is_lost(folder)])
        listed = self._reported | scan.visited
        yield from ((path, None) for path in dict.fromkeys(missing) if path not in listed)

    def _is_lost(self, folder: str) -> bool:
        """Whether a folder was not found where it was, or cannot be entered."""
        above = (folder, *parents(folder))
        return folder not in self._scan.visited and not all(
            places.isdisjoint(above) for places in (self._renewed, self._gone, self._closed)
        )
