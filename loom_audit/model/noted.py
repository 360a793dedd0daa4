"""The fact that says by which key the heads of a log are signed."""

from typing import ClassVar

from msgspec import Struct


class HeadNoted(Struct, frozen=True):
    """By which key heads are signed from here on, and how far they had been signed before.

    `size` and `root` (hex) are of the newest head that was signed, 0 and "" where none was.
    `started` is the seq of the last start of a session, 0 for none. `key` is the public key in hex,
    `replaced` that of the key whose place it takes, which signs the next head once more beside it.
    """

    kind: ClassVar[str] = "head.noted"
    size: int
    root: str
    started: int
    key: str
    replaced: str = ""
