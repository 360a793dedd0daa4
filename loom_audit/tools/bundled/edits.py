"""Edits of a file: what stands there once is replaced, and each line keeps the end it has."""

import re
from bisect import bisect_left
from collections.abc import Sequence

from msgspec import Struct

from loom_audit.errors import FileNotFound, InvalidArguments, TooLarge
from loom_audit.model.text.display import first_few
from loom_audit.model.text.lines import Edit, edits, split_lines
from loom_audit.model.text.nearest import nearest
from loom_audit.tools.bundled.text import decode
from loom_audit.tools.calls.context import MAX_EDITED

MAX_COUNTED = 100
"""Places of an old_str that are counted: each of them costs as much as a text is long."""
MAX_FITTED = 10_000
"""Places at which new lines are given the ends of those around them."""

_NUMBERED = re.compile(rb"[ \t]*(\d{1,9})(?:\t| \| |\xe2\x86\x92)|[^\s:]+:(\d{1,9}): ")
"""How a line begins in the answers of `read_file` and `search_files`, and of other tools."""
_GREP = re.compile(rb"(?:[^\s:]+:)?(\d{1,9})()[:-]")
"""How it begins in those of `grep -n`, as lines of files do too."""


class TextEdit(Struct, frozen=True):
    """One replacement in a text: `old` must be there once, or at least once with `everywhere`."""

    old: bytes
    new: bytes
    everywhere: bool = False


def apply_edits(path: str, content: bytes | None, steps: Sequence[TextEdit]) -> bytes:
    """Return the content after all steps, each made on the result of the one before.

    A content of None is an absent file; an empty `old` appends. Where lines of a text end with CRLF
    and `old` holds no CR: LF in `old` matches CRLF too when nothing matches byte for byte, a line
    that stays or is replaced keeps its end, and an added one ends as the line before it, the first
    of a file as the line behind it. In a file with NUL or a CR alone every byte is meant.
    FileNotFound, InvalidArguments when an `old` is not there, or more than once, TooLarge.
    """
    current = content
    for number, step in enumerate(steps, 1):
        which = f"edit {number} of {len(steps)}, of which none was made: " if len(steps) > 1 else ""
        current = _apply_edit(path, current, step, which)
    return current or b""


def _apply_edit(path: str, content: bytes | None, step: TextEdit, which: str) -> bytes:
    if content is None and step.old:
        raise FileNotFound(f"File not found: {path}", hint="An empty old_str creates a file.")
    content = content or b""
    if b"\r" in step.old or not _has_crlf(content):
        return _Exact(path, content, step, which).edited()
    flat = content.replace(b"\r\n", b"\n")
    if len(content) - len(flat) == content.count(b"\n"):
        new = step.new.replace(b"\r\n", b"\n")
        every = TextEdit(step.old, new, step.everywhere)
        return _Exact(path, flat, every, which).edited().replace(b"\n", b"\r\n")
    return _Mixed(path, content, step, which).edited()


def _has_crlf(content: bytes) -> bool:
    """Whether it is a text of lines of which some end with CRLF, and none with a CR alone."""
    count = content.count(b"\r")
    return count > 0 and count == content.count(b"\r\n") and b"\0" not in content


class _Exact:
    """An edit in which every byte is meant."""

    def __init__(self, path: str, content: bytes, step: TextEdit, which: str) -> None:
        self._path, self._which = path, which
        self.content, self.step = content, step
        self.searched = content
        """The text in which `old` is looked for byte for byte."""

    def edited(self) -> bytes:
        """The content after the edit. InvalidArguments, TooLarge."""
        content, old = self.content, self.step.old
        if not old:
            return content + self.fitted(len(content), len(content))
        at = self.searched.find(old)
        if at < 0:
            raise InvalidArguments(
                f"{self._which}old_str not found in {self._path}: {_excerpt(old)}",
                hint=_mismatch_hint(content, old),
            )
        if self.step.everywhere:
            self._check_size()
            return self.replaced()
        # one that overlaps the first counts: either could be meant
        if self.searched.find(old, at + 1) >= 0:
            raise self._several(at)
        start, end = self.span(at)
        return content[:start] + self.fitted(start, end) + content[end:]

    def span(self, at: int) -> tuple[int, int]:
        """Where in the content begins and ends what was found at `at` of the searched text."""
        return at, at + len(self.step.old)

    def replaced(self) -> bytes:
        """The content with every match replaced. InvalidArguments."""
        return self.content.replace(self.step.old, self.step.new)

    def fitted(self, start: int, end: int) -> bytes:
        """The new text as it is put in place of what stands from `start` to `end`."""
        return self.step.new

    def _check_size(self) -> None:
        old, new = len(self.step.old), len(self.step.new)
        if len(self.content) + self.searched.count(self.step.old) * (new - old) > MAX_EDITED:
            raise TooLarge(
                f"{self._which}{self._path} would have more than {MAX_EDITED} bytes",
                hint="Pass a shorter new_str, or an old_str that stands at fewer places.",
            )

    def _several(self, at: int) -> InvalidArguments:
        lines = self._lines(at)
        least = "at least " if len(lines) == MAX_COUNTED else ""
        return InvalidArguments(
            f"{self._which}old_str found {least}{len(lines)} times in {self._path}: "
            f"{_excerpt(self.step.old)}",
            hint=f"It begins in lines {first_few(lines, 10)}. Add what stands around it until it "
            "is the only one, or pass replace_all.",
            details={"count": len(lines), "lines": lines},
        )

    def _lines(self, at: int) -> list[int]:
        """The line of each match from `at` on, overlapping ones too, as many as are counted."""
        lines, line, seen = list[int](), 1, 0
        while at >= 0 and len(lines) < MAX_COUNTED:
            line += self.searched.count(b"\n", seen, at)
            seen = at
            lines.append(line)
            at = self.searched.find(self.step.old, at + 1)
        return lines


