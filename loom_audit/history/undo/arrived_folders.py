"""Adds renames to a plan, of folders that arrived: opaque entries that were moved into scope.

A plan may need such a folder at a name that it had before, where its inside was not recorded. It
cannot be made again there from what is on record: only the folder itself can come back. So every
plan that moves it renames it as a whole, however often it was moved since.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from stat import S_ISDIR

from msgspec.structs import replace

from loom_audit.errors import PermissionDenied
from loom_audit.history.ground.attachment import Attachment
from loom_audit.history.look.arrivals import Arrivals
from loom_audit.history.look.special_files import special_kind
from loom_audit.history.undo.scope_moves import FolderPlan
from loom_audit.model.files import (
    FileState,
    Move,
    Tree,
    is_directory,
    is_within,
)
from loom_audit.model.plans.left_out import is_remade
from loom_audit.model.plans.lineage import PathStep
from loom_audit.model.plans.planning import MOVES_ALONG, Note, Plan
from loom_audit.model.plans.whole_folders import whole_renames


def with_arrived_folders(
    attachment: Attachment, arrivals: Arrivals, folders: FolderPlan, own: Plan
) -> Plan:
    """A plan together with the plan for moved folders, in which arrived folders are renamed whole.

    What is in such a folder and not on record moves along, and is listed as kept.
    """
    plan = folders.added_to(own)
    found = renamed_whole(attachment, arrivals, folders.steps, plan, folders.there)
    if not found:
        return plan
    plan = folders.added_to(own, found)
    return replace(plan, kept=(*plan.kept, *_along_notes(attachment, plan, folders.there)))


def _along_notes(attachment: Attachment, plan: Plan, tree: Tree) -> Iterator[Note]:
    """Notes on what is not on record and moves along with a folder."""
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
    """The arrived folders that a plan takes from one path to another: the rename and the identity.

    `tree` is what is on disk. Without folders in which something may not be moved, and on systems
    that cannot rename a folder as a whole.
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
    can_be = left and made and attachment.on_disk.workspace.renames_folders()
    known = arrivals.identities(left) if can_be else {}
    there = {attachment.on_disk.workspace.identity(path): path for path in made} if known else {}
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
    """Whether what a rename takes along may be moved, and the plan puts nothing in its place."""
    along = unrecorded_in(attachment, tree, move.source)
    if along is None:
        return False
    return all(final.get(move.target + path.removeprefix(move.source)) is None for path in along)


def _is_along(path: str, renames: Iterable[Move], tree: Tree) -> bool:
    """Whether the folder for a path comes with a folder above it that is renamed already."""
    return any(
        is_directory(tree.get(move.source + path.removeprefix(move.target)))
        for move in renames
        if is_within(path, [move.target])
    )


def unrecorded_in(attachment: Attachment, tree: Tree, folder: str) -> list[str] | None:
    """The paths in a folder that are not in the tree, but for caches: a rename takes them along.

    None where something in it has to be recorded first, or the folder cannot be read.
    """
    found: list[str] = []
    untracked = attachment.stored.reading.untracked()
    for path, state in tree.items():
        if not is_directory(state) or not is_within(path, [folder]):
            continue
        try:
            inside = attachment.on_disk.workspace.list(path)
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
