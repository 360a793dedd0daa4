"""What of git comes back without what runs code as the person, or leads somewhere else.

A call may have planted it. So hooks and settings of a repository that is gone are those of the
first look, before any call, or none: never what a call left. What a rebase is still to do does not
come back where it would run programs, and no symbolic link does.
"""

from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256

from msgspec import Struct
from msgspec.structs import replace

from loom_audit.history.ground.attachment import Attachment
from loom_audit.history.record.git.whole import content_kept, has_long_ids
from loom_audit.history.undo.git.linked_back import is_linked_inside, linked_back
from loom_audit.history.undo.git.moved_back import GitOnRecord
from loom_audit.model.events import CallRequested
from loom_audit.model.files import BlobId, FileChange, FileState
from loom_audit.model.git.record import BROKEN, SHARED_REFS, is_run_by_git
from loom_audit.model.plans.git_settings import (
    beside_state,
    is_elsewhere,
    is_of_long_ids,
    may_run,
    run_lines,
)
from loom_audit.model.plans.git_things import (
    NO_WORKTREE,
    GitThing,
    GitVerdicts,
    beside_words,
    is_led_out,
    where_of,
)
from loom_audit.model.plans.verdicts import Note
from loom_audit.model.text.display import first_few, visible
from loom_audit.ports import EventFilter
from loom_audit.ports.git_objects import plain_settings

AS_FIRST_SEEN = "hooks and settings come back as they were before the first call, so without"
NOT_FIRST_SEEN = (
    "what hooks and settings it had before any call is not on record, so that it comes back "
    "without them"
)
RUNS = (
    "does not come back, as it has a rebase run programs as you when that goes on "
    "(`git rebase --abort` ends it)"
)
NO_LINK = "a symbolic link does not come back, as git would write where it leads"
NOT_RECORDED = "not on record, so that they do not come back"
BROKEN_REF = "a ref that is broken does not come back"
ELSEWHERE = "its work tree or its refs lie elsewhere, so that it is not brought back"


class WithSettings(Struct, frozen=True):
    """The verdicts on git, with contents that the store may not have yet, and notes on repositories
    that are gone and not brought back. What is `blocked` keeps the plan from being carried out.
    """

    verdicts: GitVerdicts
    contents: Mapping[BlobId, bytes] = {}
    stay_gone: tuple[Note, ...] = ()
    blocked: tuple[Note, ...] = ()


def with_settings(
    attachment: Attachment, verdicts: GitVerdicts, on_record: GitOnRecord
) -> WithSettings:
    """The verdicts in which what comes back whole has the hooks and settings that it may have."""
    things: list[GitThing] = []
    notes: list[Note] = []
    stay_gone: list[Note] = []
    blocked: list[Note] = []
    contents: dict[BlobId, bytes] = {}
    for found in verdicts.things:
        where = f"git{where_of(found.folder)}"
        one, said = _without_programs(attachment, found)
        notes += (Note("", f"{where}: {each}") for each in said)
        if not one.is_whole:
            things.append(one)
            continue
        if is_linked_inside(one, verdicts, on_record):
            linked, why = linked_back(one, verdicts, on_record)
            things.append(linked)
            blocked += (Note("", f"{where}: {each}") for each in why)
            continue
        if _is_elsewhere(attachment, one):
            stay_gone.append(Note("", f"{where}: {ELSEWHERE}{_way(one, on_record)}"))
            continue
        trusted = _first_seen(attachment, one, on_record)
        files = [file for file in one.files if not is_run_by_git(file.path)]
        kept = {file.path: file.after for file in trusted or () if is_run_by_git(file.path)}
        long_ids = has_long_ids(attachment.stored, one)
        if _has_long_settings(attachment, kept.get("config")) != long_ids:
            text = plain_settings(long_ids=long_ids).encode()
            blob = BlobId(sha256(text).hexdigest())
            contents[blob] = text
            kept["config"] = FileState("file", blob, 0o644, len(text))
        files += [FileChange(path, None, state) for path, state in kept.items() if state]
        things.append(replace(one, files=tuple(sorted(files, key=lambda file: file.path))))
        differing = [*_said(one, kept, trusted is not None), *_lost(attachment, one)]
        notes += (Note("", f"{where}: {each}") for each in differing)
    stays = (*verdicts.stays, *notes)
    found_things = replace(verdicts, things=tuple(things), stays=stays)
    return WithSettings(found_things, contents, tuple(stay_gone), tuple(blocked))


