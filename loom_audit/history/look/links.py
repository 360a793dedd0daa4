"""Hard links: which paths are names of one file, as groups that stay the same from look to look.

`observe` gives a file with several names a group by which file it is, and that differs after a copy
of the workspace. Here the file gets the group that its names have on record, so that an unchanged
file has no change; and no group where only one of its names is in the workspace.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from stat import S_ISREG

from msgspec.structs import replace

from loom_audit.errors import Conflict
from loom_audit.history.ground.attachment import Attachment
from loom_audit.history.look.change_index import catch_up
from loom_audit.model.files import FileState
from loom_audit.ports import Stamp, Stamps

States = Mapping[str, FileState | None]
"""The state of each path, None where there is nothing."""

Names = dict[int, list[str]]
"""The paths that are names of one file, by the file's group."""


class Groups:
    """Gives each file one group. A recorded group goes to the first file that has a name in it."""

    def __init__(self, recorded: Callable[[str], FileState | None]) -> None:
        self._recorded = recorded
        self._given: dict[int, int] = {}

    def of(self, file: int, names: Sequence[str]) -> int | None:
        """The group of a file that has these names in the workspace; None where it has only one."""
        if len(names) < 2:
            return None
        if file not in self._given:
            states = (self._recorded(name) for name in sorted(names))
            known = (state.group for state in states if state and state.group is not None)
            taken = set(self._given.values())
            self._given[file] = next((group for group in known if group not in taken), file)
        return self._given[file]


class ScannedLinks:
    """The groups of the files that a scan looks at, by all their names in the workspace.

    `doubtful` are the paths that are looked at, `gone` and `known` what else the scan knows, and
    `recorded` gives the log's state of a path.
    """

    def __init__(
        self,
        doubtful: Iterable[tuple[str, Stamp]],
        gone: set[str],
        known: Stamps,
        recorded: Callable[[str], FileState | None],
    ) -> None:
        self._doubtful = doubtful
        self._gone = gone
        self._known = known
        self._names: dict[int, list[str]] | None = None
        self._groups = Groups(recorded)

    def with_group(self, path: str, state: FileState | None, stamp: Stamp) -> FileState | None:
        """The observed state, with the group that all names of its file get."""
        if state is None or state.group is None:
            return state
        if self._names is None:  # most scans see no file with several names
            self._names = self._all_names()
        names = self._names.get(stamp.ino, [path])
        return replace(state, group=self._groups.of(state.group, names))

    def _all_names(self) -> dict[int, list[str]]:
        names: dict[int, list[str]] = {}
        looked_at = {path: stamp.ino for path, stamp in self._doubtful if S_ISREG(stamp.mode)}
        for path, inode in looked_at.items():
            names.setdefault(inode, []).append(path)
        for folder, files in self._known.files.items():
            for name, stamp in files.items():
                if stamp.ino in names:
                    path = f"{folder}/{name}" if folder else name
                    if path not in looked_at and path not in self._gone:
                        names[stamp.ino].append(path)
        return names


def with_groups(
    attachment: Attachment,
    observed: States,
    *,
    wanted: Callable[[str], FileState | None] | None = None,
    names: Names | None = None,
) -> dict[str, FileState | None]:
    """The states that were observed at these paths, each with the group that its file gets.

    It is the group on record, or the one that `wanted` gives for a name. All names of each group
    are put into `names`. The workspace is walked where names are missing among the paths. The lock
    is held. Corrupt, and what the workspace raises.
    """
    result = dict(observed)
    files: Names = {}
    for path, state in observed.items():
        if state is not None and state.group is not None:
            files.setdefault(state.group, []).append(path)
    if not files:
        return result
    _add_missing_names(attachment, files)
    groups = Groups(wanted or attachment.stored.reading.state)
    for file, paths in files.items():
        group = groups.of(file, paths)
        if names is not None and group is not None:
            names[group] = paths
        for path in paths:
            if (state := result.get(path)) is not None:
                result[path] = replace(state, group=group)
    return result


def _add_missing_names(attachment: Attachment, files: Names) -> None:
    workspace = attachment.on_disk.workspace
    missing: dict[int, list[str]] = {}
    for paths in files.values():
        stamp = workspace.stamp(paths[0])
        if stamp is not None and len(paths) < workspace.links(paths[0]):
            missing[stamp.ino] = paths
    if not missing:
        return
    for path, seen in workspace.walk(attachment.scope, catch_up(attachment)):
        if isinstance(seen, str) or not S_ISREG(seen.mode):
            continue
        if path not in missing.get(seen.ino, [path]):
            missing[seen.ino].append(path)


def divided_error(names: Iterable[str]) -> Conflict:
    """The error for a change after which names of one file would not be names of one file."""
    first, *_ = sorted(names)
    return Conflict(
        f"{first} is a hard link, and its names would get different contents",
        hint="Change one of them at a time.",
        details={"path": first},
    )
