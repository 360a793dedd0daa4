"""What changed of the workspace's git repositories since they were last on record."""

import stat
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import copy
from hashlib import sha256
from typing import TypeVar

from msgspec.structs import replace

from loom_audit.errors import AuditError, ExecutionFailed
from loom_audit.history.ground.attachment import Attachment
from loom_audit.history.ground.process_state import ExpectedGit, LastRepository, SaidGit
from loom_audit.history.look.attribution import ended_candidate
from loom_audit.history.look.git.git_look import GitLook, by_time
from loom_audit.history.look.git.kept_objects import keep_objects
from loom_audit.history.look.git.pushes import with_pushes
from loom_audit.model.files import EPOCH_DIGITS, FileChange, FileState
from loom_audit.model.git.record import (
    INDEX_ENTRIES,
    INDEX_MTIME,
    OBJECT_ID,
    SHARED_REFS,
    GitChanged,
    GitName,
    GitState,
    changed_files,
    changed_names,
    is_led_to,
    is_untold,
    path_elsewhere,
    untold_reason,
)
from loom_audit.model.git_points import git_path
from loom_audit.model.plans.git_settings import is_elsewhere
from loom_audit.model.records import untold_last
from loom_audit.model.text.display import count_text, visible
from loom_audit.ports import SETTLED, CallFilter, EventFilter, Git, GitSeen

FOLDER = ".git"

_KEPT = "the stamps of git"
"""The name under which the last stamps are kept for the next process."""

MOST_NESTED = 64
"""The number of repositories below the top that are looked at."""

MOST_READ = 20
"""The number of calls of processes before this one that are asked whether git could be told."""

LONGEST = 20.0
"""Seconds after which no more of them is looked at: others wait for the lock at most a minute."""


Thing = TypeVar("Thing", str, FileState)


def look_at_git(attachment: Attachment, *, anyway: bool = False) -> Sequence[GitLook]:
    """Look at the repository at the top of the workspace and at nested ones; the lock is held.

    Nested ones are those on record, and those whose `.git` a scan saw. git is asked where stamps
    differ, or `anyway` where stamps are not trusted, and compared with what is on record.

    Contents of files of the git folder are put into the store. Stamps are kept only when what git
    said is on record, so that what is found and then not recorded is found again.
    AuditUnavailable where a content cannot be stored.
    """
    looks = [*_look_at_each(attachment, anyway=anyway)]
    found = [one.change for one in looks if one.change is not None]
    gone = {one.identity[EPOCH_DIGITS:]: one.folder for one in found if one.is_gone}
    came = {one.identity[EPOCH_DIGITS:]: one.folder for one in found if one.is_first}
    return [_with_move(one, gone, came) for one in looks]


def _with_move(look: GitLook, gone: Mapping[str, str], came: Mapping[str, str]) -> GitLook:
    """A look at a repository that went from one folder to another, or came, which is said of it.

    The record of files has the move, and whose it is: between calls it is not from outside.
    """
    change = look.change
    if change is None or not (change.is_gone or change.is_first):
        return look
    known = change.identity[EPOCH_DIGITS:]
    if known not in gone or known not in came:
        return look
    other = f"to {visible(came[known])}" if change.is_gone else f"from {visible(gone[known])}"
    names = tuple(
        replace(one, about=f"moved {other}") if one.name == "HEAD" else one for one in change.names
    )
    return replace(look, change=replace(change, names=names), is_new=True)


