"""Sums of files' own net changes as they are kept: counts and names of parts, without any text.

Kept sums are a claim. Of which steps of a file they are says their name, and they are compared with
the lines where the lines are told.
"""

import hmac
from typing import Any

from msgspec import Struct, ValidationError, msgpack

from loom_audit.model.authorship.net import FileSteps, NetFile
from loom_audit.model.files import FileState

_FORM = "loom-audit net sums 1"
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


def encoded_sums(sums: NetSums) -> bytes:
    """Return sums as they are kept."""
    return msgpack.encode(sums)


def decoded_sums(data: bytes) -> NetSums | None:
    """Return the sums of what was kept; None where it cannot be some."""
    try:
        return msgpack.decode(data, type=NetSums)
    except (ValidationError, ValueError, RecursionError):
        return None


def _state(state: FileState | None) -> Any:
    return state and (state.kind, state.blob, state.mode, state.size)


def _path(path: str) -> bytes:
    return path.encode("utf-8", "surrogateescape")
