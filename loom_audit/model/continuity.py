"""The tree that a log makes, fact by fact, and what could not have happened to it.

Every recorded change applies to the tree before it: *before* is the tree's state, what is there
afterwards lies in a directory, and nothing is left below what is none. What is not known is not a
contradiction: an untracked path has left the tree, with all below it, until it is recorded again,
and the inside of an opaque entry is in no tree.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from msgspec import Struct

from loom_audit.model.events import (
    Fact,
    FilesChanged,
    PathsUntracked,
    ScopeAccepted,
    TreeRelisted,
)
from loom_audit.model.files import FileChange, FileState, is_opaque, parents

TreeFact = FilesChanged | PathsUntracked | ScopeAccepted | TreeRelisted
TREE_FACTS = (FilesChanged, PathsUntracked, ScopeAccepted, TreeRelisted)
"""The facts that trees are folded from."""

TREE_KINDS = frozenset(fact.kind for fact in TREE_FACTS)

LOSING_KINDS = (PathsUntracked.kind, ScopeAccepted.kind, TreeRelisted.kind)
"""The kinds by which paths may leave the tree, untracked from there."""


_OTHER = "what is said to have been there is not what was on record"


def leaving(fact: Fact | None) -> Sequence[str]:
    """The paths that leave the tree by a fact, with all below them, and are untracked from there.

    Of a whole listing they do so after what it lists, by its last part.
    """
    match fact:
        case PathsUntracked(paths=paths, kept=False) | TreeRelisted(untracked=paths, last=True):
            return [one.path for one in paths]
        case ScopeAccepted(untracked=untracked):
            return untracked
    return ()


class Violation(Struct, frozen=True):
    """A path of a change that does not apply to the tree, and why."""

    path: str
    why: str


class TreeFold:
    """A tree that follows facts. `broken` is the first violation since it was listed whole.

    `states` are those on record by path, `untracked` the paths that left the tree.
    """

    def __init__(
        self, states: Mapping[str, FileState] | None = None, untracked: Iterable[str] = ()
    ) -> None:
        self.states = dict(states or {})
        self.untracked = set(untracked)
        self.broken: Violation | None = None
        self.left_out: set[str] = set()
        """What of the facts lay in what is not known, and so is in no tree."""
        self._inside: dict[str, int] | None = None
        """How many paths are directly in each folder, once that was needed."""
        self._relisted: dict[str, FileState] = {}
        self._last_part = 0
        self._happened: dict[int, None] = {}
        """The intentions of which it was followed that they happened."""
        self._undone: list[tuple[str, FileState | None, bool]] | None = None
        """What each path was, while what is done may be undone."""

    def copy(self) -> "TreeFold":
        """A fold that begins from this tree, and has followed no fact yet."""
        found = TreeFold(self.states, self.untracked)
        found._inside = dict(self._counts())
        return found

    def follow(self, fact: Fact) -> None:
        """Change the tree as a fact says."""
        if isinstance(fact, FilesChanged):
            if fact.intention is not None:
                if fact.intention in self._happened:
                    return  # recorded twice by an interruption
                self._happened[fact.intention] = None
            self._change(fact.changes)
        elif isinstance(fact, TreeRelisted):
            self._list_anew(fact)
        else:
            self._leave(leaving(fact))

    def expect(self, changes: Iterable[FileChange]) -> None:
        """Check that each change begins with the state of the tree at its path, if any.

        A path out of scope may be changed as well; it is in no tree. A difference goes into
        `broken`.
        """
        for change in changes:
            there = self.states.get(change.path)
            if there is not None and change.before != there:
                self._break(change.path, _OTHER)

    @contextmanager
    def attempt(self) -> Iterator[None]:
        """Restore the tree to what it is now when the block raises."""
        kept = self.states, self.untracked, self._inside
        others = self.broken, self._relisted, self._last_part
        happened = len(self._happened)
        undone: list[tuple[str, FileState | None, bool]] = []
        self._undone, self.left_out = undone, set()
        try:
            yield
        except BaseException:
            self._undone = None
            self.states, self.untracked, self._inside = kept
            self.broken, self._relisted, self._last_part = others
            for _ in range(len(self._happened) - happened):
                self._happened.popitem()
            for path, state, marked in reversed(undone):
                self._put(path, state)
                (self.untracked.add if marked else self.untracked.discard)(path)
            raise
        finally:
            self._undone = None

    # --- changes --------------------------------------------------------------------------

    def _change(self, changes: Iterable[FileChange]) -> None:
        changed: dict[str, FileState | None] = {}
        for change in changes:
            path, after = change.path, change.after
            if change.before != self.states.get(path) and not self._is_unknown(path):
                self._break(path, _OTHER)
            self._put(path, after)
            changed[path] = after
        for path, after in sorted(changed.items()):  # a folder before what is in it
            self._unmark(path)
            if after is not None:
                self._check_folder(path)
            if after is None or after.kind != "directory":
                self._check_inside(path, after)

    def _check_folder(self, path: str) -> None:
        """Note a violation where a path lies in no folder; below an unknown one it is left out."""
        folder = path.rpartition("/")[0]
        state = self.states.get(folder)
        if not folder or (state is not None and state.kind == "directory"):
            return
        if self._is_unknown(path) or any(is_opaque(self.states.get(p)) for p in parents(path)):
            self._put(path, None)
            self.left_out.add(path)
        else:
            self._break(path, f"{folder} is not a directory on record")

    def _check_inside(self, path: str, after: FileState | None) -> None:
        """Note a violation where paths stay below what is no folder; an opaque one takes them."""
        if is_opaque(after):
            self._empty(path)
        elif self._count(path):
            self._break(path, "something on record is left below it")

    def _break(self, path: str, why: str) -> None:
        self.broken = self.broken or Violation(path, why)

    # --- what is not known ----------------------------------------------------------------

    def _leave(self, paths: Iterable[str]) -> None:
        for path in paths:
            self._empty(path)
            self._put(path, None)
            self.untracked.add(path)

    def _empty(self, folder: str) -> None:
        """Drop all that is below a folder, whether it is in the tree or untracked."""
        below = folder + "/"
        if self._count(folder):
            for inside in [path for path in self.states if path.startswith(below)]:
                self._put(inside, None)
        for inside in [path for path in self.untracked if path.startswith(below)]:
            self._unmark(inside)

    def _is_unknown(self, path: str) -> bool:
        """Whether a path, or a folder above it, is untracked."""
        return bool(self.untracked) and not self.untracked.isdisjoint((path, *parents(path)))

    def _unmark(self, path: str) -> None:
        if path in self.untracked:
            self._note(path)
            self.untracked.discard(path)

    def _list_anew(self, fact: TreeRelisted) -> None:
        """A part of a whole listing; with its last part the tree is what was listed."""
        if fact.part == 1:
            self._relisted, self._last_part = {}, 0
        if fact.part != self._last_part + 1:
            self._last_part = -1  # a part is missing: the listing is not whole
            return
        listed = {one.path: one.after for one in fact.changes if one.after is not None}
        self._relisted, self._last_part = {**self._relisted, **listed}, fact.part
        if fact.last:
            whole = TreeFold(self._relisted)
            whole._leave(leaving(fact))
            self.states, self.untracked = whole.states, whole.untracked
            self._inside, self.broken = None, None
            self._relisted, self._last_part = {}, 0
            if self._undone is not None:
                self._undone = []  # what was is not changed from here on
            for path in sorted(self.states):
                self._check_folder(path)

    # --- the tree -------------------------------------------------------------------------

    def _put(self, path: str, state: FileState | None) -> None:
        was = self.states.get(path)
        self._note(path)
        if state is None:
            self.states.pop(path, None)
        else:
            self.states[path] = state
        if self._inside is not None and (was is None) != (state is None):
            folder = path.rpartition("/")[0]
            self._inside[folder] = self._inside.get(folder, 0) + (1 if was is None else -1)

    def _note(self, path: str) -> None:
        if self._undone is not None:
            self._undone.append((path, self.states.get(path), path in self.untracked))

    def _count(self, folder: str) -> int:
        """How many paths of the tree are directly in a folder."""
        return self._counts().get(folder, 0)

    def _counts(self) -> Mapping[str, int]:
        if self._inside is None:
            self._inside = {}
            for path in self.states:
                above = path.rpartition("/")[0]
                self._inside[above] = self._inside.get(above, 0) + 1
        return self._inside


def lost_by(fact: Fact) -> Iterable[tuple[str, str]]:
    """The paths that a fact took from the tree, each with the reason."""
    if isinstance(fact, ScopeAccepted):
        return [(path, "it left the scope") for path in fact.untracked]
    lost = getattr(fact, "paths" if isinstance(fact, PathsUntracked) else "untracked", ())
    return [(one.path, one.reason) for one in lost]
