"""Line diffs: structured for pages and terminals, unified for `git apply` and `patch`."""

import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Literal

from msgspec import Struct

from loom_audit.model.files import FileState
from loom_audit.model.text.lines import Edit, edits, split_lines
from loom_audit.model.text.merge import is_binary

MAX_BYTES: Final = 50_000_000
"""Larger content is treated as binary."""

_MOST_PAIRS: Final = 50
_LONGEST_LINE: Final = 2000
_LEAST_ALIKE: Final = 0.4
_WORDS: Final = re.compile(rb"[\w\x80-\xff]+|\s+|.", re.DOTALL)
_PLAIN: Final = re.compile(rb"[^\x00-\x1f\"\\\x7f-\xff]*")
_ESCAPES: Final = {7: "a", 8: "b", 9: "t", 10: "n", 11: "v", 12: "f", 13: "r", 34: '"', 92: "\\"}

Kind = Literal[" ", "-", "+"]
Mark = Literal["head", "at", "ins", "del", ""]
"""What a line of a diff as text is: outside of hunks, the head of one, added, removed, context."""


class Line(Struct, frozen=True):
    """One line of a hunk, its ending included; numbers count from 1, None on the other side.

    `spans` are the changed stretches within the line as byte offsets (start, end), empty when
    the line is without a counterpart or differs as a whole.
    """

    kind: Kind
    content: bytes
    old: int | None
    new: int | None
    spans: tuple[tuple[int, int], ...] = ()


class Hunk(Struct, frozen=True):
    """A stretch of changes with context; a start counts from 1 and stands before an empty side."""

    old_start: int
    old_count: int
    new_start: int
    new_count: int
    lines: tuple[Line, ...]


class Diff(Struct, frozen=True):
    """The difference of two contents in lines; without hunks when one is `binary`."""

    hunks: tuple[Hunk, ...]
    added: int
    removed: int
    binary: bool = False


def diff_lines(
    old: bytes | None, new: bytes | None, context: int = 3, *, words: bool | range = False
) -> Diff:
    """Return the line diff of two contents; None is an absent file.

    With `words` lines that replace each other have the spans that differ; a range names those of
    which they are wanted, counted over all hunks with a heading before each.
    """
    before, after = old or b"", new or b""
    if before == after:
        return Diff((), 0, 0)
    if any(is_binary(side) or len(side) > MAX_BYTES for side in (before, after)):
        return Diff((), 0, 0, binary=True)
    a, b = split_lines(before), split_lines(after)
    found = edits(a, b, tidy=True)
    wanted = words if isinstance(words, range) else range(sys.maxsize if words else 0)
    hunks: list[Hunk] = []
    passed = 0
    for group in _groups(found, context):
        passed += 1
        near = range(wanted.start - passed, wanted.stop - passed)
        hunks.append(_hunk(group, a, b, context, near))
        passed += len(hunks[-1].lines)
    return Diff(
        tuple(hunks),
        sum(edit.new_end - edit.new_start for edit in found),
        sum(edit.old_end - edit.old_start for edit in found),
    )


def unified(
    path_old: str | None,
    path_new: str | None,
    old: bytes | None,
    new: bytes | None,
    *,
    state_old: FileState | None = None,
    state_new: FileState | None = None,
    context: int = 3,
) -> bytes:
    """Return the difference of one file in git's extended diff format; empty when nothing differs.

    A path of None, or content of None, is an absent file; two different paths are a rename. Modes
    hold all permission bits (git itself knows only 644 and 755); without states they are taken as
    644. The result is empty for directories and opaque entries. Binary content is named as
    different, not included.
    """
    if any(state and state.kind in ("directory", "opaque") for state in (state_old, state_new)):
        return b""
    source = None if old is None else path_old
    target = None if new is None else path_new
    if source is None and target is None:
        return b""
    if source and target and state_old and state_new and state_old.kind != state_new.kind:
        # as in git: one is deleted, the other created
        gone = unified(source, None, old, None, state_old=state_old, context=context)
        return gone + unified(None, target, None, new, state_new=state_new, context=context)
    diff = diff_lines(old, new, context)
    header = _header(source, target, _git_mode(state_old), _git_mode(state_new))
    if source and target and source != target:
        header.append(b"similarity index %d%%" % _similarity(old or b"", new or b"", diff))
        header += [b"rename from " + git_name(source), b"rename to " + git_name(target)]
    name_old = git_name(source, b"a/") if source else b"/dev/null"
    name_new = git_name(target, b"b/") if target else b"/dev/null"
    body: list[bytes] = []
    if diff.binary:
        body = [b"Binary files %s and %s differ\n" % (name_old, name_new)]
    elif diff.hunks:
        body = [b"--- " + _with_tab(name_old) + b"\n", b"+++ " + _with_tab(name_new) + b"\n"]
        body.append(hunks_text(diff))
    if not header and not body:
        return b""
    first = b"diff --git %s %s" % (
        git_name(source or target or "", b"a/"),
        git_name(target or source or "", b"b/"),
    )
    return b"".join([*(line + b"\n" for line in (first, *header)), *body])


def marked_lines(lines: Iterable[str]) -> Iterator[tuple[str, Mark]]:
    """The lines of diffs in git's format, or of any text, each with what it is there."""
    inside = False
    for text in lines:
        inside = text.startswith("@@") or (inside and not text.startswith("diff --git "))
        mark: Mark = "" if inside else "head"
        if text.startswith("@@"):
            mark = "at"
        elif inside and text.startswith(("+", "-")):
            mark = "ins" if text.startswith("+") else "del"
        yield text, mark


