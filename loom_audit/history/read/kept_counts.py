"""How many calls ended in blocks of a log, as it was counted before and kept among the caches.

A count is kept under a name that is made of the block's Merkle hash, so that it is of these very
events, and sealed with the key of the store: counts that somebody else wrote are none.
"""

import hmac
from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct, ValidationError, msgpack

from loom_audit.model.stored.seals import sealed, unsealed
from loom_audit.ports import BLOCK, LineMaps

_FORM = b"loom-audit calls of a block 1"


class CountedBlock(Struct, frozen=True, array_like=True):
    """How many calls ended in a block, and whether one was requested in it."""

    ended: int
    begun: bool


class KeptCounts:
    """The counts of one log. `key` gives the key of the store, b"" where it is gone: then none are
    kept.
    """

    def __init__(self, kept: LineMaps, key: Callable[[], bytes]) -> None:
        self._kept = kept
        self._key = key

    def known(self, blocks: Sequence[bytes]) -> dict[bytes, CountedBlock]:
        """The counts that are kept of these blocks, by the hash of the block."""
        key = self._key()
        if not key:
            return {}
        names = {_name(one, key): one for one in blocks}
        found = {}
        for name, data in self._kept.several([*names]).items():
            if counted := _decoded(unsealed(data, name, key)):
                found[names[name]] = counted
        return found

    def keep(self, counts: Mapping[bytes, CountedBlock]) -> None:
        """Keep counts by the hashes of their blocks."""
        if (key := self._key()) and counts:
            named = {_name(block, key): msgpack.encode(one) for block, one in counts.items()}
            self._kept.keep({name: sealed(told, name, key) for name, told in named.items()})


def _name(block: bytes, key: bytes) -> bytes:
    return hmac.digest(key, _FORM + block, "sha256")


def _decoded(told: bytes | None) -> CountedBlock | None:
    if told is None:
        return None
    try:
        counted = msgpack.decode(told, type=CountedBlock)
    except (ValidationError, ValueError, RecursionError):
        return None
    return counted if 0 <= counted.ended <= BLOCK else None
