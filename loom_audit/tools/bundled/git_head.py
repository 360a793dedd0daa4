"""Which commit a workspace's repository is at, read without git: before and after a command."""

import os
import re

from loom_audit.tools.calls.context import ToolContext

_COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_REF = re.compile(r"ref: (refs/heads/(.+))")
_MOST = 1 << 20


def moved_text(ctx: ToolContext, before: str) -> list[str]:
    """Return the line that says which commit HEAD is now at, when that is another than before."""
    after = head_of(str(ctx.workspace))
    return [f"[HEAD: {after}]"] if after and after != before else []


def head_of(root: str) -> str:
    """Return the commit and the branch, `ID on NAME`; empty where there is no commit to read."""
    folder = f"{root}/.git"
    text = _text(f"{folder}/HEAD")
    if (named := _REF.fullmatch(text)) is None:
        return f"{text[:12]}, detached" if _COMMIT.fullmatch(text) else ""
    ref, branch = named[1], named[2]
    commit = _text(f"{folder}/{ref}") if ".." not in ref else ""
    if not commit:
        packed = _text(f"{folder}/packed-refs", _MOST)
        line = re.search(rf"^({_COMMIT.pattern}) {re.escape(ref)}$", packed, re.MULTILINE)
        commit = line[1] if line else ""
    return f"{commit[:12]} on {branch:.200}" if _COMMIT.fullmatch(commit) else ""


def _text(path: str, most: int = 4096) -> str:
    """The content of a small file of the repository; empty where there is none."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        return os.read(descriptor, most).decode("utf-8", "replace").strip()
    except OSError:
        return ""
    finally:
        os.close(descriptor)
