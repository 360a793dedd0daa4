"""What later calls did, or may have done, that an undo passes over."""

from loom_audit.history.ground.attachment import StoredLog, is_undo
from loom_audit.history.read.call_detail import git_of
from loom_audit.model.events import ChangesAttributed
from loom_audit.model.plans.planning import Note
from loom_audit.model.records import Call
from loom_audit.ports import CallFilter, EventFilter

MAY_HAVE = "on record as from outside, and maybe the call's"
"""The reason of a note on a change that an undo does not take back."""

MOST_PASSED = 1_000
"""Calls that are looked through for such changes, the newest."""


def may_have_done(stored: StoredLog, session: str | None, after: int = 0) -> tuple[Note, ...]:
    """Notes on changes on record as from outside that calls requested after an event may have made.

    No undo takes such a change back. The calls are those among the newest `MOST_PASSED` that have
    no changes of their own: an undo passes over them.
    """
    wanted = CallFilter(after=after, session=session, limit=MOST_PASSED)
    passed = {
        call.requested: call.seq
        for call in stored.reading.calls(wanted)
        if call.seq and not call.changed and call.undone_by is None
    }
    if not passed:
        return ()
    found: dict[str, set[int]] = {}
    for one in stored.tables.changes(calls=passed):
        if one.origin == "outside":
            found.setdefault(one.change.path, set()).update(one.causes)
    told = EventFilter(after=min(passed), kinds=(ChangesAttributed.kind,))
    for event in stored.log.read(told):
        if isinstance(event.fact, ChangesAttributed) and event.fact.call in passed:
            for path in event.fact.paths:
                found.setdefault(path, set()).add(event.fact.call)
    return tuple(
        Note(path, MAY_HAVE, tuple(sorted(passed[one] or one for one in causes & passed.keys())))
        for path, causes in sorted(found.items())
    )


def calls_changing_git(
    stored: StoredLog, session: str | None, after: int = 0, *, taken_back: bool = False
) -> tuple[Call, ...]:
    """The calls requested after an event that changed git, or may have, the newest first: those
    that are not taken back, or those that are.
    """
    wanted = CallFilter(after=after, session=session, limit=MOST_PASSED)
    found = [one for one in stored.reading.calls(wanted) if not is_undo(one)]
    calls = [one for one in found if (one.undone_by is not None) == taken_back]
    told = git_of(stored.log, calls)
    return tuple(
        one for one in calls if any(fact.is_of_git for fact in told.get(one.requested, ()))
    )
