"""Brings repositories of the workspace back to what was on record, as a step of a call."""

from collections.abc import Iterable, Sequence
from itertools import groupby

from msgspec.structs import replace

from loom_audit.errors import Conflict, ExecutionFailed
from loom_audit.history.ground.attachment import Attachment, StoredLog
from loom_audit.history.look.git.changes import look_at_git
from loom_audit.history.look.git.kept_objects import STAGED
from loom_audit.history.read.call_detail import git_now
from loom_audit.history.record.call_record import CallRecord
from loom_audit.history.record.interrupted import writer_of
from loom_audit.model.actors import OUTSIDE
from loom_audit.model.events import Draft
from loom_audit.model.files import FileChange, FileState
from loom_audit.model.git import (
    INDEX_ENTRIES,
    INDEX_MTIME,
    OBJECT_ID,
    STAYS,
    GitChanged,
    GitIntended,
    GitName,
    GitState,
)
from loom_audit.model.git_index import without_caches
from loom_audit.model.plans.git_things import GitThing, is_of_index
from loom_audit.model.records import Call
from loom_audit.model.text.display import visible
from loom_audit.ports import EventFilter, GitFile, GitRestore, GitSteps, IndexBytes
from loom_audit.ports.git_objects import LONG_ID


def restore_git(record: CallRecord, things: Sequence[GitThing], note: str) -> None:
    """Bring things of repositories back, each repository under git's lock; the lock is restore.

    What is done is on record as the call's, also where an error ends it: Conflict where another git
    works or works against it, ExecutionFailed where git cannot do it, or objects are not kept.
    """
    for _, own in groupby(sorted(things, key=lambda one: one.folder), lambda one: one.folder):
        _restore(record, [*own], note)


def _restore(record: CallRecord, things: Sequence[GitThing], note: str) -> None:
    attachment, first = record.attachment, things[0]
    names = tuple(name for one in things for name in one.names)
    files = tuple(file for one in things for file in one.files)
    restorer = attachment.on_disk.git_restorer
    if restorer is None:
        raise ExecutionFailed("of an imported log no repository can be brought back")
    index = _index(attachment.stored, names, files)
    with restorer.begin(first.folder, first.identity, index) as restore:
        _bring_objects(attachment, restore, first.folder, names, files)
        intended = GitIntended(
            record.call_id, first.identity, names, files, restore.lock, first.folder
        )
        record.commit(intended)
        restore.take_lock()
        _check_unmoved(record, first.folder)
        try:
            restore.carry_out(_steps(attachment.stored, names, files, note))
            restore.finish()
        finally:
            # before the lock is released: the next look would find it, and give it to others
            collect_restored(record, [intended])
            record.commit_and_index()


def _check_unmoved(record: CallRecord, folder: str) -> None:
    """Conflict where a repository is not as it is on record, which is put on record then."""
    found = [one.change for one in look_at_git(record.attachment, anyway=True) if one.change]
    record.add_drafts([Draft(one, "", OUTSIDE) for one in found])
    if any(one.folder == folder for one in found):
        raise Conflict(
            "git: somebody moved what this plan brings back, just now",
            hint="Look at the new plan and decide again.",
        )


def collect_restored(record: CallRecord, intentions: Iterable[GitIntended]) -> None:
    """Collect what changed of git: what was intended is the call's, all else is from outside."""
    wanted = {one.folder: one for one in intentions}
    for look in look_at_git(record.attachment, anyway=True):
        if look.change is None:
            continue
        intended = wanted.get(look.change.folder)
        own, others = _split(look.change, intended) if intended else (None, look.change)
        if own:
            fact = replace(own, origin="undo", call_id=record.call_id)
            record.add_drafts([record.writer.draft(fact)])
            record.git.append(fact)
            record.lower_coverage(STAYS)
        if others:
            record.add_drafts([Draft(others, "", OUTSIDE)])


def _split(
    change: GitChanged, intended: GitIntended
) -> tuple[GitChanged | None, GitChanged | None]:
    """A change in what was intended, with what follows from it, and the rest."""
    names = {(one.name, one.after) for one in intended.names}
    paths = {(one.path, one.after) for one in intended.changes}
    moved = {one.name for one in intended.names}

    def is_own(one: GitName | FileChange) -> bool:
        if isinstance(one, GitName):
            return (
                (one.name, one.after) in names
                or one.name == INDEX_MTIME
                or (one.name.startswith("worktree "))
            )
        log = one.path.removeprefix("logs/")
        follows = log in moved or one.path == "logs/HEAD" or is_of_index(("file", one.path))
        return (one.path, one.after) in paths or follows

    both: list[GitChanged | None] = []
    for wanted in (True, False):
        some = tuple(one for one in change.names if is_own(one) == wanted)
        changed = tuple(one for one in change.changes if is_own(one) == wanted)
        both.append(replace(change, names=some, changes=changed) if some or changed else None)
    return both[0], both[1]


