"""Tree heads kept outside the store, one line each, so that a rewritten store is detected."""

import os
import re
from collections.abc import Sequence
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from loom_audit.disk.access.system import closing_fd, put_file, sync_folder, write_all
from loom_audit.errors import StorageFailed
from loom_audit.model.events import TreeHead

PREFIX = "loom-audit-head v1"


def head_line(head: TreeHead) -> str:
    """The line of a head: `loom-audit-head v1 LOG SIZE ROOT`, ROOT in hex."""
    return f"{PREFIX} {head.log} {head.size} {head.root.hex()}"


@lru_cache(maxsize=4)
def parse_heads(text: str) -> Sequence[TreeHead]:
    """The heads in a text; other lines are ignored. A dashboard asks for the same at every page."""
    heads = []
    for line in text.splitlines():
        words = line.strip().removeprefix(PREFIX).split()
        if line.strip().startswith(PREFIX) and len(words) == 3 and words[1].isdecimal():
            try:
                size, root = int(words[1]), bytes.fromhex(words[2])
            except ValueError:
                continue
            # A line that a full disk or a power cut left behind is not a head that differs.
            if len(root) == 32:
                heads.append(TreeHead(words[0], size, root))
    return tuple(heads)


class DiskHeads:
    """A `ports.Heads` of one log, in a folder of files of heads."""

    def __init__(self, folder: Path, log: str) -> None:
        self._folder = folder
        self._log = log

    def kept(self) -> Sequence[TreeHead]:
        """The heads in the file of the log, oldest first. StorageFailed."""
        return read_heads(self._folder, self._log)

    def keep(self, head: TreeHead) -> None:
        """Add a line to the file of the log, durably, unless it is the last. StorageFailed."""
        append_head(self._folder, head)


def append_head(folder: Path, head: TreeHead) -> None:
    """Add a line to the log's file of heads, durably, unless it is the last.

    StorageFailed when that fails.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        with closing_fd(os.open(folder / f"{head.log}.heads", flags, 0o600)) as descriptor:
            size = os.fstat(descriptor).st_size
            line = (head_line(head) + "\n").encode()
            last = os.pread(descriptor, len(line) + 1, max(0, size - len(line) - 1))
            if last.removeprefix(b"\n") == line:
                return
            write_all(descriptor, b"\n" * (not last.endswith(b"\n") and size > 0) + line)
            os.fsync(descriptor)
        if size == 0:
            sync_folder(folder)  # a new name is durable only with its folder
    except OSError as error:
        raise StorageFailed(
            f"the tree head could not be kept in {folder}: {error.strerror}",
            hint="`loom-audit head` prints it.",
        ) from error


def read_heads(folder: Path, log: str) -> Sequence[TreeHead]:
    """The heads kept of a log, oldest first; none when there is no file.

    StorageFailed when the file cannot be read.
    """
    return parse_heads(_text_of(folder / f"{log}.heads"))


def damaged_lines(folder: Path, log: str) -> Sequence[str]:
    """The lines of a log's file of heads that are not heads, as `line N of FILE`.

    What a full disk or a power cut leaves of a line, its beginning or zeros, is not damage.
    StorageFailed when the file cannot be read.
    """
    file = folder / f"{log}.heads"
    own = f"{PREFIX} {log} "
    begun = re.compile(re.escape(own) + r"[0-9]*( [0-9a-f]{0,63})?")
    lines = [line.strip("\0\r ") for line in _text_of(file).split("\n")]
    return [
        f"line {number} of {file}"
        for number, line in enumerate(lines, 1)
        if not own.startswith(line) and not begun.fullmatch(line) and not parse_heads(line)
    ]


def _text_of(file: Path) -> str:
    try:
        return file.read_text("utf-8", "replace")
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise StorageFailed(
            f"the tree heads in {file} cannot be read: {error.strerror}",
            hint="Give this user the right to read them.",
        ) from error


class LastVerified(NamedTuple):
    """When a log was verified, of how many events, and with which exit code."""

    at: datetime
    size: int
    code: int


def keep_verified(folder: Path, log: str, done: LastVerified) -> None:
    """Keep when the log was verified last, in the file `LOG.verified`.

    StorageFailed when that fails.
    """
    file = folder / f"{log}.verified"
    try:
        said = f"{done.at.isoformat()} {done.size} {done.code}\n"
        put_file(file, said.encode("ascii"), mode=0o666)
    except OSError as error:
        raise StorageFailed(f"{file} cannot be written: {error.strerror}") from error


def read_verified(folder: Path, log: str) -> LastVerified | None:
    """When a log was verified last; None where nothing that can be read was kept."""
    try:
        at, size, code = (folder / f"{log}.verified").read_text("ascii").split()
        return LastVerified(datetime.fromisoformat(at), int(size), int(code))
    except (OSError, ValueError):
        return None


def logs_with_heads(folder: Path) -> Sequence[str]:
    """The ids of the logs that heads are kept of."""
    return sorted(file.stem for file in folder.glob("*.heads"))
