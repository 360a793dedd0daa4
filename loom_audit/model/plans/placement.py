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

ProposalStatus = Literal["wanted", "kept", "blocked", "irreversible"]

KEPT_BY_CHOICE = "kept by choice"


class Proposal(Struct, frozen=True):
    """A lineage with its planned result; unless wanted the file stays as it is, for the reason.

    A `forced` proposal was chosen by a person and may replace what is not in the plan.
    """

    lineage: Lineage
    result: PathState
    status: ProposalStatus = "wanted"
    reason: str = ""
    calls: tuple[int, ...] = ()
    forced: bool = False

    @property
    def path(self) -> str:
        """The path to list the file under: its present one, else that of the result."""
        return self.lineage.current.path if self.lineage.current.state else self.result.path

    def as_it_is(
        self, status: ProposalStatus, reason: str, calls: Iterable[int | None] = ()
    ) -> "Proposal":
        """The proposal that leaves the file as it is, with the reason and the calls behind it."""
        known = tuple(sorted({call for call in calls if call is not None}))
        return replace(self, result=self.lineage.current, status=status, reason=reason, calls=known)


class Hold(Struct, frozen=True):
    """Why a path has to stay as it is, and what becomes of a proposal that would change it."""

    status: ProposalStatus
    reason: str
    calls: tuple[int, ...] = ()


class KeptFolder(Struct, frozen=True):
    """A folder that a plan would delete, and that stays for what is in it."""

    path: str
    reason: str
    calls: tuple[int, ...]


class Placement(Struct):
    """The proposals as they fit, the state wanted at each path, and the folders that stay."""

    proposals: list[Proposal]
    wanted: dict[str, FileState | None] = field(default_factory=dict)
    folders: list[KeptFolder] = field(default_factory=list)


def place_proposals(
    proposals: Iterable[Proposal],
    trace: LineageTrace,
    tree: Tree,
    merger: StateMerger,
    *,
    holds: Mapping[str, Hold],
    folds_case: bool = False,
) -> Placement:
    """Place the proposals in the tree; where one does not fit the file stays, with a reason.

    The paths of `holds` stay as they are, and so does everything that needs them to change.

    Each round lets stay what does not fit and starts again, as that can be in the way of others,
    until all fit.
    """
    run = _PlacementRun(list(proposals), trace, tree, merger, holds, folds_case)
    while run.round():
        pass
    return Placement(run.proposals, run.wanted, list(run.folders.values()))


