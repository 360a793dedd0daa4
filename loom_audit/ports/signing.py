"""The keys of a store, and what they signed of a log."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from loom_audit.model.signed.key_ring import KeyRing
from loom_audit.model.signed.signed_heads import SignedHead


class SigningKeys(Protocol):
    """The keys of one store, which nobody but their owner may read."""

    def read(self) -> KeyRing | None:
        """The keys; None where none were made.

        PermissionDenied where others may read or write them, or they are not this user's; Corrupt
        where they are damaged, StorageFailed where they cannot be read.
        """
        ...

    def write(self, ring: KeyRing) -> None:
        """Put the keys in place of those that are there, durably, all at once. StorageFailed."""
        ...


class HeadsFolder(Protocol):
    """A folder to which signed heads are handed over, one file each; nothing there is changed."""

    def put(self, signed: SignedHead) -> bool:
        """Put one there, durably; whether it was not there yet. StorageFailed."""
        ...

    def there(self, log: str) -> Mapping[str, SignedHead | None]:
        """The files there with heads of a log; None for one that is none. StorageFailed."""
        ...


class SignedHeads(Protocol):
    """The signed heads of one log, outside its store. One process at a time keeps one."""

    def kept(self) -> Sequence[SignedHead]:
        """The heads that were signed, oldest first, those that can be read. StorageFailed."""
        ...

    def damaged(self) -> Sequence[str]:
        """What among them cannot be read, each as a person finds it. StorageFailed."""
        ...

    def last(self) -> SignedHead | None:
        """The one of most events, the newest of them. Corrupt where the signer's own memory of it
        is damaged, StorageFailed where it cannot be read.
        """
        ...

    def keep(self, signed: SignedHead) -> None:
        """Keep one durably: first for `last`, then among those that were signed. StorageFailed."""
        ...
