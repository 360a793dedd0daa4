"""A changed file as git writes it for `git apply`: with git's modes, and binary contents."""

from base64 import b85encode
from collections.abc import Iterator
from hashlib import sha1
from zlib import compress

from msgspec.structs import replace

from loom_audit.model.files import FileChange, FileState
from loom_audit.model.text.merge import is_binary
from loom_audit.model.text.textdiff import MAX_BYTES, git_name, unified

_LENGTHS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_AT_ONCE = len(_LENGTHS)


def git_patch(change: FileChange, old: bytes | None, new: bytes | None) -> bytes:
    """Return the patch of one path; empty where git would see no difference.

    Git knows whether the owner may execute a file, and no other permission; folders it does not
    know.
    """
    before, after = _as_in_git(change.before), _as_in_git(change.after)
    if before == after:
        return b""
    if before and after and before.kind != after.kind:
        gone, made = replace(change, after=None), replace(change, before=None)
        return git_patch(gone, old, None) + git_patch(made, None, new)
    sides = [side for side in (old, new) if side is not None]
    if any(is_binary(side) or len(side) > MAX_BYTES for side in sides) and old != new:
        return b"".join(_binary(change.path, before, after, old or b"", new or b""))
    path = change.path
    return unified(
        path if before else None,
        path if after else None,
        old,
        new,
        state_old=before,
        state_new=after,
    )


def _as_in_git(state: FileState | None) -> FileState | None:
    """The state as git has it; None for what it does not have."""
    if state is None or state.kind not in ("file", "symlink"):
        return None
    mode = 0o755 if state.kind == "file" and state.mode & 0o100 else 0o644
    return FileState(state.kind, state.blob, mode, state.size)


def _binary(
    path: str, before: FileState | None, after: FileState | None, old: bytes, new: bytes
) -> Iterator[bytes]:
    names = git_name(path, b"a/"), git_name(path, b"b/")
    yield b"diff --git %s %s\n" % names
    modes = _mode(before), _mode(after)
    if before is None:
        yield b"new file mode %06o\n" % modes[1]
    elif after is None:
        yield b"deleted file mode %06o\n" % modes[0]
    elif modes[0] != modes[1]:
        yield b"old mode %06o\nnew mode %06o\n" % modes
    kept = b" %06o" % modes[0] if modes[0] == modes[1] else b""
    yield b"index %s..%s%s\n" % (_object(before, old), _object(after, new), kept)
    yield b"GIT binary patch\n"
    for content in (new, old):
        yield b"literal %d\n" % len(content)
        packed = compress(content)
        for start in range(0, len(packed), _AT_ONCE):
            piece = packed[start : start + _AT_ONCE]
            yield _LENGTHS[len(piece) - 1 : len(piece)] + b85encode(piece, pad=True) + b"\n"
        yield b"\n"


def _mode(state: FileState | None) -> int:
    if state is None:
        return 0
    return 0o120000 if state.kind == "symlink" else 0o100000 | state.mode


def _object(state: FileState | None, content: bytes) -> bytes:
    """The name that git gives to a content, zeros for none."""
    if state is None:
        return b"0" * 40
    named = sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False)
    return named.hexdigest().encode()
