"""The temporaries that a crash left in the workspace: removed once nothing in them can be lost."""

from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress

from loom_audit.errors import AuditError, NoWorkspace
from loom_audit.history.ground.attachment import Attachment, OnDisk, StoredLog
from loom_audit.history.look.observation import observe
from loom_audit.history.record.interrupted import SOURCE, intentions
from loom_audit.model.events import OUTSIDE, ChangeIntended, ContentFound, Draft, Temporary
from loom_audit.model.files import FileState, parents
from loom_audit.model.records import Call
from loom_audit.ports import EventFilter

FOUND = "a temporary file that was left"

NEWEST = 1000
"""So many intentions of ended calls are looked through for what a temporary is."""


def remove_temporaries(
    attachment: Attachment, calls: Sequence[Call], *, everywhere: bool = False
) -> Sequence[str]:
    """Delete what interrupted calls left under temporary names; the lock is held.

    What an intention names, by name and identity, and whose content is in the store goes at once.
    The content of anything else is put on record first; `everywhere` also looks for what none of
    the calls names, as what a call displaced whose finish was on record already. Returns the paths
    that were put on record. What cannot be stored stays, and so does all of it where the workspace
    is gone.
    """
    with suppress(NoWorkspace):
        return _remove_temporaries(attachment, calls, everywhere=everywhere)
    return ()


def _remove_temporaries(
    attachment: Attachment, calls: Sequence[Call], *, everywhere: bool
) -> Sequence[str]:
    named = [
        one
        for call in calls
        for fact in intentions(attachment.stored, call)
        for one in fact.temporaries
    ]
    places = {place for one in named for place in _places(one)}
    if everywhere:
        more = set(attachment.on_disk.workspace.leftovers()) - places
        named += _named_earlier(attachment.stored, {path.rpartition("/")[2] for path in more})
        places |= more
    ours = {(one.name, one.identity) for one in named}
    unknown = []
    for path in sorted(places):
        identity = attachment.on_disk.workspace.identity(path)
        state = _look(attachment, path)
        if state is None:
            continue
        proven = identity and (path.rpartition("/")[2], identity) in ours
        if state.kind == "directory" or (proven and _is_stored(attachment.stored, state)):
            _remove(attachment.on_disk, path, identity)
        else:
            unknown.append(path)
    return _record_and_remove(attachment, unknown)


def _named_earlier(stored: StoredLog, names: Collection[str]) -> Iterator[Temporary]:
    """What the newest intentions on record say of temporaries of these names."""
    left = set(names)
    newest = EventFilter(kinds=(ChangeIntended.kind,), newest_first=True, limit=NEWEST)
    for event in stored.log.read(newest) if left else ():
        if isinstance(event.fact, ChangeIntended):
            found = [one for one in event.fact.temporaries if one.name in left]
            yield from found
            left.difference_update(one.name for one in found)
        if not left:
            return


def _places(one: Temporary) -> Iterator[str]:
    """Where the temporary may be: beside its path, or in a folder above it."""
    yield one.name
    yield from (f"{above}/{one.name}" for above in parents(one.path))


def _look(attachment: Attachment, path: str, *, keep: bool = False) -> FileState | None:
    """What is at the path; None for nothing, and for what cannot be read."""
    try:
        if attachment.on_disk.workspace.stamp(path) is None:
            return None
        return observe(attachment, path, None, keep=keep)[0]
    except AuditError:
        return None


def _is_stored(stored: StoredLog, state: FileState) -> bool:
    return state.blob is not None and state.blob in stored.blobs


def _remove(on_disk: OnDisk, path: str, identity: str) -> None:
    with suppress(AuditError):  # it stays, and is listed among the leftovers
        on_disk.workspace.remove_leftover(path, identity)


def _record_and_remove(attachment: Attachment, paths: Sequence[str]) -> Sequence[str]:
    found = []
    for path in paths:
        identity = attachment.on_disk.workspace.identity(path)
        state = _look(attachment, path, keep=True)
        if state is not None and _is_stored(attachment.stored, state):
            found.append((path, identity, ContentFound(path, state, FOUND)))
    if found:
        attachment.stored.log.append(
            [Draft(fact, "", OUTSIDE, source=SOURCE) for _, _, fact in found]
        )
    for path, identity, _ in found:
        _remove(attachment.on_disk, path, identity)
    return [path for path, _, _ in found]
