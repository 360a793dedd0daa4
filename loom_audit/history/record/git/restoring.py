"""Brings repositories of the workspace back to what was on record, as a step of a call."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from itertools import groupby

from msgspec.structs import replace

from loom_audit.errors import Conflict, ExecutionFailed
from loom_audit.history.ground.attachment import Attachment, StoredLog
from loom_audit.history.look.git.changes import look_at_git
from loom_audit.history.look.observation import observe
from loom_audit.history.look.opaque import opaque_change
from loom_audit.history.record.call_record import CallRecord
from loom_audit.history.record.git.not_back import why_not_back
from loom_audit.history.record.git.whole import (
    entries_of,
    file_of,
    index_of,
    packed_objects,
    settings_of,
    wanted_ids,
    whole_of,
)
from loom_audit.model.actors import OUTSIDE
from loom_audit.model.events import Draft, FilesChanged
from loom_audit.model.files import FileChange, is_same_identity, is_within
from loom_audit.model.git.record import (
    INDEX_ENTRIES,
    INDEX_MTIME,
    GitChanged,
    GitIntended,
    GitName,
    common_of,
)
from loom_audit.model.git.ways import WORKTREE, is_of_index
from loom_audit.model.git_points import git_folder, git_path
from loom_audit.model.plans.git_things import GitThing
from loom_audit.model.text.display import visible
from loom_audit.ports import (
    GitBuilder,
    GitBuilding,
    GitRestore,
    GitSteps,
    GitWhole,
)
from loom_audit.ports.git_objects import LONG_ID


def restore_git(record: CallRecord, things: Sequence[GitThing], note: str) -> None:
    """Bring things of repositories back, as `restoring_git` does. Conflict, ExecutionFailed."""
    with restoring_git(record, things, note) as carry_out:
        if carry_out is not None:
            carry_out()


@contextmanager
def restoring_git(
    record: CallRecord, things: Sequence[GitThing], note: str
) -> Iterator[Callable[[], None] | None]:
    """Intend to bring things of repositories back, and yield what does it, None for none; the lock
    is held.

    Until then no ref, no index and no file has changed, and the intention is durable. Each
    repository is brought back under git's lock. What is done is on record as the call's, also where
    an error ends it: Conflict where another git works or works against it, ExecutionFailed where
    git cannot do it, or objects are not kept.
    """
    with ExitStack() as begun:
        steps = [begun.enter_context(one) for one in _each_restoring(record, things, note)]

        def carry_out() -> None:
            for step in steps:
                step()

        yield carry_out if steps else None


def _each_restoring(
    record: CallRecord, things: Sequence[GitThing], note: str
) -> Iterator[AbstractContextManager[Callable[[], None]]]:
    for _, own in groupby(sorted(things, key=lambda one: one.folder), lambda one: one.folder):
        first, *others = own
        if first.is_whole:
            yield _building(record, first)
        else:
            yield _restoring(record, [first, *others], note)


@contextmanager
def _restoring(
    record: CallRecord, things: Sequence[GitThing], note: str
) -> Iterator[Callable[[], None]]:
    attachment, first = record.attachment, things[0]
    names = tuple(name for one in things for name in one.names)
    files = tuple(file for one in things for file in one.files)
    restorer = attachment.on_disk.git_restorer
    if restorer is None:
        raise ExecutionFailed("of an imported log no repository can be brought back")
    index = index_of(attachment.stored, names, files)
    with restorer.begin(first.folder, first.identity, index) as restore:
        _bring_objects(attachment, restore, first.folder, names, files)
        intended = GitIntended(
            record.call_id, first.identity, names, files, restore.lock, first.folder
        )
        steps = _steps(attachment.stored, things, note)
        record.commit(intended)

        def carry_out() -> None:
            _pin_objects(attachment, restore, names, files)
            restore.take_lock()
            _check_unmoved(record, first.folder)
            try:
                restore.carry_out(steps)
                restore.finish()
            finally:
                # before the lock is released: the next look would find it, and give it to others
                collect_restored(record, [intended])
                record.commit_and_index()

        yield carry_out


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
    for one in [*wanted.values()]:
        if one.beside:
            note_built(record, one)
        if common := common_of(one.names):  # which tells of the worktree that is there again
            held = git_folder(common) or ""
            wanted.setdefault(held, GitIntended(record.call_id, "", (), (), "", held))
    for look in look_at_git(record.attachment, anyway=True):
        if look.change is None:
            continue
        intended = wanted.get(look.change.folder)
        if (
            intended
            and intended.beside
            and not is_same_identity(look.change.identity, intended.lock)
        ):
            intended = None
        own, others = _split(look.change, intended) if intended else (None, look.change)
        if own:
            fact = replace(own, origin="undo", call_id=record.call_id)
            record.add_drafts([record.writer.draft(fact)])
            record.git.append(fact)
            record.lower_coverage(*why_not_back(record.attachment, fact))
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
        # logs of refs that cannot be there beside one that comes go with this
        is_moved = log in moved or any(
            is_within(*pair) for ref in moved for pair in ((log, (ref,)), (ref, (log,)))
        )
        follows = is_moved or one.path == "logs/HEAD" or is_of_index(("file", one.path))
        return (one.path, one.after) in paths or follows

    both: list[GitChanged | None] = []
    for wanted in (True, False):
        some = tuple(one for one in change.names if is_own(one) == wanted)
        changed = tuple(one for one in change.changes if is_own(one) == wanted)
        both.append(replace(change, names=some, changes=changed) if some or changed else None)
    return both[0], both[1]


@contextmanager
def _building(record: CallRecord, thing: GitThing) -> Iterator[Callable[[], None]]:
    """Build a repository that is gone anew, and yield what lets it come to its place whole.

    Conflict where something is there by now; ExecutionFailed where objects that its refs, stashes
    or index need are not kept, or git finds it is not whole.
    """
    attachment, stored = record.attachment, record.attachment.stored
    builder = attachment.on_disk.git_builder
    if builder is None:
        raise ExecutionFailed("of an imported log no repository can be brought back")
    whole = whole_of(stored, thing)
    files = {one.path: one.after for one in thing.files if one.after is not None}
    pack, not_kept = packed_objects(attachment, whole, entries_of(stored, files))
    if record.has_facts:  # a call on record is why recovery looks for what none names yet
        record.commit()
    if thing.common:
        _add_missing(attachment, thing, whole, pack)
    with _begun(attachment, builder, thing) as building:
        intended = GitIntended(
            call_id=record.call_id,
            identity=building.identity,
            names=thing.names,
            changes=thing.files,
            lock=building.becomes,
            folder=thing.folder,
            beside=building.name,
            over=thing.over,
        )
        record.commit(intended)
        building.fill(whole, pack)

        def carry_out() -> None:
            try:
                building.finish()
            finally:
                record.lower_coverage(*filter(None, [not_kept]))
                collect_restored(record, [intended])
                record.commit_and_index()

        yield carry_out


def _begun(attachment: Attachment, builder: GitBuilder, thing: GitThing) -> GitBuilding:
    """Begin to build a repository, or the entry of a linked worktree. Conflict, ExecutionFailed."""
    if not thing.common:
        return builder.begin(thing.folder, thing.over)
    return builder.begin_linked(thing.folder, thing.common, _repository_of(attachment, thing)[1])


def _repository_of(attachment: Attachment, thing: GitThing) -> tuple[str, str]:
    """The folder of the repository that a linked worktree is of, and the identity of that."""
    folder = git_folder(thing.common) or ""
    held = attachment.process.last_seen.git.repositories.get(folder)
    return folder, held.state.identity if held else ""


def _add_missing(attachment: Attachment, thing: GitThing, whole: GitWhole, pack: bytes) -> None:
    """Let all objects that a linked worktree needs be in its repository. ExecutionFailed."""
    folder, identity = _repository_of(attachment, thing)
    restorer = attachment.on_disk.git_restorer
    if restorer is None:
        raise ExecutionFailed("of an imported log no repository can be brought back")
    wanted = [*wanted_ids(attachment.stored, thing.names, thing.files)]
    with restorer.begin(folder, identity, None) as restore:
        if wanted and restore.missing(wanted):
            restore.add_objects(pack)


def note_built(record: CallRecord, intended: GitIntended) -> None:
    """Collect that a git folder is there again, where it is the one that was built."""
    path = git_path(intended.folder)
    attachment = record.attachment
    restorer = attachment.on_disk.git_restorer
    state, entry = observe(attachment, path, None)
    if state is None or restorer is None or not restorer.is_there(intended.folder, intended.lock):
        return
    before = attachment.stored.reading.state(path)
    if change := opaque_change(attachment.on_disk, path, before, state):
        record.add_changes(FilesChanged((change,), "undo", record.call_id))
        record.entries[path] = entry


def _steps(stored: StoredLog, things: Sequence[GitThing], note: str) -> GitSteps:
    with_head = [one for one in things if one.name == WORKTREE]
    files = [file for one in things for file in one.files]
    made = [one for one in files if one.path not in (INDEX_ENTRIES, "index")]
    settings = settings_of(stored, made)
    states = {one.path: one.after for one in made if one.path not in settings}
    return GitSteps(
        names=tuple(name for one in things for name in one.names),
        files={path: file_of(stored, one) if one else None for path, one in states.items()},
        note=note,
        settings=settings,
        with_head=frozenset(name.name for one in with_head for name in one.names),
        head=next((one.head for one in with_head), ""),
    )


def _bring_objects(
    attachment: Attachment,
    restore: GitRestore,
    folder: str,
    names: Iterable[GitName],
    files: Iterable[FileChange],
) -> None:
    """Let all objects that the names and the index need be in the repository, from the mirror."""
    wanted = [*wanted_ids(attachment.stored, names, files)]
    if not (missing := restore.missing(wanted)):
        return
    if (pack := _pack(attachment, wanted)) is not None:
        restore.add_objects(pack)
        missing = restore.missing(wanted)
    if missing:
        where = f" of {visible(folder)}" if folder else ""
        raise ExecutionFailed(
            f"git: {len(missing)} objects{where} that would come back are not kept: {missing[0]}",
            hint="`loom-audit doctor` says what of the mirror is missing; --no-git leaves git.",
        )


def _pack(attachment: Attachment, wanted: Sequence[str]) -> bytes | None:
    """A pack of the wanted objects from the mirror; None where there is no mirror."""
    mirror, git = attachment.on_disk.mirror, attachment.on_disk.mirrored_git
    if mirror is None or git is None:
        return None
    place = mirror.folder(long_ids=len(wanted[0]) == LONG_ID)
    return git.pack(place, wanted, mirror.shallows()[-1])


def _pin_objects(
    attachment: Attachment,
    restore: GitRestore,
    names: Sequence[GitName],
    files: Sequence[FileChange],
) -> None:
    """Let no `git gc` of others throw away meanwhile what no ref leads to yet. ExecutionFailed.

    What the index has now stays by itself; the list of stashes does not, while it is made anew.
    """
    stored = attachment.stored
    stashes = [replace(one, after=one.before) for one in names if one.name == "stashes"]
    now = [replace(one, after=one.before) for one in files]
    staged = {*wanted_ids(stored, (), now)}
    wanted = [id for id in wanted_ids(stored, (*names, *stashes), files) if id not in staged]
    if not wanted or restore.pin(wanted, stashes=bool(stashes)):
        return
    if (pack := _pack(attachment, wanted)) is not None:
        restore.add_objects(pack, pinned=True)  # it was thrown away just now
