"""The clients whose hooks and transcripts can be read."""

from collections.abc import Mapping

from loom_audit.clients import (
    claude_code,
    codex,
    fields,
    gemini,
    opencode,
)
from loom_audit.clients.reports import Client

CLIENTS: Mapping[str, Client] = {
    client.name: client
    for client in (
        claude_code.CLIENT,
        codex.CLIENT,
        opencode.CLIENT,
        gemini.CLIENT,
    )
}

*_FIRST, _LAST = CLIENTS
NAMED = f"{', '.join(_FIRST)} or {_LAST}"
"""The names of all clients, as one of them is asked for."""


def client_of(line: bytes) -> Client | None:
    """The client that wrote a transcript, by one of its first lines; None when that is open."""
    try:
        record = fields.decode(line)
    except (ValueError, TypeError):
        return None
    # a record of Claude Code has the fewest marks of its own
    return next((one for one in reversed([*CLIENTS.values()]) if one.wrote(record)), None)


def client_run_by(program: str) -> Client | None:
    """The client that a command runs, by its name without a folder; None for any other."""
    name = program.rpartition("/")[2]
    return next((one for one in CLIENTS.values() if one.program == name), None)
