"""Folders that the scope leaves out, and `.git`: which came or went while a call ran.

What is in them is not on record. When one is gone it may have been renamed into the scope, and
what then appeared may be all that is left of it, so that a plan must not delete that.
"""

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from loom_audit.model.display import visible_path
from loom_audit.model.files import FileChange, parents
from loom_audit.model.planning import Note
from loom_audit.model.records import Call
from loom_audit.model.scope import Scope

REMADE = frozenset({"__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".hypothesis"})
"""Caches that tools make and delete by themselves in nearly every run, from what is on record:
counting them would leave hardly any call with full coverage, and they can be made again."""

MAX_REASONS = 10
_VANISHED, _REPLACED, _APPEARED = "vanished", "replaced", "appeared"
_ORDER = (_VANISHED, _REPLACED, _APPEARED)
_REASON = re.compile(f"(.+) is not on record: ({'|'.join(_ORDER)})", re.DOTALL)


@dataclass(frozen=True, slots=True)
class LeftOutFolders:
    """The topmost folders that one scan left out, with their inode numbers by path.

    `unread` are the folders that it could not read, `scope` is the scope it used.
    """

    inodes: Mapping[str, int] = field(default_factory=dict)
    unread: frozenset[str] = frozenset()
    scope: Scope = field(default_factory=Scope)

    def leaves_out(self, path: str) -> bool:
        """Whether the scope leaves out a folder at this path, and not one above it."""
        above = path.rpartition("/")[0]
        if above and not self.scope.includes(above, directory=True):
            return False
        return self.scope.excludes(path, directory=True) is not None


def left_out_changes(before: LeftOutFolders, after: LeftOutFolders) -> tuple[str, ...]:
    """The reasons why a call's coverage is not full, from the scans before and after it.

    A folder inside one that could not be read before does not count as appeared; a folder
    inside one that cannot be read now counts as vanished.
    """
    if before.inodes == after.inodes:
        return ()
    found = []
    for path in sorted(before.inodes.keys() | after.inodes.keys()):
        how = _compare(path, before, after)
        if how and path.rpartition("/")[2] not in REMADE:
            found.append((_ORDER.index(how), f"{visible_path(path)} is not on record: {how}"))
    reasons = [reason for _, reason in sorted(found)]
    more = len(reasons) - MAX_REASONS
    return (
        (*reasons[:MAX_REASONS], f"and {more} more are not on record")
        if more > 0
        else tuple(reasons)
    )


def _compare(path: str, before: LeftOutFolders, after: LeftOutFolders) -> str | None:
    old, new = before.inodes.get(path), after.inodes.get(path)
    if old == new:
        return None
    if old is None:
        unread = not before.unread.isdisjoint(parents(path))
        return _APPEARED if before.leaves_out(path) and not unread else None
    if new is None:
        return _VANISHED if after.leaves_out(path) else None
    return _REPLACED


def left_out_blocks(
    calls: Iterable[Call], changes: Iterable[FileChange], created: Mapping[str, int]
) -> dict[str, Note]:
    """Notes on the changes that must not be made when the calls are taken back, by path.

    These are changes at or under a path that came or went in one of the calls and, where one
    went, deletions of what was created in that call or since. `created` has the event at which
    a path was last created; a path that is not in it may have been created at any time.
    """
    touched: dict[str, Note] = {}
    lost: list[tuple[int, Note]] = []
    for call in sorted(calls, key=lambda call: call.requested):
        number = (call.seq or call.requested,)
        gone = []
        for reason, name, how in _gaps(call):
            touched[name] = Note(name, f"{reason}; nothing in it can be taken back", number)
            if how != _APPEARED:
                gone.append(reason)
        if gone:
            why = f"{'; '.join(gone)}; what appeared then or later is not deleted"
            lost.append((call.requested, Note("", why, number)))
    if not touched:
        return {}
    found: dict[str, Note] = {}
    for change in changes:
        shown = visible_path(change.path)
        note = next((touched[path] for path in (shown, *parents(shown)) if path in touched), None)
        if note is None and change.after is None and lost:
            # the last folder that went before the path was created most likely became it
            made = created.get(change.path)
            before = len(lost) if made is None else bisect_left(lost, made, key=lambda one: one[0])
            note = lost[before - 1][1] if before else None
        if note is not None:
            found[change.path] = Note(change.path, note.reason, note.calls)
    return found


def is_left_out_block(note: Note) -> bool:
    """Whether a plan's note is of `left_out_blocks`: only keeping the path lets the plan pass."""
    return " is not on record: " in note.reason


def _gaps(call: Call) -> Iterator[tuple[str, str, str]]:
    """The reasons of `left_out_changes` in a call's coverage, each with its path and kind."""
    for reason in call.coverage.reasons:
        if match := _REASON.fullmatch(reason):
            yield reason, match[1], match[2]
