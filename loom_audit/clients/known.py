"""The clients whose hooks and transcripts can be read."""

from collections.abc import Mapping

from loom_audit.clients import claude_code, codex
from loom_audit.clients.reports import Client

CLIENTS: Mapping[str, Client] = {
    client.name: client for client in (claude_code.CLIENT, codex.CLIENT)
}
