"""How a tree changes besides by changes: paths that leave it, are emptied, or are listed anew.

A step of an event comes after the event's changes. `left`: the path is untracked from there on, and
all below it is in no tree. `emptied`: only what is below it, since its inside is not recorded.
`listed`: the tree is what the parts of a whole listing say, from the newest first part on.
"""

from collections.abc import Iterable, Sequence

from loom_audit.model.continuity import TREE_FACTS, leaving
from loom_audit.model.events import FilesChanged, TreeRelisted
from loom_audit.model.files import FileChange, is_opaque, parents
from loom_audit.sql.ground.conditions import in_values
from loom_audit.sql.ground.connection import Connection, Row
from loom_audit.sql.ground.packing import pack_path
from loom_audit.sql.ground.statements import insert_into, prepare
from loom_audit.sql.projections.paths import states
from loom_audit.sql.projections.rows import FollowedEvent, Rows

TABLES = ("tree_step", "relisted")
FACTS = TREE_FACTS

LEFT, EMPTIED, BEGUN, LISTED = "left", "emptied", "begun", "listed"

Step = tuple[int, str, bytes]
"""The event, what it does, and the path."""

_STEP = insert_into("tree_step", ("seq", "n", "what", "path"))
_RELISTED = insert_into("relisted", ("seq", "path", "mode", "size", "blob"))
STATEMENTS = (_STEP, _RELISTED)

_BETWEEN = prepare(
    "SELECT seq, what, path FROM tree_step "
    "WHERE log = :log AND seq > :after AND seq <= :until ORDER BY seq, n"
)
_LAST_LISTING = prepare(
    "SELECT max(seq) FROM tree_step WHERE log = :log AND what = 'listed' AND seq <= :until"
)
_BEGINNING = prepare(
    "SELECT max(seq) FROM tree_step WHERE log = :log AND what = 'begun' AND seq <= :until"
)
_ONE_LISTED = prepare(
    "SELECT mode, size, blob FROM relisted "
    "WHERE log = :log AND seq >= :first AND seq <= :until AND path = :path"
)


def apply(event: FollowedEvent, rows: Rows) -> None:
    """Add the steps of an event, and what a part of a whole listing lists."""
    found: list[tuple[str, str]] = []
    match event.fact:
        case FilesChanged(changes=changes):
            found = [(EMPTIED, path) for path in emptied(changes)]
        case TreeRelisted() as fact:
            found = [(BEGUN, "")] if fact.part == 1 else []
            found += [(LISTED, "")] if fact.last else []
            for change in fact.changes:
                mode, size, blob = states.columns(change.after)
                rows.add(
                    _RELISTED,
                    seq=event.seq,
                    path=pack_path(change.path),
                    mode=mode,
                    size=size,
                    blob=blob,
                )
    found += [(LEFT, path) for path in leaving(event.fact)]
    for n, (what, path) in enumerate(found):
        rows.add(_STEP, seq=event.seq, n=n, what=what, path=pack_path(path))


def emptied(changes: Iterable[FileChange]) -> Sequence[str]:
    """What the changes leave opaque: nothing below it is on record from there on."""
    last = {change.path: change.after for change in changes}
    return [path for path, after in last.items() if is_opaque(after)]


def between(connection: Connection, log: int, after: int, until: int) -> Sequence[Step]:
    """The steps of these events, in order."""
    rows = _BETWEEN.rows(connection, log=log, after=after, until=until)
    return [(seq, what, path) for seq, what, path in rows]


def first_part(connection: Connection, log: int, until: int) -> int:
    """The event that began the whole listing of which the last part is this event."""
    return int(_BEGINNING.value(connection, log=log, until=until) or until)


def last_step(connection: Connection, log: int, path: str, at: int) -> tuple[int, Row | None]:
    """The last step up to an event that tells of a path, 0 for none; what it lists there."""
    listed = _LAST_LISTING.value(connection, log=log, until=at) or 0
    above = [pack_path(one) for one in parents(path)]
    named, values = in_values("path", [*above, pack_path(path)])
    query = prepare(
        f"SELECT max(seq) FROM tree_step WHERE log = :log AND seq <= :at AND path IN ({named}) "
        "AND (what = 'left' OR (what = 'emptied' AND path <> :own))"
    )
    gone = query.value(connection, log=log, at=at, own=pack_path(path), **values) or 0
    if gone >= listed:
        return int(gone), None
    first = first_part(connection, log, listed)
    row = _ONE_LISTED.first(connection, log=log, first=first, until=listed, path=pack_path(path))
    return int(listed), row
