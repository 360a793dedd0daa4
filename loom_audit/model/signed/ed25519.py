"""Signatures by Ed25519 (RFC 8032). A seed is the 32 bytes of a private key, a public key is 32.

What does it is loaded when something is signed or checked, not when a store is opened.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

KEY_BYTES = 32
SIGNATURE_BYTES = 64


def public_key(seed: bytes) -> bytes:
    """The public key of a private one."""
    return _private(seed).public_key().public_bytes_raw()


def sign(seed: bytes, message: bytes) -> bytes:
    """The signature of a message, the same each time."""
    return _private(seed).sign(message)


def is_signed(public: bytes, signature: bytes, message: bytes) -> bool:
    """Whether this is a signature of the message by this key; False for a key that is none."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True


def _private(seed: bytes) -> "Ed25519PrivateKey":
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    return Ed25519PrivateKey.from_private_bytes(seed)
