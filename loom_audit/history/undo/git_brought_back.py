"""With which hooks and settings a repository comes back that is gone, and what of it does not.

Both can run code as the person, and a call may have planted them. So they are those of the first
look, before any call, or none: never what a call left.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256

from msgspec import Struct
from msgspec.structs import replace

from loom_audit.errors import NotFound
from loom_audit.history.ground.attachment import Attachment
from loom_audit.model.events import CallRequested
from loom_audit.model.files import BlobId, FileChange, FileState
from loom_audit.model.git import GitChanged, is_run_by_git
from loom_audit.model.plans.git_things import GitThing, GitVerdicts, where_of
from loom_audit.model.plans.verdicts import Note
from loom_audit.model.text.display import first_few, visible
from loom_audit.ports import EventFilter
from loom_audit.ports.git_objects import LONG_ID, plain_settings

AS_FIRST_SEEN = "hooks and settings come back as they were before the first call, so without"
NOT_FIRST_SEEN = (
    "it was not there before the first call, so that it comes back without hooks and settings"
)
NO_WORKTREE = "a linked worktree does not come back with it, `git worktree add` makes it anew"
ELSEWHERE = "its work tree or its refs lie elsewhere, so that it is not brought back"

_ELSEWHERE = re.compile(rb"^\s*(?:worktree|refstorage)\s*=", re.IGNORECASE | re.MULTILINE)
"""Settings of a submodule, and of refs that are not files."""


class WithSettings(Struct, frozen=True):
    """The verdicts on git, with contents that the store may not have yet."""

    verdicts: GitVerdicts
    contents: Mapping[BlobId, bytes] = {}


def with_settings(attachment: Attachment, verdicts: GitVerdicts) -> WithSettings:
    """The verdicts in which what comes back whole has the hooks and settings that it may have."""
    things: list[GitThing] = []
    notes: list[Note] = []
    contents: dict[BlobId, bytes] = {}
    for one in verdicts.things:
        if not one.is_whole:
            things.append(one)
            continue
        where = f"git{where_of(one.folder)}"
        if _is_elsewhere(attachment, one):
            notes.append(Note("", f"{where}: {ELSEWHERE}"))
            continue
        trusted = _first_seen(attachment, one)
        files = [file for file in one.files if not is_run_by_git(file.path)]
        kept = {file.path: file.after for file in trusted or () if is_run_by_git(file.path)}
        if "config" not in kept:
            text = plain_settings(long_ids=_has_long_ids(one)).encode()
            blob = BlobId(sha256(text).hexdigest())
            contents[blob] = text
            kept["config"] = FileState("file", blob, 0o644, len(text))
        files += [FileChange(path, None, state) for path, state in kept.items() if state]
        things.append(replace(one, files=tuple(sorted(files, key=lambda file: file.path))))
        notes += (Note("", f"{where}: {said}") for said in _said(one, kept, trusted is not None))
    stays = (*verdicts.stays, *notes)
    return WithSettings(replace(verdicts, things=tuple(things), stays=stays), contents)


def _said(thing: GitThing, kept: Mapping[str, FileState | None], was_there: bool) -> Iterator[str]:
    was = {file.path: file.after for file in thing.files if is_run_by_git(file.path)}
    differing = sorted(path for path, state in was.items() if kept.get(path) != state)
    if differing:
        why = AS_FIRST_SEEN if was_there else NOT_FIRST_SEEN
        yield f"{why}: {first_few(differing, 5, visible)}"
    for one in thing.names:
        if one.name.startswith("worktree "):
            yield f"{visible(one.name)}: {NO_WORKTREE}"


def _is_elsewhere(attachment: Attachment, thing: GitThing) -> bool:
    """Whether it is a submodule or a linked worktree, or has refs that are not files."""
    config = next((file.after for file in thing.files if file.path == "config"), None)
    if config is None or config.blob is None:
        return True
    try:
        return bool(_ELSEWHERE.search(attachment.stored.blobs.get(config.blob)))
    except NotFound:  # it was erased
        return True


def _first_seen(attachment: Attachment, thing: GitThing) -> Sequence[FileChange] | None:
    """The files of the first look at the repository; None unless nobody's call came before it, or
    an undo brought it back.
    """
    found: tuple[int, GitChanged] | None = None
    for event in attachment.stored.log.read(EventFilter(kinds=(GitChanged.kind,))):
        fact = event.fact
        if isinstance(fact, GitChanged) and fact.folder == thing.folder and fact.is_first:
            found = event.seq, fact
    if found is None:
        return None
    seq, fact = found
    if fact.origin == "undo":
        return fact.changes
    calls = EventFilter(before=seq, kinds=(CallRequested.kind,), limit=1)
    if fact.origin != "baseline" or any(True for _ in attachment.stored.log.read(calls)):
        return None
    return fact.changes


def _has_long_ids(thing: GitThing) -> bool:
    return any(len(id) == LONG_ID for id in _ids(thing))


def _ids(thing: GitThing) -> Iterable[str]:
    for one in thing.names:
        if one.after and one.name not in ("index",):
            yield one.after.rpartition(" ")[2]
