"""A name for each part of a file's own net change, the same wherever the part is the same.

A name is an HMAC, so that who sees names without the store's key can guess no line from them.
"""

import hmac
from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from loom_audit.model.authorship.net import NetFile
from loom_audit.model.files import FileState

NAME_BYTES = 16


def with_names(file: NetFile, key: bytes) -> NetFile:
    """Return the file with the names of its parts: runs of lines, and what is of no line.

    A run's name is made of the path at the point before, its old lines, its new lines, and how many
    runs of the file are equal and older: one that is put above or below another later leaves it its
    name. That of a mode change, of a pure move and of content without lines is made of the path and
    of what they were and became. Without a key nothing is named.
    """
    if not key or not file.is_changed:
        return file
    path = _path(file.path if file.before is None else file.old_path)
    named = _named_runs(file, key, path)
    hunks = tuple(
        replace(hunk, runs=tuple(replace(run, part=named[n, run.start]) for run in hunk.runs))
        for n, hunk in enumerate(file.hunks)
    )
    unlined = tuple((_name(key, path, *said), what) for what, *said in _unlined(file))
    names = (*named.values(), *(name for name, _ in unlined))
    return replace(file, hunks=hunks, unlined=unlined, named=names)


def _named_runs(file: NetFile, key: bytes, path: bytes) -> dict[tuple[int, int], str]:
    """The names of the runs by their hunk and where they start in it, in order."""
    alike: dict[tuple[bytes, bytes], list[tuple[int, tuple[int, int]]]] = {}
    named: dict[tuple[int, int], str] = {}
    for n, hunk in enumerate(file.hunks):
        for run in hunk.runs:
            lines = hunk.lines[run.start : run.end]
            old, new = (b"".join(one.content for one in lines if one.kind == kind) for kind in "-+")
            # it is as it is since the last of the changes that made it
            since = max((file.writers[one.by].event for one in lines if one.by >= 0), default=0)
            named[n, run.start] = ""
            alike.setdefault((old, new), []).append((since, (n, run.start)))
    for said, places in alike.items():
        for ordinal, (_, place) in enumerate(sorted(places)):
            named[place] = _name(key, path, b"lines", *said, b"%d" % ordinal)
    return named


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
