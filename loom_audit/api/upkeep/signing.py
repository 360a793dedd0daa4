"""The keys of a store, and heads signed with them."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from secrets import token_bytes

from msgspec import Struct
from msgspec.structs import replace

from loom_audit.api.store import AuditStore
from loom_audit.errors import AuditError, Conflict, NotFound
from loom_audit.history.record.signing import hand_over, note_key, sign_newest
from loom_audit.model.imported import is_imported
from loom_audit.model.signed.ed25519 import KEY_BYTES
from loom_audit.model.signed.key_ring import KeyRing, OwnKey
from loom_audit.model.signed.signed_heads import SignedHead, key_id, verifier
from loom_audit.wiring import signing as wiring

__all__ = [
    "HandedOver",
    "KeyRing",
    "SignedLog",
    "hand_over_heads",
    "key_id",
    "keys_of",
    "make_key",
    "rotate_key",
    "sign_heads",
    "verifiers",
]

_MAKE_ONE = "`loom-audit keys init` makes one."


class SignedLog(Struct, frozen=True):
    """A log of a store: the head that was signed of it, or why none was."""

    id: str
    root: str
    signed: SignedHead | None
    error: AuditError | None = None


class HandedOver(Struct, frozen=True):
    """How many signed heads of a log were new in a folder, and what there is not of its events."""

    id: str
    new: int
    foreign: Sequence[str]


def keys_of(store: AuditStore) -> KeyRing:
    """The keys of a store. NotFound where none were made; PermissionDenied, Corrupt."""
    ring = wiring.keys_of(store.adapters.settings).read()
    if ring is None:
        raise NotFound(f"the store {store.url} has no key to sign heads with", hint=_MAKE_ONE)
    return ring


def make_key(store: AuditStore) -> tuple[KeyRing, Sequence[SignedLog]]:
    """Make the key of a store, and sign the head of each log with it. Conflict where it has one."""
    with _signing(store):
        ring = wiring.keys_of(store.adapters.settings).read()
        if ring is not None:
            raise Conflict(
                f"the store has the key {key_id(ring.current.public)}",
                hint="`loom-audit keys rotate` puts a new one in its place.",
            )
        ring = KeyRing(_new_key(store))
        wiring.keys_of(store.adapters.settings).write(ring)
        return ring, _sign_all(store, ring)


def rotate_key(store: AuditStore) -> tuple[KeyRing, Sequence[SignedLog]]:
    """Put a new key in the place of a store's. A rotation that was interrupted is gone on with.

    Of each log a head is signed by both, and the private key of the old one is no more. A log of
    which none can be signed is told with its error, and is signed by the new key alone later.
    NotFound.
    """
    with _signing(store):
        ring = keys_of(store)
        if ring.next is None:
            ring = replace(ring, next=_new_key(store))
            wiring.keys_of(store.adapters.settings).write(ring)
        signed = _sign_all(store, ring)
        ring = ring.rotated(wiring.clock().now())
        wiring.keys_of(store.adapters.settings).write(ring)
        return ring, signed


def sign_heads(store: AuditStore) -> tuple[KeyRing, Sequence[SignedLog]]:
    """Sign the head of each log of a store, as far as it has grown. NotFound without a key."""
    with _signing(store):
        ring = keys_of(store)
        return ring, _sign_all(store, ring)


def hand_over_heads(store: AuditStore, folder: Path) -> Sequence[HandedOver]:
    """Put every signed head of a store in a folder. NotFound where there is none; StorageFailed."""
    if not folder.is_dir():
        raise NotFound(f"there is no folder {folder}", hint="Make it: none is made elsewhere.")
    done = []
    for entry in store.adapters.workspaces():  # without the lock: a folder may hang
        signed = wiring.signed_heads_of(store.adapters.settings, entry.id)
        log = store.adapters.log(entry.id)
        new, foreign = hand_over(log, signed, wiring.DiskHeadsFolder(folder))
        done.append(HandedOver(entry.id, new, foreign))
    return done


def verifiers(store: AuditStore, public: bytes) -> Mapping[str, str]:
    """A public key as others take it, for each log of a store: under the name it signs by."""
    return {entry.id: str(verifier(entry.id, public)) for entry in store.adapters.workspaces()}


@contextmanager
def _signing(store: AuditStore) -> Iterator[None]:
    """One process at a time makes keys and signs heads of a store. Conflict when the time is up."""
    with store.adapters.lock.hold("signing"):
        yield


def _sign_all(store: AuditStore, ring: KeyRing) -> Sequence[SignedLog]:
    return [_sign(store, ring, one.id, one.root) for one in store.adapters.workspaces()]


def _sign(store: AuditStore, ring: KeyRing, id: str, root: str) -> SignedLog:
    adapters = store.adapters
    heads, signed = adapters.heads(id), wiring.signed_heads_of(adapters.settings, id)
    try:
        if not is_imported(root):  # nothing but transcripts goes on record there
            note_key(adapters.log(id), heads, signed, ring, actor=store.actor)
        seeds = [one.seed for one in (ring.current, ring.next) if one is not None]
        return SignedLog(id, root, sign_newest(adapters.log(id), heads, signed, seeds))
    except AuditError as error:
        return SignedLog(id, root, None, error)


def _new_key(store: AuditStore) -> OwnKey:
    return OwnKey(token_bytes(KEY_BYTES), wiring.clock().now())
