"""Wanted files placed in one tree: parents, folders that are not empty, paths that are taken."""

import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from typing import Literal

from msgspec import Struct, field
from msgspec.structs import replace

from loom_audit.model.files import BlobId, FileState, Tree, is_directory, parents
from loom_audit.model.plans.lineage import Lineage, LineageTrace, PathState, by_calls_text
from loom_audit.model.plans.rebase import StateMerger
from loom_audit.model.text.display import first_few

EntryStatus = Literal["wanted", "kept", "blocked", "irreversible"]

KEPT_BY_CHOICE = "kept by choice"


class Entry(Struct, frozen=True):
    """A lineage with its planned result; unless wanted it stays as it is, for the reason.

    A `forced` entry was chosen by a person and may replace what is not in the plan.
    """

    lineage: Lineage
    result: PathState
    status: EntryStatus = "wanted"
    reason: str = ""
    calls: tuple[int, ...] = ()
    forced: bool = False

    @property
    def path(self) -> str:
        """The path to list it under: the present one, or that of the result if it is absent now."""
        return self.lineage.current.path if self.lineage.current.state else self.result.path

    def left_in_place(
        self, status: EntryStatus, reason: str, calls: Iterable[int | None] = ()
    ) -> "Entry":
        known = tuple(sorted({call for call in calls if call is not None}))
        return replace(self, result=self.lineage.current, status=status, reason=reason, calls=known)


class Hold(Struct, frozen=True):
    """Why a path has to stay as it is, and what that makes of an entry that would change it."""

    status: EntryStatus
    reason: str
    calls: tuple[int, ...] = ()


class KeptFolder(Struct, frozen=True):
    path: str
    reason: str
    calls: tuple[int, ...]


class Placement(Struct):
    """The entries as they fit, the state wanted at each path, and the folders that stay."""

    entries: list[Entry]
    wanted: dict[str, FileState | None] = field(default_factory=dict)
    folders: list[KeptFolder] = field(default_factory=list)


def place_entries(
    entries: Iterable[Entry],
    trace: LineageTrace,
    tree: Tree,
    merger: StateMerger,
    *,
    holds: Mapping[str, Hold],
    folds_case: bool = False,
) -> Placement:
    """Place the entries in the tree; one that cannot be placed stays where it is, with a reason.

    The paths of `holds` stay as they are, and so does everything that needs them to change.

    Each round leaves in place what does not fit and starts again, as that can be in the way of
    others, until all fit.
    """
    run = _PlacementRun(list(entries), trace, tree, merger, holds, folds_case)
    while run.round():
        pass
    return Placement(run.entries, run.wanted, list(run.folders.values()))


