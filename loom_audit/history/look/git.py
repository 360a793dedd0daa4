"""What changed of the workspace's git repository since it was last on record."""

import time
from collections.abc import Sequence
from contextlib import suppress
from hashlib import sha256

from msgspec import Struct
from msgspec.structs import replace

from loom_audit.errors import AuditError, ExecutionFailed
from loom_audit.history.ground.attachment import Attachment
from loom_audit.history.look.doers import UNKNOWN, Candidate
from loom_audit.model.actors import OUTSIDE
from loom_audit.model.events import Draft
from loom_audit.model.files import FileState
from loom_audit.model.git import (
    INDEX_MTIME,
    GitChanged,
    GitName,
    GitState,
    changed_files,
    changed_names,
)
from loom_audit.model.text.display import count_text
from loom_audit.ports import EventFilter, Git, GitSeen

FOLDER = ".git"
ENTRIES = "index entries"
"""The name under which the entries of the index are among the files of the git folder."""

_KEPT = "the stamps of git"
"""The name under which the last stamps are kept for the next process."""

SETTLED = 20_000_000
"""Nanoseconds after a change, after which a later one surely has another stamp: two long ticks."""


class GitLook(Struct, frozen=True):
    """What a look found: a change, which is of nobody yet, or why git could not tell the state."""

    change: GitChanged | None = None
    why_unseen: tuple[str, ...] = ()
    is_new: bool = False
    """Whether nothing of any repository was on record."""
    unasked: bool = False
    """Whether git was not asked, since its stamps were the same."""


def look_at_git(attachment: Attachment, *, anyway: bool = False) -> GitLook:
    """Ask git where its stamps differ, and compare with what is on record; the lock is held.

    It is asked `anyway` where stamps are not trusted.

    Contents of files of the git folder are put into the store. Stamps are kept only when what git
    said is on record, so that what is found and then not recorded is found again.
    AuditUnavailable where a content cannot be stored.
    """
    git, seen = attachment.on_disk.git, attachment.process.last_seen.git
    stamps = git.stamps() if git else None
    if git is None or stamps is None or (seen.answer, seen.stamps) == ("failed", stamps.text):
        return GitLook()
    if not stamps.text:
        gone = None if seen.answer == "absent" else _gone(_state_on_record(attachment))
        seen.answer = "" if gone else "absent"
        return GitLook(gone)
    if _is_recorded(attachment, stamps.text):
        _keep(attachment, stamps.text)
    last = seen.stamps if seen.answer == "recorded" else _kept(attachment)
    if stamps.text == last and not anyway:
        seen.answer, seen.stamps = "recorded", stamps.text
        return GitLook(unasked=True)
    seen.unasked.clear()
    asked = time.time_ns()
    try:
        identity, found = _seen(attachment, git)
    except (ExecutionFailed, OSError) as error:
        seen.answer, seen.stamps = "failed", stamps.text
        return GitLook(None, (f"git: {getattr(error, 'message', error)}",))
    is_new = not _state_on_record(attachment).names
    if not found.names:
        seen.answer, seen.stamps = "failed", stamps.text
        return GitLook(None, () if is_new else ("git: .git is not a repository any more",))
    change = _difference(attachment, git, identity, found)
    if stamps.newest + SETTLED < asked:
        if change is None:
            _keep(attachment, stamps.text)
        else:
            seen.expected = stamps.text, seen.state.after(change)
    return GitLook(change, found.unseen if change else (), is_new)


def _gone(known: GitState) -> GitChanged | None:
    """What changed where a repository is on record and there is none; None without one."""
    if not known.names:
        return None
    names, files = changed_names(known.names, {}), changed_files(known.files, {})
    return GitChanged(known.identity, names, files, "outside")


def _is_recorded(attachment: Attachment, stamps: str) -> bool:
    """Whether the change that was found at these stamps is on record by now."""
    seen = attachment.process.last_seen.git
    expected, seen.expected = seen.expected, None
    return (
        expected is not None
        and expected[0] == stamps
        and _state_on_record(attachment) == expected[1]
    )


def _keep(attachment: Attachment, stamps: str) -> None:
    """Keep stamps at which the log has what git says, also for the next process."""
    seen = attachment.process.last_seen.git
    seen.answer, seen.stamps = "recorded", stamps
    with suppress(AuditError):  # the next process asks git then
        attachment.on_disk.looks.keep(_KEPT, [seen.seq, stamps])


