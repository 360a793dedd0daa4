"""What a look finds, batch by batch, and the ends of moves that wait for their other end.

A look at a large workspace would not fit in memory, nor its commit on a full disk; so it goes on
record in batches. A move must have both its ends in one batch, or it would be a deletion and a
creation: of what is gone, the deletion waits until it is seen where the file is now.
"""

from collections.abc import Iterable, Mapping

from msgspec import Struct, field

from loom_audit.model.events import Untracked
from loom_audit.model.files import FileChange, Move
from loom_audit.model.text.display import visible
from loom_audit.ports import IndexEntry, LeftOutFiles

BATCH_BYTES = 8 * 1024 * 1024
"""Most bytes stored in one commit: half of what the ballast file frees on a full disk."""

ROW_BYTES = 2048
"""What a changed path takes in a commit beside content and path: its rows in manifest, keys and
tables, and its share of the pages that are written since hashes fall anywhere in an index."""

_WITHOUT_CONTENT = ("directory", "opaque")


class WholeLook(Struct):
    """What a look found out besides its changes; it is complete with the last batch.

    `untracked` could not be read. `left_out` counts the files that are out of scope, and `lost`
    says in words which of them are gone. `too_large` are files recorded by hash only.
    `tracked_again` are changed paths that were untracked until now: nobody knows when and by whom
    they were changed. `unrecorded` are opaque entries that came or went, and untracked paths that
    are gone. `written` are paths that changed in a moved folder whose inside is recorded at one of
    its places at most. `apart` are the new paths of moved files that left their old path in another
    batch.
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
        """Why the coverage of a look is less than full, for people: at most ten reasons, and how
        many more there are. () where it is full.
        """
        texts = [f"too large, recorded by hash: {path}" for path in self.too_large]
        texts += [f"{u.reason}: {u.path}" for u in self.untracked]
        texts += [f"untracked until now: {path}" for path in self.tracked_again]
        texts += [f"not on record: {visible(path)}" for path in self.unrecorded]
        texts += [f"not on record: {one}" for one in self.lost]
        texts += [f"written in a folder that was moved: {visible(p)}" for p in self.written]
        texts += [f"a move that is not on record: {visible(path)}" for path in self.apart]
        more = len(texts) - 10
        return (*texts[:10], f"and {more} more") if more > 0 else tuple(texts)


class Batch(Struct):
    """What of a look goes on record in one commit: changes against the log's tree.

    Their contents are in the store already and commit with them. `entries` are for the change index
    once that is done; None takes a path out of it. `untracked` could not be read. `moves` are those
    with proof that it is the same file. `arrived` are created paths whose content came from a place
    that is not recorded. `tracked_again` are changed paths that were untracked until now. `missed`
    are files that changed before the last look began, which did not see it. `look` is about all
    batches together; the `last` one ends it.
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
        """Put a change into the batch, and count what it will take in the commit."""
        self.changes.append(change)
        self._row_bytes += ROW_BYTES + 2 * len(change.path)

    def is_full(self, content_bytes: int) -> bool:
        """Whether the batch is to be committed: with `content_bytes`, those of the contents that
        are not durable yet, it takes `BATCH_BYTES` in the database.
        """
        return bool(self.changes) and self._row_bytes + content_bytes >= BATCH_BYTES


class Unmatched:
    """Deletions that wait: a file may be seen at another path, and a folder may have files in it.

    The deletion of a file waits until a look sees the file at its new path, since both ends of a
    move have to be in one batch. The deletion of a folder waits until all that was in it is
    deleted. Of the batches before, only identities are kept: `gone` are those of what is not at its
    old path any more.
    """

    def __init__(self) -> None:
        self._files: dict[str, list[str]] = {}
        self._folders: list[str] = []
        self.gone: set[str] = set()
        self._came: dict[str, str] = {}

    def defer(self, path: str, identity: str, *, folder: bool) -> None:
        """Let the deletion of what was at a path wait; `identity` is "" where it is not known."""
        if folder:
            self._folders.append(path)
            if identity:
                self.gone.add(identity)
        else:
            self._files.setdefault(identity, []).append(path)

    def take(self, identity: str, path: str) -> list[str]:
        """Take out the deletion of the file that is at `path` now: its old path, or no path.

        Of several names of one file it is the one of the same last name, if there is one.
        """
        waiting = self._files.get(identity) if identity else None
        if not waiting:
            return []
        name = path.rpartition("/")[2]
        found = next((one for one in waiting if one.rpartition("/")[2] == name), waiting[0])
        waiting.remove(found)
        return [found]

    def take_files(self, folder: str = "", *, besides: str = "") -> list[str]:
        """Take out the deletions of all files, or of those below a folder, but for one identity."""
        found = []
        for identity, waiting in self._files.items():
            if not besides or identity != besides:
                found += _taken(waiting, folder)
        return found

    def take_folders(self, folder: str = "") -> list[str]:
        """Take out the deletions of all folders, or of those below a folder, the deepest first."""
        return sorted(_taken(self._folders, folder), key=lambda path: -path.count("/"))

    def note_ends(
        self,
        changes: Iterable[FileChange],
        moves: Iterable[Move],
        was: Mapping[str, str],
        now: Mapping[str, str],
    ) -> list[str]:
        """Remember the ends of moves that a batch has and `moves` does not name.

        `was` and `now` are the identities before and after, by path. Returned are the targets of
        those moves whose other end was in an earlier batch: they cannot go on record any more.
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
    """Take from the waiting paths those below a folder, "" for the root, and return them."""
    found = [path for path in waiting if not folder or path.startswith(folder + "/")]
    if found:
        waiting[:] = [path for path in waiting if folder and not path.startswith(folder + "/")]
    return found
