"""The keys of a store: the one that signs, the one that is to take its place, and earlier ones."""

from collections.abc import Sequence
from datetime import datetime

import msgspec
from msgspec import Struct

from loom_audit.errors import Corrupt
from loom_audit.model.signed.ed25519 import KEY_BYTES, public_key
from loom_audit.model.signed.signed_heads import key_id


class OwnKey(Struct, frozen=True, forbid_unknown_fields=True):
    """A private key: its 32 bytes, and when it was made."""

    seed: bytes
    made: datetime

    @property
    def public(self) -> bytes:
        """The public key of it."""
        return public_key(self.seed)

    def __repr__(self) -> str:
        """Which key it is; what it signs with stands in no message and no trace."""
        return f"OwnKey({key_id(self.public)})"


class EarlierKey(Struct, frozen=True, forbid_unknown_fields=True):
    """The public key of one that signs no more, when it was made, and until when it signed."""

    public: bytes
    made: datetime
    retired: datetime


class KeyRing(Struct, frozen=True, forbid_unknown_fields=True):
    """The keys of a store; `next` is there while a rotation is under way or was interrupted."""

    current: OwnKey
    next: OwnKey | None = None
    earlier: tuple[EarlierKey, ...] = ()

    @property
    def public_keys(self) -> Sequence[bytes]:
        """All public keys, by which signatures are checked, the newest first."""
        own = [one.public for one in (self.next, self.current) if one is not None]
        return [*own, *(one.public for one in reversed(self.earlier))]

    def rotated(self, at: datetime) -> "KeyRing":
        """The ring when the next key has taken the place of the current one, which is gone then."""
        if self.next is None:
            return self
        old = EarlierKey(self.current.public, self.current.made, at)
        return KeyRing(self.next, earlier=(*self.earlier, old))

    def to_bytes(self) -> bytes:
        """The ring as JSON, keys in base64."""
        return msgspec.json.encode(self) + b"\n"


def read_key_ring(raw: bytes) -> KeyRing:
    """The ring that these bytes say. Corrupt for anything else."""
    try:
        ring = msgspec.json.decode(raw, type=KeyRing)
    except msgspec.MsgspecError as error:
        raise _damaged(str(error)) from error
    own = [one.seed for one in (ring.current, ring.next) if one is not None]
    if any(len(key) != KEY_BYTES for key in (*own, *(one.public for one in ring.earlier))):
        raise _damaged(f"a key has not {KEY_BYTES} bytes")
    return ring


def _damaged(why: str) -> Corrupt:
    return Corrupt(
        f"the keys of the store are damaged: {why}",
        hint="Restore that file from a backup. Moved away, `loom-audit keys init` makes a new key; "
        "what the old one signed is then signed by no known key.",
    )