def _groups(changes: Sequence[Edit], context: int) -> Iterator[list[Edit]]:
    """Edits grouped so that those with touching context are together."""
    group: list[Edit] = []
    for edit in changes:
        if group and edit.old_start - group[-1].old_end > 2 * context:
            yield group
            group = []
        group.append(edit)
    if group:
        yield group


def _hunk(
    group: Sequence[Edit], a: Sequence[bytes], b: Sequence[bytes], context: int, words: range
) -> Hunk:
    above = min(context, group[0].old_start)
    i, j = group[0].old_start - above, group[0].new_start - above
    below = min(context, len(a) - group[-1].old_end)
    old_end, new_end = group[-1].old_end + below, group[-1].new_end + below
    old_start, new_start = i, j
    lines: list[Line] = []
    for edit in (*group, Edit(old_end, old_end, new_end, new_end)):
        for n in range(edit.old_start - i):
            lines.append(Line(" ", a[i + n], i + n + 1, j + n + 1))
        i, j = edit.old_end, edit.new_end
        end = len(lines) + i - edit.old_start + j - edit.new_start
        near = len(lines) < words.stop and words.start < end
        lines += _changed_lines(edit, a, b, near)
    old_count, new_count = old_end - old_start, new_end - new_start
    return Hunk(
        old_start + (old_count > 0), old_count, new_start + (new_count > 0), new_count, tuple(lines)
    )


def _changed_lines(
    edit: Edit, a: Sequence[bytes], b: Sequence[bytes], words: bool
) -> Iterator[Line]:
    gone, come = a[edit.old_start : edit.old_end], b[edit.new_start : edit.new_end]
    spans: list[tuple[_Spans, _Spans]] = []
    if words:
        spans = [word_spans(x, y) for x, y in list(zip(gone, come, strict=False))[:_MOST_PAIRS]]
    for n, line in enumerate(gone):
        yield Line("-", line, edit.old_start + n + 1, None, spans[n][0] if n < len(spans) else ())
    for n, line in enumerate(come):
        yield Line("+", line, None, edit.new_start + n + 1, spans[n][1] if n < len(spans) else ())


_Spans = tuple[tuple[int, int], ...]


def word_spans(old: bytes, new: bytes) -> tuple[_Spans, _Spans]:
    """The stretches in which two lines differ; empty when too little of them is equal."""
    if max(len(old), len(new)) > _LONGEST_LINE:
        return (), ()
    a, b = _WORDS.findall(old), _WORDS.findall(new)
    found = edits(a, b)
    lost = sum(len(word) for edit in found for word in a[edit.old_start : edit.old_end])
    if len(old) - lost < _LEAST_ALIKE * max(len(old), len(new)):
        return (), ()
    return (
        _offsets(a, [(edit.old_start, edit.old_end) for edit in found]),
        _offsets(b, [(edit.new_start, edit.new_end) for edit in found]),
    )


def _offsets(words: Sequence[bytes], ranges: Sequence[tuple[int, int]]) -> _Spans:
    starts = [0]
    for word in words:
        starts.append(starts[-1] + len(word))
    return tuple((starts[first], starts[end]) for first, end in ranges if first < end)


def _header(source: str | None, target: str | None, old: int, new: int) -> list[bytes]:
    if source is None:
        return [b"new file mode %06o" % new]
    if target is None:
        return [b"deleted file mode %06o" % old]
    return [] if old == new else [b"old mode %06o" % old, b"new mode %06o" % new]


def hunks_text(diff: Diff, *, above: int = 0) -> bytes:
    """Return the hunks as a unified diff has them; `above` lines were left out before."""
    return b"".join(part for hunk in diff.hunks for part in _hunk_text(hunk, above))


def _hunk_text(hunk: Hunk, above: int) -> Iterator[bytes]:
    yield b"@@ -%s +%s @@\n" % (
        _range(hunk.old_start + above, hunk.old_count),
        _range(hunk.new_start + above, hunk.new_count),
    )
    for line in hunk.lines:
        yield line.kind.encode() + line.content
        if not line.content.endswith(b"\n"):
            yield b"\n\\ No newline at end of file\n"


def _range(start: int, count: int) -> bytes:
    return b"%d" % start if count == 1 else b"%d,%d" % (start, count)


def _git_mode(state: FileState | None) -> int:
    if state is None:
        return 0o100644
    return 0o120000 if state.kind == "symlink" else 0o100000 | state.mode


def _similarity(old: bytes, new: bytes, diff: Diff) -> int:
    """Per cent of the longer content that is unchanged, 100 only when all is."""
    if old == new:
        return 100
    if diff.binary:
        return 0
    lost = sum(len(line.content) for h in diff.hunks for line in h.lines if line.kind == "-")
    return min(99, 100 * (len(old) - lost) // max(len(old), len(new)))


def git_name(path: str, prefix: bytes = b"") -> bytes:
    """Return a name as git writes it: in quotes with C escapes where it is not plain ASCII."""
    raw = prefix + path.encode("utf-8", "surrogateescape")
    if _PLAIN.fullmatch(raw):
        return raw
    return b'"' + b"".join(map(_escape, raw)) + b'"'


def _escape(byte: int) -> bytes:
    if byte in _ESCAPES:
        return b"\\" + _ESCAPES[byte].encode()
    return b"\\%03o" % byte if byte < 0x20 or byte > 0x7E else bytes([byte])


def _with_tab(name: bytes) -> bytes:
    """A tab after a name with spaces tells `patch` where it ends."""
    return name + b"\t" if b" " in name and not name.startswith(b'"') else name
