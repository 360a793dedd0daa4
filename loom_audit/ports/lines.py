"""Line maps and sums that are kept, so that a file's lines need not be followed again."""

from collections.abc import Mapping, Sequence
from typing import Protocol


class LineMaps(Protocol):
    """Line maps by their names: 32 bytes, which say of which versions of a file one is; and sums of
    what changed in files, and counts of calls in stretches of the log, by theirs.

    A cache on this machine, of a size that is bounded: losing a map costs following the lines
    again. Whoever reads one checks what it says.
    """

    def newest(self, names: Sequence[bytes]) -> tuple[int, bytes] | None:
        """The first of these names of which there is a map, by its place, and the map."""
        ...

    def several(self, names: Sequence[bytes]) -> Mapping[bytes, bytes]:
        """What is kept by these names, by name."""
        ...

    def keep(self, maps: Mapping[bytes, bytes]) -> None:
        """Keep maps, as one transaction; where they cannot be kept, nothing happens."""
        ...

    def discard(self, name: bytes) -> None:
        """Forget a map that was found to be wrong; where it cannot be written, nothing happens."""
        ...