class _Mixed(_Exact):
    """An edit of a file in which some lines end with CRLF and some with LF."""

    def __init__(self, path: str, content: bytes, step: TextEdit, which: str) -> None:
        super().__init__(path, content, step, which)
        self._crlf: list[int] = []
        """Where in the searched text an LF stands for CRLF."""
        if step.old not in content:
            found = enumerate(re.finditer(rb"\r\n", content))
            self._crlf = [one.start() - before for before, one in found]
            self.searched = content.replace(b"\r\n", b"\n")

    def span(self, at: int) -> tuple[int, int]:
        start, end = (n + bisect_left(self._crlf, n) for n in super().span(at))
        # an LF at the beginning stands for all of the line's end, which no edit tears apart
        torn = self.step.old.startswith(b"\n") and self.content[start - 1 : start + 1] == b"\r\n"
        return start - torn, end

    def replaced(self) -> bytes:
        content, old, new = self.content, self.step.old, self.step.new
        if b"\n" not in old + new:
            return content.replace(old, new)
        count = self.searched.count(old)
        if count > MAX_FITTED:
            raise InvalidArguments(
                f"{self._which}old_str found {count} times in {self._path}, whose lines end with "
                f"CRLF and with LF: line ends are kept at no more than {MAX_FITTED} places",
                hint="Replace fewer at a time, or within lines.",
            )
        made, done, at = list[bytes](), 0, self.searched.find(old)
        while at >= 0:
            start, end = self.span(at)
            made += (content[done:start], self.fitted(start, end))
            done, at = end, self.searched.find(old, at + len(old))
        return b"".join((*made, content[done:]))

    def fitted(self, start: int, end: int) -> bytes:
        content, new = self.content, self.step.new
        count = new.count(b"\n")
        if not count:
            return new
        # more of a long line would make it equal to no other one either
        most = max(end - start, len(new)) + 2
        begin = max(content.rfind(b"\n", 0, start) + 1, start - most)
        behind = content.find(b"\n", end) + 1 or len(content)
        head, tail = content[begin:start], content[end:behind]
        if len(tail) > most:
            tail = tail[:most] + _end_of(tail)
        lines = split_lines(head + new + tail)
        kept = _kept_ends(split_lines(head + content[start:end] + tail), lines)
        own = [b"\r\n" if line.endswith(b"\r\n") else b"" for line in lines[:count]]
        ends = [a or b for a, b in zip(own, kept, strict=False)]
        after = (*ends, *map(_end_of, lines[count:]))
        above = content.rfind(b"\n", 0, start) + 1
        last = _end_of(content[max(0, above - 2) : above]) or next(filter(None, after), b"\n")
        *texts, rest = new.split(b"\n")
        fitted: list[bytes] = []
        for text, line_end in zip(texts, ends, strict=True):
            last = line_end or last
            fitted += (text.removesuffix(b"\r") if line_end == b"\r\n" else text, last)
        return b"".join((*fitted, rest))


def _kept_ends(old: Sequence[bytes], new: Sequence[bytes]) -> list[bytes]:
    """The ends of the new lines: each of the line that it is or replaces; none for an added one."""
    kept = [b""] * len(new)
    was, now = ([line.removesuffix(_end_of(line)) for line in side] for side in (old, new))
    if len(old) == 1:  # of most edits, and quick where there are many in one
        kept[now.index(was[0]) if was[0] in now else 0] = _end_of(old[0])
        return kept
    i = j = 0
    for each in (*edits(was, now), Edit(len(old), len(old), len(new), len(new))):
        pairs = [
            *zip(range(i, each.old_start), range(j, each.new_start), strict=True),
            *zip(
                range(each.old_start, each.old_end),
                range(each.new_start, each.new_end),
                strict=False,
            ),
        ]
        for before, after in pairs:
            kept[after] = _end_of(old[before])
        i, j = each.old_end, each.new_end
    return kept


def _end_of(line: bytes) -> bytes:
    if line.endswith(b"\r\n"):
        return b"\r\n"
    return b"\n" if line.endswith(b"\n") else b""


def _mismatch_hint(content: bytes, old: bytes) -> str:
    if _bears_numbers(content, old):
        return (
            "old_str bears the line numbers of an answer, which are not in the file: write the "
            "text behind them alone."
        )
    if b"\r" not in old and _has_crlf(content):
        content = content.replace(b"\r\n", b"\n")  # which was tried
    found = nearest(content, old)
    if found is None:
        return "Read the file again: old_str must be exactly what stands there."
    return f"old_str must be exactly what stands there. {found.text()}"


def _bears_numbers(content: bytes, text: bytes) -> bool:
    """Whether each line begins with a number, one more than the line before, and none of a file."""
    lines = text.removesuffix(b"\n").split(b"\n")
    for form in (_NUMBERED, _GREP):
        found = [form.match(line) for line in lines]
        numbers = [int(one[1] or one[2]) for one in found if one is not None]
        if len(numbers) < len(lines) or numbers != [*range(numbers[0], numbers[0] + len(lines))]:
            continue
        if form is _NUMBERED:
            return not re.search(rb"(?m)^[ \t]*\d+\t", content)
        rest = form.sub(b"", lines[0], count=1).strip()
        return bool(rest) and rest in content
    return False


def _excerpt(raw: bytes) -> str:
    text = decode(raw[:200])
    return repr(text[:80] + ("…" if len(raw) > 80 else ""))
