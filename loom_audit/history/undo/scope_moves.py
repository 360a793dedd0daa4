"""Plans to rename back folders that were moved into the scope or out of it.

Outside the scope such a folder is an opaque entry: its name and identity are on record, its inside
is not. So it cannot be made again from the log. It is renamed back as a whole, and only when it is
proven to be the same folder, with the same inside; else the plan blocks it and says why.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from stat import S_ISDIR
from types import MappingProxyType

from msgspec import Struct, field
from msgspec.structs import replace

from loom_audit.errors import AuditError, PermissionDenied
from loom_audit.history.ground.attachment import Attachment, OnDisk
from loom_audit.history.look.observation import observe
from loom_audit.history.undo.contents_on_disk import ContentsOnDisk
from loom_audit.history.undo.moved_folders import MovedFolder, moved_folders
from loom_audit.model.events import FilesChanged
from loom_audit.model.files import (
    FileChange,
    FileState,
    Move,
    Tree,
    apply,
    diff,
    is_opaque,
    is_within,
)
from loom_audit.model.plans.left_out import is_remade
from loom_audit.model.plans.lineage import PathStep
from loom_audit.model.plans.links import groups_in
from loom_audit.model.plans.planning import Note, Plan, one_change_each
from loom_audit.model.plans.request import PlanRequest
from loom_audit.model.plans.whole_folders import Work, with_whole_folders
from loom_audit.model.records import RecordedChange
from loom_audit.model.text.display import visible

_CAPTURED = ("command", "outside", "undo")
"""The origins of events that may have something that arrived: what a tool creates is new."""


class FolderPlan(Struct, frozen=True):
    """The renames of moved folders, and what the plan for everything else starts from.

    It starts from `steps`, without those of the folders, and from `tree`, as the renames leave it;
    `there` is what is on disk. `inside` are changes in the folders that are made before they are
    renamed, `renames` the renames with their changes. `blocked`, `kept` and `irreversible` are
    notes.
    """

    steps: Sequence[PathStep]
    tree: dict[str, FileState]
    there: Tree = field(default_factory=dict)
    inside: tuple[FileChange, ...] = ()
    renames: tuple[tuple[Move, tuple[FileChange, ...]], ...] = ()
    blocked: tuple[Note, ...] = ()
    kept: tuple[Note, ...] = ()
    irreversible: tuple[Note, ...] = ()

    def added_to(self, plan: Plan, whole: Mapping[Move, str] = MappingProxyType({})) -> Plan:
        """A plan for everything else together with this one, and with more folders renamed whole.

        `whole` are the renames to add as far as they are possible, each with the folder's identity.
        """
        work = Work(self.inside, self.renames, plan.changes)
        moves: tuple[Move, ...] = ()
        if whole:
            work, moves = with_whole_folders(work, self.there, whole)
        stages = work.stages()
        changes = one_change_each(stages)
        changed = {change.path for change in changes}
        told = {note.path for note in (*self.blocked, *self.kept, *self.irreversible)}
        # a path has a change or a note: where another folder takes its place, the note has no path
        lost = [
            Note("", f"{note.path}: {note.reason}", note.calls) if note.path in changed else note
            for note in self.irreversible
        ]
        return replace(
            plan,
            already=tuple(path for path in plan.already if path not in told),
            changes=changes,
            stages=stages if len(stages) > 1 else (),
            moves=(*plan.moves, *(move for move, _ in self.renames), *moves),
            blocked=(*plan.blocked, *self.blocked, *self._homeless(plan.changes)),
            kept=(*plan.kept, *self.kept),
            irreversible=(*plan.irreversible, *lost),
        )

    def _homeless(self, others: Sequence[FileChange]) -> Iterator[Note]:
        """Notes on renames into folders that are not there, and that the plan does not make."""
        made = {change.path for change in others if change.after is not None}
        for move, _ in self.renames:
            above = move.target.rpartition("/")[0]
            if above and above not in made and above not in self.tree:
                shown = f"{visible(move.target)} became {visible(move.source)}"
                why = f"{shown}, and its folder does not come back; it is not renamed back"
                yield Note(move.source, why)


def plan_folders(
    attachment: Attachment,
    contents: ContentsOnDisk,
    request: PlanRequest,
    steps: Sequence[PathStep],
    facts: Mapping[int, FilesChanged],
    moves: Mapping[int, Sequence[Move]],
    drift: FilesChanged,
) -> FolderPlan:
    """Plan to rename back the folders that taken steps moved into the scope or out of it.

    `facts` are those of the events in which an opaque entry changed, with its identities, and
    `moves` the moves of all events, both by seq. `drift` leads from the log's tree to what is on
    disk; its steps are the last ones. A folder that cannot be renamed back is in a note.
    """
    tree = apply(attachment.stored.reading.tree(), drift.changes)
    folders = moved_folders(steps, facts, moves, drift, attachment.on_disk.workspace.identity)
    left = list(steps)
    for one in folders:
        left = [rest for step in left for rest in one.rest_of(step)]
    elsewhere = [note for one in folders if one.came_back for note in _changed_elsewhere(one)]
    plan = FolderPlan(left, dict(tree), there=tree, irreversible=tuple(elsewhere))
    for one in _in_order([one for one in folders if not one.came_back]):
        note = Note(one.now, "", tuple(sorted({call for call in one.calls if call is not None})))
        if "current" in (request.choices.get(one.now), request.choices.get(one.was)):
            plan = replace(plan, kept=(*plan.kept, replace(note, reason="kept by choice")))
            continue
        shown = f"{visible(one.was)} became {visible(one.now)}"
        holder = _holder(one, folders)
        if one.now not in tree and holder:
            why = f"{shown}, and is in {visible(holder.now)} now; take that back first"
            plan = replace(plan, blocked=(*plan.blocked, replace(note, reason=why)))
            continue
        if one.now not in tree:
            gone = replace(note, reason=f"{shown}, and is not there any more")
            plan = replace(plan, irreversible=(*plan.irreversible, gone))
            continue
        there = {p: state for p, state in plan.tree.items() if is_within(p, [one.now])}
        along: list[Note] = []
        try:
            why = (
                _obstacle(attachment.on_disk, one, steps, plan, folders)
                or _obstacle_inside(attachment.on_disk, contents, one, steps, there)
                or _obstacle_to_proof(attachment, request, one, tree)
            )
            if not why and is_opaque(tree[one.now]):
                along += _coming_along(attachment, one)
                why = _changed_mode(attachment.on_disk, request, one)
        except PermissionDenied:
            why = "not all of it can be read"
        if why:
            why = f"{shown}, and {why}; it is not renamed back"
            plan = replace(plan, blocked=(*plan.blocked, replace(note, reason=why)))
            continue
        plan = _with_rename(plan, one, there)
        elsewhere = [] if is_opaque(tree[one.now]) else [*_changed_elsewhere(one)]
        irreversible = (*plan.irreversible, *elsewhere)
        plan = replace(plan, kept=(*plan.kept, *along), irreversible=irreversible)
    return plan


def _with_rename(plan: FolderPlan, one: MovedFolder, there: Tree) -> FolderPlan:
    """The plan with the rename of one folder, in which `there` is on disk now."""
    leaves = {**one.leaves, one.now: replace(one.leaves[one.now], identity=one.identity)}
    comes = one.comes_back()
    tree = {path: state for path, state in plan.tree.items() if path not in there} | comes
    changes = [FileChange(path, state, None) for path, state in sorted(leaves.items())]
    changes += [FileChange(path, None, state) for path, state in comes.items()]
    return replace(
        plan,
        tree=tree,
        inside=(*plan.inside, *diff(there, one.leaves)),
        renames=(*plan.renames, (Move(one.now, one.was), tuple(changes))),
    )


def _in_order(folders: Sequence[MovedFolder]) -> Iterator[MovedFolder]:
    """The folders, each after those that must be renamed before it; in a circle, as they come."""
    waiting = list(folders)
    while waiting:
        ready = (one for one in waiting if not any(_is_first(o, one) for o in waiting if o != one))
        found = next(ready, waiting[0])
        waiting.remove(found)
        yield found


def _holder(one: MovedFolder, folders: Iterable[MovedFolder]) -> MovedFolder | None:
    """The folder, moved later than this one, in which this one is now; None for none."""
    later = (other for other in folders if other.first > one.last and not other.came_back)
    return next((other for other in later if is_within(one.now, [other.was])), None)


def _is_first(other: MovedFolder, one: MovedFolder) -> bool:
    """Whether another folder goes first: it is in the way, in this one, or to hold this one."""
    return (
        other.now == one.was or is_within(other.now, [one.now]) or is_within(one.was, [other.was])
    )


def _obstacle(
    on_disk: OnDisk,
    one: MovedFolder,
    steps: Sequence[PathStep],
    plan: FolderPlan,
    folders: Sequence[MovedFolder],
) -> str:
    """Why a folder cannot be put where it was once the plan so far is done; "" when it can."""
    was = visible(one.was)
    free = is_within(one.was, [move.source for move, _ in plan.renames])
    stamp = None if free else on_disk.workspace.stamp(one.was)
    if any(is_within(path, [one.was]) for path in plan.tree) or stamp is not None:
        if any(other.now == one.was for other in folders):
            return f"another folder that was moved, too, is at {was} (they changed places)"
        return f"something is at {was}"
    above = one.was.rpartition("/")[0]
    if above and above not in plan.tree and not _comes_back(above, plan.steps):
        return f"the folder of {was} is gone"
    for step in one.earlier(steps):
        if step.taken and step.change.path == one.was and step.change.before is None:
            return f"{was} was made by what is taken back too"
    return ""


def _obstacle_inside(
    on_disk: OnDisk,
    contents: ContentsOnDisk,
    one: MovedFolder,
    steps: Sequence[PathStep],
    there: Tree,
) -> str:
    """Why the inside of a folder cannot be taken back to what it was before the move, or "".

    The inside is on record only while the folder is in scope. So it is taken back before the folder
    is renamed, and only where all of it is known.
    """
    if one.unsettled:
        return f"{visible(one.unsettled)} was changed by what is taken back too"
    inside = diff(there, one.leaves)
    if not inside:
        return ""
    later = [*one.later(steps)]
    kept = [step.change.path for step in later if not step.taken or step.came_in]
    if kept or not (later or one.moved_unrecorded):
        return f"{visible(min(kept or [inside[0].path]))} changed since"
    for change in inside:
        if is_opaque(change.before) or is_opaque(change.after) or groups_in([change]):
            return f"{visible(change.path)} was changed by what is taken back too"
    states = [state for change in inside for state in (change.before, change.after) if state]
    if contents.missing({state.blob for state in states if state.blob}):
        return "a content in it was not kept"
    going = {change.path for change in inside if change.after is None}
    for folder in sorted(path for path in going if there[path].kind == "directory"):
        for name, _ in on_disk.workspace.list(folder):
            if f"{folder}/{name}" not in going:
                return f"{visible(folder)} holds {visible(name)}, which stays"
    return ""


def _obstacle_to_proof(
    attachment: Attachment, request: PlanRequest, one: MovedFolder, tree: Tree
) -> str:
    """Why it is not proven that a folder is the same one and as it was, "" when it is."""
    if tree[one.now].kind == "directory":
        for path, seen in attachment.on_disk.workspace.walk(attachment.scope, {}, one.now):
            if path not in tree and not isinstance(seen, str):
                return f"{visible(path)} changed since"
    if attachment.on_disk.workspace.identity(one.now) != one.identity:
        return f"it is not known whether {visible(one.now)} is still the same folder"
    if tree[one.now].kind == "opaque" and request.verb != "redo":
        path = _changed_inside(attachment, one)
        return f"{visible(path)} changed in it" if path else ""
    return ""


def _comes_back(folder: str, steps: Iterable[PathStep]) -> bool:
    """Whether taking back the steps makes a folder again: it was there before the first of them."""
    taken = (step.change for step in steps if step.taken and step.change.path == folder)
    first = next(taken, None)
    return first is not None and first.before is not None


def _changed_inside(attachment: Attachment, one: MovedFolder) -> str:
    """The first path that is not in an opaque folder as it was before the move, "" for none.

    Nothing changes in a folder unseen but where it is opaque, so it is looked at before it returns.
    """
    for path, state in sorted(one.brings.items()):
        if path == one.was:
            continue
        there = one.now + path.removeprefix(one.was)
        try:
            if state.kind == "opaque":
                same = attachment.on_disk.workspace.identity(there) == state.identity != ""
            else:
                same = observe(attachment, there, None, keep=False)[0] == state
        except AuditError:
            same = False
        if not same:
            return there
    return ""


def _changed_mode(on_disk: OnDisk, request: PlanRequest, one: MovedFolder) -> str:
    """Why an opaque folder would not come back with the mode that it had in scope, or ""."""
    own = one.brings[one.was]
    if request.verb == "redo" or is_opaque(own):
        return ""
    kept = on_disk.workspace.attributes(one.now).mode == own.mode
    return "" if kept else f"the mode of {visible(one.now)} changed"


def _changed_elsewhere(one: MovedFolder) -> Iterator[Note]:
    """Notes on what was changed in a folder while it was out of scope: it comes back so changed."""
    if is_opaque(one.brings[one.was]):
        return
    calls = tuple(sorted({call for call in one.calls if call is not None}))
    comes = one.comes_back()
    for path in sorted((one.brings.keys() | comes.keys()) - {one.was}):
        if one.brings.get(path) != comes.get(path):
            why = "it was changed while its folder was where nothing is recorded, and stays so"
            yield Note(path, why, calls)


def _coming_along(attachment: Attachment, one: MovedFolder) -> Iterator[Note]:
    """Notes on what came into a folder while it was out of scope, and comes into scope with it."""
    scope = attachment.scope
    for path, state in sorted(one.brings.items()):
        if state.kind != "directory":
            continue
        for name, stamp in attachment.on_disk.workspace.list(one.now + path.removeprefix(one.was)):
            there = f"{path}/{name}"
            recorded = scope.is_opaque(there) or scope.includes(
                there, directory=S_ISDIR(stamp.mode)
            )
            cache = S_ISDIR(stamp.mode) and is_remade(there)
            if there not in one.brings and recorded and not cache:
                yield Note(
                    there, "it came into the folder where it is not recorded, and stays in it"
                )


def events_with_arrivals(recorded: Iterable[RecordedChange]) -> set[int]:
    """The seqs of the events in which a created path may have been there before, out of scope."""
    return {one.seq for one in recorded if one.change.before is None and one.origin in _CAPTURED}
