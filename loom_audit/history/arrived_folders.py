"""Folders that arrived: which opaque entry a folder in scope was, by the log and by the disk.

Such a folder may be wanted again under the name that it had where it was not recorded, and only the
folder itself can be. So what moves it renames it, however often it was moved since.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from stat import S_ISDIR

from msgspec.structs import replace

from loom_audit.errors import PermissionDenied
from loom_audit.history.aside import special_kind
from loom_audit.history.attachment import Attachment
from loom_audit.history.border import FolderPlan
from loom_audit.model.events import FilesChanged
from loom_audit.model.files import (
    FileState,
    Move,
    Tree,
    is_directory,
    is_opaque,
    is_within,
    paths_inside,
    with_folders_above,
)
from loom_audit.model.left_out import is_remade
from loom_audit.model.lineage import PathStep
from loom_audit.model.planning import MOVES_ALONG, Note, Plan
from loom_audit.model.whole_folders import whole_renames
from loom_audit.ports import EventFilter

Facts = Callable[[Set[int]], Mapping[int, FilesChanged]]
"""What these events say of how files changed."""

AT_ONCE = 500
"""So many paths are asked for in one query."""


class Arrivals:
    """Tells by the log which opaque entries folders in scope were."""

    def __init__(self, attachment: Attachment, facts: Facts | None = None) -> None:
        self._attachment = attachment
        self._facts = facts or self._read
        self._known: dict[int, _Event | None] = {}
        self._makings: dict[str, list[tuple[int, bool]]] = {}

    def identities(self, folders: Mapping[str, int]) -> dict[str, set[str]]:
        """By path the identities that it may have; mostly there are none.

        `folders` are paths, each with the event before which it was there. Of empty folders that an
        event moved the log does not say which is which: there are several identities then.
        """
        found: dict[str, set[str]] = {}
        waiting = {(path, before): {path} for path, before in folders.items()}
        seen: set[tuple[str, int, str]] = set()
        while waiting:
            self._look_up({place for place, _ in waiting})
            further: dict[tuple[str, int], set[str]] = {}
            for (place, before), asked in waiting.items():
                event = self._made(place, before)
                for source, state in event.origins(place) if event else ():
                    if state.identity:
                        for path in asked:
                            found.setdefault(path, set()).add(state.identity)
                    elif event and is_directory(state):
                        new = {path for path in asked if (source, event.seq, path) not in seen}
                        seen |= {(source, event.seq, path) for path in new}
                        if new:
                            further.setdefault((source, event.seq), set()).update(new)
            waiting = further
        return found

    def _look_up(self, paths: Set[str]) -> None:
        """Find the events that put folders at these paths, without those of the baseline."""
        left = sorted(paths - self._makings.keys())
        self._makings.update((path, []) for path in left)
        for n in range(0, len(left), AT_ONCE):
            for one in self._attachment.tables.changes(paths=left[n : n + AT_ONCE]):
                if is_directory(one.change.after) and not is_directory(one.change.before):
                    known = one.origin == "baseline"  # nothing was moved in it
                    self._makings[one.change.path].append((one.seq, known))

    def _made(self, path: str, before: int) -> "_Event | None":
        """The last event before this one that put a folder there; None where it is the baseline."""
        made = [(seq, known) for seq, known in self._makings[path] if seq < before]
        return self._event(made[-1][0]) if made and not made[-1][1] else None

    def _event(self, seq: int) -> "_Event | None":
        if seq not in self._known:
            fact = self._facts({seq}).get(seq)
            self._known[seq] = None if fact is None else _Event(seq, fact)
        return self._known[seq]

    def _read(self, seqs: Set[int]) -> Mapping[int, FilesChanged]:
        found: dict[int, FilesChanged] = {}
        for seq in seqs:
            for event in self._attachment.log.read(EventFilter.only(seq)):
                if isinstance(event.fact, FilesChanged):
                    found[seq] = event.fact
        return found


class _Event:
    """From where an event moved folders."""

    def __init__(self, seq: int, fact: FilesChanged) -> None:
        self.seq = seq
        self._left = {c.path: c.before for c in fact.changes if c.before is not None}
        self._gone = [c.path for c in fact.changes if is_directory(c.before) and c.after is None]
        self._paths = sorted(change.path for change in fact.changes) if self._gone else []
        self._sources: dict[str, set[str]] = {}
        for move in with_folders_above(fact.moves):
            self._sources.setdefault(move.target, set()).add(move.source)

    def origins(self, folder: str) -> Iterator[tuple[str, FileState]]:
        """What the folder at a path may have been before, each with its state then.

        Where no move says it, it is one of those that are gone with just as much in them.
        """
        sources = self._sources.get(folder)
        if sources is None and self._gone:
            changed = paths_inside(folder, self._paths)
            sources = {path for path in self._gone if paths_inside(path, self._paths) == changed}
        if is_opaque(self._left.get(folder)):
            sources = {folder, *(sources or ())}
        for source in sorted(sources or ()):
            if source in self._left:
                yield source, self._left[source]


def arrived_among(attachment: Attachment, tree: Tree) -> dict[str, str]:
    """The outermost folders of a tree on disk that arrived, each with which it is."""
    if not attachment.workspace.renames_folders():
        return {}
    after = attachment.log.head() + 1
    folders = sorted(path for path, state in tree.items() if is_directory(state))
    known = Arrivals(attachment).identities(dict.fromkeys(folders, after))
    found: dict[str, str] = {}
    for path in folders:
        inside = path not in known or is_within(path, found)
        if not inside and (identity := attachment.workspace.identity(path)) in known[path]:
            found[path] = identity
    return found


def with_arrived_folders(
    attachment: Attachment, arrivals: Arrivals, folders: FolderPlan, own: Plan
) -> Plan:
    """A plan with that of moved folders, in which those that arrived are renamed as a whole."""
    plan = folders.added_to(own)
    found = renamed_whole(attachment, arrivals, folders.steps, plan, folders.there)
    if not found:
        return plan
    plan = folders.added_to(own, found)
    return replace(plan, kept=(*plan.kept, *_along_notes(attachment, plan, folders.there)))


def _along_notes(attachment: Attachment, plan: Plan, tree: Tree) -> Iterator[Note]:
    for move in whole_renames(plan):
        for path in unrecorded_in(attachment, tree, move.source) or ():
            yield Note(path, f"it is not on record; its folder is renamed, and it {MOVES_ALONG}")


def renamed_whole(
    attachment: Attachment,
    arrivals: Arrivals,
    steps: Sequence[PathStep],
    plan: Plan,
    tree: Tree,
) -> dict[Move, str]:
    """The folders that arrived and that a plan takes from one name to another; which each is.

    `tree` is what is on disk. One with something in it that may not be moved is not among them.
    """
    left: dict[str, int] = {}
    made: set[str] = set()
    for step in steps:
        before, after = step.change.before, step.change.after
        if step.taken and is_directory(before) and not is_directory(after):
            left.setdefault(step.change.path, step.seq)
        elif step.taken and is_directory(after) and not is_directory(before):
            made.add(step.change.path)
    final = {change.path: change.after for change in plan.changes}
    left = {
        path: seq for path, seq in left.items() if is_directory(final.get(path, tree.get(path)))
    }
    made = {path for path in made if is_directory(tree.get(path))}
    can_be = left and made and attachment.workspace.renames_folders()
    known = arrivals.identities(left) if can_be else {}
    there = {attachment.workspace.identity(path): path for path in made} if known else {}
    found: dict[Move, str] = {}
    for path in sorted(known):
        if _is_along(path, found, tree):
            continue
        for identity in known[path] & there.keys() - {""}:
            move = Move(there[identity], path)
            if move.source != path and _can_be_renamed(attachment, tree, move, final):
                found[move] = identity
    return found


def _can_be_renamed(
    attachment: Attachment, tree: Tree, move: Move, final: Mapping[str, FileState | None]
) -> bool:
    """Whether what a rename takes along may be moved, and nothing else is wanted in its place."""
    along = unrecorded_in(attachment, tree, move.source)
    if along is None:
        return False
    return all(final.get(move.target + path.removeprefix(move.source)) is None for path in along)


def _is_along(path: str, found: Iterable[Move], tree: Tree) -> bool:
    """Whether what is to be at the path is in a folder that is renamed already."""
    return any(
        is_directory(tree.get(move.source + path.removeprefix(move.target)))
        for move in found
        if is_within(path, [move.target])
    )


def unrecorded_in(attachment: Attachment, tree: Tree, folder: str) -> list[str] | None:
    """What is in a folder and not in the tree, without caches, so that a rename takes it along.

    None where something is in it that is to be recorded first, or nobody can look into it.
    """
    found: list[str] = []
    untracked = attachment.projections.untracked()
    for path, state in tree.items():
        if not is_directory(state) or not is_within(path, [folder]):
            continue
        try:
            inside = attachment.workspace.list(path)
        except PermissionDenied:
            return None
        for name, stamp in inside:
            there, is_folder = f"{path}/{name}", S_ISDIR(stamp.mode)
            if there in tree or (is_folder and is_remade(there)):
                continue
            scope = attachment.scope
            recorded = scope.is_opaque(there) or scope.includes(there, directory=is_folder)
            if recorded and not special_kind(stamp) and there not in untracked:
                return None
            found.append(there)
    return sorted(found)
