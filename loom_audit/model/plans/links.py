"""Hard links: names of one file, which have the same group and change together. Pure functions."""

from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from loom_audit.model.files import FileChange, FileState, Tree

Inode = tuple[int | None, str]
"""A file by its group, or by its path where it has one name."""


def without_group(state: FileState | None) -> FileState | None:
    """The state as the file shows it alone, whatever other names it has."""
    return state and replace(state, group=None)


def groups_in(changes: Iterable[FileChange]) -> frozenset[int]:
    """The groups that the changes begin or end with."""
    states = (state for change in changes for state in (change.before, change.after))
    return frozenset(state.group for state in states if state and state.group is not None)


def names_by_group(tree: Tree, groups: Iterable[int]) -> dict[int, dict[str, FileState]]:
    """The names of each of these groups, with their states."""
    found: dict[int, dict[str, FileState]] = {group: {} for group in groups}
    if found:
        for path, state in tree.items():
            if state.group in found and state.group is not None:
                found[state.group][path] = state
    return found


def whole_groups(
    changes: Sequence[FileChange], tree: Tree
) -> tuple[Sequence[FileChange], frozenset[str]]:
    """The changes with all names of every group, and names that cannot stay one file.

    What changes one name changes all that are the same file now; a name that comes to them changes
    none. A name that is left alone has no group any more. The names that are returned are to have
    different contents, although they have one group.
    """
    groups = groups_in(changes)
    if not groups:
        return changes, frozenset()
    wanted = {change.path: change.after for change in changes}
    after = {path: state for path, state in tree.items() if path not in wanted}
    after.update({path: state for path, state in wanted.items() if state is not None})
    divided: set[str] = set()
    for group, names in names_by_group(after, groups).items():
        if len(names) == 1:
            wanted.update({path: replace(state, group=None) for path, state in names.items()})
            continue
        same = {path for path in names if (now := tree.get(path)) and now.group == group}
        changed = {names[path] for path in same if not is_same_file(tree[path], names[path])}
        if len(changed) == 1:
            names.update(dict.fromkeys(same, changed.pop()))
        if len(set(names.values())) == 1:
            wanted.update(names)
        else:
            divided |= names.keys()
    listed = (FileChange(path, tree.get(path), state) for path, state in wanted.items())
    return [change for change in listed if change.before != change.after], frozenset(divided)


def names_written_along(
    changes: Iterable[FileChange], whole: Iterable[FileChange]
) -> Mapping[str, str]:
    """The names that get another content or mode only because another name of the file does.

    By name that other one; `whole` are the changes with all names.
    """
    own = {change.path for change in changes}
    first: dict[int, str] = {}
    added = []
    for change in whole:
        if change.after is None or change.after.group is None:
            continue
        if change.path in own:
            first.setdefault(change.after.group, change.path)
        elif not is_same_file(change.before, change.after):
            added.append((change.path, change.after.group))
    return {path: first[group] for path, group in added if group in first}


def is_same_file(one: FileState | None, other: FileState | None) -> bool:
    """Whether two states differ in their group at most."""
    return one is not None and other is not None and replace(one, group=other.group) == other


def sources(changes: Iterable[FileChange], tree: Tree) -> Mapping[str, str]:
    """What need not be written: by path the name of which it becomes another, itself if it stays.

    Of the files on disk that have the right content each is kept for one group at most. Where none
    has it, the first name that has an access control list is written, if the file is to have one.
    """
    listed = sorted(changes, key=lambda change: change.path)
    groups = groups_in(listed)
    if not groups:
        return {}
    changed = {change.path for change in listed}
    homes: dict[Inode, tuple[Inode, str]] = {}
    for group, names in names_by_group(tree, groups).items():
        for path in sorted(names.keys() - changed)[:1]:
            homes[group, ""] = ((group, ""), path)
    taken = {inode: group for group, (inode, _) in homes.items()}
    found: dict[str, str] = {}
    for change in listed:
        if is_same_file(change.before, change.after):
            now, then = _inode(change.path, change.before), _inode(change.path, change.after)
            if (
                taken.setdefault(now, then) == then
                and homes.setdefault(then, (now, change.path))[0] == now
            ):
                found[change.path] = change.path
    for change in sorted(listed, key=_loses_its_acl):
        then = _inode(change.path, change.after)
        if change.path not in found and then[0] is not None:
            home = homes.setdefault(then, (then, change.path))[1]
            if home != change.path:
                found[change.path] = home
    return found


def _loses_its_acl(change: FileChange) -> bool:
    before, after = change.before, change.after
    return not (before and before.acl and after and after.acl)


def _inode(path: str, state: FileState | None) -> Inode:
    group = None if state is None else state.group
    return (None, path) if group is None else (group, "")
