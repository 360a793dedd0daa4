"""Why not all that a call changed of git can be taken back, as the coverage of the call says it."""

from collections.abc import Iterator
from hashlib import sha256

from loom_audit.history.ground.attachment import Attachment, StoredLog
from loom_audit.history.record.git.whole import content_kept
from loom_audit.model.files import FileChange, FileState
from loom_audit.model.git.record import (
    ALTERNATES,
    BROKEN,
    NOT_TAKEN_BACK,
    OBJECT_ID,
    SHARED_REFS,
    STASH_LOG,
    GitChanged,
    GitName,
    path_elsewhere,
)
from loom_audit.model.git.ways import kinds_of
from loom_audit.model.git.words import shown_name
from loom_audit.model.git_points import git_path
from loom_audit.model.plans.git_settings import run_lines
from loom_audit.model.plans.git_things import is_led_out
from loom_audit.model.text.display import first_few, visible

CAME = "a repository that came"
ENTRIES = "entries that went from reflogs"
ODD = "what names another ref, or is broken"
OUTSIDE = "what is shared with a repository outside of the workspace, unless that is chosen"
ELSEWHERE = "what a linked worktree elsewhere has staged or in progress"
STEPS = "what a rebase was to run, or a link among its files"

_NAMED = 3


def why_not_back(attachment: Attachment, fact: GitChanged) -> tuple[str, ...]:
    """The reason why not all of a change of git can be taken back, also when asked for; none where
    it can. Of a repository that went the record of files says it.
    """
    said = [*dict.fromkeys(_said(attachment, fact))]
    where = f" in {visible(git_path(fact.folder))}" if fact.folder else ""
    return (f"{NOT_TAKEN_BACK}{where}: {first_few(said, _NAMED, str)}",) if said else ()


def _said(attachment: Attachment, fact: GitChanged) -> Iterator[str]:
    names = {one.name: one for one in fact.names}
    if fact.is_first or fact.is_gone:
        if fact.is_first and not names["HEAD"].about:  # one that was moved is renamed back
            yield CAME
        return
    known = attachment.process.last_seen.git.repositories
    here = known.get(fact.folder)
    if here is not None and here.state.names.get(SHARED_REFS, "").startswith("/"):
        yield OUTSIDE
    files = {one.path: one for one in fact.changes}
    top = f"worktree {attachment.on_disk.workspace.root}/"
    for kind, (what, name) in kinds_of(fact):
        if what == "file":
            yield from _of_file(attachment.stored, files[name], names)
        elif kind == "remote":
            yield shown_name(name)
        elif _is_odd(names[name]):
            yield ODD
        elif not kind and not (
            names[name].before is not None
            and name.startswith(top)
            and attachment.scope.includes(name.removeprefix(top), directory=True)
        ):  # any other worktree tells by itself what is taken back of it
            yield visible(name)


def _is_odd(one: GitName) -> bool:
    """Whether it is, or was, a symbolic ref, or is broken."""
    values = [value for value in (one.before, one.after) if value is not None]
    if one.name.startswith("refs/"):
        return not all(map(OBJECT_ID.fullmatch, values))
    return one.name == "HEAD" and BROKEN in values


def _of_file(stored: StoredLog, file: FileChange, names: dict[str, GitName]) -> Iterator[str]:
    path, before = file.path, file.before
    if path in ("shallow", ALTERNATES):
        yield path
    if path_elsewhere(path):
        yield ELSEWHERE
        return
    if before is None:
        return
    ref = names.get(path.removeprefix("logs/"))
    if path.startswith("logs/"):
        # the log of a ref that went comes back with it, and that of stashes with these
        goes_along = path == STASH_LOG or (ref is not None and ref.after is None)
        if not (goes_along or _goes_on(stored, before, file.after)):
            yield ENTRIES
        return
    content = content_kept(stored, before) or b""  # it may be erased
    if is_led_out(FileChange(path, None, before)) or run_lines(path, content):
        yield STEPS


def _goes_on(stored: StoredLog, before: FileState, after: FileState | None) -> bool:
    """Whether a file has all that it had, and at most more behind it."""
    size = before.size or 0
    if after is None or (after.size or 0) < size:
        return False
    return sha256((content_kept(stored, after) or b"")[:size]).hexdigest() == before.blob