def _way(thing: GitThing, on_record: GitOnRecord) -> str:
    """How a repository can be had that is not brought back; "" where there is none."""
    if any(one.name == SHARED_REFS for one in thing.names):
        return f"; {NO_WORKTREE}"
    gone = on_record.gone.get(thing.folder, ())
    points = [seq - 1 for seq, state in gone if state.is_of(thing.identity)]
    return f"; {beside_words(thing.folder, points[-1])}" if points else ""


def _without_programs(attachment: Attachment, thing: GitThing) -> tuple[GitThing, Sequence[str]]:
    """A thing in which state files do not come back that are links or would run programs, and what
    is said of them. What is in the place of one goes: what is left would go on from elsewhere.
    """
    files: list[FileChange] = []
    said: list[str] = []
    links: list[str] = []
    for file in thing.files:
        lines = _run_lines(attachment, file)
        if lines:
            said.append(f"{visible(file.path)} {RUNS}: {first_few(lines, 3, visible)}")
        elif is_led_out(file):
            links.append(visible(file.path))
        else:
            files.append(file)
            continue
        if file.before is not None:
            files.append(replace(file, after=None))
    if links:
        said.append(f"{NO_LINK}: {first_few(links, 5)}")
    return (replace(thing, files=tuple(files)) if said else thing), said


def _run_lines(attachment: Attachment, file: FileChange) -> Sequence[str]:
    if not may_run(file.path) or file.after is None or is_led_out(file):
        return ()
    # what was erased is not written either
    content = content_kept(attachment.stored, file.after) or b""
    return [one.decode("utf-8", "replace") for one in run_lines(file.path, content)]


def _said(thing: GitThing, kept: Mapping[str, FileState | None], was_there: bool) -> Iterator[str]:
    was = {file.path: file.after for file in thing.files if is_run_by_git(file.path)}
    differing = sorted(path for path, state in was.items() if kept.get(path) != state)
    if differing:
        why = AS_FIRST_SEEN if was_there else NOT_FIRST_SEEN
        yield f"{why}: {first_few(differing, 5, visible)}"
    for one in thing.names:
        if one.name.startswith("worktree "):
            yield f"{visible(one.name)}: {NO_WORKTREE}"


def _lost(attachment: Attachment, thing: GitThing) -> Iterator[str]:
    """What of a repository that is gone does not come back, where that can be told."""
    broken = [visible(one.name) for one in thing.names if one.after == BROKEN]
    if broken:
        yield f"{BROKEN_REF}: {first_few(broken, 5)}"
    config = next((file.after for file in thing.files if file.path == "config"), None)
    if lost := beside_state(content_kept(attachment.stored, config) or b""):
        yield f"{NOT_RECORDED}: {first_few(lost, 5)}"


def _is_elsewhere(attachment: Attachment, thing: GitThing) -> bool:
    """Whether it is a submodule or a linked worktree, or has refs that are not files."""
    config = next((file.after for file in thing.files if file.path == "config"), None)
    content = content_kept(attachment.stored, config)
    return content is None or is_elsewhere(content)


def _has_long_settings(attachment: Attachment, config: FileState | None) -> bool | None:
    """Whether a `config` is one of long ids; None where there is none, or it was erased."""
    content = content_kept(attachment.stored, config)
    return None if content is None else is_of_long_ids(content)


def _first_seen(
    attachment: Attachment, thing: GitThing, on_record: GitOnRecord
) -> Sequence[FileChange] | None:
    """The files of the first look at this very repository; None unless an undo brought it back, or
    nobody's call came before the look but such as only read.
    """
    looks = (
        (seq, fact)
        for seq, fact in on_record.first
        if fact.folder == thing.folder and fact.is_of(thing.identity)
    )
    seq, fact = next(looks, (0, None))
    if fact is None:
        return None
    if fact.origin == "undo":
        return fact.changes
    requests = EventFilter(before=seq, kinds=(CallRequested.kind,))
    calls = (one.fact for one in attachment.stored.log.read(requests))
    only_read = all(isinstance(one, CallRequested) and one.effect == "read" for one in calls)
    return fact.changes if fact.origin == "baseline" and only_read else None
