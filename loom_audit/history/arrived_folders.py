"""Folders that arrived: which opaque entry a folder in scope was, by the log and by the disk.

Such a folder may be wanted again under the name that it had where it was not recorded, and only the
folder itself can be. So what moves it renames it, however often it was moved since.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from stat import S_ISDIR

from msgspec import Struct, field
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
)
from loom_audit.model.left_out import is_remade
from loom_audit.model.lineage import PathStep
from loom_audit.model.planning import MOVES_ALONG, Note, Plan
from loom_audit.model.whole_folders import whole_renames
from loom_audit.ports import EventFilter

Facts = Callable[[Set[int]], Mapping[int, FilesChanged]]
"""What these events say of how files changed."""


class Arrivals:
    """Tells which opaque entry the folder was that was at a path before an event, by the log."""

    def __init__(self, attachment: Attachment, facts: Facts | None = None) -> None:
        self._attachment = attachment
        self._facts = facts or self._read
        self._known: dict[int, _Event | None] = {}

    def identities(self, path: str, before: int) -> set[str]:
        """The identities that it may have, mostly none.

        Of empty folders that an event moved the log does not say which is which: there are several.
        """
        found: set[str] = set()
        waiting = [(path, before)]
        seen = {*waiting}
        while waiting:
            place, before = waiting.pop()
            event = self._made(place, before)
            for source, state in event.origins(place) if event else ():
                if state.identity:
                    found.add(state.identity)
                elif is_directory(state) and event and (source, event.seq) not in seen:
                    seen.add((source, event.seq))
                    waiting.append((source, event.seq))
        return found

    def _made(self, path: str, before: int | None) -> "_Event | None":
        """The event before this one that put the folder there."""
        while page := self._attachment.tables.history(path, before=before):
            for one in page:
                if is_directory(one.change.after) and not is_directory(one.change.before):
                    return None if one.origin == "baseline" else self._event(one.seq)
            before = page[-1].seq
        return None

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


class _Event(Struct):
    """From where an event moved folders."""

    seq: int
    fact: FilesChanged
    left: dict[str, FileState] = field(default_factory=dict)
    shapes: dict[str, frozenset[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.left = {c.path: c.before for c in self.fact.changes if c.before is not None}

    def origins(self, folder: str) -> Iterator[tuple[str, FileState]]:
        """What the folder at a path may have been before, each with its state then."""
        sources = {*self._sources(folder)} or {*self._alike(folder)}
        if is_opaque(self.left.get(folder)):
            sources.add(folder)
        for source in sorted(sources):
            if source in self.left:
                yield source, self.left[source]

    def _sources(self, folder: str) -> Iterator[str]:
        for move in self.fact.moves:
            inside = move.target.removeprefix(folder)
            if move.target == folder:
                yield move.source
            elif inside != move.target and inside[0] == "/" and move.source.endswith(inside):
                yield move.source.removesuffix(inside)

    def _alike(self, folder: str) -> Iterator[str]:
        """The folders that went with the same empty folders in them."""
        gone = [c.path for c in self.fact.changes if is_directory(c.before) and c.after is None]
        if not gone:
            return
        if not self.shapes:
            self.shapes = {path: _inside(path, self.left) for path in gone}
        made = [c.path for c in self.fact.changes if c.before is None]
        shape = _inside(folder, made)
        yield from (path for path, one in self.shapes.items() if one == shape)


def _inside(folder: str, paths: Iterable[str]) -> frozenset[str]:
    start = folder + "/"
    return frozenset(path.removeprefix(start) for path in paths if path.startswith(start))


def arrived_among(attachment: Attachment, tree: Tree) -> dict[str, str]:
    """The outermost folders of a tree on disk that arrived, each with which it is."""
    arrivals, after = Arrivals(attachment), attachment.log.head() + 1
    found: dict[str, str] = {}
    for path in sorted(path for path, state in tree.items() if is_directory(state)):
        if not is_within(path, found):
            identities = arrivals.identities(path, after)
            if identities and (identity := attachment.workspace.identity(path)) in identities:
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
    found: dict[Move, str] = {}
    if not left or not made:
        return found
    final = {change.path: change.after for change in plan.changes}
    there: dict[str, str] = {}
    for path in sorted(left):
        if not is_directory(final.get(path, tree.get(path))) or _is_along(path, found, tree):
            continue
        identities = arrivals.identities(path, left[path])
        if identities and not there:
            there = {attachment.workspace.identity(p): p for p in made if is_directory(tree.get(p))}
        for identity in identities & there.keys() - {""}:
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
