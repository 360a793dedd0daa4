"""Left-out folders in plans: what calls of 0.2.0 and before say of those that came or went.

Such a folder was not an entry of the tree then. When one is gone it may have been renamed into the
scope, and what then appeared may be all that is left of it, so that a plan must not delete that.
"""

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping

from loom_audit.model.files import FileChange, parents
from loom_audit.model.plans.planning import Note, PathStep
from loom_audit.model.records import Call
from loom_audit.model.text.display import visible

REMADE = frozenset({"__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".hypothesis"})
"""Caches that tools make and delete by themselves in nearly every run, from what is on record:
counting them would leave hardly any call with full coverage, and they can be made again."""

_APPEARED = "appeared"
_REASON = re.compile("(.+) is not on record: (vanished|replaced|appeared)", re.DOTALL)


def is_remade(path: str) -> bool:
    """Whether a left-out folder is a cache by its name."""
    return path.rpartition("/")[2] in REMADE


def creation_events(steps: Iterable[PathStep]) -> dict[str, int]:
    """By path, the event that last created it or made it another kind of file."""
    changes = ((step.seq, step.change) for step in steps if step.change.after)
    return {
        change.path: seq
        for seq, change in changes
        if change.before is None or (change.after and change.before.kind != change.after.kind)
    }


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
        shown = visible(change.path)
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
    """The reasons in a call's coverage that name a left-out folder, with its path and kind."""
    for reason in call.coverage.reasons:
        if match := _REASON.fullmatch(reason):
            yield reason, match[1], match[2]