# --- what a restore needs -----------------------------------------------------------------


def _index(
    stored: StoredLog, names: Iterable[GitName], files: Iterable[FileChange]
) -> IndexBytes | None:
    """What the index becomes; None where it stays. ExecutionFailed where its content is erased."""
    values = {one.name: one.after for one in names}
    if "index" not in values:
        return None
    state = next((one.after for one in files if one.path == "index"), None)
    if state is None:
        return IndexBytes(None)
    content = _content(stored, state)
    for long_ids in (False, True):  # its checksum tells
        try:
            made = without_caches(content, long_ids=long_ids)
        except (ValueError, IndexError):
            continue
        return IndexBytes(made, int(values.get(INDEX_MTIME) or 0))
    raise ExecutionFailed("the index on record cannot be read")


def _content(stored: StoredLog, state: FileState) -> bytes:
    if state.blob is None:
        raise ExecutionFailed("the content of a file of git is not on record")
    return stored.blobs.get(state.blob)


def _steps(
    stored: StoredLog, names: tuple[GitName, ...], files: Iterable[FileChange], note: str
) -> GitSteps:
    made: dict[str, GitFile | None] = {}
    for one in files:
        if one.path in (INDEX_ENTRIES, "index"):
            continue
        state = one.after
        made[one.path] = (
            GitFile(state.kind, state.mode or 0o644, _content(stored, state)) if state else None
        )
    return GitSteps(names, made, note)


def _bring_objects(
    attachment: Attachment,
    restore: GitRestore,
    folder: str,
    names: Iterable[GitName],
    files: Iterable[FileChange],
) -> None:
    """Let all objects that the names and the index need be in the repository, from the mirror."""
    wanted = [*_wanted(attachment.stored, names, files)]
    if not (missing := restore.missing(wanted)):
        return
    mirror, git = attachment.on_disk.mirror, attachment.on_disk.mirrored_git
    if mirror is not None and git is not None:
        place = mirror.folder(long_ids=len(wanted[0]) == LONG_ID)
        restore.add_objects(git.pack(place, wanted, mirror.shallows()[-1]))
        missing = restore.missing(wanted)
    if missing:
        where = f" of {visible(folder)}" if folder else ""
        raise ExecutionFailed(
            f"git: {len(missing)} objects{where} that would come back are not kept: {missing[0]}",
            hint="`loom-audit doctor` says what of the mirror is missing; --no-git leaves git.",
        )


def _wanted(
    stored: StoredLog, names: Iterable[GitName], files: Iterable[FileChange]
) -> Iterable[str]:
    for one in names:
        if one.name == "stashes":
            yield from (line.partition(" ")[0] for line in (one.after or "").split("\n") if line)
        elif one.after and OBJECT_ID.fullmatch(one.after) and one.name != "index":
            yield one.after
    for file in files:
        if file.path == INDEX_ENTRIES and file.after is not None:
            content = _content(stored, file.after)
            yield from (found[1].decode() for found in STAGED.finditer(content))


# --- after a kill -------------------------------------------------------------------------


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
    restorer = attachment.on_disk.git_restorer
    for call in calls:
        intended = git_intentions(attachment.stored, call)
        if not intended or restorer is None:
            continue
        for one in intended:
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
    for one in {each.folder: each for each in git_intentions(attachment.stored, call)}.values():
        state = points.states.get(one.folder, GitState())
        names = tuple(n for n in one.names if state.names.get(n.name) != n.after)
        files = tuple(f for f in one.changes if state.files.get(f.path) != f.after)
        if not any(n.name != INDEX_MTIME for n in names) and not _own_files(files):
            continue
        moved = [n.name for n in names if state.names.get(n.name) != n.before]
        if moved and moved != [INDEX_MTIME]:
            raise Conflict(
                f"git: {visible(moved[0])} was moved since the {call.tool} stopped",
                hint="`loom-audit recover --abandon` leaves git as it is now.",
            )
        restore_git(
            record, [GitThing(one.folder, one.identity, "HEAD", names, files)], "loom-audit"
        )
    record.commit_and_index()


def _own_files(files: Iterable[FileChange]) -> bool:
    """Whether there is a file among these that does not follow from others."""
    return any(
        not (is_of_index(("file", one.path)) or one.path.startswith("logs/")) for one in files
    )