def _look_at_each(attachment: Attachment, *, anyway: bool) -> Iterator[GitLook]:
    top, known = attachment.on_disk.git, attachment.process.last_seen.git
    if top is None:
        return
    repositories, is_first = known.repositories, _note_folders(attachment)
    at_top = repositories.setdefault("", LastRepository())
    at_top.git = top
    # a workspace without git is not to pay for asking the log
    if is_first or known.seen_in or at_top.answer != "absent":
        read_states(attachment)
        if not known.is_read:
            known.is_read = True
            _read_untold(attachment)
    yield from _looks_at("", attachment, at_top, anyway)
    folders = _nested(attachment) if known.seen_in or len(repositories) > 1 else []
    end, looked_at = time.monotonic() + LONGEST, 0
    for folder in folders[:MOST_NESTED]:
        if time.monotonic() > end:
            break
        looked_at += 1
        one = repositories.setdefault(folder, LastRepository())
        if one.git is None:
            one.git = top.nested(folder)
        yield from _looks_at(folder, attachment, one, anyway)
        if one.answer == "absent":
            known.seen_in.discard(folder)
            del repositories[folder]
    if more := folders[looked_at:]:
        count = count_text(len(more), "more folder")
        yield GitLook(None, (f"git: {count} with a repository not looked at",))


def _note_folders(attachment: Attachment) -> bool:
    """Note the folders of the `.git` among stamps that were loaded since; whether any were."""
    known, stamps = attachment.process.last_seen.git, attachment.process.last_seen.stamps
    if known.read_from is stamps:
        return False
    known.seen_in.update(one for one, names in stamps.files.items() if one and FOLDER in names)
    known.read_from = stamps
    return True


def _nested(attachment: Attachment) -> list[str]:
    """The folders below with a repository, or one on record: first those on record, then sorted."""
    known = attachment.process.last_seen.git
    recorded = {one for one, last in known.repositories.items() if one and last.state.names}
    in_scope = (
        one for one in known.seen_in | recorded if attachment.scope.includes(one, directory=True)
    )
    return sorted(in_scope, key=lambda one: (one not in recorded, one))


def _looks_at(
    folder: str, attachment: Attachment, seen: LastRepository, anyway: bool
) -> Iterator[GitLook]:
    """Look at one repository, and tell apart what the look before it missed."""
    if seen.said is not None and seen.said.state == seen.state:  # what was found is on record
        seen.looked, seen.unasked, seen.said = seen.said.began, seen.unasked - seen.said.asked, None
    # by the finer clock: newer kernels date files by it, and what was made before is never later
    began, before = time.time_ns(), copy(seen)
    look = replace(_look_at(folder, attachment, seen, anyway), folder=folder)
    if look.change or look.why_unseen:
        missed = (attachment.stored.reading.call_at(n) for n in sorted(seen.unasked))
        look = replace(look, missed=tuple(map(ended_candidate, missed)))
    # what was not told before is asked for again, and what was only not asked is told now
    asked = frozenset(() if before.why_failed and look.unasked else seen.unasked)
    if look.change:
        state = seen.expected.state if seen.expected else seen.state.after(look.change)
        seen.said = SaidGit(state, began, asked)
    else:
        seen.looked = began
        if seen.why_failed or not look.unasked:
            seen.unasked -= asked
    yield from by_time(look, before, seen.git)


