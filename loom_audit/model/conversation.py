"""Facts about what an agent was told and said, and about who holds its session."""

from typing import ClassVar, Literal

from msgspec import Struct


class PromptSubmitted(Struct, frozen=True):
    """What a person told the agent; `prompt_id` is the client's name for it."""

    kind: ClassVar[str] = "prompt.submitted"
    text: str
    prompt_id: str = ""


class MessageReceived(Struct, frozen=True):
    """What the agent said, or was given; `message_id` is the client's name for it."""

    kind: ClassVar[str] = "message.received"
    role: Literal["assistant", "system", "tool"]
    text: str
    message_id: str = ""


class SessionHeld(Struct, frozen=True):
    """From here on no call of the session runs until it is released."""

    kind: ClassVar[str] = "session.held"
    by: str
    reason: str = ""


class SessionReleased(Struct, frozen=True):
    kind: ClassVar[str] = "session.released"
    by: str
    reason: str = ""
