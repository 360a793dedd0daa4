"""What one check of `doctor` found."""

from typing import Literal

from msgspec import Struct

Verdict = Literal["ok", "warning", "problem"]

TIME = "%Y-%m-%d %H:%M:%SZ"
STOPPED = "nothing is recorded: "


class Check(Struct, frozen=True):
    """A check has looked at one thing and says what was found, and what to do about it."""

    name: str
    verdict: Verdict
    text: str
    hint: str = ""
