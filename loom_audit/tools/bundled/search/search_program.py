"""What `search_files` runs as a process of its own: standard library only, reads and prints.

Reads a request as JSON from standard input, searches beneath its working directory without
ever following a symlink, and prints one line of JSON for each match and one at its end.
"""

import errno
import json
import os
import re
import resource
import signal
import stat
import sys
from collections import deque
from collections.abc import Callable, Iterator
from io import BytesIO
from types import FrameType
from typing import Any

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
_HEAD = 8192
_CHUNK = 256 * 1024
_LITERAL = r"[^\\.^$*+?{}\[\]|()]+(?![*?{])"
_PART = re.compile(
    rf"({_LITERAL})"
    r"|\\(?:\W|[bBdDsSwWAZnrtfv])|[.^$]|\[\^?(?:\\.|[^\\])(?:\\.|[^\]\\])*\]"
    r"|[^\\.^$*+?{}\[\]|()]|[*+?|]|\{[0-9]*,?[0-9]*\}",
    re.DOTALL,
)


def main() -> None:
    """Answer one request; of an invalid pattern print `invalid`, of a path that is gone `moved`."""
    request = json.load(sys.stdin)
    try:
        pattern = re.compile(request["pattern"])
    except (re.error, OverflowError, RecursionError) as error:
        print_json({"invalid": str(error)})
        return
    search = Search(request, pattern)
    wanted = matcher(request["glob"])
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if most != resource.RLIM_INFINITY:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    try:
        for path, descriptor in walk(request["path"], frozenset(request["skip"]), wanted):
            try:
                if not search.file(path, descriptor):
                    break
            finally:
                os.close(descriptor)
    except Moved as error:
        print_json({"moved": str(error)})
        return
    print_json(search.end)


class Search:
    """Prints the matches of one file after the other, and counts the files in `end`."""

    def __init__(self, request: dict[str, Any], pattern: re.Pattern[str]) -> None:
        self._request, self._pattern = request, pattern
        self._required = required_texts(pattern.pattern)
        self._printed = self._line = 0
        self._space: int = request["space"]
        self.end: dict[str, Any] = {"files": 0, "skipped": 0, "truncated": False}
        signal.signal(signal.SIGALRM, too_long)

    def file(self, path: str, descriptor: int) -> bool:
        """Print the matches of a file, or how many there are.

        False when there are too many, or when one line takes too long.
        """
        if not self._fits(descriptor):
            self.end["skipped"] += 1
            return True
        self.end["files"] += 1
        data = content(descriptor, self._request["max_file"])
        if not any(all(text in data for text in texts) for texts in self._required):
            return True
        self._line, before = 0, self._printed
        try:
            signal.alarm(self._request["seconds"])
            show = self._lines if self._request["show"] == "lines" else self._count
            return show(path, data)
        except TooLong:
            self.end["stuck"] = f"{path}:{self._line}"
            return False
        finally:
            signal.alarm(0)
            if self._printed > before:
                sys.stdout.flush()

    def _lines(self, path: str, data: bytes) -> bool:
        """Print each line that matches, and those around it once each; False for too many."""
        most, around = self._request["max_text"], self._request["context"]
        before: deque[tuple[int, str]] = deque(maxlen=around)
        after = 0
        search = self._pattern.search
        for self._line, line in enumerate(BytesIO(data), 1):
            text = line.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8", "replace")
            match = search(text)
            if match is None and after:
                after -= 1
                self._print({"path": path, "line": self._line, "around": view(text, 0, most)})
            elif match is None:
                if around:
                    before.append((self._line, text))
            else:
                if not self._may_print():
                    return False
                for number, above in before:
                    self._print({"path": path, "line": number, "around": view(above, 0, most)})
                before.clear()
                shown = view(text, match.start(), most)
                self._print({"path": path, "line": self._line, "text": shown})
                after = around
        return True

    def _count(self, path: str, data: bytes) -> bool:
        """Print how many lines of a file match, or that one does; False for too many files."""
        count = 0
        for self._line, line in enumerate(BytesIO(data), 1):
            text = line.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8", "replace")
            count += self._pattern.search(text) is not None
            if count and self._request["show"] == "files":
                break
        if not count:
            return True
        if not self._may_print():
            return False
        self._print({"path": path, "count": count})
        return True

    def _print(self, item: dict[str, Any]) -> None:
        self._space -= print_json(item)

    def _may_print(self) -> bool:
        """Whether there is room for one more; that something is left out is said at the end."""
        if self._printed == self._request["max_matches"] or self._space <= 0:
            self.end["truncated"] = True
            return False
        self._printed += 1
        return True

    def _fits(self, descriptor: int) -> bool:
        """Whether the file is text and not too large."""
        try:
            head = os.pread(descriptor, _HEAD, 0)
        except OSError:
            return False
        return b"\0" not in head and os.fstat(descriptor).st_size <= self._request["max_file"]


