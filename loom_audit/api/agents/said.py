"""What is said in a session of ours, put on record as the hooks of a client put it."""

from typing import TYPE_CHECKING

from loom_audit.clients.reports import MessageTold, PromptTold
from loom_audit.history.told.ingest import Ingest

if TYPE_CHECKING:
    from loom_audit.api.session import Session


def tell_prompt(session: "Session", text: str) -> None:
    """Put on record what a person tells the agent of an open session."""
    _ingest(session).apply(PromptTold(session.id, text), by_hook=True)


def tell_message(session: "Session", text: str) -> None:
    """Put on record what the agent of an open session says; once in a turn, as hooks tell it."""
    _ingest(session).apply(MessageTold(session.id, text), by_hook=True)


def _ingest(session: "Session") -> Ingest:
    return Ingest(session.workspace.attachment, session.id, session.agent)
