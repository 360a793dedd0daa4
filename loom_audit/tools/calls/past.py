"""What is on record, as tools ask for it."""

from collections.abc import Callable, Sequence
from typing import Protocol

from loom_audit.errors import AuditError
from loom_audit.history.record.call import OpenCall
from loom_audit.model.files import FileState
from loom_audit.model.plans.planning import Plan
from loom_audit.model.records import Call, RecordedChange


class Past(Protocol):
    """What is on record for the agent of one session, and what it did taken back."""

    def plan(self, number: int | None) -> Plan:
        """The plan to take back a call of the session, by its number, or the newest for None.

        NotFound, PermissionDenied, Conflict.
        """

    def carry_out(self, plan: Plan, call: OpenCall) -> Sequence[str]:
        """Carry out a plan as the last step of a call; the paths that it changed. Conflict."""

    def calls(self, *, before: int | None, limit: int) -> Sequence[Call]:
        """The calls of the session that were requested before an event, newest first."""

    def changes(self, path: str, *, before: int | None, limit: int) -> Sequence[RecordedChange]:
        """The changes of a path, or below it, before an event, newest first; whoever made them.

        InvalidPath outside the workspace.
        """

    def call_of(self, change: RecordedChange) -> Call | None:
        """The call that a change is listed with; None for a change without a call."""

    def taken_back(self, changes: Sequence[RecordedChange]) -> Sequence[int | None]:
        """The number of the call that took back each change at its path, as lists have it."""

    def content(self, state: FileState) -> bytes:
        """A recorded content. TooLarge where only its hash is on record; Corrupt."""


class PlannedOnce:
    """The past as one call asks it: what the call would take back is planned once.

    So what is taken back is what rules and people have seen; a plan that could not be made when
    they looked is not made afterwards.
    """

    def __init__(self, ask: Callable[[], Past]) -> None:
        self._ask = ask
        self._past: Past | None = None
        self._planned: dict[int | None, Plan | AuditError] = {}

    @property
    def past(self) -> Past:
        """What is asked, opened when it is first needed."""
        if self._past is None:
            self._past = self._ask()
        return self._past

    def plan(self, number: int | None) -> Plan:
        """The plan of the first time, or its error; as `Past.plan`."""
        if number not in self._planned:
            try:
                self._planned[number] = self.past.plan(number)
            except AuditError as error:
                self._planned[number] = error
        found = self._planned[number]
        if isinstance(found, AuditError):
            raise found
        return found
