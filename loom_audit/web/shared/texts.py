"""Long texts on pages: cut in the middle, or shown from the beginning in parts."""

import json
from typing import Any

from msgspec import Struct

from loom_audit.web.shared.budget import Budget, Part, weight

VALUE_CHARACTERS = 20_000
PIECE = 500
"""Characters of a text that are shown together or not at all."""


class Value(Struct, frozen=True):
    """Arguments or a result as text; `length` counts the characters when it was cut."""

    text: str
    length: int | None = None


class TextPart(Struct, frozen=True):
    """A stretch of a long text; so many characters come `after` it."""

    part: Part[str]
    after: int

    @property
    def shown(self) -> str:
        """The characters that the page shows."""
        return "".join(self.part.items)


def text_part(budget: Budget, name: str, text: str, *, most: int | None = None) -> TextPart:
    """The first pieces of a text that fit into the budget, and weigh no more than `most`."""
    pieces = [text[at : at + PIECE] for at in range(0, len(text), PIECE)]
    part = budget.part(name, pieces, lambda one: (one, weight(0, one)), most=most)
    return TextPart(part, max(0, len(text) - part.end * PIECE))


def as_text(value: Any) -> Value | None:
    """A JSON value for reading, cut in the middle when it is long."""
    return None if value is None else cut(full_text(value))


def full_text(value: Any) -> str:
    """A JSON value for reading: a flat text as itself, the rest indented."""
    if isinstance(value, str):
        return value
    return json.dumps(value, indent=2, ensure_ascii=False, default=str)


def cut(text: str) -> Value:
    """Cut a text in the middle where it has over VALUE_CHARACTERS."""
    if len(text) <= VALUE_CHARACTERS:
        return Value(text)
    half = VALUE_CHARACTERS // 2
    middle = f"\n… {len(text) - VALUE_CHARACTERS:,} characters left out …\n"
    return Value(text[:half] + middle + text[-half:], len(text))
