"""What a kill left of bringing a repository back: it is closed, or gone on with."""

from collections.abc import Iterable, Mapping, Sequence

from loom_audit.errors import Conflict
from loom_audit.history.ground.attachment import Attachment, StoredLog
from loom_audit.history.read.call_detail import git_now
from loom_audit.history.record.call_record import CallRecord
from loom_audit.history.record.git.in_use import GoingBack
from loom_audit.history.record.git.restoring import collect_restored, restore_git
from loom_audit.history.record.interrupted import writer_of
from loom_audit.model.files import FileChange
from loom_audit.model.git.record import (
    INDEX_MTIME,
    GitIntended,
    GitState,
    common_of,
    is_setting,
)
from loom_audit.model.git.ways import WORKTREE, is_of_index
from loom_audit.model.plans.git_things import REPOSITORY, GitThing
from loom_audit.model.records import Call
from loom_audit.model.text.display import visible
from loom_audit.ports import (
    EventFilter,
)


def git_intentions(stored: StoredLog, call: Call) -> Sequence[GitIntended]:
    """What a call intended of git, in the order of the log."""
    window = EventFilter(after=call.requested, kinds=(GitIntended.kind,))
    return [
        event.fact
        for event in stored.log.read(window)
        if isinstance(event.fact, GitIntended)
        and (event.session, event.fact.call_id) == (call.session, call.call_id)
    ]


def close_restores(attachment: Attachment, calls: Iterable[Call]) -> None:
    """Remove the locks of killed restores, and record what these did; the lock is restore."""
    restorer, builder = attachment.on_disk.git_restorer, attachment.on_disk.git_builder
    for call in calls:
        intended = git_intentions(attachment.stored, call)
        if not intended or restorer is None:
            continue
        for one in intended:
            if one.beside and builder is not None:
                builder.release(one.folder, one.beside, one.identity, common_of(one.names))
            else:
                restorer.release(one.folder, one.identity, one.lock)
        record = CallRecord(writer_of(attachment, call), call.call_id)
        collect_restored(record, intended)
        record.commit_and_index()


def continue_restores(attachment: Attachment, call: Call) -> None:
    """Bring back what a killed restore did not yet; the lock is restore, and its own is removed.

    Conflict where somebody moved since what it was to move: all of git stays then.
    """
    close_restores(attachment, [call])
    points = git_now(attachment.stored.log)
    record = CallRecord(writer_of(attachment, call), call.call_id)
    intended = {each.folder: each for each in git_intentions(attachment.stored, call)}.values()
    _check_in_use(attachment, call, intended, points.states)
    for one in intended:
        state = points.states.get(one.folder, GitState())
        if one.beside:
            if not state.names:
                gone = GitThing(
                    one.folder, one.identity, REPOSITORY, one.names, one.changes, over=one.over
                )
                restore_git(record, [gone], "")
            elif not state.is_of(one.lock):
                raise Conflict(
                    f"git: another repository is there since the {call.tool} stopped",
                    hint="`loom-audit recover --abandon` leaves git as it is now.",
                )
            continue
        names = tuple(n for n in one.names if state.names.get(n.name) != n.after)
        files = tuple(f for f in one.changes if state.files.get(f.path) != f.after)
        if not any(n.name != INDEX_MTIME for n in names) and not _own_files(files):
            continue
        moved = [n.name for n in names if state.names.get(n.name) != n.before]
        run = [f for f in files if is_setting(f.path)]
        moved += [f.path for f in run if state.files.get(f.path) != f.before]
        if moved and moved != [INDEX_MTIME]:
            raise Conflict(
                f"git: {visible(moved[0])} was moved since the {call.tool} stopped",
                hint="`loom-audit recover --abandon` leaves git as it is now.",
            )
        head = state.names.get("HEAD", "")
        rest = GitThing(one.folder, one.identity, WORKTREE, names, files, head)
        restore_git(record, [rest], "loom-audit")
    record.commit_and_index()


def _check_in_use(
    attachment: Attachment,
    call: Call,
    intended: Iterable[GitIntended],
    now: Mapping[str, GitState],
) -> None:
    """Conflict where a branch that is still to move is in use by another worktree by now."""
    things = [
        GitThing(one.folder, one.identity, WORKTREE, names, one.changes)
        for one in intended
        if not one.beside and one.folder in now
        if (names := tuple(n for n in one.names if now[one.folder].names.get(n.name) != n.after))
    ]
    for used in GoingBack(things, now).branches_in_use(attachment):
        raise Conflict(
            f"git: {used.words}, since the {call.tool} stopped",
            hint="`loom-audit recover --abandon` leaves git as it is now.",
        )


def _own_files(files: Iterable[FileChange]) -> bool:
    """Whether there is a file among these that does not follow from others."""
    return any(
        not (is_of_index(("file", one.path)) or one.path.startswith("logs/")) for one in files
    )
