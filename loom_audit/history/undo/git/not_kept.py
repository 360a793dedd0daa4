"""What of git a plan cannot bring back: its objects are not kept, git would not take it, or
something is in its place.

It is told before anything begins: carrying out refuses for the same reasons.
"""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby

from msgspec.structs import replace

from loom_audit.errors import AuditError, Conflict, ExecutionFailed, ToolTimeout
from loom_audit.history.ground.attachment import Attachment
from loom_audit.history.look.git.kept_objects import STAGED, wanted_objects
from loom_audit.history.record.git.whole import (
    content_of,
    entries_of,
    index_of,
    packed_ids,
    settings_of,
    shallow_of,
    wanted_ids,
    whole_ids,
    whole_of,
)
from loom_audit.model.files import FileChange
from loom_audit.model.git.record import OBJECT_ID, is_setting
from loom_audit.model.plans.git_things import LEAVE, GitThing, where_of
from loom_audit.model.plans.verdicts import Note
from loom_audit.model.text.display import count_text, first_few, one_line, visible
from loom_audit.ports import GitSeen
from loom_audit.ports.git_objects import LONG_ID

LONGEST = 20.0
"""Seconds after which no more is asked of the mirror: somebody waits for the plan."""


def not_kept_notes(attachment: Attachment, things: Sequence[GitThing]) -> Iterator[Note]:
    """What keeps things of repositories from coming back: objects, the index, or what refs name."""
    for folder, own in groupby(sorted(things, key=lambda one: one.folder), lambda one: one.folder):
        where = f"git{where_of(folder)}"
        try:
            said = [*_what_lacks(attachment, [*own])]
        except AuditError as error:
            said = [f"whether all that would come back is kept cannot be told: {error.message}"]
        for one in said:
            yield Note("", f"{where}: {one}; {LEAVE}")


def _what_lacks(attachment: Attachment, things: Sequence[GitThing]) -> Iterator[str]:
    """In words what is not there; the things are of one repository. AuditError."""
    first, stored = things[0], attachment.stored
    names = {n.name: n.after for one in things for n in one.names if n.after is not None}
    changes = [file for one in things for file in one.files]
    files = {one.path: one.after for one in changes if one.after is not None}
    every = [name for one in things for name in one.names]
    index_of(stored, every, changes, apart=first.is_whole)  # it can be read
    entries = entries_of(stored, files)
    if not first.is_whole:
        yield from _in_the_way(attachment, first, changes)
    if first.is_whole:
        needed = [*dict.fromkeys(wanted_objects(GitSeen(names, {}, entries)))]
    else:
        needed = [*dict.fromkeys(wanted_ids(stored, every, changes))]
    if not needed:
        return
    shallow = content_of(stored, files["shallow"]) if "shallow" in files else b""
    if missing := _missing(attachment, first, needed, shallow):
        named = _naming(names, entries)
        shown = first_few([f"{id}{named.get(id, '')}" for id in missing], 3)
        yield f"{count_text(len(missing), 'object')} that would come back not kept whole: {shown}"
    elif odd := [*_no_commits(attachment, names)]:
        yield from odd
    else:
        yield from _refused(attachment, first, needed, entries)


def _in_the_way(
    attachment: Attachment, thing: GitThing, files: Iterable[FileChange]
) -> Iterator[str]:
    """In words what keeps hooks and settings of a repository from coming back. ExecutionFailed."""
    settings, restorer = settings_of(attachment.stored, files), attachment.on_disk.git_restorer
    if settings and restorer is not None:
        try:
            restorer.check_settings(thing.folder, thing.identity, settings)
        except Conflict as error:
            yield error.message.removeprefix("git: ")


def _missing(
    attachment: Attachment, thing: GitThing, needed: Sequence[str], shallow: bytes
) -> Sequence[str]:
    """The ids that are neither in the mirror nor, where it is there, in the repository."""
    mirror, git = attachment.on_disk.mirror, attachment.on_disk.mirrored_git
    restorer = attachment.on_disk.git_restorer
    if mirror is None or git is None or restorer is None:
        return needed
    place = mirror.folder(long_ids=len(needed[0]) == LONG_ID)
    under = shallow if thing.is_whole else mirror.shallows()[-1]
    # what is whole may lead to what is missing
    ends = () if mirror.missing(under).count else mirror.whole(under)
    end = time.monotonic() + LONGEST

    def missing(ids: Sequence[str]) -> Sequence[str]:
        if time.monotonic() > end:
            raise ToolTimeout(f"it takes longer than {LONGEST:.0f} seconds")
        return git.missing(place, ids, ends, under)

    def is_there() -> bool:
        return not (thing.is_whole or restorer.missing(thing.folder, thing.identity, needed))

    if not ends and is_there():  # before all of the mirror is followed
        return ()
    try:
        found = missing(needed)
    except ExecutionFailed:  # one of them leads to a commit that is not there
        kept = {*whole_ids(missing, needed)}
        found = [id for id in needed if id not in kept]
    return () if found and ends and is_there() else found


def _refused(
    attachment: Attachment, thing: GitThing, needed: Sequence[str], entries: bytes
) -> Iterator[str]:
    """In words why git would not take objects that are not in the repository. AuditError."""
    mirror, git = attachment.on_disk.mirror, attachment.on_disk.mirrored_git
    restorer = attachment.on_disk.git_restorer
    if mirror is None or git is None or restorer is None:
        return
    ids, shallow = needed, mirror.shallows()[-1]
    if thing.is_whole:
        # what its settings will be may not be in the store yet
        files = tuple(one for one in thing.files if not is_setting(one.path))
        whole = whole_of(attachment.stored, replace(thing, files=files))
        ids, shallow = packed_ids(attachment, whole, entries)[0], shallow_of(whole)
    elif not restorer.missing(thing.folder, thing.identity, needed):
        return
    place = mirror.folder(long_ids=len(needed[0]) == LONG_ID)
    # where it takes longer they are refused before anything has changed
    if said := git.refused(place, ids, shallow, LONGEST):
        yield f"git does not take the objects that would come back: {one_line(said, 160)}"


def _naming(names: Mapping[str, str], entries: bytes) -> Mapping[str, str]:
    """What names each id: a ref, or a path in the index."""
    found = {
        id: f" ({visible(name)})"
        for name, value in names.items()
        if OBJECT_ID.fullmatch(id := value.rpartition(" ")[2])
    }
    for entry in entries.split(b"\0"):
        if staged := STAGED.match(entry):
            path = entry.partition(b"\t")[2].decode("utf-8", "surrogateescape")
            found.setdefault(staged[1].decode(), f" ({visible(path)} in the index)")
    return found


def _no_commits(attachment: Attachment, names: Mapping[str, str]) -> Iterator[str]:
    """The branches that name what is no commit: git makes none of these (git-update-ref(1))."""
    mirror, git = attachment.on_disk.mirror, attachment.on_disk.mirrored_git
    branches = {
        name: value
        for name, value in names.items()
        if (name == "HEAD" or name.startswith("refs/heads/")) and OBJECT_ID.fullmatch(value)
    }
    if not branches or mirror is None or git is None:
        return
    long_ids = len(next(iter(branches.values()))) == LONG_ID
    kinds = git.kinds(mirror.folder(long_ids=long_ids), [*branches.values()])
    for name, id in branches.items():
        if kinds[id] not in ("commit", "missing"):
            yield f"{visible(name)} names a {kinds[id]}, and git makes no such branch"
