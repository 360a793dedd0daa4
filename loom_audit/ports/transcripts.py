"""The file in which a client writes down a session, line by line."""

from collections.abc import Sequence
from typing import Protocol


class TranscriptFile(Protocol):
    """A transcript, whose file need not be there yet, read as it grows."""

    def read(self) -> Sequence[bytes]:
        """The whole lines written since the last read, without their ends.

        The lines begin anew when another file has the place; none while the file cannot be read.
        """
        ...

    def wait(self, seconds: float) -> bool:
        """Wait for a line for at most so many seconds; whether something may have been written."""
        ...

    def close(self) -> None:
        """Release what watches the file."""
        ...