class _PlacementRun:
    """One run of `place_proposals`: its inputs, and what each round computes."""

    def __init__(
        self,
        proposals: list[Proposal],
        trace: LineageTrace,
        tree: Tree,
        merger: StateMerger,
        holds: Mapping[str, Hold],
        folds_case: bool,
    ) -> None:
        self.proposals = proposals
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
        """Place everything; whether a proposal had to give way."""
        stopped: dict[int, Proposal] = {}
        self._place()
        below = self._remaining_below()
        holds = {**self._holds_on_absent(), **self.holds}
        self.missing = self.merger.missing(self._contents_at_risk())
        for n, proposal in enumerate(self.proposals):
            if proposal.status == "wanted":
                other = (
                    self._kept_by_hold(proposal, holds)
                    or self._obstacle(n, proposal, below)
                    or self._lost_content(proposal)
                )
                if other is not None:
                    stopped[n] = other
        if self.folds_case:
            for n in self._collisions():
                stopped.setdefault(
                    n,
                    self.proposals[n].as_it_is(
                        "blocked", "its name differs from another's by case"
                    ),
                )
        found = len(self.folders)
        if not stopped:
            self._keep_folders(below)
        for n, proposal in stopped.items():
            self.proposals[n] = proposal
        return bool(stopped) or len(self.folders) > found

    def _place(self) -> None:
        """Compute the tree as it would be: `wanted`, `after`, and who owns each path."""
        self.wanted = dict.fromkeys(self.trace.by_path)
        self.owners = {}
        for n, proposal in enumerate(self.proposals):
            if proposal.result.state is not None:
                self.owners.setdefault(proposal.result.path, []).append(n)
                self.wanted[proposal.result.path] = proposal.result.state
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

    def _holds_on_absent(self) -> dict[str, Hold]:
        """Paths at which something absent is left as it is, so that nothing else changes there."""
        left = {}
        for proposal in self.proposals:
            if proposal.status != "wanted" and proposal.lineage.current.state is None:
                left[proposal.path] = Hold(proposal.status, proposal.reason, proposal.calls)
        return left

    def _kept_by_hold(self, proposal: Proposal, holds: Mapping[str, Hold]) -> Proposal | None:
        """The proposal that leaves the file where a path that has to stay would be changed."""
        if not holds:
            return None
        places = [proposal.lineage.current.path, proposal.result.path]
        if proposal.result.state is not None:
            places += parents(proposal.result.path)
        for path in places:
            hold = holds.get(path)
            if hold is None or self.wanted.get(path, self.tree.get(path)) == self.tree.get(path):
                continue
            if proposal.forced and hold.status == "irreversible":
                continue
            here = path == proposal.lineage.current.path
            reason = hold.reason if here else f"{path}: {hold.reason}"
            status = "blocked" if hold.reason == KEPT_BY_CHOICE else hold.status
            return proposal.as_it_is(status, reason, hold.calls)
        return None

    def _obstacle(
        self, n: int, proposal: Proposal, below: Mapping[str, list[str]]
    ) -> Proposal | None:
        path, state = proposal.result.path, proposal.result.state
        if state is None:
            return None
        owners = self.owners[path]
        for rival in (self.proposals[m] for m in owners if m != n) if len(owners) > 1 else ():
            if rival.result.state != state:
                calls = [step.call for step in rival.lineage.steps]
                return proposal.as_it_is("blocked", f"another file is to be at {path}", calls)
        occupant = self.tree.get(path)
        if path not in self.trace.by_path and occupant not in (None, state) and not proposal.forced:
            return self._in_the_way(proposal, path)
        for above in parents(path):
            if is_directory(self.after.get(above)):
                continue
            if above in self.after:
                return self._in_the_way(proposal, above)
        inside = below.get(path)
        if inside and state.kind != "directory":
            return proposal.as_it_is("blocked", *self._contents(inside))
        return None

    def _in_the_way(self, proposal: Proposal, path: str) -> Proposal:
        call = self.trace.last_writers.get(path)
        by = f", put there by call {call}" if call is not None else ""
        return proposal.as_it_is("blocked", f"{path} is in the way{by}", [call])

    def _contents_at_risk(self) -> Iterator[BlobId]:
        """The contents that will be written or overwritten."""
        for proposal in self.proposals:
            current, result = proposal.lineage.current, proposal.result
            if proposal.status == "wanted" and current != result:
                states = result.state, self.tree.get(current.path), self.tree.get(result.path)
                yield from (state.blob for state in states if state and state.blob)

    def _lost_content(self, proposal: Proposal) -> Proposal | None:
        """The proposal that leaves the file where the wanted or overwritten content is lost."""
        current, result = proposal.lineage.current, proposal.result
        if current == result or not self.missing:
            return None
        calls = proposal.lineage.calls(taken=True)
        if result.state is not None and result.state.blob in self.missing:
            return proposal.as_it_is("irreversible", "its content was not kept", calls)
        for path in dict.fromkeys((current.path, result.path)):
            there, then = self.tree.get(path), self.wanted.get(path)
            if there is None or there == then or proposal.forced or there.blob not in self.missing:
                continue
            return proposal.as_it_is(
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
        """Proposals whose path, or a folder made for it, would collide with another path."""
        fresh = {path for path in self.after if path not in self.tree}
        if not fresh:
            return
        names: dict[str, set[str]] = {}
        for path in self.after:
            names.setdefault(_fold_case(path), set()).add(path)
        taken = {path for path in fresh if len(names[_fold_case(path)]) > 1}
        for n, proposal in enumerate(self.proposals):
            path = proposal.result.path
            if (
                proposal.status == "wanted"
                and proposal.result.state is not None
                and not taken.isdisjoint((path, *parents(path)))
            ):
                yield n


def _above(path: str) -> Iterator[str]:
    while (cut := path.rfind("/")) >= 0:
        path = path[:cut]
        yield path


def _fold_case(path: str) -> str:
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", path).casefold())
