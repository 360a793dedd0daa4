"""The facts that a client's reports are put on record as, by its hooks or from a transcript."""

from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from msgspec import UNSET
from msgspec.structs import replace

from loom_audit.clients.reports import CallBegan, CallEnded, MessageTold, PromptTold, SessionTold
from loom_audit.model.conversation import MessageReceived, PromptSubmitted
from loom_audit.model.events import CallRequested, Lease, SessionStarted
from loom_audit.model.text.display import visible

MAX_ID = 200
"""Bytes of the id of a session or a call, or of a tool's name."""


def safe_id(id: str) -> str:
    """An id or a name as a client gives it, as far as it can be one; else a name for it."""
    raw = id.encode("utf-8", "replace")
    if visible(id) == id and len(raw) <= MAX_ID:
        return id
    return sha256(raw).hexdigest()[:32]


def tool_name(tool: str) -> str:
    """The name under which a client's tool is on record."""
    return safe_id(tool) or "unknown"


def told_twice(first: SessionTold, other: SessionTold) -> SessionTold:
    """What is told of one session, as one; where both tell something the first holds."""
    return SessionTold(
        session=first.session,
        at=first.at or other.at,
        cwd=first.cwd or other.cwd,
        transcript=first.transcript or other.transcript,
        version=first.version or other.version,
        title=first.title or other.title,
        parent=first.parent or other.parent,
    )


def started(agent: str, told: SessionTold, lease: Lease | None = None) -> SessionStarted:
    """That a session began, or goes on; under a lease where its client runs."""
    return SessionStarted(
        agent=agent,
        title=told.title,
        parent=told.parent or None,
        cwd=told.cwd,
        version=told.version,
        lease=lease,
    )


def requested(
    began: CallBegan,
    call_id: str,
    paths: tuple[str, ...] | None,
    within: int | None = None,
) -> CallRequested:
    """That a call was asked for; `paths` are those of the workspace that it can change."""
    return CallRequested(
        call_id=call_id,
        tool=tool_name(began.tool),
        arguments=began.arguments,
        effect=began.effect,
        cwd=began.cwd,
        paths=paths,
        within=within,
    )


def text_fact(report: PromptTold | MessageTold) -> PromptSubmitted | MessageReceived:
    """What a person told the agent, or what the agent said."""
    if isinstance(report, PromptTold):
        return PromptSubmitted(report.text, report.prompt_id)
    return MessageReceived("assistant", report.text, report.message_id)


def begun_of(ended: CallEnded) -> CallBegan:
    """A call of which only the end is told."""
    arguments = None if ended.arguments is UNSET else ended.arguments
    return CallBegan(ended.session, ended.call_id, ended.tool, arguments, "execute")


def merged(heard: CallEnded | None, told: CallEnded) -> CallEnded:
    """What a hook and the transcript say of one end; where they differ the latter holds."""
    if heard is None:
        return told
    return replace(
        told,
        status=told.status or heard.status,
        result=joined(heard.result, told.result),
        arguments=heard.arguments if told.arguments is UNSET else told.arguments,
        duration=heard.duration if told.duration is None else told.duration,
        files=heard.files or told.files,
        background=heard.background or told.background,
    )


def joined(first: Mapping[str, Any], last: Mapping[str, Any]) -> Mapping[str, Any]:
    """Two results as one; of what both say the last holds."""
    told = {name: one for name, one in last.items() if one or name not in first}
    data = {**(first.get("data") or {}), **(last.get("data") or {})}
    return {**first, **told, **({"data": data} if data else {})}
