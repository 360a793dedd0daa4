"""Takes back what a session did itself, for the agent whose session it is.

An agent may do so with less than a person: nothing that a person decided or touched since, and
all that a call changed or nothing.
"""

from collections.abc import Iterator, Sequence

from loom_audit.errors import Conflict, NotFound, PermissionDenied
from loom_audit.history.ground.writer import Writer
from loom_audit.history.record.call import OpenCall
from loom_audit.history.undo.interrupted_since import check_interrupted_since
from loom_audit.history.undo.passed_over import may_have_done
from loom_audit.history.undo.selection import newest_undoable
from loom_audit.history.undo.undo import Undo
from loom_audit.model.actors import OUTSIDE
from loom_audit.model.events import CallDecided
from loom_audit.model.files import FileState
from loom_audit.model.plans.links import without_group
from loom_audit.model.plans.planning import Plan
from loom_audit.model.plans.request import PlanRequest
from loom_audit.model.records import Call, RecordedChange
from loom_audit.model.text.display import first_few, visible
from loom_audit.ports import CallFilter, EventFilter

_ASKED_NOBODY = ("gate:allow-all", "gate:deny-all", "gate:asking")
"""Gates that decided, where they allowed a call, without asking anybody."""

_BY_A_PERSON = "A person can take it back: `loom-audit undo` or `loom-audit revert`."


class OwnCalls:
    """What is on record for the agent of one session, and what it did taken back."""

    def __init__(self, undo: Undo, writer: Writer) -> None:
        self._undo = undo
        self._timeline = undo.planner.timeline
        self._attachment = undo.attachment
        self._session = writer.session
        self._actor = writer.actor

    def plan(self, number: int | None) -> Plan:
        """The plan to take back a call of the session, by its number, or the newest for None.

        NotFound where there is none; PermissionDenied for a call that a person allowed, or that
        somebody else made; Conflict for one that is open, is taken back, or of which not all can be
        taken back, since somebody changed something there afterwards.
        """
        if number is None:
            number = self._newest()
        request = PlanRequest("undo", (number,), session=self._session, no_git=True)
        plan = self._undo.planner.plan(request)
        self._check(plan)
        return plan

    def carry_out(self, plan: Plan, call: OpenCall) -> Sequence[str]:
        """Carry out a plan as the last step of a call; the paths that it changed.

        Conflict where the plan does something else by now, where another call is open that changes
        files, and as for `plan`.
        """
        return self._undo.carry_out_in(plan, call, check=self._check)

    def calls(self, *, before: int | None, limit: int) -> Sequence[Call]:
        """The calls of the session that were requested before an event, newest first."""
        filter = CallFilter(session=self._session, before=before, limit=limit)
        return self._timeline.calls(filter)

    def changes(self, path: str, *, before: int | None, limit: int) -> Sequence[RecordedChange]:
        """The changes of a path, or below it, before an event, newest first; whoever made them.

        InvalidPath outside the workspace.
        """
        path = self._attachment.on_disk.workspace.relative(path)
        return self._timeline.history(path, below=True, before=before, limit=limit)

    def call_of(self, change: RecordedChange) -> Call | None:
        """The call that a change is listed with; None for a change without a call."""
        return self._timeline.call_of(change) if change.call_id else None

    def taken_back(self, changes: Sequence[RecordedChange]) -> Sequence[int | None]:
        """The number of the call that took back each change at its path, as lists have it."""
        return self._timeline.taken_back(changes)

    def content(self, state: FileState) -> bytes:
        """A recorded content. TooLarge where only its hash is on record; Corrupt."""
        return self._timeline.content(state)

    def _newest(self) -> int:
        """The number of the newest call; Conflict where a later one was interrupted, and what that
        changed may stand.
        """
        attachment = self._undo.planner.attachment
        try:
            call = newest_undoable(attachment, self._session)
        except NotFound as error:
            raise NotFound(
                "nothing that this session changed in files is left to take back",
                hint="`history` without a path lists the calls of this session.",
                details=error.details,
            ) from error
        later = may_have_done(attachment.stored, self._session, call.requested)
        try:
            check_interrupted_since(attachment, self._session, call, later)
        except Conflict as error:
            error.hint = f"`undo` with call {call.seq} takes back the older {call.tool}. "
            error.hint += "A person can take back what was interrupted: `loom-audit undo`."
            raise
        return call.seq or 0

    # --- what speaks against it -------------------------------------------------------------

    def _check(self, plan: Plan) -> None:
        """Raise what speaks against an agent's taking this back."""
        [number] = plan.calls
        call = self._undo.planner.attachment.stored.reading.call_at(number)
        named = f"call {number} ({call.tool})"
        if call.actor != self._actor:
            raise PermissionDenied(f"{named} was made by {call.actor}", hint=_BY_A_PERSON)
        if by := self._who_allowed(call):
            raise PermissionDenied(
                f"{named} ran because {by} allowed it, so it is not an agent's to take back",
                hint=_BY_A_PERSON,
                details={"call": number, "by": by},
            )
        if touched := [*self._touched(call, plan)]:
            raise Conflict(
                f"not all that {named} changed is as it left it: {first_few(touched, 3)}",
                hint="Nothing was changed. Take back what you did there since, or edit the files.",
                details={"call": number, "paths": [text.partition(": ")[0] for text in touched]},
            )

    def _who_allowed(self, call: Call) -> str:
        """Who answered that the call may run; "" where a rule said so, or nobody was asked."""
        log, end = self._attachment.stored.log, call.seq or call.requested
        wanted = EventFilter(call.requested, end, (CallDecided.kind,), call_id=call.call_id)
        for event in log.read(wanted):
            fact = event.fact
            if event.session != call.session or not isinstance(fact, CallDecided):
                continue
            if not fact.by.startswith("policy:") and fact.by not in _ASKED_NOBODY:
                return fact.by
        return ""

    def _touched(self, call: Call, plan: Plan) -> Iterator[str]:
        """Each path at which something else is than the call left, with who or what did that."""
        reading = self._undo.planner.attachment.stored.reading
        own = [*reading.changes(calls=[call.requested])]
        left = {one.change.path: one.change.after for one in own}
        first = min((one.seq for one in own), default=0)
        since = [
            one
            for one in reading.changes(after=first, paths=sorted(left))
            if one.requested != call.requested
        ]
        now = {change.path: change.before for change in plan.changes}
        told: dict[str, str] = {}
        for one in since:
            if (one.session, one.actor) != (self._session, self._actor) or one.causes:
                who = "from outside" if one.actor == OUTSIDE else f"by {one.actor}"
                told[one.change.path] = f"changed since {who} (event {one.seq})"
        for path, state in left.items():
            found = now[path] if path in now else reading.state(path)
            if path not in told and not _is_same(found, state):
                by = [one.number for one in since if one.change.path == path and one.number]
                told[path] = f"changed since by call {by[-1]}" if by else "changed since"
        for note in (*plan.blocked, *plan.kept, *plan.merged, *plan.irreversible):
            if note.path:
                told.setdefault(note.path, note.reason)
        for path in sorted(told):
            yield f"{visible(path)}: {told[path]}"


def _is_same(one: FileState | None, other: FileState | None) -> bool:
    return without_group(one) == without_group(other)
