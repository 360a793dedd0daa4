"""The tree: at the head a table, at earlier points a keyframe and the changes since."""

from collections.abc import Iterable

from loom_audit.model.events import FilesChanged
from loom_audit.model.files import FileState
from loom_audit.sql.conditions import chunks, in_list
from loom_audit.sql.connection import LARGEST, Connection
from loom_audit.sql.connections import Connections
from loom_audit.sql.packing import check_numbers, corrupt_on_mismatch
from loom_audit.sql.projections import numbers, states
from loom_audit.sql.projections.rows import FollowedEvent, Rows
from loom_audit.sql.statements import prepare

TABLES = ("tree_entry",)
FACTS = (FilesChanged,)

Listed = tuple[int, int, int, int | None]
"""A path's number, its st_mode, size, and its blob's number."""


# What is deleted and comes again is deleted first; what comes and is deleted is not set.
_DELETED = prepare(f"DELETE FROM tree_entry WHERE log = :log AND path = {numbers.PATH}")
_SET = prepare(
    f"INSERT INTO tree_entry (log, path, mode, size, blob) VALUES (:log, {numbers.PATH}, :mode, "
    f":size, {numbers.BLOB.format('blob')}) ON CONFLICT (log, path) DO UPDATE SET "
    "mode = excluded.mode, size = excluded.size, blob = excluded.blob"
)
STATEMENTS = (_DELETED, _SET)

_HEAD = prepare("SELECT path, mode, size, blob FROM tree_entry WHERE log = :log ORDER BY path")
_SINCE = prepare(
    "SELECT path, new_mode, new_size, new_blob FROM file_change "
    "WHERE log = :log AND seq > :after AND seq <= :until ORDER BY seq, n"
)
_STATE = prepare(
    "SELECT f.new_mode, f.new_size, b.sha256 FROM file_change f "
    "LEFT JOIN blob b ON b.number = f.new_blob WHERE f.log = :log AND f.seq <= :at "
    f"AND f.path = {numbers.PATH} ORDER BY f.seq DESC, f.n DESC LIMIT 1"
)


def apply(event: FollowedEvent, rows: Rows) -> None:
    """What is at each path now; of several changes of one path the last counts."""
    fact = event.fact
    if not isinstance(fact, FilesChanged):
        return
    for change in fact.changes:
        path = change.path.encode("utf-8", "surrogateescape")
        mode, size, blob = states.columns(change.after)
        if mode is None:
            rows.keep(_DELETED, path, path=path)
            rows.drop(_SET, path)
        else:
            rows.keep(_SET, path, path=path, mode=mode, size=size, blob=blob)


def listed(connection: Connection, log: int) -> list[Listed]:
    """The tree at the head, by the paths' numbers."""
    rows = _HEAD.rows(connection, log=log)
    return [(path, mode, size, blob) for path, mode, size, blob in rows]


def advance(
    connection: Connection, log: int, entries: dict[int, Listed], start: int, until: int
) -> None:
    """Bring a tree, by the paths' numbers, from after event `start` to after event `until`."""
    for row in _SINCE.rows(connection, log=log, after=start, until=until):
        if row[1] is None:
            entries.pop(row[0], None)
        else:
            entries[row[0]] = (row[0], row[1], row[2], row[3])


def to_tree(connection: Connection, entries: Iterable[Listed]) -> dict[str, FileState]:
    """What is listed, by name."""
    entries = list(entries)
    found: dict[str, FileState] = {}
    with corrupt_on_mismatch():
        paths = _by_number(connection, "path", "path", {entry[0] for entry in entries})
        blobs = {entry[3] for entry in entries if entry[3] is not None}
        hashes = _by_number(connection, "blob", "sha256", blobs)
        names = {number: states.blob_id(hash) for number, hash in hashes.items()}
        modes = {entry[1] for entry in entries}
        shapes = {mode: states.shape(mode) for mode in modes}
        check_numbers(*{entry[2] for entry in entries})
        for path, mode, size, blob in entries:
            kind, bits, group, acl = shapes[mode]
            found[paths[path].decode("utf-8", "surrogateescape")] = FileState(
                kind, None if blob is None else names[blob], bits, size, group, acl
            )
    return found


def _by_number(
    connection: Connection, table: str, column: str, numbers: Iterable[int]
) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    for some in chunks(sorted(numbers)):
        wanted, values = in_list("n", some)
        sql = f"SELECT number, {column} FROM {table} WHERE number IN ({wanted})"
        found.update(prepare(sql).rows(connection, **values))
    return found


def state(connections: Connections, log: int, path: str, at: int | None) -> FileState | None:
    """One path after event `at`; None for the head."""
    raw = path.encode("utf-8", "surrogateescape")
    rows = connections.rows(_STATE, log=log, path=raw, at=LARGEST if at is None else at)
    with corrupt_on_mismatch():
        return states.to_state(*rows[0]) if rows else None
