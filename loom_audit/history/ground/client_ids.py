"""The ids of calls whose clients give none: made here, until the client's own is told."""

from collections.abc import Mapping

from loom_audit.history.ground.writer import new_id
from loom_audit.model.events import CallFinished, CallReported
from loom_audit.model.records import Call
from loom_audit.ports import EventFilter, EventLog

_MADE = "~"
"""How an id begins that was made here."""


def client_id(log: EventLog, call: Call) -> str:
    """The id that a call has with its client, where that was told later; else its id on record."""
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
    """A new id for a call whose client gives none."""
    return f"{_MADE}{new_id()}"
