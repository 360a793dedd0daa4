"""Signed notes as C2SP signed-note says: a text with a line for each signature of it.

A note is the text, which ends with a line feed, an empty line, and the signatures, each
`— NAME BASE64` of the four bytes of the key's hash and the signature. What is read may come from
anybody, so that it is refused whole where one thing in it is not as it is to be.
"""

import re
from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from collections.abc import Iterable, Sequence
from hashlib import sha256

from msgspec import Struct

from loom_audit.errors import Corrupt
from loom_audit.model.signed.ed25519 import KEY_BYTES, SIGNATURE_BYTES, is_signed

MOST_BYTES = 64 * 1024
"""The length of a note; that of the body of a request to a C2SP witness."""

MOST_SIGNATURES = 100
"""The number of signatures of a note; Go's `note.Open` takes as many."""

ED25519 = 0x01
"""The type of a key that signs the text of a note as it is."""

_LONGEST_NAME = 256
_HASH_BYTES = 4
_BEGIN = "— "
_CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f]")


class Signature(Struct, frozen=True):
    """A signature of a note: the name of a key, the four bytes of its hash, and what it made."""

    name: str
    key_hash: bytes
    signature: bytes


class SignedNote(Struct, frozen=True):
    """A text, which ends with a line feed, and its signatures, which nobody has checked yet."""

    text: str
    signatures: tuple[Signature, ...]

    def to_bytes(self) -> bytes:
        """The note as it is written."""
        lines = [
            f"{_BEGIN}{one.name} {b64encode(one.key_hash + one.signature).decode()}\n"
            for one in self.signatures
        ]
        return f"{self.text}\n{''.join(lines)}".encode()


class Verifier(Struct, frozen=True):
    """A public Ed25519 key under a name, by which others know who signed."""

    name: str
    public: bytes

    @property
    def key_hash(self) -> bytes:
        """The four bytes by which a signature names this key."""
        named = self.name.encode() + b"\n" + bytes([ED25519]) + self.public
        return sha256(named).digest()[:_HASH_BYTES]

    def __str__(self) -> str:
        """The key as text, which Go's `note.NewVerifier` takes: `NAME+HASH+BASE64`."""
        key = b64encode(bytes([ED25519]) + self.public).decode()
        return f"{self.name}+{self.key_hash.hex()}+{key}"

    def made(self, signature: Signature) -> bool:
        """Whether a signature says that it was made by this key; it may be wrong all the same."""
        return signature.name == self.name and signature.key_hash == self.key_hash

    def is_signed(self, note: SignedNote, signature: Signature) -> bool:
        """Whether this key made this signature of this note's text."""
        return (
            self.made(signature)
            and len(signature.signature) == SIGNATURE_BYTES
            and is_signed(self.public, signature.signature, note.text.encode())
        )


def parse_verifier(text: str) -> Verifier:
    """The key that a text like `NAME+HASH+BASE64` says. Corrupt for any other text."""
    name, _, rest = text.partition("+")
    key_hash, _, key = rest.partition("+")
    blob = read_base64(key)
    wrong = Corrupt("this is no Ed25519 key of a signed note", hint="It is `NAME+HASH+BASE64`.")
    if not is_key_name(name) or blob is None or len(blob) != 1 + KEY_BYTES or blob[0] != ED25519:
        raise wrong
    made = Verifier(name, blob[1:])
    if made.key_hash.hex() != key_hash:
        raise wrong
    return made


def is_key_name(name: str) -> bool:
    """Whether a key may have this name: some characters, no plus, no space, no control."""
    return bool(name) and (
        len(name.encode("utf-8", "surrogatepass")) <= _LONGEST_NAME
        and "+" not in name
        and name.isprintable()
        and not any(map(str.isspace, name))
    )


def parse_note(raw: bytes) -> SignedNote:
    """The note of these bytes, whose signatures are still to be checked.

    Corrupt for anything that is not a note to the letter: too long, not UTF-8, with control
    characters, without a signature, with one that is not base64 as it is written, or twice.
    """
    if len(raw) > MOST_BYTES:
        raise _not_a_note(f"it has {len(raw):,} bytes, at most {MOST_BYTES:,} are read")
    try:
        whole = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _not_a_note("it is not UTF-8") from error
    if _CONTROL.search(whole):
        raise _not_a_note("it holds control characters")
    text, empty, lines = whole.rpartition("\n\n")
    if not text or not empty or not lines.endswith("\n"):
        raise _not_a_note("no signatures follow an empty line at its end")
    signatures = [_signature(line) for line in lines[:-1].split("\n")]
    if len(signatures) > MOST_SIGNATURES:
        raise _not_a_note(f"it has more than {MOST_SIGNATURES} signatures")
    if len({(one.name, one.key_hash) for one in signatures}) < len(signatures):
        raise _not_a_note("one key signed it twice")
    return SignedNote(f"{text}\n", tuple(signatures))


def keys_of(note: SignedNote, verifiers: Iterable[Verifier]) -> Sequence[Verifier]:
    """The keys among these whose signature of the note is right, in the order of its signatures.

    Corrupt where one of them is named by a signature that it did not make.
    """
    known = [*verifiers]
    right = []
    for signature in note.signatures:
        for key in known:
            if not key.made(signature):
                continue
            if not key.is_signed(note, signature):
                raise _not_a_note(f"the signature of {key.name} is not of this text")
            right.append(key)
    return right


def read_base64(text: str) -> bytes | None:
    """The bytes of a text in base64, None unless it is written as these bytes would be."""
    try:
        found = b64decode(text.encode("ascii"), validate=True)
    except (NotBase64, ValueError):
        return None
    return found if b64encode(found).decode() == text else None


def _signature(line: str) -> Signature:
    name, space, key = line.removeprefix(_BEGIN).partition(" ")
    blob = read_base64(key)
    if not line.startswith(_BEGIN) or not space or not is_key_name(name):
        raise _not_a_note("a line below its empty one is no signature")
    if blob is None or len(blob) <= _HASH_BYTES:
        raise _not_a_note("a signature is not base64")
    return Signature(name, blob[:_HASH_BYTES], blob[_HASH_BYTES:])


def _not_a_note(why: str) -> Corrupt:
    return Corrupt(
        f"a signed note is damaged: {why}",
        hint="Get it again from who signed it, or from where it was sent; this one says nothing.",
    )
