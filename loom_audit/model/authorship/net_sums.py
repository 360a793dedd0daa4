"""Sums of files' own net changes as they are kept: counts and names of parts, without any text.

Of which steps of a file they are says their name, and that they were made of these, a seal with the
key of the store: sums that somebody else wrote are none.
"""

import hmac
from typing import Any

from msgspec import Struct, ValidationError, msgpack

from loom_audit.model.authorship.net import FileSteps, NetFile
from loom_audit.model.files import FileState
from loom_audit.model.stored.seals import sealed, unsealed

_FORM = "loom-audit net sums 2"
"""Begins what names are made of; another way to follow lines or to name parts needs another one."""


class NetSums(Struct, frozen=True, array_like=True):
    """The sums of a `NetFile`, with the names of its parts."""

    length: int
    added: int
    removed: int
    removed_again: int
    brought_back: int
    shared: int
    unlined: tuple[tuple[str, str], ...]
    named: tuple[str, ...]


def sums_of(file: NetFile) -> NetSums:
    """Return the sums of a file."""
    return NetSums(
        length=file.length,
        added=file.added,
        removed=file.removed,
        removed_again=file.removed_again,
        brought_back=file.brought_back,
        shared=file.shared,
        unlined=file.unlined,
        named=file.named,
    )


def sums_name(steps: FileSteps, context: int, key: bytes) -> bytes:
    """Return the name of the sums of a file: a hash of all that they depend on."""
    told = (
        _FORM,
        context,
        steps.begin,
        sorted(steps.own),
        sorted(steps.shared),
        steps.everyone,
        [
            (
                one.seq,
                _path(one.old_path),
                _state(one.before),
                _path(one.path),
                _state(one.after),
                one.gap,
                one.writer.kind,
                one.writer.call,
                one.writer.reason,
                one.taken_back and (sorted(one.taken_back.numbers), one.taken_back.point),
            )
            for one in steps.versions
        ],
    )
    return hmac.digest(key, msgpack.encode(told), "sha256")


def encoded_sums(sums: NetSums, name: bytes, key: bytes) -> bytes:
    """Return sums as they are kept by a name in a store of this key."""
    return sealed(msgpack.encode(sums), name, key)


def decoded_sums(data: bytes, name: bytes, key: bytes) -> NetSums | None:
    """Return the sums of what was kept by a name; None where it is none of a store of this key."""
    told = unsealed(data, name, key)
    if told is None:
        return None
    try:
        return msgpack.decode(told, type=NetSums)
    except (ValidationError, ValueError, RecursionError):
        return None


def _state(state: FileState | None) -> Any:
    return state and (state.kind, state.blob, state.mode, state.size)


def _path(path: str) -> bytes:
    return path.encode("utf-8", "surrogateescape")
