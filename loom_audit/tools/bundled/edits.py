"""Edits of a file: what stands there once is replaced, and each line keeps the end it has."""

import re
from collections.abc import Sequence

from msgspec import Struct

from loom_audit.errors import FileNotFound, InvalidArguments
from loom_audit.model.text.display import first_few
from loom_audit.model.text.lines import Edit, edits, split_lines
from loom_audit.model.text.nearest import nearest
from loom_audit.tools.bundled.text import decode

_NUMBERED = re.compile(rb"[ \t]*(\d+)(?:\t| \| |\xe2\x86\x92)|[^\s:]+:(\d+): ")
"""How a line begins in the answers of `read_file` and `search_files`, and of other tools."""


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
    FileNotFound, InvalidArguments when an `old` is not there, or more than once.
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

    def edited(self) -> bytes:
        """The content after the edit. InvalidArguments."""
        content, step = self.content, self.step
        if not step.old:
            return content + self.fitted(len(content), len(content))
        found = self.find(0)
        if found is None:
            raise InvalidArguments(
                f"{self._which}old_str not found in {self._path}: {_excerpt(step.old)}",
                hint=_mismatch_hint(content, step.old),
            )
        if step.everywhere:
            return self.replaced()
        # one that overlaps the first counts: either could be meant
        if self.find(found[0] + 1) is not None:
            raise self._several()
        return content[: found[0]] + self.fitted(*found) + content[found[1] :]

    def find(self, start: int) -> tuple[int, int] | None:
        """Where the next match begins and ends."""
        at = self.content.find(self.step.old, start)
        return None if at < 0 else (at, at + len(self.step.old))

    def replaced(self) -> bytes:
        """The content with every match replaced."""
        return self.content.replace(self.step.old, self.step.new)

    def fitted(self, start: int, end: int) -> bytes:
        """The new text as it is put in place of what stands from `start` to `end`."""
        return self.step.new

    def _several(self) -> InvalidArguments:
        lines = self._lines()
        return InvalidArguments(
            f"{self._which}old_str found {len(lines)} times in {self._path}: "
            f"{_excerpt(self.step.old)}",
            hint=f"It begins in lines {first_few(lines, 10)}. Add what stands around it until it "
            "is the only one, or pass replace_all.",
            details={"count": len(lines), "lines": lines[:100]},
        )

    def _lines(self) -> list[int]:
        """The line of each match, from 1, overlapping ones too."""
        lines, line, seen, found = list[int](), 1, 0, self.find(0)
        while found is not None:
            line += self.content.count(b"\n", seen, found[0])
            seen = found[0]
            lines.append(line)
            found = self.find(seen + 1)
        return lines


class _Mixed(_Exact):
    """An edit of a file in which some lines end with CRLF and some with LF."""

    def __init__(self, path: str, content: bytes, step: TextEdit, which: str) -> None:
        super().__init__(path, content, step, which)
        exact = step.old in content
        between = rb"\n" if exact else rb"\r?\n"
        form = between.join(re.escape(line) for line in step.old.split(b"\n"))
        # an LF at the beginning stands for all of the line's end, which no edit tears apart
        at_end = exact and step.old.startswith(b"\n")
        self._pattern = re.compile(rb"\r?" + form if at_end else form)

    def find(self, start: int) -> tuple[int, int] | None:
        if start and self.content[start - 1 : start + 1] == b"\r\n":
            start += 1
        found = self._pattern.search(self.content, start)
        return None if found is None else found.span()

    def replaced(self) -> bytes:
        return self._pattern.sub(lambda found: self.fitted(*found.span()), self.content)

    def fitted(self, start: int, end: int) -> bytes:
        content, new = self.content, self.step.new
        count = new.count(b"\n")
        if not count:
            return new
        begin = content.rfind(b"\n", 0, start) + 1
        behind = content.find(b"\n", end) + 1 or len(content)
        lines = split_lines(content[begin:start] + new + content[end:behind])
        kept = _kept_ends(split_lines(content[begin:behind]), lines)
        own = [b"\r\n" if line.endswith(b"\r\n") else b"" for line in lines[:count]]
        ends = [a or b for a, b in zip(own, kept, strict=False)]
        after = (*ends, *map(_end_of, lines[count:]))
        last = _end_of(content[max(0, begin - 2) : begin]) or next(filter(None, after), b"\n")
        *texts, rest = new.split(b"\n")
        fitted: list[bytes] = []
        for text, line_end in zip(texts, ends, strict=True):
            last = line_end or last
            fitted += (text.removesuffix(b"\r") if line_end == b"\r\n" else text, last)
        return b"".join((*fitted, rest))


def _kept_ends(old: Sequence[bytes], new: Sequence[bytes]) -> list[bytes]:
    """Of each new line the end of the one that it is or replaces; empty for an added one."""
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
    if _bears_numbers(old) and not re.search(rb"(?m)^[ \t]*\d+\t", content):
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


def _bears_numbers(text: bytes) -> bool:
    """Whether each line begins with a number, one more than the line before."""
    lines = text.removesuffix(b"\n").split(b"\n")
    found = [_NUMBERED.match(line) for line in lines]
    numbers = [int(one[1] or one[2]) for one in found if one is not None]
    return len(numbers) == len(lines) and numbers == [*range(numbers[0], numbers[0] + len(numbers))]


def _excerpt(raw: bytes) -> str:
    text = decode(raw[:200])
    return repr(text[:80] + ("…" if len(raw) > 80 else ""))
