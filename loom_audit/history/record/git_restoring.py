"""Brings repositories of the workspace back to what was on record, as a step of a call."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from itertools import groupby

from msgspec.structs import replace

from loom_audit.errors import Conflict, ExecutionFailed
from loom_audit.history.ground.attachment import Attachment, StoredLog
from loom_audit.history.look.git.changes import look_at_git
from loom_audit.history.look.git.kept_objects import STAGED, wanted_objects
from loom_audit.history.look.observation import observe
from loom_audit.history.look.opaque import opaque_change
from loom_audit.history.read.call_detail import git_now
from loom_audit.history.record.call_record import CallRecord
from loom_audit.history.record.interrupted import writer_of
from loom_audit.model.actors import OUTSIDE
from loom_audit.model.events import Draft, FilesChanged
from loom_audit.model.files import FileChange, FileState, is_same_identity
from loom_audit.model.git import (
    INDEX_ENTRIES,
    INDEX_MTIME,
    OBJECT_ID,
    STAYS,
    GitChanged,
    GitIntended,
    GitName,
    GitState,
    is_run_by_git,
)
from loom_audit.model.git_index import without_caches
from loom_audit.model.git_points import git_path
from loom_audit.model.plans.git_settings import is_of_long_ids, run_lines
from loom_audit.model.plans.git_things import REPOSITORY, GitThing, is_led_out, is_of_index
from loom_audit.model.records import Call
from loom_audit.model.text.display import count_text, visible
from loom_audit.ports import (
    EventFilter,
    GitFile,
    GitRestore,
    GitSeen,
    GitSteps,
    GitWhole,
    IndexBytes,
)
from loom_audit.ports.git_objects import LONG_ID

MOST_ASKED = 500
"""How often git is asked which of the objects that only logs name are whole."""


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
        steps = _steps(attachment.stored, names, files, note)
        record.commit(intended)

        def carry_out() -> None:
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
    for one in wanted.values():
        if one.beside:
            note_built(record, one)
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


# --- a repository that is gone --------------------------------------------------------------


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
    with builder.begin(thing.folder, thing.over) as building:
        intended = GitIntended(
            call_id=record.call_id,
            identity=building.identity,
            names=thing.names,
            changes=thing.files,
            lock=building.identity,
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


def whole_of(stored: StoredLog, thing: GitThing) -> GitWhole:
    """All that a repository is to hold but objects. ExecutionFailed where a content is erased."""
    files = {
        one.path: GitFile(one.after.kind, one.after.mode or 0o644, content_of(stored, one.after))
        for one in thing.files
        if one.after is not None and one.path not in (INDEX_ENTRIES, "index")
        if not is_led_out(one)
    }
    files = {path: one for path, one in files.items() if not run_lines(path, one.content)}
    names = {one.name: one.after for one in thing.names if one.after is not None}
    index = index_of(stored, thing.names, thing.files, apart=True)
    return GitWhole(names, files, index, has_long_ids(stored, thing))


def has_long_ids(stored: StoredLog, thing: GitThing) -> bool:
    """Whether the ids of a repository are by SHA-256; one that names none says it in its settings.

    ExecutionFailed where these were erased.
    """
    values = [one.after for one in thing.names if one.after and one.name != "index"]
    found = {len(id) for one in values if OBJECT_ID.fullmatch(id := one.rpartition(" ")[2])}
    if found:
        return LONG_ID in found
    config = next((one.after for one in thing.files if one.path == "config"), None)
    return config is not None and is_of_long_ids(content_of(stored, config))


def entries_of(stored: StoredLog, files: Mapping[str, FileState]) -> bytes:
    """The entries of an index, as they are on record. ExecutionFailed where they are erased."""
    return content_of(stored, files[INDEX_ENTRIES]) if INDEX_ENTRIES in files else b""


def packed_objects(attachment: Attachment, whole: GitWhole, entries: bytes) -> tuple[bytes, str]:
    """A pack of all that a repository names, from the mirror; what only a log or the file of
    something in progress names comes along where it is kept. ExecutionFailed.
    """
    mirror, git = attachment.on_disk.mirror, attachment.on_disk.mirrored_git
    needed = [*dict.fromkeys(wanted_objects(GitSeen(whole.names, {}, entries)))]
    if not needed:
        return b"", ""
    if mirror is None or git is None:
        raise ExecutionFailed("of an imported log no objects are kept")
    place = mirror.folder(long_ids=whole.long_ids)
    shallow = whole.files["shallow"].content if "shallow" in whole.files else b""
    if missing := git.missing(place, needed, (), shallow):
        raise ExecutionFailed(
            f"git: {len(missing)} objects that would come back are not kept: {missing[0]}",
            hint="`loom-audit doctor` says what of the mirror is missing; --no-git leaves git.",
        )
    more = {*wanted_objects(GitSeen({}, whole.files)), *_logged(whole)} - {*needed}
    taken = whole_ids(lambda ids: git.missing(place, ids, needed, shallow), sorted(more))
    left = len(more) - len(taken)
    said = (
        f"git: {count_text(left, 'object')} that only logs name, with what they lead to, not kept"
    )
    return git.pack(place, [*needed, *taken], shallow), said if left else ""


def whole_ids(missing: Callable[[Sequence[str]], Sequence[str]], ids: Sequence[str]) -> list[str]:
    """Those ids of which all is kept that they lead to, found by halves; some of them where too
    many are not.
    """
    found: list[str] = []
    left = [ids] if ids else []
    for _ in range(MOST_ASKED):
        if not left:
            break
        some = left.pop()
        try:
            lacking = {*missing(some)}
        except ExecutionFailed:  # one of them leads to a commit that is not there
            lacking = {*some}
        rest = [id for id in some if id not in lacking]
        if not lacking:
            found += some
        elif rest and len(rest) < len(some):
            left.append(rest)
        elif len(some) > 1:
            middle = len(some) // 2
            left += [some[middle:], some[:middle]]
    return found


def _logged(whole: GitWhole) -> Iterable[str]:
    """The ids to which the logs of refs say that these moved."""
    for path, file in whole.files.items():
        if path.startswith("logs/"):
            for line in file.content.decode("ascii", "replace").split("\n"):
                words = line.split(" ", 2)
                if len(words) == 3 and OBJECT_ID.fullmatch(words[1]) and words[1].strip("0"):
                    yield words[1]


def note_built(record: CallRecord, intended: GitIntended) -> None:
    """Collect that a git folder is there again, where it is the one that was built."""
    path = git_path(intended.folder)
    attachment = record.attachment
    state, entry = observe(attachment, path, None)
    if state is None or not is_same_identity(state.identity, intended.lock):
        return
    before = attachment.stored.reading.state(path)
    if change := opaque_change(attachment.on_disk, path, before, state):
        record.add_changes(FilesChanged((change,), "undo", record.call_id))
        record.entries[path] = entry


# --- what a restore needs -----------------------------------------------------------------


def index_of(
    stored: StoredLog,
    names: Iterable[GitName],
    files: Iterable[FileChange],
    *,
    apart: bool = False,
) -> IndexBytes | None:
    """What the index becomes; None where it stays. ExecutionFailed where its content is erased."""
    values = {one.name: one.after for one in names}
    if "index" not in values:
        return None
    state = next((one.after for one in files if one.path == "index"), None)
    if state is None:
        return IndexBytes(None)
    content = content_of(stored, state)
    for long_ids in (False, True):  # its checksum tells
        try:
            made = without_caches(content, long_ids=long_ids, apart=apart)
        except (ValueError, IndexError):
            continue
        return IndexBytes(made, int(values.get(INDEX_MTIME) or 0))
    raise ExecutionFailed("the index on record cannot be read")


def content_of(stored: StoredLog, state: FileState) -> bytes:
    """The bytes of a file of git that is on record; ExecutionFailed."""
    if state.blob is None:
        raise ExecutionFailed("the content of a file of git is not on record")
    return stored.blobs.get(state.blob)


def _steps(
    stored: StoredLog, names: tuple[GitName, ...], files: Iterable[FileChange], note: str
) -> GitSteps:
    def file(state: FileState | None) -> GitFile | None:
        if state is None:
            return None
        return GitFile(state.kind, state.mode or 0o644, content_of(stored, state))

    made = [one for one in files if one.path not in (INDEX_ENTRIES, "index")]
    run = [one for one in made if is_run_by_git(one.path)]
    settings = {one.path: (file(one.before), file(one.after)) for one in run}
    return GitSteps(names, {o.path: file(o.after) for o in made if o not in run}, note, settings)


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


def wanted_ids(
    stored: StoredLog, names: Iterable[GitName], files: Iterable[FileChange]
) -> Iterable[str]:
    """The objects that names and an index need. ExecutionFailed where its entries are erased."""
    for one in names:
        if one.name == "stashes":
            yield from (line.partition(" ")[0] for line in (one.after or "").split("\n") if line)
        elif one.after and OBJECT_ID.fullmatch(one.after) and one.name != "index":
            yield one.after
    for file in files:
        if file.path == INDEX_ENTRIES and file.after is not None:
            content = content_of(stored, file.after)
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
    restorer, builder = attachment.on_disk.git_restorer, attachment.on_disk.git_builder
    for call in calls:
        intended = git_intentions(attachment.stored, call)
        if not intended or restorer is None:
            continue
        for one in intended:
            if one.beside and builder is not None:
                builder.release(one.folder, one.beside, one.lock)
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
    for one in {each.folder: each for each in git_intentions(attachment.stored, call)}.values():
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
        run = [f for f in files if is_run_by_git(f.path)]
        moved += [f.path for f in run if state.files.get(f.path) != f.before]
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
