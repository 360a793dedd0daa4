"""Ids for calls whose client names none: such an id is made here and used until the client's own
id is told."""

from collections.abc import Mapping

from loom_audit.history.ground.writer import new_id
from loom_audit.model.events import CallFinished, CallReported
from loom_audit.model.records import Call
from loom_audit.ports import EventFilter, EventLog

_MADE = "~"
"""An id that was made here begins so."""


def client_id(log: EventLog, call: Call) -> str:
    """The id by which its client knows a call: the one that was told later, else that on record.

    Corrupt.
    """
    found = call.call_id
    if is_unnamed(call):
        kinds = CallFinished.kind, CallReported.kind
        told = EventFilter(call.requested, kinds=kinds, session=call.session, call_id=found)
        for event in log.read(told):
            result = getattr(event.fact, "result", None)
            data = result.get("data") if isinstance(result, Mapping) else None
            if isinstance(data, Mapping) and isinstance(data.get("call_id"), str):
                found = data["call_id"]
    return found


def is_unnamed(call: Call) -> bool:
    """Whether the id of a call was made here."""
    return call.call_id.startswith(_MADE)


def new_id_made() -> str:
    """A new id for a call whose client names none."""
    return f"{_MADE}{new_id()}"
