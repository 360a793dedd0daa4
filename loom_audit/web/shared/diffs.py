"""One file's change as a page shows it, as many lines of it as fit the page."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from loom_audit.errors import AuditError
from loom_audit.model.files import FileChange, FileState, Move, shown_moves
from loom_audit.model.kinds import Kind, kind_of
from loom_audit.model.text.display import size_text, visible_bytes
from loom_audit.model.text.textdiff import Diff, Line, diff_lines
from loom_audit.web.shared.budget import row_weight, weight
from loom_audit.web.shared.spacing import Said, spacing_of

AUTO = 12_000
"""What the lines of a file may weigh that come with a page of several files."""
AUTO_SOURCE = 512 * 1024
"""A larger change is compared when it is asked for."""
MAX_BYTES = 16 * 1024 * 1024
MAX_LINES = 500_000
LINE_CHARACTERS = 2_000
HEADING = 18
"""Elements of a file without its lines."""
AGAIN = "Changed again by and 50 more: taking it back would ask which lines to keep."
MOST_ROWS = 1_000
"""No more fit into any answer."""
CONTEXT = 3
"""The number of unchanged lines that stand around a change."""
WIDER = (25, 1_000_000)
"""The numbers of such lines where more are asked for: some, and the whole file."""

Content = Callable[[FileState], bytes]
Body = Literal["rows", "later", "binary", "large", "missing", "none"]
RowKind = Literal["add", "remove", "context", "gap"]


class Around(Struct, frozen=True):
    """What stands around each change: unchanged `lines`, their number on each side. Of the gaps
    that stay those are `opened` that end before these lines of what is there afterwards.
    """

    lines: int = CONTEXT
    opened: frozenset[int] = frozenset()

    @property
    def compared(self) -> int:
        """With how many lines around each change the lines are asked for."""
        return WIDER[-1] if self.opened else self.lines

    @property
    def fields(self) -> tuple[tuple[str, int | None], ...]:
        """The fields of an address that ask for it."""
        context = None if self.lines == CONTEXT else self.lines
        return (("context", context), *(("open", line) for line in sorted(self.opened)))

    @property
    def wider(self) -> int | None:
        """The context that is offered next; None where all of a file is shown."""
        return next((one for one in WIDER if one > self.lines), None)


LINE = 5
"""Elements of a row at the least."""


class Row(Struct, frozen=True):
    """A row shows a line or a gap; `pieces` are texts with whether that stretch changed. A gap ends
    before the line `new`.

    Where the rows of a file name who changed them: `call` is the number of the call, 0 for none,
    and `by` says who else it was. `part` names the part of the change that the row belongs to and,
    where it is the first of it, `starts`; the rows of a `folded` one are in a table of their own.
    `later` are those who changed the part again, where its first row says so.
    """

    kind: RowKind
    old: int | None = None
    new: int | None = None
    pieces: tuple[tuple[str, bool], ...] = ()
    note: str = ""
    call: int = 0
    by: str = ""
    part: str = ""
    starts: bool = False
    folded: bool = False
    later: tuple[str, ...] = ()

    @property
    def weight(self) -> int:
        """How much of the budget the row takes, with the one above it that says who came later."""
        changed = sum(changed for _, changed in self.pieces)
        text = "".join([text for text, _ in self.pieces])
        named = 3 * bool(self.call or self.by)
        marked = (9 if self.folded else 4) * self.starts
        opening = 3 * (self.kind == "gap")
        nodes = LINE + changed + bool(self.note) + named + marked + opening
        said = weight(2 + 2 * len(self.later), AGAIN, *self.later) if self.later else 0
        return weight(nodes, text, self.by) + said


class Block(Struct, frozen=True):
    """Rows below each other that belong to the part of this name, or to none ("")."""

    part: str
    rows: tuple[Row, ...]

    @property
    def starts(self) -> bool:
        """Whether the part begins with these rows."""
        return self.rows[0].starts

    @property
    def line(self) -> int | None:
        """The number of the first line that has one; None where all came and went in between."""
        numbers = (*(row.new for row in self.rows), *(row.old for row in self.rows))
        return next(filter(None, numbers), None)

    @property
    def added(self) -> int:
        """How many of the lines were added."""
        return sum(row.kind == "add" for row in self.rows)

    @property
    def removed(self) -> int:
        """How many of the lines were removed."""
        return sum(row.kind == "remove" for row in self.rows)


class FileView(Struct, frozen=True):
    """A change ready to show, with the rows from `start` on of `length`.

    `added` and `removed` are None where nothing was compared.
    """

    change: FileChange
    action: str
    source: str | None
    notes: tuple[str, ...]
    body: Body
    rows: tuple[Row, ...] = ()
    added: int | None = None
    removed: int | None = None
    problem: AuditError | None = None
    start: int = 0
    length: int = 0
    kinds: tuple[Kind | None, Kind | None] = (None, None)
    """What binary content was and is."""
    rows_weight: int = 0
    named: bool = False
    """Whether the rows say who changed them."""

    @property
    def path(self) -> str:
        """The path that changed."""
        return self.change.path

    @property
    def blocks(self) -> Sequence[Block]:
        """The rows, those of a part together."""
        return [Block(part, (*rows,)) for part, rows in groupby(self.rows, lambda row: row.part)]

    @property
    def end(self) -> int:
        """The number of the first row after these."""
        return self.start + len(self.rows)

    @property
    def remaining(self) -> int:
        """How many rows come after these."""
        return max(0, self.length - self.end)

    @property
    def weight(self) -> int:
        """How much of the budget the heading and the rows take."""
        heading = row_weight(HEADING, self.path) + row_weight(0, self.source or "")
        return heading + self.rows_weight

    @property
    def why_later(self) -> str:
        """Why the difference is not on the page yet."""
        if self.added is None or self.removed is None:
            size = _size(self.change.before) + _size(self.change.after)
            return f"Not compared yet, {size_text(size)}."
        return f"{self.added + self.removed:,} lines added and removed."


def joined(
    changes: Sequence[FileChange], moves: Iterable[Move]
) -> list[tuple[FileChange, str | None]]:
    """The changes worth a heading of their own, with what they were moved from.

    A rename's deletion is folded into its creation; folders are left out where a path in them
    changed too, since that says the same.
    """
    by_path = {change.path: change for change in changes}
    source_of = {
        move.target: move.source
        for move in shown_moves(changes, moves)
        if move.source in by_path and move.target in by_path
    }
    gone = {source for source in source_of.values() if by_path[source].after is None}
    said = said_by_others(changes)
    kept: list[tuple[FileChange, str | None]] = []
    for change in changes:
        if change.path in gone or change.path in said:
            continue
        source = source_of.get(change.path)
        before = by_path[source].before if source else change.before
        kept.append((FileChange(change.path, before, change.after), source))
    return kept


def said_by_others(changes: Sequence[FileChange]) -> frozenset[str]:
    """The folders that came or went as a whole, of which a path in them says the same."""
    whole = {
        change.path
        for change in changes
        if (change.before is None or change.after is None)
        and "directory" in {state.kind for state in (change.before, change.after) if state}
    }
    paths = [change.path for change in changes] if whole else []
    above = {path.rsplit("/", n)[0] for path in paths for n in range(1, path.count("/") + 1)}
    return frozenset(whole & above)


def view_change(
    change: FileChange,
    content: Content,
    *,
    source: str | None = None,
    start: int = 0,
    space: int = AUTO,
    whole: bool = True,
    compare: bool = True,
    around: Around = Around(),
) -> FileView:
    """View a change, with the rows from `start` on that weigh no more than `space`, and so many
    lines around what changed.

    `whole`: all of them, or none; what is over AUTO_SOURCE only counts then. Without `compare`
    nothing is read.
    """
    action = _action(change, source)
    notes = tuple(notes_of(change))
    states = [state for state in (change.before, change.after) if state is not None]
    blobs = [state for state in states if state.blob is not None]

    def view(body: Body, problem: AuditError | None = None) -> FileView:
        return FileView(change, action, source, notes, body, problem=problem)

    if not blobs or _same_content(change):
        return view("none")
    if any(state.size > MAX_BYTES for state in blobs):
        return view("large")
    if not compare or (whole and sum(state.size for state in blobs) > AUTO_SOURCE):
        return view("later")
    try:
        old, new = (
            content(state) if state is not None and state.blob is not None else None
            for state in (change.before, change.after)
        )
    except AuditError as error:
        return view("missing", error)
    if max(side.count(b"\n") for side in (old, new) if side is not None) > MAX_LINES:
        return view("large")
    last = WIDER[-1] if around.opened else start + MOST_ROWS + 1
    found = diff_lines(old, new, around.compared, words=range(0 if around.opened else start, last))
    if found.binary:
        kinds = tuple(None if side is None else kind_of(side) for side in (old, new))
        return replace(view("binary"), kinds=kinds)
    said, of_file = spacing_of([hunk.lines for hunk in found.hunks])
    length = sum(len(hunk.lines) + _has_gap(found, n) for n, hunk in enumerate(found.hunks))
    rows, used, length = rows_on_page(
        lambda start: _rows(found, start, said), length, start, around, space
    )
    body: Body = "rows"
    if whole and len(rows) < length:
        body, rows, used = "later", (), 0
    return replace(
        view(body),
        notes=(*notes, *filter(None, [of_file])),
        rows=rows,
        added=found.added,
        removed=found.removed,
        start=start,
        length=length,
        rows_weight=used,
    )


def rows_on_page(
    rows: Callable[[int], Iterable[Row]], length: int, start: int, around: Around, space: int
) -> tuple[tuple[Row, ...], int, int]:
    """The rows from `start` on that fit, what they weigh, and how many there are; `rows` gives them
    from one on, of `length`.
    """
    if not around.opened:
        return *fitting(rows(start), space), length
    every = [*_folded(rows(0), around)]
    return *fitting(every[start:], space), len(every)


def _folded(rows: Iterable[Row], around: Around) -> Iterator[Row]:
    """The rows of a whole file, of which those far from a change are gaps, but for the opened."""
    runs = [[*run] for _, run in groupby(rows, lambda row: row.kind == "context")]
    for n, run in enumerate(runs):
        above = around.lines if n else 0
        below = around.lines if n < len(runs) - 1 else 0
        end = len(run) - below
        far = run[0].kind == "context" and above < end
        if not far or (below and run[end].new in around.opened):
            yield from run
            continue
        yield from run[:above]
        if below:
            yield gap_before(run[end].new)
            yield from run[end:]


def gap_before(line: int | None) -> Row:
    """The row for lines that are left out above a line."""
    return Row("gap", new=line, note=f"line {line}")


def fitting(rows: Iterable[Row], space: int) -> tuple[tuple[Row, ...], int]:
    """The first of these rows, and what fits beside it; with what they weigh."""
    kept, used = list[Row](), 0
    for row in rows:
        weighs = row.weight
        if kept and used + weighs > space:
            break
        kept.append(row)
        used += weighs
    return tuple(kept), used


def _size(state: FileState | None) -> int:
    return state.size if state else 0


def _same_content(change: FileChange) -> bool:
    before, after = change.before, change.after
    if before is None or after is None:
        return _size(before) + _size(after) == 0
    return (before.kind, before.blob) == (after.kind, after.blob)


def _action(change: FileChange, source: str | None) -> str:
    if source is not None:
        return "moved"
    if change.before is None:
        return "created"
    return "deleted" if change.after is None else "modified"


def notes_of(change: FileChange) -> Iterable[str]:
    """What a heading says of a change beside its lines: kinds, permission bits."""
    before, after = change.before, change.after
    if before is None or after is None:
        state = before or after
        if state is not None and state.kind != "file":
            yield state.kind
        elif state is not None and state.size == 0:
            yield "empty file"
        if state is not None and state.kind == "file" and state.mode & 0o111:
            yield f"executable {state.mode:04o}"
        return
    if before.kind != after.kind:
        yield f"{before.kind} became {after.kind}"
    elif before.mode != after.mode:
        yield f"mode {before.mode:04o} → {after.mode:04o}"
    if _same_content(change):
        yield "content identical"


def _has_gap(diff: Diff, n: int) -> bool:
    """Whether lines are left out above a hunk."""
    hunk = diff.hunks[n]
    return n > 0 or hunk.old_start > 1 or hunk.new_start > 1


def _rows(diff: Diff, start: int, said: Said) -> Iterator[Row]:
    """The rows from `start` on, counted with those that stand for a gap."""
    passed = 0
    for n, hunk in enumerate(diff.hunks):
        if _has_gap(diff, n):
            if passed >= start:
                yield gap_before(hunk.lines[0].new)
            passed += 1
        skipped = max(0, start - passed)
        for place, line in enumerate(hunk.lines[skipped:], skipped):
            yield row_of(line, said.get((n, place), ""))
        passed += len(hunk.lines)


def row_of(line: Line, said: str = "") -> Row:
    """The row of one line of a difference, with what is said of the run that begins with it."""
    kind: RowKind = {"+": "add", "-": "remove", " ": "context"}[line.kind]  # type: ignore[assignment]
    notes = filter(None, (said, _ending(line)))
    return Row(kind, line.old, line.new, _pieces(line), ", ".join(notes))


def _pieces(line: Line) -> tuple[tuple[str, bool], ...]:
    content = line.content.removesuffix(b"\n")
    if content.endswith(b"\r"):
        content = content.removesuffix(b"\r")
    left = LINE_CHARACTERS
    pieces: list[tuple[str, bool]] = []
    end_before = 0
    for start, end in (*line.spans, (len(content), len(content))):
        for piece, changed in ((content[end_before:start], False), (content[start:end], True)):
            if piece and left > 0:
                pieces.append((visible_bytes(piece[: left * 4])[:left], changed))
                left -= len(pieces[-1][0])
        end_before = end
    return tuple(pieces)


def _ending(line: Line) -> str:
    notes = []
    if not line.content.endswith(b"\n"):
        notes.append("no newline at end")
    if line.content.endswith(b"\r\n"):
        notes.append("CRLF")
    if len(line.content) > LINE_CHARACTERS:
        notes.append(f"cut, {len(line.content):,} bytes")
    return ", ".join(notes)
