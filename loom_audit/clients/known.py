"""The clients whose hooks and transcripts can be read."""

from collections.abc import Mapping

from loom_audit.clients import claude_code, codex, fields, gemini, opencode
from loom_audit.clients.reports import Client

CLIENTS: Mapping[str, Client] = {
    client.name: client
    for client in (claude_code.CLIENT, codex.CLIENT, opencode.CLIENT, gemini.CLIENT)
}


def client_of(line: bytes) -> Client | None:
    """The client that wrote a transcript, by one of its first lines; None when that is open."""
    try:
        record = fields.decode(line)
    except (ValueError, TypeError):
        return None
    kind = fields.text(record, "type")
    if isinstance(record.get("info"), dict) and "messages" in record:
        return opencode.CLIENT
    if "projectHash" in record and "sessionId" in record:
        return gemini.CLIENT
    if isinstance(record.get("payload"), dict) and kind:
        return codex.CLIENT
    if kind and ("sessionId" in record or "leafUuid" in record or "messageId" in record):
        return claude_code.CLIENT
    return None
