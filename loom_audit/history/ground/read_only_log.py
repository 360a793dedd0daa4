"""A log that is read and never written."""

from collections.abc import Sequence
from typing import Any, NoReturn, cast

from loom_audit.errors import AuditError
from loom_audit.model.events import Draft
from loom_audit.ports import EventLog


def read_only(log: EventLog, refusal: AuditError) -> EventLog:
    """The same log for reading; each append to it raises `refusal`."""
    return cast("EventLog", _ReadOnlyLog(log, refusal))


class _ReadOnlyLog:
    def __init__(self, log: EventLog, refusal: AuditError) -> None:
        self._log = log
        self._refusal = refusal

    def append(self, _: Sequence[Draft]) -> NoReturn:
        raise self._refusal

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)
