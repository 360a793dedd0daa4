"""What a look finds, batch by batch, and the ends of moves that wait for their other end."""

from collections.abc import Iterable, Mapping

from msgspec import Struct, field

from loom_audit.model.events import Untracked
from loom_audit.model.files import FileChange, Move
from loom_audit.model.text.display import visible_path
from loom_audit.ports import IndexEntry, LeftOutFiles

BATCH_BYTES = 8 * 1024 * 1024
"""Most bytes stored in one commit: half of what the ballast file frees on a full disk."""

ROW_BYTES = 2048
"""What a changed path takes in a commit beside content and path: its rows in manifest, keys and
tables, and its share of the pages that are written since hashes fall anywhere in an index."""

_WITHOUT_CONTENT = ("directory", "opaque")


class WholeLook(Struct):
    """What holds of a look as a whole; complete with its last batch.

    `left_out` counts the files that are out of scope, and `lost` says which of them are gone.
    `too_large` are recorded by hash. `tracked_again` are changed paths that were untracked until
    now, so that it is not known when and by whom they were changed. `unrecorded` are opaque entries
    that came or went and what was untracked and is gone. `written` are paths that changed in a
    moved folder of which at most one of both places is recorded. `apart` are the paths to which a
    file was moved that left its old path in another batch.
    """

    untracked: list[Untracked] = field(default_factory=list)
    too_large: list[str] = field(default_factory=list)
    tracked_again: list[str] = field(default_factory=list)
    unrecorded: list[str] = field(default_factory=list)
    left_out: LeftOutFiles = field(default_factory=dict)
    lost: tuple[str, ...] = ()
    written: list[str] = field(default_factory=list)
    apart: list[str] = field(default_factory=list)

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why coverage is less than full; at most ten reasons, and how many more there are."""
        texts = [f"too large, recorded by hash: {path}" for path in self.too_large]
        texts += [f"{u.reason}: {u.path}" for u in self.untracked]
        texts += [f"untracked until now: {path}" for path in self.tracked_again]
        texts += [f"not on record: {visible_path(path)}" for path in self.unrecorded]
        texts += [f"not on record: {one}" for one in self.lost]
        texts += [f"written in a folder that was moved: {visible_path(p)}" for p in self.written]
        texts += [f"a move that is not on record: {visible_path(path)}" for path in self.apart]
        more = len(texts) - 10
        return (*texts[:10], f"and {more} more") if more > 0 else tuple(texts)


class Batch(Struct):
    """What goes on record in one commit: changes against the log's tree, with their contents.

    `entries` are for the change index and `untracked` is what could not be looked at. `moves` are
    those with proof, `arrived` the created paths whose content came from a place that is not
    recorded, and `tracked_again` the paths that were untracked until now. `missed` are files that
    changed before the last look began and that the last look did not see. `look` is of all batches,
    the `last` of which ends it.
    """

    look: WholeLook = field(default_factory=WholeLook)
    changes: list[FileChange] = field(default_factory=list)
    entries: dict[str, IndexEntry | None] = field(default_factory=dict)
    untracked: list[Untracked] = field(default_factory=list)
    moves: tuple[Move, ...] = ()
    arrived: tuple[str, ...] = ()
    tracked_again: list[str] = field(default_factory=list)
    missed: set[str] = field(default_factory=set)
    last: bool = False
    _row_bytes: int = 0

    def add(self, change: FileChange) -> None:
        self.changes.append(change)
        self._row_bytes += ROW_BYTES + 2 * len(change.path)

    def is_full(self, content_bytes: int) -> bool:
        """Whether the batch is to be committed, with so many bytes of content that it stores."""
        return bool(self.changes) and self._row_bytes + content_bytes >= BATCH_BYTES


class Unmatched:
    """The files and folders of which a look has seen one end only, by identity or by path.

    The deletion of a file waits until it is found where the file is now, since both ends of a move
    have to be in one batch, and the deletion of a folder waits for what was in it. `gone` are the
    identities of what is not at its old path any more.
    """

    def __init__(self) -> None:
        self._files: dict[str, list[str]] = {}
        self._folders: list[str] = []
        self.gone: set[str] = set()
        self._came: dict[str, str] = {}

    def defer(self, path: str, identity: str, *, folder: bool) -> None:
        """Let the deletion at a path wait.

        `identity` is that of the file or folder that was there, "" where it is not known.
        """
        if folder:
            self._folders.append(path)
            if identity:
                self.gone.add(identity)
        else:
            self._files.setdefault(identity, []).append(path)

    def take(self, identity: str, path: str) -> list[str]:
        """Return the old path of the file that is here now, if its deletion waits; else none."""
        waiting = self._files.get(identity) if identity else None
        if not waiting:
            return []
        name = path.rpartition("/")[2]
        found = next((one for one in waiting if one.rpartition("/")[2] == name), waiting[0])
        waiting.remove(found)
        return [found]

    def take_files(self, folder: str = "", *, besides: str = "") -> list[str]:
        """The deletions of files, or those below a folder, but for that of one identity."""
        found = []
        for identity, waiting in self._files.items():
            if not besides or identity != besides:
                found += _taken(waiting, folder)
        return found

    def take_folders(self, folder: str = "") -> list[str]:
        """The deletions of folders, or those below a folder, the deepest first."""
        return sorted(_taken(self._folders, folder), key=lambda path: -path.count("/"))

    def note_ends(
        self,
        changes: Iterable[FileChange],
        moves: Iterable[Move],
        was: Mapping[str, str],
        now: Mapping[str, str],
    ) -> list[str]:
        """Remember the unmatched ends of moves in a batch.

        Returns the targets of the moves whose other end was in an earlier batch.

        `was` and `now` are the identities before and after, by path.
        """
        ends = {("from", move.source) for move in moves} | {("to", move.target) for move in moves}
        left: set[str] = set()
        came: dict[str, str] = {}
        for change in changes:
            path, old, new = change.path, was.get(change.path, ""), now.get(change.path, "")
            states = [state for state in (change.before, change.after) if state]
            if old == new or any(state.kind in _WITHOUT_CONTENT for state in states):
                continue
            if old and ("from", path) not in ends:
                left.add(old)
            if new and ("to", path) not in ends:
                came[new] = path
        apart = [self._came.pop(old) for old in left & self._came.keys()]
        apart += [came.pop(new) for new in self.gone & came.keys()]
        self.gone |= left
        self._came |= came
        return apart


def _taken(waiting: list[str], folder: str) -> list[str]:
    """Those of the paths that are below a folder, which do not wait any more; "" for the root."""
    found = [path for path in waiting if not folder or path.startswith(folder + "/")]
    if found:
        waiting[:] = [path for path in waiting if folder and not path.startswith(folder + "/")]
    return found
