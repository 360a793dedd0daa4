"""The file in which a client writes down a session, line by line."""

from collections.abc import Sequence
from typing import Protocol


class TranscriptFile(Protocol):
    """One such file, which need not be there yet, read as it grows."""

    def read(self) -> Sequence[bytes]:
        """The whole lines written since the last read, without their ends.

        From the beginning when another file has its place; none while it cannot be read.
        """
        ...

    def wait(self, seconds: float) -> bool:
        """Whether something may have been written, as soon as it is, at most so long."""
        ...

    def close(self) -> None: ...
