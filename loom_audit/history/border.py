"""Folders that were moved across the border of the scope, and what arrived: how a plan takes it.

The inside of an opaque entry is not on record, so it can only be renamed back as a whole, and only
when it is proven to be the same folder.
"""

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from loom_audit.errors import AuditError
from loom_audit.history.attachment import Attachment
from loom_audit.history.observation import observe
from loom_audit.model.display import visible_path
from loom_audit.model.events import FilesChanged
from loom_audit.model.files import (
    FileChange,
    FileState,
    Move,
    Tree,
    apply,
    border_moves,
    is_opaque,
    is_within,
)
from loom_audit.model.lineage import PathStep
from loom_audit.model.planning import Note, Plan, Request
from loom_audit.model.records import RecordedChange
from loom_audit.ports import IndexEntry

_CAPTURED = ("command", "outside", "undo")
"""The origins of events that may say what arrived."""


class MovedFolder(Struct):
    """A folder of one identity that taken calls moved: where it was before and where it is since.

    `brings` are the states it had on record where it was, `leaves` those that it has where it is.
    """

    identity: str
    was: str
    now: str
    calls: list[int | None]
    brings: dict[str, FileState]
    leaves: dict[str, FileState] = field(default_factory=dict)
    paths: set[str] = field(default_factory=set)

    @property
    def came_back(self) -> bool:
        return self.was == self.now

    def holds(self, path: str) -> bool:
        return is_within(path, self.paths)

    def takes(self, step: PathStep) -> bool:
        """Whether the folder's own plan has to do with a step, so that no other has."""
        return self.holds(step.change.path) and (not self.came_back or step.call in self.calls)


class FolderPlan(Struct, frozen=True):
    """What is done with moved folders, and the steps and the tree for what is left to plan."""

    steps: Sequence[PathStep]
    tree: Tree
    changes: tuple[FileChange, ...] = ()
    moves: tuple[Move, ...] = ()
    blocked: tuple[Note, ...] = ()
    kept: tuple[Note, ...] = ()
    irreversible: tuple[Note, ...] = ()

    def added_to(self, plan: Plan) -> Plan:
        return replace(
            plan,
            changes=tuple(sorted([*plan.changes, *self.changes], key=lambda one: one.path)),
            moves=(*plan.moves, *self.moves),
            blocked=(*plan.blocked, *self.blocked),
            kept=(*plan.kept, *self.kept),
            irreversible=(*plan.irreversible, *self.irreversible),
        )


def plan_folders(
    attachment: Attachment,
    request: Request,
    steps: Sequence[PathStep],
    facts: Mapping[int, FilesChanged],
    drift: FilesChanged,
) -> FolderPlan:
    """Plan to rename back the folders that taken steps moved across the border of the scope.

    `facts` are those of the events in which an opaque entry changed, by seq, with its identities.
    `drift` is what is known to lead from the log's tree to the disk; its steps come last.
    """
    tree = apply(attachment.projections.tree(), drift.changes)
    folders = _moved_folders(steps, facts, drift)
    if not folders:
        return FolderPlan(steps, tree)
    left = [step for step in steps if not any(one.takes(step) for one in folders)]
    folders = [one for one in folders if not one.came_back]
    after = dict(tree)
    plan = FolderPlan(left, after)
    for one in folders:
        calls = tuple(sorted({call for call in one.calls if call is not None}))
        note = Note(one.now, "", calls)
        if "current" in (request.choices.get(one.now), request.choices.get(one.was)):
            plan = replace(plan, kept=(*plan.kept, replace(note, reason="kept by choice")))
            continue
        shown = f"{visible_path(one.was)} became {visible_path(one.now)}"
        if one.now not in tree:
            gone = replace(note, reason=f"{shown}, and is not there any more")
            plan = replace(plan, irreversible=(*plan.irreversible, gone))
            continue
        why = _obstacle(attachment, request, one, steps, tree)
        if why:
            why = f"{shown}, and {why}; it is not renamed back"
            plan = replace(plan, blocked=(*plan.blocked, replace(note, reason=why)))
            continue
        changes = []
        for path in sorted(path for path in tree if is_within(path, [one.now])):
            before = after.pop(path)
            if path == one.now:
                before = replace(before, identity=one.identity)
            changes.append(FileChange(path, before, None))
        changes += [FileChange(path, None, state) for path, state in one.brings.items()]
        after.update(one.brings)
        plan = replace(
            plan,
            changes=(*plan.changes, *changes),
            moves=(*plan.moves, Move(one.now, one.was)),
        )
    return plan