def _look_at(folder: str, attachment: Attachment, seen: LastRepository, anyway: bool) -> GitLook:
    """Look at one repository."""
    git, expected, began = seen.git, seen.expected, time.time_ns()
    seen.expected = None
    since = expected.since if expected else began - SETTLED
    stamps = git.stamps(since) if git else None
    if git is None or stamps is None:
        return GitLook()
    if (seen.answer, seen.stamps) == ("failed", stamps.text) and not anyway:
        return GitLook(None, seen.why_failed, unasked=bool(seen.why_failed))
    if expected is not None and expected.state == seen.state:  # what was found then is on record
        seen.why_failed = ()
    is_overdue = bool(seen.why_failed)
    if not stamps.text:
        change = None if seen.answer == "absent" else _gone(folder, seen.state)
        seen.answer, seen.why_failed = ("", seen.why_failed) if change else ("absent", ())
        return GitLook(change, is_overdue=is_overdue)
    if seen.answer == "absent":  # what others recorded since was not read
        read_states(attachment)
    if expected is not None and (expected.stamps, expected.state) == (stamps, seen.state):
        if stamps.newest + SETTLED < began:
            _keep(folder, attachment, stamps.text)
        elif not anyway:
            seen.expected = expected
            return GitLook(unasked=True)
    last = seen.stamps if seen.answer == "recorded" else _kept(folder, attachment)
    if stamps.text == last and not anyway:
        seen.answer, seen.stamps, seen.why_failed = "recorded", stamps.text, ()
        return GitLook(unasked=True)
    asked = time.time_ns()
    found, why, is_gone = _asked(git, folder, seen.state, anyway)
    if why or not (found.names or found.untold):
        replaced = _replaced(folder, attachment, seen, *why, is_gone=is_gone)
        if seen.state.names and not why:
            why = (untold_reason(folder, ".git is not a repository any more"),)
        return replaced or _failed(seen, stamps.text, *why)
    untold = tuple(untold_reason(folder, one) for one in _why_untold(found))
    is_new = not seen.state.names
    unkept: tuple[str, ...] = ()
    change = _difference(attachment, seen, found)
    if change is not None:
        change = replace(change, folder=folder)
        # before the record names the objects
        unkept = keep_objects(attachment, folder, found)
    elif untold:
        return _failed(seen, stamps.text, *untold, untold=found.untold)
    else:
        seen.why_failed = ()
    seen.untold = tuple(found.untold) if untold else ()
    if untold:
        seen.answer, seen.why_failed = "", untold
    elif change is None and stamps.newest + SETTLED < asked:
        _keep(folder, attachment, stamps.text)
    elif stamps.contents is not None:
        to_come = change or GitChanged(seen.state.identity, (), (), "outside")
        seen.expected = ExpectedGit(stamps, seen.state.after(to_come), since)
    shared = found.names.get(SHARED_REFS, "").startswith("/")
    unseen = (*untold, *found.unseen, *unkept) if change else ()
    return GitLook(change, unseen, is_new, shared, bool(untold), is_overdue)


def _asked(
    git: Git, folder: str, known: GitState, anyway: bool
) -> tuple[GitSeen, tuple[str, ...], bool]:
    """What git tells now, why that is not compared with what is on record, and whether the
    repository is surely gone.
    """
    try:
        found = git.seen(anyway=anyway)
    except (ExecutionFailed, OSError) as error:
        is_gone = isinstance(error, ExecutionFailed) and bool(error.details.get("gone"))
        why = untold_reason(folder, str(getattr(error, "message", error)))
        return GitSeen(), (why,), is_gone
    reasons: Iterable[str] = ()
    if (found.names or found.untold) and not found.identity:
        reasons = ("the filesystem does not tell which folder .git is",)
    elif "HEAD" in found.untold and not (known.names and known.is_of(found.identity)):
        reasons = _why_untold(found)
    return found, tuple(untold_reason(folder, one) for one in reasons), False


def _why_untold(seen: GitSeen) -> Iterable[str]:
    """Why git cannot tell all of a repository, each reason once."""
    return dict.fromkeys(filter(None, seen.untold.values()))


def _failed(seen: LastRepository, stamps: str, *why: str, untold: Iterable[str] = ()) -> GitLook:
    """A look that could not read git, or not all of it, which is noted; what every call since was
    told is not told again.
    """
    told, seen.why_failed, seen.untold = seen.why_failed, why, tuple(untold)
    is_told = (seen.answer, seen.stamps, told) == ("failed", stamps, seen.why_failed)
    seen.answer, seen.stamps = "failed", stamps
    return GitLook(None, () if is_told else seen.why_failed, unasked=bool(why))


def _replaced(
    folder: str, attachment: Attachment, seen: LastRepository, *why: str, is_gone: bool = False
) -> GitLook | None:
    """What a look found where what is there now is surely not the repository on record: that one is
    gone, as `is_gone` says or what is there. `why` says what cannot be read of the other.
    """
    known = seen.state
    if not (known.names and (is_gone or _is_replaced(folder, attachment, known))):
        return None
    is_overdue = bool(seen.why_failed)
    seen.answer, seen.why_failed = "", why  # what is told of the other one later is overdue
    return GitLook(_gone(folder, seen.state), why, is_overdue=is_overdue)


