"""A tree as one hash, so that a listing that is kept beside the log can be proven by it."""

import json
from collections.abc import Collection
from hashlib import sha256

from msgspec.json import Encoder

from loom_audit.model.files import FileState, Tree
from loom_audit.model.payloads import wrap

_plain = Encoder().encode
"""Four times as quick as `json`, and the same for what is printable ASCII."""


def listing_hash(tree: Tree, untracked: Collection[str] = ()) -> str:
    """SHA-256, in hex, of one line of JSON for each path, in the order of the paths' bytes.

    A line is `[path, kind, mode, size, SHA-256 or null]` and, where it is not empty, an object with
    `g` group and `a` access control list, as in a manifest; of an untracked path it is `[path]`.
    Each ends in a line feed.
    """
    digest = sha256()
    for path in sorted([*tree, *untracked], key=_bytes_of):
        line = _line(path, tree[path]) if path in tree else [wrap(path)]
        if path.isascii() and path.isprintable():
            digest.update(_plain(line))
        else:
            digest.update(json.dumps(line, separators=(",", ":")).encode())
        digest.update(b"\n")
    return digest.hexdigest()


def _line(path: str, state: FileState) -> list[object]:
    more: dict[str, int] = {}
    if state.acl:
        more["a"] = 1
    if state.group is not None:
        more["g"] = state.group
    line = [wrap(path), state.kind, state.mode, state.size, state.blob]
    return [*line, more] if more else line


def _bytes_of(path: str) -> bytes:
    return path.encode("utf-8", "surrogateescape")
