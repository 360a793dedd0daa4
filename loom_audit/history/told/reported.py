"""Makes the facts that a client's reports become, whether a hook or a transcript tells them."""

from collections.abc import Mapping
from hashlib import sha256
from typing import Any, Literal

from msgspec import UNSET
from msgspec.structs import replace

from loom_audit.clients.reports import CallBegan, CallEnded, MessageTold, PromptTold, SessionTold
from loom_audit.model.conversation import MessageReceived, PromptSubmitted
from loom_audit.model.events import CallRequested, Lease, SessionStarted
from loom_audit.model.text.display import visible

MAX_ID = 200
"""Bytes, as UTF-8, of the id of a session or a call, or of a tool's name."""


def safe_id(id: str) -> str:
    """The client's own id or name where it is visible text of at most `MAX_ID` bytes.

    Else a hash of it, 32 hexadecimal digits, so that one id always becomes the same one. "" stays
    "".
    """
    raw = id.encode("utf-8", "replace")
    if visible(id) == id and len(raw) <= MAX_ID:
        return id
    return sha256(raw).hexdigest()[:32]


def tool_name(tool: str) -> str:
    """The name under which a client's tool is on record; `unknown` for one without a name."""
    return safe_id(tool) or "unknown"


def merged_session(first: SessionTold, other: SessionTold) -> SessionTold:
    """Two reports of one session as one; of a field that both tell, that of `first` counts."""
    return SessionTold(
        session=first.session,
        at=first.at or other.at,
        cwd=first.cwd or other.cwd,
        transcript=first.transcript or other.transcript,
        version=first.version or other.version,
        title=first.title or other.title,
        parent=first.parent or other.parent,
    )


def started(agent: str, report: SessionTold, lease: Lease | None = None) -> SessionStarted:
    """The fact that a session began or goes on.

    `lease` is that of the client's process; None where the session is imported.
    """
    return SessionStarted(
        agent=agent,
        title=report.title,
        parent=report.parent or None,
        cwd=report.cwd,
        version=report.version,
        lease=lease,
    )


def requested(
    began: CallBegan,
    call_id: str,
    paths: tuple[str, ...] | None,
    within: int | None = None,
) -> CallRequested:
    """The fact that a call was asked for.

    `paths` are those of the workspace that the call can change, None for any; `within` is the seq
    of the request of the call that contains it.
    """
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
    """The fact of a text: of a person to the agent, of the agent, or a notice of the client."""
    if isinstance(report, PromptTold):
        return PromptSubmitted(report.text, report.prompt_id)
    role: Literal["system", "assistant"] = "system" if report.notice else "assistant"
    return MessageReceived(role, report.text, report.message_id)


def begin_from_end(ended: CallEnded) -> CallBegan:
    """The begin of a call of which only the end is told.

    Its effect is not told either: `execute`, which may be anything.
    """
    arguments = None if ended.arguments is UNSET else ended.arguments
    return CallBegan(ended.session, ended.call_id, ended.tool, arguments, "execute")


def merged_end(by_hook: CallEnded | None, by_transcript: CallEnded) -> CallEnded:
    """What a hook and the transcript tell of one end, as one report.

    Where the two differ the transcript counts: of some clients only the transcript tells an exit
    code, or that a person interrupted the call.
    """
    if by_hook is None:
        return by_transcript
    return replace(
        by_transcript,
        status=by_transcript.status or by_hook.status,
        result=merged_result(by_hook.result, by_transcript.result),
        arguments=(
            by_hook.arguments if by_transcript.arguments is UNSET else by_transcript.arguments
        ),
        duration=by_hook.duration if by_transcript.duration is None else by_transcript.duration,
        files=by_hook.files or by_transcript.files,
        background=by_hook.background or by_transcript.background,
    )


def merged_result(first: Mapping[str, Any], last: Mapping[str, Any]) -> Mapping[str, Any]:
    """Two results of one call as one; of a field that both have, that of `last` counts."""
    told = {name: one for name, one in last.items() if one or name not in first}
    data = {**(first.get("data") or {}), **(last.get("data") or {})}
    return {**first, **told, **({"data": data} if data else {})}