def _is_replaced(folder: str, attachment: Attachment, known: GitState) -> bool:
    """Whether what is at a `.git` is surely not the repository on record."""
    path = git_path(folder)
    try:
        found = attachment.on_disk.workspace.stamp(path)
        identity = attachment.on_disk.workspace.identity(path)
    except AuditError:
        return False
    if found is None:
        return False
    if stat.S_ISREG(found.mode):
        return not _may_be_file(attachment, known)
    return not stat.S_ISDIR(found.mode) or bool(identity and not known.is_of(identity))


def _may_be_file(attachment: Attachment, known: GitState) -> bool:
    """Whether the `.git` of a repository on record may have been a file that names its folder."""
    config = known.files.get("config")
    if SHARED_REFS in known.names or config is None or config.blob is None:
        return True
    try:
        return is_elsewhere(attachment.stored.blobs.get(config.blob))
    except AuditError:  # it was erased
        return True


def _gone(folder: str, known: GitState) -> GitChanged | None:
    """What changed where a repository is on record and there is none; None without one."""
    if not known.names:
        return None
    names, files = changed_names(known.names, {}), changed_files(known.files, {})
    return GitChanged(known.identity, names, files, "outside", folder=folder)


def _keep(folder: str, attachment: Attachment, stamps: str) -> None:
    """Keep stamps at which the log has what git says, also for the next process."""
    known = attachment.process.last_seen.git
    seen = known.repositories[folder]
    seen.answer, seen.stamps = "recorded", stamps
    with suppress(AuditError):  # the next process asks git then
        attachment.on_disk.looks.keep(_kept_name(folder), [known.seq, stamps])


def _kept_name(folder: str) -> str:
    return f"{_KEPT} in {folder}" if folder else _KEPT


def _kept(folder: str, attachment: Attachment) -> str:
    """The stamps that a process before this one kept; "" where the log is an older one, or says
    that the repository is gone: the same folder can come back with them.
    """
    state = attachment.process.last_seen.git.repositories[folder].state
    with suppress(AuditError, TypeError, ValueError):
        seq, stamps = attachment.on_disk.looks.get(_kept_name(folder)) or (0, "")
        if 0 < seq <= attachment.stored.log.head() and state.names:
            return str(stamps)
    return ""


def read_states(attachment: Attachment) -> None:
    """Read the states of repositories that the log has, on from where they were last read."""
    known, log = attachment.process.last_seen.git, attachment.stored.log
    for event in log.read(EventFilter(after=known.seq, kinds=(GitChanged.kind,))):
        known.seq = event.seq
        if isinstance(event.fact, GitChanged):
            one = known.repositories.setdefault(event.fact.folder, LastRepository())
            one.state.follow(event.fact)
        else:  # what it said was erased, so that nothing can be compared with it
            for one in known.repositories.values():
                one.state = GitState()


def _read_untold(attachment: Attachment) -> None:
    """Note what processes before this one could not tell of git, as the newest calls say."""
    repositories = attachment.process.last_seen.git.repositories
    calls = attachment.stored.tables.calls(CallFilter(limit=MOST_READ))
    for call, reasons in untold_last(calls):
        for folder, last in repositories.items():
            start = untold_reason(folder, "")
            if own := tuple(one for one in reasons if one.startswith(start)):
                last.why_failed = last.why_failed or own
                last.unasked.add(call.requested)