def view(text: str, start: int, most: int) -> str:
    """Return what of a line is shown: at most `most` signs, those at `start` among them."""
    if len(text) <= most:
        return text
    space = most - 2
    begin = max(0, min(start - space // 3, len(text) - space))
    end = begin + space
    return ("…" if begin else "") + text[begin:end] + ("…" if end < len(text) else "")


def required_texts(pattern: str) -> list[list[bytes]]:
    """Return for each alternative of a pattern the texts that every line holds which it matches.

    With these texts most files need no look at their lines. Only ASCII texts, and only of a pattern
    without groups: of any other one alternative that requires nothing.
    """
    found: list[list[bytes]] = [[]]
    at = 0
    while at < len(pattern):
        part = _PART.match(pattern, at)
        if part is None:
            return [[]]
        at = part.end()
        if part[0] == "|":
            found.append([])
        elif part[1] and part[1].isascii():
            found[-1].append(part[1].encode())
    return found


class TooLong(Exception):
    """A file whose search takes longer than the request allows."""


class Moved(Exception):
    """The path of the request is not there any more, or is a link now."""


def too_long(number: int, frame: FrameType | None) -> None:
    """Stop a search when the alarm of the file has rung: a handler for `signal.SIGALRM`."""
    raise TooLong


def content(descriptor: int, limit: int) -> bytes:
    """Return at most `limit` bytes of what a file holds now; none when it cannot be read."""
    parts, position = [], 0
    try:
        while position < limit and (part := os.pread(descriptor, _CHUNK, position)):
            parts.append(part)
            position += len(part)
    except OSError:
        return b""
    return b"".join(parts)


def print_json(item: dict[str, Any]) -> int:
    """Print an item as one line of JSON; return how long it is."""
    return sys.stdout.write(json.dumps(item) + "\n")


def walk(
    path: str, skip: frozenset[str], wanted: Callable[[str], bool]
) -> Iterator[tuple[str, int]]:
    """Yield path and descriptor of each regular file at or below the path, in order of names.

    Moved.
    """
    names = [name for name in path.split("/") if name]
    try:
        current = os.open(".", _DIRECTORY)
        for name in names[:-1]:
            current = open_inner(current, name)
        if names:
            descriptor = open_regular(names[-1], current)
            if descriptor is not None:
                os.close(current)
                yield path, descriptor
                return
            current = open_inner(current, names[-1])
    except OSError as error:
        raise Moved(error.strerror) from error
    yield from below(current, path + "/" if names else "", skip, wanted)


def below(
    directory: int, prefix: str, skip: frozenset[str], wanted: Callable[[str], bool]
) -> Iterator[tuple[str, int]]:
    """Yield what is below a directory, and close its descriptor in the end; any depth is walked."""
    inside = [(directory, prefix, entries(directory))]
    try:
        while inside:
            directory, prefix, listing = inside[-1]
            entry = next(listing, None)
            if entry is None:
                os.close(inside.pop()[0])
            elif entry.is_dir(follow_symlinks=False):
                if entry.name not in skip:
                    try:
                        inner = os.open(entry.name, _DIRECTORY, dir_fd=directory)
                    except OSError as error:
                        if error.errno == errno.EMFILE:
                            raise
                        continue  # unreadable, or no directory any more
                    inside.append((inner, f"{prefix}{entry.name}/", entries(inner)))
            elif entry.is_file(follow_symlinks=False) and wanted(prefix + entry.name):
                descriptor = open_regular(entry.name, directory)
                if descriptor is not None:
                    yield prefix + entry.name, descriptor
    finally:
        for directory, _, _ in inside:
            os.close(directory)


def entries(directory: int) -> Iterator[os.DirEntry[str]]:
    """Return the entries of a directory, in the order of their names as bytes."""
    with os.scandir(directory) as listing:
        return iter(sorted(listing, key=lambda entry: os.fsencode(entry.name)))


def open_inner(directory: int, name: str) -> int:
    """Open a directory in a directory, whose descriptor is closed. OSError."""
    try:
        return os.open(name, _DIRECTORY, dir_fd=directory)
    finally:
        os.close(directory)


def open_regular(name: str, directory: int) -> int | None:
    """Return a descriptor of a regular file; None for anything else, or an unreadable one."""
    try:
        descriptor = os.open(name, _FILE, dir_fd=directory)
    except OSError:
        return None
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    return None


def matcher(glob: str | None) -> Callable[[str], bool]:
    """Return a test of whether a path fits a glob: its name when the glob has no slash."""
    if glob is None:
        return lambda path: True
    whole = "/" in glob
    rule = re.compile("|".join(to_regex(g.removeprefix("./")) for g in expand_braces(glob)))
    return lambda path: rule.fullmatch(path if whole else path.rsplit("/", 1)[-1]) is not None


def expand_braces(glob: str) -> list[str]:
    """Return the globs that a glob with braces stands for: `*.js` and `*.ts` for `*.{js,ts}`."""
    found = re.search(r"\{([^{}]*,[^{}]*)\}", glob)
    if not found:
        return [glob]
    before, after = glob[: found.start()], glob[found.end() :]
    return [one for part in found[1].split(",") for one in expand_braces(before + part + after)][
        :1000
    ]


def to_regex(glob: str) -> str:
    """Return a glob as a regular expression:

    `**/` any directories, `**` anything, `*` within a name.
    """
    parts = re.split(r"(\*\*/|\*\*|\*|\?|\[[^\]]+\])", glob)
    rules = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    out = []
    for part in parts:
        if part in rules:
            out.append(rules[part])
        elif part.startswith("[") and part.endswith("]") and len(part) > 2:
            inner = part[1:-1].replace("\\", "\\\\")
            out.append("[^" + inner[1:] + "]" if inner[0] in "!^" else "[" + inner + "]")
        else:
            out.append(re.escape(part))
    return "(?s:" + "".join(out) + ")"
