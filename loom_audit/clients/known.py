"""The clients whose hooks and transcripts can be read."""

from collections.abc import Mapping
from importlib import import_module

from loom_audit.clients import fields
from loom_audit.clients.programs import PROGRAMS
from loom_audit.clients.reports import Client


def _read(name: str) -> Client:
    """What the reader of a client says of it."""
    found: Client = import_module(f"loom_audit.clients.{name.replace('-', '_')}").CLIENT
    return found


CLIENTS: Mapping[str, Client] = {name: _read(name) for name in PROGRAMS}


def client_of(line: bytes) -> Client | None:
    """The client that wrote a transcript, by one of its first lines; None when that is open."""
    try:
        record = fields.decode(line)
    except (ValueError, TypeError):
        return None
    # a record of Claude Code has the fewest marks of its own
    return next((one for one in reversed([*CLIENTS.values()]) if one.wrote(record)), None)
