"""Tree heads as C2SP tlog-checkpoints: three lines in a signed note, which others can check.

The first line, the origin, is also the name under which the key of a store signs: one name for
each log. What is called a checkpoint there is not called so here, where it is a name for a point.
"""

from base64 import b64encode
from collections.abc import Iterable, Sequence
from hashlib import sha256

from msgspec import Struct

from loom_audit.errors import Corrupt
from loom_audit.model.events import TreeHead
from loom_audit.model.signed.ed25519 import public_key, sign
from loom_audit.model.signed.notes import (
    Signature,
    SignedNote,
    Verifier,
    is_key_name,
    keys_of,
    parse_note,
    read_base64,
)

_ORIGIN = "loom-audit/"
_LARGEST = (1 << 63) - 1
_ROOT_BYTES = 32


class SignedHead(Struct, frozen=True):
    """A tree head with the note that says it; who signed is still to be checked."""

    head: TreeHead
    note: SignedNote

    def signed_by(self, public_keys: Iterable[bytes]) -> Sequence[bytes]:
        """Which of these keys signed it. Corrupt where a signature that names one is wrong."""
        verifiers = [verifier(self.head.log, key) for key in public_keys]
        return [key.public for key in keys_of(self.note, verifiers)]


def verifier(log: str, public: bytes) -> Verifier:
    """A key under the name by which it signs the heads of a log."""
    return Verifier(_ORIGIN + log, public)


def key_id(public: bytes) -> str:
    """What people call a key by, whatever it signs: 16 hex digits of its SHA-256."""
    return sha256(public).hexdigest()[:16]


def id_of_hex(public: str) -> str:
    """What people call a key by that is on record in hex; the text where it is none."""
    try:
        return key_id(bytes.fromhex(public))
    except ValueError:
        return public


def sign_head(head: TreeHead, seeds: Sequence[bytes]) -> SignedHead:
    """A head signed by each of these private keys, in this order."""
    text = f"{_ORIGIN}{head.log}\n{head.size}\n{b64encode(head.root).decode()}\n"
    signatures = []
    for seed in seeds:
        key = verifier(head.log, public_key(seed))
        signatures.append(Signature(key.name, key.key_hash, sign(seed, text.encode())))
    return SignedHead(head, SignedNote(text, tuple(signatures)))


def read_signed_head(raw: bytes) -> SignedHead:
    """The head that a signed note says. Corrupt for what is no note, and for one of no head.

    A note of another origin, or with more lines than three, is none of a head of ours.
    """
    note = parse_note(raw)
    return SignedHead(_head_of(note.text), note)


def _head_of(text: str) -> TreeHead:
    lines = text.split("\n")
    if len(lines) == 4 and lines[0].startswith(_ORIGIN) and is_key_name(lines[0]):
        log, size, root = lines[0].removeprefix(_ORIGIN), lines[1], read_base64(lines[2])
        is_size = size.isascii() and size.isdecimal() and len(size) < 20 and str(int(size)) == size
        if log and is_size and int(size) <= _LARGEST and root and len(root) == _ROOT_BYTES:
            return TreeHead(log, int(size), root)
    raise Corrupt(
        "a signed note is of no tree head of ours",
        hint="It has three lines: `loom-audit/LOG`, the number of events, the root in base64.",
    )