def _seen(attachment: Attachment, git: Git) -> tuple[str, GitSeen]:
    """The identity of the git folder and its state; ExecutionFailed where it is not all the same
    one.
    """
    identity = attachment.on_disk.workspace.identity(FOLDER)
    state = git.seen()
    if not identity or attachment.on_disk.workspace.identity(FOLDER) != identity:
        raise ExecutionFailed("the git folder was replaced while it was looked at")
    return identity, state


def _kept(attachment: Attachment) -> str:
    """The stamps that a process before this one kept; "" where the log is an older one, or says
    that the repository is gone: the same folder can come back with them.
    """
    with suppress(AuditError, TypeError, ValueError):
        seq, stamps = attachment.on_disk.looks.get(_KEPT) or (0, "")
        if 0 < seq <= attachment.stored.log.head() and _state_on_record(attachment).names:
            return str(stamps)
    return ""


def _state_on_record(attachment: Attachment) -> GitState:
    """The state that the log has of the repository, read on from where it was last read."""
    seen, log = attachment.process.last_seen.git, attachment.stored.log
    for event in log.read(EventFilter(after=seen.seq, kinds=(GitChanged.kind,))):
        seen.seq = event.seq
        if isinstance(event.fact, GitChanged):
            seen.state.follow(event.fact)
        else:  # what it said was erased, so that nothing can be compared with it
            seen.state = GitState()
    return seen.state


def _difference(
    attachment: Attachment, git: Git, identity: str, seen: GitSeen
) -> GitChanged | None:
    """What git says and the log does not; everything where the log has another repository."""
    known = _state_on_record(attachment)
    before = known if known.is_of(identity) else GitState()
    # git writes an index anew, with other stamps in it, when it is only read
    as_before = seen.names.get("index") == before.names.get("index")
    kept = {path for path in before.files if as_before and _is_index(path)}
    now = dict(seen.names)
    if as_before and INDEX_MTIME in before.names:
        now[INDEX_MTIME] = before.names[INDEX_MTIME]
    names = changed_names(before.names, now)
    files = {
        path: before.files[path]
        if path in kept
        else _stored(attachment, one.kind, one.mode, one.content, before.files.get(path))
        for path, one in seen.files.items()
    }
    listed = before.files.get(ENTRIES)
    files[ENTRIES] = _stored(attachment, "file", 0, seen.entries, listed)
    changes = changed_files(before.files, files)
    if not names and not changes:
        return None
    if before.names:
        names = _with_distances(git, names)
        names = _with_entries(attachment, names, listed, seen.entries)
    return GitChanged(identity, names, changes, "outside", seen.names.get("HEAD", ""))


def _is_index(path: str) -> bool:
    return path == "index" or path.startswith("sharedindex.")


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
        if one.name.startswith("refs/") and all(map(_is_object, (one.before, one.after)))
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
    return value is None or (len(value) in (40, 64) and set(value) <= set("0123456789abcdef"))


def git_draft(
    look: GitLook, among: Sequence[Candidate], *, late: bool = False, between: bool = False
) -> Sequence[Draft]:
    """The change that a look found as a draft: of the calls that may have made it, or from outside.

    Calls that say their paths did not make it. No path tells whose it is, so that what a `late`
    one found is never one call's alone. What it found `between` calls is from outside, with the
    candidates as causes; the first state of all that is found so is the baseline.
    """
    change = look.change
    if change is None:
        return ()
    if between and look.is_new:
        return [Draft(replace(change, origin="baseline"), "", OUTSIDE)]
    doers = [one for one in among if one.paths is None and one.writes is None]
    causes = tuple(sorted({one.requested for one in doers}))
    acting = [one for one in doers if not (one.ended or one.is_survivor)]
    if not acting:
        return [Draft(replace(change, causes=causes), "", OUTSIDE)]
    if between or late or not acting[0].seen:
        causes = (UNKNOWN, *causes)
    elif len(causes) == 1:
        causes = ()
    first = acting[0]
    fact = replace(change, origin="command", call_id=first.call_id, causes=causes)
    return [Draft(fact, first.session, first.actor)]
