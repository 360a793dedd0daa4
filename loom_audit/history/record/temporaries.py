"""Removes temporaries that a crash left in the workspace, once their content is in the store."""

from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress

from loom_audit.errors import AuditError, NoWorkspace
from loom_audit.history.ground.attachment import Attachment, OnDisk, StoredLog
from loom_audit.history.look.observation import observe
from loom_audit.history.record.interrupted import SOURCE, intentions
from loom_audit.model.actors import OUTSIDE
from loom_audit.model.events import ChangeIntended, ContentFound, Draft, Temporary
from loom_audit.model.files import FileState, parents
from loom_audit.model.records import Call
from loom_audit.ports import EventFilter

LEFTOVER = "a temporary file that was left"
"""Why content is on record as found: recovery came upon it in a temporary."""

NEWEST = 1000
"""How many of the newest intentions are searched for the name of a temporary."""


def remove_temporaries(
    attachment: Attachment, calls: Sequence[Call], *, everywhere: bool = False
) -> Sequence[str]:
    """Delete the temporaries that interrupted calls left in the workspace; the lock is held.

    A temporary that an intention names, by name and identity, and whose content is in the store is
    deleted at once. The content of any other is put on record first. With `everywhere` the whole
    workspace is searched, also for temporaries that the intentions of these calls do not name, such
    as those of a call whose finish was on record already. Returns the paths whose content was put
    on record. A temporary whose content cannot be stored stays. Where the workspace is gone,
    nothing is done.
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
        # the name alone proves nothing: somebody may have put a file of their own there
        proven = identity and (path.rpartition("/")[2], identity) in ours
        # a folder goes only when it is empty, so nothing in it can be lost
        if state.kind == "directory" or (proven and _is_stored(attachment.stored, state)):
            _remove(attachment.on_disk, path, identity)
        else:
            unknown.append(path)
    return _record_and_remove(attachment, unknown)


def _named_earlier(stored: StoredLog, names: Collection[str]) -> Iterator[Temporary]:
    """The temporaries of these names that the newest intentions on record name."""
    wanted = set(names)
    newest = EventFilter(kinds=(ChangeIntended.kind,), newest_first=True, limit=NEWEST)
    for event in stored.log.read(newest) if wanted else ():
        if isinstance(event.fact, ChangeIntended):
            found = [one for one in event.fact.temporaries if one.name in wanted]
            yield from found
            wanted.difference_update(one.name for one in found)
        if not wanted:
            return


def _places(one: Temporary) -> Iterator[str]:
    """The paths at which a temporary may be: at the root, or in a folder above its path.

    A temporary lies beside its path, or, where that folder is yet to be made, in one above.
    """
    yield one.name
    yield from (f"{above}/{one.name}" for above in parents(one.path))


def _look(attachment: Attachment, path: str, *, keep: bool = False) -> FileState | None:
    """The state at the path; None for what is absent or cannot be read."""
    try:
        if attachment.on_disk.workspace.stamp(path) is None:
            return None
        return observe(attachment, path, None, keep=keep)[0]
    except AuditError:
        return None


def _is_stored(stored: StoredLog, state: FileState) -> bool:
    return state.blob is not None and state.blob in stored.blobs


def _remove(on_disk: OnDisk, path: str, identity: str) -> None:
    """Delete a temporary while it is the one of this identity."""
    with suppress(AuditError):  # it stays, and is listed among the leftovers
        on_disk.workspace.remove_leftover(path, identity)


def _record_and_remove(attachment: Attachment, paths: Sequence[str]) -> Sequence[str]:
    """Put the content of temporaries on record, and delete them; the paths that were recorded."""
    found = []
    for path in paths:
        identity = attachment.on_disk.workspace.identity(path)
        state = _look(attachment, path, keep=True)
        if state is not None and _is_stored(attachment.stored, state):
            found.append((path, identity, ContentFound(path, state, LEFTOVER)))
    # durable before the first is deleted
    if found:
        attachment.stored.log.append(
            [Draft(fact, "", OUTSIDE, source=SOURCE) for _, _, fact in found]
        )
    for path, identity, _ in found:
        _remove(attachment.on_disk, path, identity)
    return [path for path, _, _ in found]
