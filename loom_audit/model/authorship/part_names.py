"""A name for each part of a file's own net change, the same wherever the part is the same.

A name is an HMAC, so that who sees names without the store's key can guess no line from them.
"""

import hmac
from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from loom_audit.model.authorship.net import NetFile, NetHunk, NetRun
from loom_audit.model.files import FileState

NAME_BYTES = 16


def with_names(file: NetFile, key: bytes) -> NetFile:
    """Return the file with the names of its parts: runs of lines, and what is of no line.

    A run's name is made of the path at the point before, its old lines, its new lines, and how many
    runs above it are equal; that of a mode change, of a pure move and of content without lines of
    the path and of what they were and became. Without a key nothing is named.
    """
    if not key or not file.is_changed:
        return file
    path = _path(file.path if file.before is None else file.old_path)
    seen = dict[bytes, int]()
    hunks = tuple(_named(hunk, key, path, seen) for hunk in file.hunks)
    unlined = tuple((_name(key, path, *said), what) for what, *said in _unlined(file))
    runs = [run.part for hunk in hunks for run in hunk.runs]
    names = (*runs, *(name for name, _ in unlined))
    return replace(file, hunks=hunks, unlined=unlined, named=names)


def _named(hunk: NetHunk, key: bytes, path: bytes, seen: dict[bytes, int]) -> NetHunk:
    return replace(hunk, runs=tuple(_named_run(hunk, run, key, path, seen) for run in hunk.runs))


def _named_run(
    hunk: NetHunk, run: NetRun, key: bytes, path: bytes, seen: dict[bytes, int]
) -> NetRun:
    lines = hunk.lines[run.start : run.end]
    old, new = (b"".join(one.content for one in lines if one.kind == kind) for kind in "-+")
    alike = _joined((old, new))
    ordinal = seen[alike] = seen.get(alike, -1) + 1
    return replace(run, part=_name(key, path, b"lines", old, new, b"%d" % ordinal))


def _unlined(file: NetFile) -> Iterator[tuple[str, *tuple[bytes, ...]]]:
    """What of a change is in no line, in a word, and what tells it from others of its path."""
    if file.mode is not None:
        yield "mode", b"mode", b"%o" % file.mode[0], b"%o" % file.mode[1]
    runs = any(hunk.runs for hunk in file.hunks)
    moved = file.old_path != file.path
    if moved and not runs:
        yield "move", b"move", _path(file.path)
    if file.reason or not (runs or moved or file.mode):
        yield "content", b"content", _state(file.before), _state(file.after)


def _state(state: FileState | None) -> bytes:
    if state is None:
        return b""
    return f"{state.kind} {state.blob or ''} {state.size}".encode()


def _path(path: str) -> bytes:
    return path.encode("utf-8", "surrogateescape")


def _name(key: bytes, *said: bytes) -> str:
    return hmac.digest(key, _joined(said), "sha256")[:NAME_BYTES].hex()


def _joined(said: Sequence[bytes]) -> bytes:
    """The texts with their lengths, so that no two lists give the same bytes."""
    return b"".join(len(one).to_bytes(8, "big") + one for one in said)
