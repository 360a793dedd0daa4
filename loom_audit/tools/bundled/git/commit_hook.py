"""After a batch that changed files: a git commit of exactly these files."""

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from loom_audit.errors import ExecutionFailed, NotFound
from loom_audit.model.events import TreeHead
from loom_audit.tools.calls.batch import BatchOutcome, Caller
from loom_audit.tools.calls.messages import ToolCall
from loom_audit.tools.calls.result import ToolResult
from loom_audit.tools.calls.thread import in_thread

TRAILER = "Loom-Audit-Head"
WIDTH = 72
SHOWN = 3
MAX_LINES = 100


class AutoCommit:
    """Commits what a batch changed by a recorded `git_commit` call.

    `root` is the workspace. `head` gives the tree head, which goes into the message as it was
    before the commit: `Loom-Audit-Head: SIZE:ROOTHEX`. Where there is no repository or nothing
    to commit it says so; any other trouble it raises, which a batch reports and does not fail
    from.
    """

    name = "auto-commit"

    def __init__(self, head: Callable[[], TreeHead], root: str | Path) -> None:
        self._head = head
        self._root = Path(root)

    async def __call__(self, outcome: BatchOutcome, call: Caller) -> str:
        """One line that says what was committed, or why nothing was. ExecutionFailed."""
        changed = {path for result in outcome.results for path in result.files_changed}
        paths = await in_thread(partial(self._files, changed))
        if not paths:
            return "nothing committed: no file changed"
        head = await in_thread(self._head)
        message = message_of(outcome, paths, head)
        result = await call("git_commit", {"message": message, "paths": paths})
        if result.success:
            return result.output.splitlines()[0]
        if result.error is not None and result.error.code == NotFound.code:
            return f"nothing committed: {result.error}"
        raise ExecutionFailed(f"nothing committed: {result.error}")

    def _files(self, changed: set[str]) -> list[str]:
        """The paths in the workspace but directories: to name one would commit all inside it."""
        inside = sorted(path for path in changed if "://" not in path)
        places = [(path, self._root / path) for path in inside]
        return [path for path, place in places if place.is_symlink() or not place.is_dir()]


def message_of(outcome: BatchOutcome, paths: list[str], head: TreeHead) -> str:
    """Return the message of a commit: a subject, a line for each call, the trailer.

    The subject has at most 72 columns, as git's tools show it.
    """
    pairs = [*zip(outcome.calls, outcome.results, strict=True)]
    changing = [pair for pair in pairs if pair[1].files_changed]
    names = ", ".join(dict.fromkeys(_plain(call.name) for call, _ in changing))
    what = _plain(paths[0]) if len(paths) == 1 else f"{len(paths)} files"
    subject = _short(f"{names}: {what}", WIDTH)
    lines = [f"- {_line(*pair)}" for pair in pairs[:MAX_LINES]]
    lines += [f"- and {len(pairs) - MAX_LINES} calls more"] if len(pairs) > MAX_LINES else []
    return "\n".join([subject, "", *lines, "", f"{TRAILER}: {head.size}:{head.root.hex()}", ""])


def _line(call: ToolCall, result: ToolResult) -> str:
    files = ", ".join(_short(_plain(path), WIDTH) for path in result.files_changed[:SHOWN])
    more = len(result.files_changed) - SHOWN
    parts = [_plain(call.name), files, f"and {more} more" if more > 0 else ""]
    parts += [f"({result.error.code})" if result.error else ""]
    return " ".join(part for part in parts if part)


def _plain(value: Any) -> str:
    """One line of text that git can keep."""
    text = str(value).encode("utf-8", "replace").decode()
    return re.sub(r"[\x00-\x1f\x7f\u2028\u2029]", "?", text)


def _short(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"