def _difference(attachment: Attachment, last: LastRepository, seen: GitSeen) -> GitChanged | None:
    """What git says and the log does not; everything where the log has another repository."""
    before = last.state if last.state.is_of(seen.identity) else GitState()
    # git writes an index anew, with other stamps in it, when it is only read
    told, known = seen.names.get("index"), before.names.get("index")
    as_before = told == known or "index" in seen.untold
    kept = {path for path in before.files if as_before and _is_index(path)}
    kept |= {path for path in before.files if _is_index_as_before(path, before, seen)}
    now = {**_untold(before.names, seen), **seen.names}
    if as_before and INDEX_MTIME in before.names:
        now[INDEX_MTIME] = before.names[INDEX_MTIME]
    names = changed_names(before.names, now)
    files = {
        path: before.files[path]
        if path in kept
        else _stored(attachment, one.kind, one.mode, one.content, before.files.get(path))
        for path, one in seen.files.items()
    }
    listed = before.files.get(INDEX_ENTRIES)
    if "index" not in seen.untold:
        files[INDEX_ENTRIES] = _stored(attachment, "file", 0, seen.entries, listed)
    files = {**_untold(before.files, seen), **files}
    changes = changed_files(before.files, files)
    if not names and not changes:
        return None
    if before.names and last.git is not None:
        names = _with_distances(last.git, names)
        names = with_pushes(names, seen)
        names = _with_entries(attachment, names, listed, seen.entries)
    head, left = now.get("HEAD", ""), _not_led_to(last.git, changes)
    return GitChanged(seen.identity, names, changes, "outside", head, not_led_to=left)


def _not_led_to(git: Git | None, changes: Sequence[FileChange]) -> tuple[str, ...]:
    """The files that are no state any more and are there: no setting leads to them now."""
    gone = [one.path for one in changes if one.after is None and is_led_to(one.path)]
    return tuple(git.changed_at(gone)) if git is not None and gone else ()


def _untold(before: Mapping[str, Thing], seen: GitSeen) -> Mapping[str, Thing]:
    """What was on record and is not told now, so that it stays as it is on record."""
    if not seen.untold:
        return {}
    return {name: one for name, one in before.items() if is_untold(name, seen.untold)}


def _is_index(path: str) -> bool:
    return path == "index" or path.startswith("sharedindex.")


def _is_index_as_before(path: str, before: GitState, seen: GitSeen) -> bool:
    """Whether it is the index of a linked worktree elsewhere, whose entries are as they were."""
    elsewhere = path_elsewhere(path)
    if elsewhere is None or not _is_index(elsewhere[1]):
        return False
    listed = f"{path.removesuffix(elsewhere[1])}{INDEX_ENTRIES}"
    old, now = before.files.get(listed), seen.files.get(listed)
    return bool(old and now and old.blob == sha256(now.content).hexdigest())


def _has(names: Sequence[GitName], name: str) -> bool:
    return any(one.name == name for one in names)


def _stored(
    attachment: Attachment, kind: str, mode: int, content: bytes, before: FileState | None
) -> FileState:
    if before and before.blob == sha256(content).hexdigest():
        return replace(before, kind="symlink" if kind == "symlink" else "file", mode=mode)
    similar = before.blob if before and before.kind == "file" == kind else None
    blob = attachment.stored.blobs.put(content, similar_to=similar)
    return FileState("symlink" if kind == "symlink" else "file", blob, mode, len(content))


def _with_distances(git: Git, names: Sequence[GitName]) -> tuple[GitName, ...]:
    """The names, with how far each branch or other ref moved."""
    moved = {
        one.name: (one.before, one.after)
        for one in names
        if one.name.startswith(("refs/", "HEAD")) and all(map(_is_object, (one.before, one.after)))
    }
    told = dict(zip(moved, git.distances([*moved.values()]), strict=True)) if moved else {}
    return tuple(replace(one, about=told.get(one.name, "")) for one in names)


def _with_entries(
    attachment: Attachment, names: Sequence[GitName], listed: FileState | None, now: bytes
) -> tuple[GitName, ...]:
    """The names, with how many paths of the index have other entries than before."""
    if listed is None or listed.blob is None or not _has(names, "index"):
        return tuple(names)
    try:
        old = attachment.stored.blobs.get(listed.blob)
    except AuditError:  # it was erased
        return tuple(names)
    differing = set(old.split(b"\0")) ^ set(now.split(b"\0"))
    count = count_text(len({one.partition(b"\t")[2] for one in differing}), "path")
    return tuple(replace(one, about=count) if one.name == "index" else one for one in names)


def _is_object(value: str | None) -> bool:
    return value is None or OBJECT_ID.fullmatch(value) is not None
