"""A tree as one hash, so that a listing that is kept beside the log can be proven by it."""

import json
from collections.abc import Collection
from hashlib import sha256

from loom_audit.model.files import FileState, Tree
from loom_audit.model.stored.payloads import wrap


def listing_hash(tree: Tree, untracked: Collection[str] = ()) -> str:
    """Return the hash of a tree:

    SHA-256, in hex, of a line of JSON a path, in the order of their bytes.

    A line is `[path, kind, mode, size, SHA-256 or null]` and, where it is not empty, an object with
    `g` group and `a` access control list, as in a manifest; of an untracked path it is `[path]`.
    Each ends in a line feed.
    """
    paths = [*tree, *untracked]
    text = "".join(paths)
    # such paths stand in JSON as they are; nearly all do, and that is told quickly
    plain = text.isascii() and not text.encode("ascii").translate(None, _AS_THEY_ARE)
    lines = []
    for path in sorted(paths, key=None if plain else _bytes_of):
        state = tree.get(path)
        if plain and state is not None and not state.acl and state.group is None:
            blob = f'"{state.blob}"' if state.blob else "null"
            lines.append(f'["{path}","{state.kind}",{state.mode},{state.size},{blob}]\n')
        else:
            lines.append(_line(path, state))
    return sha256("".join(lines).encode("ascii")).hexdigest()


_AS_THEY_ARE = bytes(byte for byte in range(0x20, 0x7F) if byte not in b'"\\')
"""The characters that stand in a text of JSON as they are."""


def _line(path: str, state: FileState | None) -> str:
    line: list[object] = [wrap(path)]
    if state is not None:
        line += [state.kind, state.mode, state.size, state.blob]
        more = {"a": 1} if state.acl else {}
        if state.group is not None:
            more["g"] = state.group
        line += [more] if more else []
    return json.dumps(line, separators=(",", ":")) + "\n"


def _bytes_of(path: str) -> bytes:
    return path.encode("utf-8", "surrogateescape")
