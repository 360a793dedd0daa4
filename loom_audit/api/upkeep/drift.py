"""What is on disk and not on record: its content, and putting it on record."""

import hashlib
from collections.abc import Callable, Sequence

from loom_audit.api.workspace import AuditedWorkspace
from loom_audit.errors import AuditError, Conflict, NoWorkspace
from loom_audit.history.record.drift import record_drift
from loom_audit.history.record.recovery import recover_all
from loom_audit.model.files import FileChange, FileState, is_within, parents
from loom_audit.model.plans.planning import Plan
from loom_audit.model.text.display import visible


def content_of_drift(
    workspace: AuditedWorkspace, drift: Sequence[FileChange]
) -> Callable[[FileState], bytes]:
    """A function that reads both sides of a drift: what is on record, and what is on disk.

    It raises Conflict for what is not on disk any more as it was when the drift was found.
    """
    places = {change.after.blob: change.path for change in drift if change.after}
    found = workspace.attachment.on_disk.workspace

    def content(state: FileState) -> bytes:
        path = places.get(state.blob)
        if path is None or state.blob is None or state.blob in workspace.blobs:
            return workspace.timeline.content(state)
        is_link = state.kind == "symlink"
        read = found.read_link(path) if is_link else found.read(path, state.size + 1)
        if hashlib.sha256(read).hexdigest() != state.blob:
            raise Conflict(
                f"{visible(path)} has changed since it was looked at",
                hint="Look at the status anew.",
            )
        return read

    return content


def is_as_recorded(workspace: AuditedWorkspace, path: str) -> bool:
    """Whether a file on disk has the content that is on record of it now; nothing is recorded.

    True where the folder of the workspace cannot be looked at.
    """
    state = workspace.timeline.state(path, workspace.log.head())
    there = workspace.attachment.on_disk.workspace
    try:
        stamp = there.stamp(path)
        if state is not None and stamp is not None and stamp.size != state.size:
            return False
        read = there.read(path, None if state is None else state.size + 1)
    except NoWorkspace:
        return True
    except AuditError:
        return state is None
    return state is not None and hashlib.sha256(read).hexdigest() == state.blob


def content_of_plan(workspace: AuditedWorkspace, plan: Plan) -> Callable[[FileState], bytes]:
    """A function that reads what a plan is about and what it writes: also what is on disk only.

    It raises Conflict for what is not on disk any more as it was when the plan was made.
    """
    here = [FileChange(one.path, None, one.before) for one in plan.changes]
    now = (sides.now for sides in plan.sides.values())
    here += [FileChange(one.path, None, one.state) for one in now]
    there = content_of_drift(workspace, here)

    def content(state: FileState) -> bytes:
        merged = plan.contents.get(state.blob) if state.blob else None
        return there(state) if merged is None else merged

    return content


def accept_drift(workspace: AuditedWorkspace, paths: Sequence[str] = ()) -> int:
    """Put on record as from outside what differs at these paths and below them, by default all.

    With a path the new folders above it and the other names of its file are recorded. Where calls
    are open, it may be recorded as theirs, as always. How many paths it is. Conflict while an
    interrupted undo waits to be continued or abandoned.
    """
    recover_all(workspace.attachment)
    drift = workspace.status().drift
    wanted = {change.path for change in drift if not paths or is_within(change.path, paths)}
    groups = {_group(change) for change in drift if change.path in wanted} - {None}
    wanted |= {change.path for change in drift if _group(change) in groups}
    above = {folder for path in wanted for folder in parents(path)}
    folders = (one for one in drift if one.after and one.after.kind == "directory")
    wanted |= {change.path for change in folders if change.path in above}
    if wanted:
        with workspace.attachment.exclusive():
            record_drift(workspace.attachment, wanted.__contains__ if paths else None)
    return len(wanted)


def _group(change: FileChange) -> int | None:
    return change.after.group if change.after else None
