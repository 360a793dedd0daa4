"""Seals of what is kept in caches, made with the key of the store: what somebody else wrote has
none.
"""

import hmac

_BYTES = 32


def sealed(told: bytes, name: bytes, key: bytes) -> bytes:
    """Return what is told under a name, behind its seal."""
    return hmac.digest(key, name + told, "sha256") + told


def unsealed(data: bytes, name: bytes, key: bytes) -> bytes | None:
    """Return what was sealed under a name with this key; None for anything else."""
    told = data[_BYTES:]
    seal = hmac.digest(key, name + told, "sha256")
    return told if hmac.compare_digest(data[:_BYTES], seal) else None