class _PlacementRun:
    """One run of `place_entries`: its inputs, and what each round computes."""

    def __init__(
        self,
        entries: list[Entry],
        trace: LineageTrace,
        tree: Tree,
        merger: StateMerger,
        holds: Mapping[str, Hold],
        folds_case: bool,
    ) -> None:
        self.entries = entries
        self.trace = trace
        self.tree = tree
        self.merger = merger
        self.holds = holds
        self.folds_case = folds_case
        self.folders: dict[str, KeptFolder] = {}
        self.wanted: dict[str, FileState | None] = {}
        self.after: dict[str, FileState] = {}
        self.owners: dict[str, list[int]] = {}
        self.missing: set[BlobId] = set()

    def round(self) -> bool:
        """Place everything; whether something had to be left in place."""
        stopped: dict[int, Entry] = {}
        self._place()
        below = self._remaining_below()
        holds = {**self._absent_ones_left(), **self.holds}
        self.missing = self.merger.missing(self._contents_at_risk())
        for n, entry in enumerate(self.entries):
            if entry.status == "wanted":
                other = (
                    self._held(entry, holds)
                    or self._obstacle(n, entry, below)
                    or self._lost_content(entry)
                )
                if other is not None:
                    stopped[n] = other
        if self.folds_case:
            for n in self._collisions():
                stopped.setdefault(
                    n,
                    self.entries[n].left_in_place(
                        "blocked", "its name differs from another's by case"
                    ),
                )
        found = len(self.folders)
        if not stopped:
            self._keep_folders(below)
        for n, entry in stopped.items():
            self.entries[n] = entry
        return bool(stopped) or len(self.folders) > found

    def _place(self) -> None:
        """Compute the tree as it would be: `wanted`, `after`, and who owns each path."""
        self.wanted = dict.fromkeys(self.trace.by_path)
        self.owners = {}
        for n, entry in enumerate(self.entries):
            if entry.result.state is not None:
                self.owners.setdefault(entry.result.path, []).append(n)
                self.wanted[entry.result.path] = entry.result.state
        for path in self.folders:
            self.wanted[path] = self.tree[path]
        for path in [path for path, state in self.wanted.items() if state is not None]:
            for above in parents(path):
                if self.wanted.get(above, self.tree.get(above)) is not None:
                    continue
                # a folder that is to be deleted is kept for what is in it, with a note
                if not is_directory(self.tree.get(above)):
                    mode = self.trace.folder_modes.get(above, 0o755)
                    self.wanted[above] = FileState("directory", None, mode, 0)
        self.after = dict(self.tree)
        for path, state in self.wanted.items():
            if state is None:
                self.after.pop(path, None)
            else:
                self.after[path] = state

    def _remaining_below(self) -> Mapping[str, list[str]]:
        """What would remain below each path that will not be a folder any more."""
        below: dict[str, list[str]] = {
            path: []
            for path, state in self.wanted.items()
            if state is None or state.kind != "directory"
        }
        if any(is_directory(self.tree.get(path)) for path in below):
            for path in self.after:
                for above in _above(path):
                    if above in below:
                        below[above].append(path)
        return below

    def _absent_ones_left(self) -> dict[str, Hold]:
        """Paths at which something absent is left as it is, so that nothing else changes there."""
        left = {}
        for entry in self.entries:
            if entry.status != "wanted" and entry.lineage.current.state is None:
                left[entry.path] = Hold(entry.status, entry.reason, entry.calls)
        return left

    def _held(self, entry: Entry, holds: Mapping[str, Hold]) -> Entry | None:
        """The entry left in place when a path that stays as it is would be changed for it."""
        if not holds:
            return None
        places = [entry.lineage.current.path, entry.result.path]
        if entry.result.state is not None:
            places += parents(entry.result.path)
        for path in places:
            hold = holds.get(path)
            if hold is None or self.wanted.get(path, self.tree.get(path)) == self.tree.get(path):
                continue
            if entry.forced and hold.status == "irreversible":
                continue
            here = path == entry.lineage.current.path
            reason = hold.reason if here else f"{path}: {hold.reason}"
            status = "blocked" if hold.reason == KEPT_BY_CHOICE else hold.status
            return entry.left_in_place(status, reason, hold.calls)
        return None

    def _obstacle(self, n: int, entry: Entry, below: Mapping[str, list[str]]) -> Entry | None:
        path, state = entry.result.path, entry.result.state
        if state is None:
            return None
        owners = self.owners[path]
        for rival in (self.entries[m] for m in owners if m != n) if len(owners) > 1 else ():
            if rival.result.state != state:
                calls = [step.call for step in rival.lineage.steps]
                return entry.left_in_place("blocked", f"another file is to be at {path}", calls)
        occupant = self.tree.get(path)
        if path not in self.trace.by_path and occupant not in (None, state) and not entry.forced:
            return self._in_the_way(entry, path)
        for above in parents(path):
            if is_directory(self.after.get(above)):
                continue
            if above in self.after:
                return self._in_the_way(entry, above)
        inside = below.get(path)
        if inside and state.kind != "directory":
            return entry.left_in_place("blocked", *self._contents(inside))
        return None

    def _in_the_way(self, entry: Entry, path: str) -> Entry:
        call = self.trace.last_writers.get(path)
        by = f", put there by call {call}" if call is not None else ""
        return entry.left_in_place("blocked", f"{path} is in the way{by}", [call])

    def _contents_at_risk(self) -> Iterator[BlobId]:
        """The contents that will be written or overwritten."""
        for entry in self.entries:
            current, result = entry.lineage.current, entry.result
            if entry.status == "wanted" and current != result:
                states = result.state, self.tree.get(current.path), self.tree.get(result.path)
                yield from (state.blob for state in states if state and state.blob)

    def _lost_content(self, entry: Entry) -> Entry | None:
        """The entry left in place when the wanted or the overwritten content is not stored."""
        current, result = entry.lineage.current, entry.result
        if current == result or not self.missing:
            return None
        calls = entry.lineage.calls(taken=True)
        if result.state is not None and result.state.blob in self.missing:
            return entry.left_in_place("irreversible", "its content was not kept", calls)
        for path in dict.fromkeys((current.path, result.path)):
            there, then = self.tree.get(path), self.wanted.get(path)
            if there is None or there == then or entry.forced or there.blob not in self.missing:
                continue
            return entry.left_in_place(
                "irreversible", "what is there now was not kept and would be lost", calls
            )
        return None

    def _keep_folders(self, below: Mapping[str, list[str]]) -> None:
        for path, inside in below.items():
            state = self.wanted[path]
            if state is not None or not is_directory(self.tree.get(path)):
                continue
            if inside:
                self.folders[path] = KeptFolder(path, *self._contents(inside))

    def _contents(self, inside: list[str]) -> tuple[str, tuple[int, ...]]:
        inside = sorted(inside)
        writers = (self.trace.last_writers.get(path) for path in inside)
        calls = tuple(sorted({call for call in writers if call is not None}))
        by = f", {by_calls_text(calls)}" if calls else ""
        return f"not empty: holds {first_few(inside, 1)}{by}", calls

    def _collisions(self) -> Iterator[int]:
        """Entries whose path, or a folder made for it, would collide with another path."""
        fresh = {path for path in self.after if path not in self.tree}
        if not fresh:
            return
        names: dict[str, set[str]] = {}
        for path in self.after:
            names.setdefault(_fold_case(path), set()).add(path)
        taken = {path for path in fresh if len(names[_fold_case(path)]) > 1}
        for n, entry in enumerate(self.entries):
            path = entry.result.path
            if (
                entry.status == "wanted"
                and entry.result.state is not None
                and not taken.isdisjoint((path, *parents(path)))
            ):
                yield n


def _above(path: str) -> Iterator[str]:
    while (cut := path.rfind("/")) >= 0:
        path = path[:cut]
        yield path


def _fold_case(path: str) -> str:
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", path).casefold())
