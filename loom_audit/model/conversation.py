"""Facts about what an agent was told and said."""

from typing import ClassVar, Literal

from msgspec import Struct

Role = Literal["prompt", "assistant", "system", "tool"]
"""Whose words they are: what a person told the agent, or who gave a message."""


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


SAID_KINDS = (PromptSubmitted.kind, MessageReceived.kind)