def _moved_folders(
    steps: Sequence[PathStep], facts: Mapping[int, FilesChanged], drift: FilesChanged
) -> list[MovedFolder]:
    """The folders that taken steps moved, each once however often."""
    if not facts and not drift.moves:
        return []
    ends_of = {(step.seq, step.change.path): step for step in steps}
    found: dict[str, MovedFolder] = {}
    last = max((step.seq for step in steps), default=0)
    for seq, fact in (*sorted(facts.items()), (last, drift)):
        by_path = {change.path: change for change in fact.changes}
        for move in border_moves(fact.changes, fact.moves):
            step = ends_of.get((seq, move.source)) or ends_of.get((seq, move.target))
            ends = by_path[move.source].before, by_path[move.target].after
            identity = next((s.identity for s in ends if is_opaque(s)), "")
            if step is None or not identity:
                continue
            own = [s for s in steps if s.seq == seq or (s.call is not None and s.call == step.call)]
            one = found.get(identity)
            if not step.taken:
                if one is not None and move.target == one.now:  # by an undo and a redo
                    one.leaves = _last_states(own, move.target)
                continue
            if one is None:
                brings = _first_states(own, move.source)
                for path in brings.keys() & by_path.keys():
                    brings[path] = by_path[path].before or brings[path]  # with its identity
                one = MovedFolder(identity, move.source, move.target, [], brings)
                found[identity] = one
            one.now = move.target
            one.calls.append(step.call)
            one.paths |= {move.source, move.target}
            one.leaves = _last_states(own, move.target)
    return list(found.values())


def _first_states(steps: Iterable[PathStep], folder: str) -> dict[str, FileState]:
    states: dict[str, FileState | None] = {}
    for step in steps:
        if is_within(step.change.path, [folder]):
            states.setdefault(step.change.path, step.change.before)
    return {path: state for path, state in states.items() if state is not None}


def _last_states(steps: Iterable[PathStep], folder: str) -> dict[str, FileState]:
    states = {s.change.path: s.change.after for s in steps if is_within(s.change.path, [folder])}
    return {path: state for path, state in states.items() if state is not None}


def _obstacle(
    attachment: Attachment,
    request: Request,
    one: MovedFolder,
    steps: Sequence[PathStep],
    tree: Tree,
) -> str:
    """Why a folder cannot be renamed back, "" when it can."""
    workspace = attachment.workspace
    was, now = visible_path(one.was), visible_path(one.now)
    if any(is_within(path, [one.was]) for path in tree) or workspace.stamp(one.was) is not None:
        return f"something is at {was}"
    above = one.was.rpartition("/")[0]
    if above and above not in tree and not _comes_back(above, steps):
        return f"the folder of {was} is gone"
    for step in steps:
        if step.taken and one.holds(step.change.path) and step.call not in one.calls:
            return f"{visible_path(step.change.path)} was changed by what is taken back too"
    there = {path: state for path, state in tree.items() if is_within(path, [one.now])}
    if there != one.leaves:
        path = min(p for p in there.keys() | one.leaves if there.get(p) != one.leaves.get(p))
        return f"{visible_path(path)} changed since"
    if tree[one.now].kind == "directory":
        for path, _ in workspace.walk(attachment.scope, {}, one.now):
            if path not in tree:
                return f"{visible_path(path)} changed since"
    if workspace.identity(one.now) != one.identity:
        return f"it is not known whether {now} is still the same folder"
    if tree[one.now].kind == "opaque" and request.verb != "redo":
        path = _changed_inside(attachment, one)
        return f"{visible_path(path)} changed in it" if path else ""
    return ""


def _comes_back(folder: str, steps: Iterable[PathStep]) -> bool:
    """Whether the folder was there before the first taken step at its path."""
    taken = (step.change for step in steps if step.taken and step.change.path == folder)
    first = next(taken, None)
    return first is not None and first.before is not None


def _changed_inside(attachment: Attachment, one: MovedFolder) -> str:
    """The first path on record before the move that is not in the opaque folder as it was."""
    for path, state in sorted(one.brings.items()):
        if path == one.was:
            continue
        there = one.now + path.removeprefix(one.was)
        try:
            if state.kind == "opaque":
                same = attachment.workspace.identity(there) == state.identity != ""
            else:
                same = observe(attachment, there, None, keep=False)[0] == state
        except AuditError:
            same = False
        if not same:
            return there
    return ""


class Renamed(Struct, frozen=True):
    """What is different on disk after a folder was renamed, and the index entries for it.

    `arrived` are created paths of which nothing was on record.
    """

    changes: list[FileChange]
    entries: dict[str, IndexEntry | None]
    arrived: list[str]


def rename_folder(attachment: Attachment, move: Move, intended: Sequence[FileChange]) -> Renamed:
    """Rename a folder of which an end is opaque, and look at what is there then.

    Conflict, with nothing changed, when it is not proven to be the one, or something is there.
    """
    by_path = {change.path: change for change in intended}
    ends = (by_path[move.source].before, by_path[move.target].after)
    identity = next(state.identity for state in ends if is_opaque(state))
    attachment.workspace.rename(move.source, move.target, identity)
    gone = [change for change in intended if is_within(change.path, [move.source])]
    done = Renamed(gone, {change.path: None for change in gone}, [])
    expected = {c.path: c.after for c in intended if not is_within(c.path, [move.source])}
    found = [move.target, *(path for path, state in expected.items() if state and not state.blob)]
    if not attachment.scope.is_opaque(move.target):
        found += [path for path, _ in attachment.workspace.walk(attachment.scope, {}, move.target)]
    for path in dict.fromkeys(found):
        state, done.entries[path] = observe(attachment, path, expected.get(path))
        done.changes.append(FileChange(path, None, state))
        if path not in expected:
            done.arrived.append(path)
    return done


def events_with_arrivals(recorded: Iterable[RecordedChange]) -> set[int]:
    """The events of which a created path may have had its content where it is not recorded."""
    return {one.seq for one in recorded if one.change.before is None and one.origin in _CAPTURED}
