"""Which call took back which call or event, or which paths of it."""

from collections.abc import Collection, Iterator

from loom_audit.model.calls import took_back
from loom_audit.model.events import CallFinished
from loom_audit.model.plans.taking_back.taken_back import TakenBack, TakingBack
from loom_audit.sql.ground.conditions import Where, chunks
from loom_audit.sql.ground.connection import Connection
from loom_audit.sql.ground.packing import corrupt_on_mismatch, pack_path, unpack_path
from loom_audit.sql.ground.statements import insert_into, prepare
from loom_audit.sql.projections.rows import FollowedEvent, Rows

TABLES = ("revert", "revert_path")
FACTS = (CallFinished,)

_REVERTED = insert_into("revert", ("number", "target"))
_PATH_REVERTED = insert_into("revert_path", ("number", "target", "path"))
STATEMENTS = (_REVERTED, _PATH_REVERTED)

LONGEST = 8
"""The length of a chain of undo and redo beyond which all that took something back is read."""


def apply(event: FollowedEvent, rows: Rows) -> None:
    """Add a row for each call or event that a call took back, and each path of those in part."""
    match event.fact:
        case CallFinished() as fact:
            for one in took_back(event.seq, fact):
                if one.whole:
                    rows.add(_REVERTED, number=event.seq, target=one.target)
                for path in sorted(one.paths or ()):
                    packed = pack_path(path)
                    rows.add(_PATH_REVERTED, number=event.seq, target=one.target, path=packed)


def taken_back(connection: Connection, log: int, of: Collection[int] | None = None) -> TakenBack:
    """What calls took back: all, or what says whether these calls and events are taken back."""
    own = Where().also("log = :log", log=log)
    found: dict[tuple[int, int], TakingBack] = {}
    asked, wanted = set[int](), {*(of or ())}
    with corrupt_on_mismatch():
        if of is None:
            return TakenBack(_read(connection, own))
        # whether what took one back stands depends on what took that back, and so on
        for _ in range(LONGEST):
            asked |= wanted
            new = [
                one
                for some in chunks(sorted(wanted))
                for one in _read(connection, own.among("target", "t", some))
            ]
            found |= {(one.number, one.target): one for one in new}
            wanted = {one.number for one in new} - asked
            if not wanted:
                return TakenBack(found.values())
    return taken_back(connection, log).concerning(of)


def _read(connection: Connection, where: Where) -> Iterator[TakingBack]:
    whole = prepare(f"SELECT number, target FROM revert WHERE {where}")
    wholes = {(row[0], row[1]) for row in whole.rows(connection, **where.values)}
    in_part = prepare(f"SELECT number, target, path FROM revert_path WHERE {where}")
    named: dict[tuple[int, int], set[str]] = {}
    for number, target, path in in_part.rows(connection, **where.values):
        named.setdefault((number, target), set()).add(unpack_path(path))
    for number, target in wholes | named.keys():
        paths = named.get((number, target))
        named_only = None if paths is None else frozenset(paths)
        yield TakingBack(number, target, (number, target) in wholes, named_only)
