"""Facts about what an agent was told and said, and about who holds its session."""

from dataclasses import dataclass
from typing import ClassVar, Literal


@dataclass(frozen=True, slots=True)
class PromptSubmitted:
    """What a person told the agent; `prompt_id` is the client's name for it."""

    kind: ClassVar[str] = "prompt.submitted"
    text: str
    prompt_id: str = ""


@dataclass(frozen=True, slots=True)
class MessageReceived:
    """What the agent said, or was given; `message_id` is the client's name for it."""

    kind: ClassVar[str] = "message.received"
    role: Literal["assistant", "system", "tool"]
    text: str
    message_id: str = ""


@dataclass(frozen=True, slots=True)
class SessionHeld:
    """From here on no call of the session runs until it is released."""

    kind: ClassVar[str] = "session.held"
    by: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class SessionReleased:
    kind: ClassVar[str] = "session.released"
    by: str
    reason: str = ""
