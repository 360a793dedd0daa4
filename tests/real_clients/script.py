"""What the scripted model asks its client to do, and what it is told in return."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Call:
    """One call that the model asks for. `custom` is the text of one whose input is not JSON."""

    id: str
    tool: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    custom: str | None = None


@dataclass(frozen=True)
class Step:
    """The calls of one answer of the model, several at once; with none of them it has finished.

    `waits_for` is a path in the workspace that must exist before the answer is given.
    """

    name: str
    calls: Sequence[Call] = ()
    text: str = ""
    waits_for: str = ""


@dataclass(frozen=True)
class Told:
    """What the client said that a call gave; `failed` where its protocol has a mark for that."""

    id: str
    text: str
    failed: bool | None = None


def next_step(steps: Sequence[Step], told: Mapping[str, Told]) -> int:
    """The first step with a call whose result was not told yet; the last one is the end."""
    for place, step in enumerate(steps):
        if any(call.id not in told for call in step.calls):
            return place
        if not step.calls and not _later_is_told(steps[place + 1 :], told):
            return place
    return len(steps) - 1


def _later_is_told(steps: Sequence[Step], told: Mapping[str, Told]) -> bool:
    return any(call.id in told for step in steps for call in step.calls)
