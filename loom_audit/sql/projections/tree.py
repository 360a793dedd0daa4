"""The tree: at the head a table, at earlier points a keyframe and the changes and steps since.

What is untracked has an entry without a mode.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import cast

from loom_audit.model.continuity import TREE_FACTS, leaving
from loom_audit.model.events import FilesChanged, PathsUntracked, ScopeAccepted, TreeRelisted
from loom_audit.model.files import FileState
from loom_audit.sql.ground.conditions import chunks, in_values
from loom_audit.sql.ground.connection import Connection, Row
from loom_audit.sql.ground.connections import Connections
from loom_audit.sql.ground.packing import (
    below,
    check_numbers,
    corrupt_on_mismatch,
    pack_path,
    unpack_path,
)
from loom_audit.sql.ground.statements import prepare
from loom_audit.sql.projections.paths import numbers, states, steps
from loom_audit.sql.projections.rows import FollowedEvent, Rows

TABLES = ("tree_entry",)
FACTS = TREE_FACTS

_TOGETHER, _SPARSE = 200, 4
"""From so many numbers on, all between the ends are read, where one of so few is wanted."""

Listed = tuple[int, int, int, int | None]
"""A path's number, its st_mode, size, and its blob's number."""


# What is deleted and comes again is deleted first; what comes and is deleted is not set.
_DELETED = prepare(f"DELETE FROM tree_entry WHERE log = :log AND path = {numbers.PATH}")
_SET = prepare(
    f"INSERT INTO tree_entry (log, path, mode, size, blob) VALUES (:log, {numbers.PATH}, :mode, "
    f":size, {numbers.BLOB.format('blob')}) ON CONFLICT (log, path) DO UPDATE SET "
    "mode = excluded.mode, size = excluded.size, blob = excluded.blob"
)
# What was below a path that leaves the tree goes first; what comes there later in a commit is set.
_BELOW = "(SELECT number FROM path WHERE log = :log AND path > :inside AND path < :beyond)"
_EMPTIED = prepare(f"DELETE FROM tree_entry WHERE log = :log AND path IN {_BELOW}")
# A whole listing ends what is folded together, so it runs after what came before it.
_FORGOTTEN = prepare("DELETE FROM tree_entry WHERE log = :log")
_FIRST = "(SELECT max(seq) FROM tree_step WHERE log = :log AND what = 'begun' AND seq <= :until)"
_LISTING = (
    "FROM relisted r JOIN path p ON p.log = r.log AND p.path = r.path "
    "LEFT JOIN blob b ON b.sha256 = r.blob "
    f"WHERE r.log = :log AND r.seq >= {_FIRST} AND r.seq <= :until"
)
_LISTED = prepare(
    "INSERT INTO tree_entry (log, path, mode, size, blob) "
    f"SELECT r.log, p.number, r.mode, r.size, b.number {_LISTING}"
)
_LEFT_OUT = prepare(f"DELETE FROM tree_entry WHERE path IN {_BELOW} AND log = :log")
_MARKED = prepare(
    f"INSERT INTO tree_entry (log, path, mode, size) VALUES (:log, {numbers.PATH}, 0, 0) "
    "ON CONFLICT (log, path) DO UPDATE SET mode = 0, size = 0, blob = NULL"
)
STATEMENTS = (_EMPTIED, _DELETED, _SET, _FORGOTTEN, _LISTED, _LEFT_OUT, _MARKED)

_RELISTED = prepare(f"SELECT p.number, r.mode, r.size, b.number {_LISTING}")
_INSIDE = prepare(_BELOW[1:-1])
_NUMBER = prepare("SELECT number FROM path WHERE log = :log AND path = :path")
_HEAD = prepare("SELECT path, mode, size, blob FROM tree_entry WHERE log = :log ORDER BY path")
_SINCE = prepare(
    "SELECT path, new_mode, new_size, new_blob FROM file_change "
    "WHERE log = :log AND seq > :after AND seq <= :until ORDER BY seq, n"
)
_UNTRACKED = prepare("SELECT path FROM tree_entry WHERE log = :log AND mode = 0")
_CHANGED = prepare(
    "SELECT EXISTS (SELECT 1 FROM change_set WHERE log = :log AND seq > :after) "
    "OR EXISTS (SELECT 1 FROM tree_step WHERE log = :log AND seq > :after)"
)
_STATE = prepare(
    "SELECT f.seq, f.new_mode, f.new_size, b.sha256 FROM file_change f "
    "LEFT JOIN blob b ON b.number = f.new_blob WHERE f.log = :log AND f.seq <= :at "
    f"AND f.path = {numbers.PATH} ORDER BY f.seq DESC, f.n DESC LIMIT 1"
)
_NOW = prepare(
    "SELECT t.mode, t.size, b.sha256 FROM tree_entry t LEFT JOIN blob b ON b.number = t.blob "
    f"WHERE t.log = :log AND t.path = {numbers.PATH}"
)


def apply(event: FollowedEvent, rows: Rows) -> None:
    """Set what is at each path now; of several changes of one path the last counts."""
    match event.fact:
        case FilesChanged(changes=changes):
            for change in changes:
                _set(rows, change.path, change.after)
            for path in steps.emptied(changes):
                _empty(rows, path)
        case TreeRelisted(last=True) as fact:
            rows.add(_FORGOTTEN)
            rows.add(_LISTED, until=event.seq)
            for raw in map(pack_path, leaving(fact)):
                inside, beyond = below(raw)
                rows.add(_LEFT_OUT, inside=inside, beyond=beyond)
                rows.add(_MARKED, path=raw)
        case PathsUntracked() | ScopeAccepted() as fact:
            for path in leaving(fact):
                _empty(rows, path)
                rows.keep(_SET, pack_path(path), path=pack_path(path), mode=0, size=0, blob=None)


def _set(rows: Rows, name: str, state: FileState | None) -> None:
    path = pack_path(name)
    mode, size, blob = states.columns(state)
    if mode is None:
        rows.keep(_DELETED, path, path=path)
        rows.drop(_SET, path)
    else:
        rows.keep(_SET, path, path=path, mode=mode, size=size, blob=blob)


def _empty(rows: Rows, folder: str) -> None:
    inside, beyond = below(pack_path(folder))
    rows.add(_EMPTIED, inside=inside, beyond=beyond)
    rows.drop_all(_SET, lambda path: inside < path < beyond)


def listed(connection: Connection, log: int) -> list[Listed]:
    """The tree at the head, with paths and contents by their numbers."""
    return cast(list[Listed], _HEAD.rows(connection, log=log))


def marked(connection: Connection, log: int) -> list[Listed]:
    """The paths that are untracked at the head, by their numbers."""
    return [(row[0], 0, 0, None) for row in _UNTRACKED.rows(connection, log=log)]


def is_changed(connection: Connection, log: int, after: int) -> bool:
    """Whether the tree changed after this event."""
    return bool(_CHANGED.value(connection, log=log, after=after))


def advance(
    connection: Connection, log: int, entries: dict[int, Listed], start: int, until: int
) -> None:
    """Bring a tree from after event `start` to after event `until`, by the numbers of paths."""
    for seq, what, path in steps.between(connection, log, start, until):
        _follow_changes(connection, log, entries, start, seq)
        start = max(start, seq)
        if what == steps.LISTED:
            entries.clear()
            for row in _RELISTED.rows(connection, log=log, until=seq):
                entries[row[0]] = (row[0], row[1], row[2], row[3])
        elif what in (steps.LEFT, steps.EMPTIED):
            inside, beyond = below(path)
            for (number,) in _INSIDE.rows(connection, log=log, inside=inside, beyond=beyond):
                entries.pop(number, None)
            if what == steps.LEFT:
                for (number,) in _NUMBER.rows(connection, log=log, path=path):
                    entries[number] = (number, 0, 0, None)
    _follow_changes(connection, log, entries, start, until)


def of_changes(connection: Connection, log: int, until: int) -> list[Listed]:
    """The tree that changes alone make, as formats before 2.1 folded it."""
    entries: dict[int, Listed] = {}
    _follow_changes(connection, log, entries, 0, until)
    return [*entries.values()]


def _follow_changes(
    connection: Connection, log: int, entries: dict[int, Listed], start: int, until: int
) -> None:
    for row in _SINCE.rows(connection, log=log, after=start, until=until):
        if row[1] is None:
            entries.pop(row[0], None)
        else:
            entries[row[0]] = (row[0], row[1], row[2], row[3])


def to_tree(connection: Connection, entries: Iterable[Listed]) -> dict[str, FileState]:
    """The tree of a listing, by name, without what is untracked."""
    entries = [entry for entry in entries if entry[1]]
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
            found[unpack_path(paths[path])] = FileState(
                kind, None if blob is None else names[blob], bits, size, group, acl
            )
    return found


def since(
    connection: Connection, log: int, before: Iterable[Listed], paths: Collection[str]
) -> dict[str, FileState | None]:
    """The states at the head, at these paths and where the tree is not as it was listed."""
    was = {entry[0]: entry for entry in before}
    gone, now = dict(was), dict[int, Listed]()
    for row in _HEAD.each(connection, log=log):  # one by one: a large tree is not held twice
        if gone.pop(row[0], None) != row:
            now[row[0]] = (row[0], row[1], row[2], row[3])
    with corrupt_on_mismatch():
        names = _by_number(connection, "path", "path", {*gone, *now})
        # names are read of numbers in between as well, and what they are of is as it was
        found: dict[str, FileState | None] = {
            unpack_path(names[number]): None for number in (*gone, *now)
        }
    for some in chunks([pack_path(path) for path in paths if path not in found]):
        wanted, values = in_values("p", some)
        sql = f"SELECT number FROM path WHERE log = :log AND path IN ({wanted})"
        for (number,) in prepare(sql).rows(connection, log=log, **values):
            if number in was:
                now[number] = was[number]
    found.update(dict.fromkeys(paths))
    found.update(to_tree(connection, now.values()))
    return found


def to_untracked(connection: Connection, entries: Iterable[Listed]) -> set[str]:
    """The untracked paths of a listing, by name."""
    with corrupt_on_mismatch():
        marked = {entry[0] for entry in entries if not entry[1]}
        paths = _by_number(connection, "path", "path", marked)
        return {unpack_path(paths[number]) for number in marked}


def _by_number(
    connection: Connection, table: str, column: str, numbers: set[int]
) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    if len(numbers) > _TOGETHER:
        # numbers are given in order, so that most of those between the ends are wanted
        first, last = min(numbers), max(numbers)
        if last - first < _SPARSE * len(numbers):
            query = prepare(f"SELECT number, {column} FROM {table} WHERE number BETWEEN :a AND :z")
            return dict(query.rows(connection, a=first, z=last))
    for some in chunks(sorted(numbers)):
        wanted, values = in_values("n", some)
        sql = f"SELECT number, {column} FROM {table} WHERE number IN ({wanted})"
        found.update(prepare(sql).rows(connection, **values))
    return found


def state(connections: Connections, log: int, path: str, at: int | None) -> FileState | None:
    """The state of one path after event `at`, or at the head; None when absent."""
    if at is None:
        rows: Sequence[Row] = connections.rows(_NOW, log=log, path=pack_path(path))
        with corrupt_on_mismatch():
            return states.to_state(*rows[0]) if rows and rows[0][0] else None
    with connections.reading() as connection, corrupt_on_mismatch():
        last, listed = steps.last_step(connection, log, path, at)
        row = _STATE.first(connection, log=log, path=pack_path(path), at=at)
        if last and (row is None or row[0] <= last):
            return states.to_state(*listed) if listed else None
        return states.to_state(*row[1:]) if row else None
