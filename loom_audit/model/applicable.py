"""The order in which events have to say changes of several owners, so that each applies."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar

from loom_audit.model.files import FileChange, is_directory, parents

Owner = TypeVar("Owner")


def in_applicable_order(
    changes_of: Mapping[Owner, Sequence[FileChange]],
) -> Iterator[tuple[Owner, list[FileChange]]]:
    """Yields each owner with as many of its changes as apply together, so that all apply in turn.

    An owner comes again where its changes cannot be said at once. A folder is there before what
    comes into it, and goes after what was in it, whoever does which.
    """
    if len(changes_of) < 2:
        yield from ((owner, [*part]) for owner, part in changes_of.items())
        return
    needs = _needs([change for part in changes_of.values() for change in part])
    waiting = {owner: [*part] for owner, part in changes_of.items()}
    pending = {change.path for part in changes_of.values() for change in part}
    while any(waiting.values()):
        for owner, part in waiting.items():
            ready = _ready(part, needs, pending)
            if ready:
                yield owner, ready
                said = {change.path for change in ready}
                pending -= said
                waiting[owner] = [change for change in part if change.path not in said]


def _needs(changes: Sequence[FileChange]) -> dict[str, set[str]]:
    """For each path those that have to be said no later than it."""
    by_path = {change.path: change for change in changes}
    needs: dict[str, set[str]] = {path: set() for path in by_path}
    for change in changes:
        for above in parents(change.path):
            folder = by_path.get(above)
            if folder is None:
                continue
            if change.after is not None and is_directory(folder.after):
                needs[change.path].add(above)
            if is_directory(folder.before) and not is_directory(folder.after):
                needs[above].add(change.path)
    return needs


def _ready(
    part: Sequence[FileChange], needs: Mapping[str, set[str]], pending: set[str]
) -> list[FileChange]:
    """The changes of one owner that wait for nothing but each other."""
    ready = {change.path for change in part}
    while late := {path for path in ready if (needs[path] & pending) - ready}:
        ready -= late
    return [change for change in part if change.path in ready]
