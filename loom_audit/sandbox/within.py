"""Where a supervisor is started, and what its command gives up."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Within:
    """Where a supervisor runs and what its command gives up.

    `wrap` goes before its argument vector, and it gets these descriptors and this environment
    (ours when None). `steps` is the text of `restrict`. A `private` one has process ids of its
    own, and nothing of it is shown to the command.
    """

    wrap: tuple[str, ...] = ()
    descriptors: tuple[int, ...] = ()
    environment: Mapping[str, str] | None = None
    steps: str = ""
    private: bool = False


OUTSIDE = Within()
