"""What a set of calls changed on balance in one file, line by line."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import groupby
from typing import Literal

from msgspec import Struct, field
from msgspec.structs import replace

from loom_audit.model.authorship.blame import writer_of
from loom_audit.model.authorship.versions import Version, Writer
from loom_audit.model.authorship.walk import Line, Read, Walk, changed_lines, walk
from loom_audit.model.files import FileState

Kind = Literal[" ", "-", "+"]
Property = Literal["mode", "kind", "path"]
"""What a file has besides lines: permission bits, what it is or that it is, and where."""


class NetLine(Struct, frozen=True, gc=False):
    """One line of a hunk, its ending included, with its numbers at both ends, None where it is not.

    `by` is an index into the file's `writers`: of "+" who wrote the line, of "-" who removed
    it; -1 for context. One that was `brought_back` had been written before.
    """

    kind: Kind
    content: bytes
    old: int | None
    new: int | None
    by: int
    brought_back: bool = False


class NetRun(Struct, frozen=True, gc=False):
    """A part: changed lines without context between them, from `start` to before `end` in the lines
    of their hunk, and the numbers of the calls that changed them.

    `part` names it wherever the same lines change in the same file (`part_names`); "" where the
    store has no key.
    """

    start: int
    end: int
    calls: tuple[int, ...]
    added: int
    removed: int
    part: str = ""


class NetHunk(Struct, frozen=True):
    """Changed lines with context; numbers count from 1, and stand before an empty side."""

    old_start: int
    old_count: int
    new_start: int
    new_count: int
    lines: tuple[NetLine, ...]
    runs: tuple[NetRun, ...]


class NetFile(Struct, frozen=True):
    """What the calls changed in one file on balance, between a point before and one at the end.

    `own_before` is `before`, or what others made where there was nothing, at the `old_path`;
    `own_after` is `after`, or what was there when others deleted it.

    `added` are the lines they wrote that stand, `removed` those of others that are gone by them.
    What they wrote and others removed is `removed_again`; what they `brought_back`, and what is
    `shared` with other calls, is in no sum. What they changed besides lines others changed `again`,
    or it is `perhaps` another call's. `others` changed the file too. With a `reason` its lines are
    not told. The hunks have `length` lines, context included; `omitted`: they were not
    asked for. `unlined` are the parts that are not lines, by name, each with what it is: "mode",
    "move" or "content"; `named` has the names of all parts, also of those in hunks that are left
    out.
    """

    path: str
    old_path: str
    before: FileState | None
    after: FileState | None
    own_before: FileState | None
    own_after: FileState | None
    calls: tuple[int, ...] = ()
    others: tuple[Writer, ...] = ()
    added: int = 0
    removed: int = 0
    removed_again: int = 0
    brought_back: int = 0
    shared: int = 0
    reason: str = ""
    mode: tuple[int, int] | None = None
    again: tuple[Property, ...] = ()
    perhaps: tuple[Property, ...] = ()
    writers: tuple[Writer, ...] = ()
    hunks: tuple[NetHunk, ...] = ()
    length: int = 0
    omitted: bool = False
    unlined: tuple[tuple[str, str], ...] = ()
    named: tuple[str, ...] = ()

    @property
    def is_changed(self) -> bool:
        """Whether anything of it is changed on balance."""
        lines = self.length or self.added or self.removed or self.removed_again or self.shared
        unreadable = self.reason and (self.before != self.after or self.others)
        kinds = [
            None if state is None else state.kind for state in (self.own_before, self.own_after)
        ]
        moved = self.old_path != self.path or kinds[0] != kinds[1]
        return bool(lines or self.mode or unreadable or moved or self.again or self.perhaps)


class FileSteps(Struct, frozen=True):
    """The steps of one file, of which those after the index `begin` lie between the two points.

    `own` are the indices of the steps that the calls made, `shared` of those they may have made.
    Who asks for the changes of `everyone` has all of them in `own`.
    """

    versions: tuple[Version, ...]
    begin: int
    own: frozenset[int]
    shared: frozenset[int] = frozenset()
    everyone: bool = False

    @property
    def before(self) -> FileState | None:
        """What the file was at the point before."""
        first = self.versions[0].before
        return self.versions[self.begin].after if self.begin >= 0 else first

    @property
    def states(self) -> Iterator[FileState | None]:
        """What the file was before the first of the steps and after each."""
        yield self.versions[0].before
        yield from (one.after for one in self.versions)

    @property
    def old_path(self) -> str:
        """Where it was then."""
        first = self.versions[0].old_path
        return self.versions[self.begin].path if self.begin >= 0 else first

    @property
    def begun(self) -> int:
        """The step from whose state the own change counts: the `begin`, or the one by which others
        made what was not there then.
        """
        made = self.begin
        for n in range(self.begin + 1, len(self.versions)):
            if self.before is None and self.versions[n].before is None:
                made = self.begin if self._is_theirs(n) else n
        return made

    @property
    def own_after(self) -> FileState | None:
        """What the file is at the end, or was when others deleted it."""
        for n in range(len(self.versions) - 1, self.begin, -1):
            one = self.versions[n]
            if one.after is not None or one.before is not None:
                return one.after if one.after or self._is_theirs(n) else one.before
        return self.before

    def _is_theirs(self, n: int) -> bool:
        return self.everyone or n in self.own or n in self.shared


class _Told(Struct):
    """What is told of a file's lines, and the sums of what is not shown.

    A line that stood all the while is as it was followed: of most of them nothing more is asked.
    `changed` are the places of the others.
    """

    lines: list[NetLine | Line] = field(default_factory=list)
    changed: list[int] = field(default_factory=list)
    removed_again: int = 0
    brought_back: int = 0
    shared: int = 0


def net_file(steps: FileSteps, read: Read, *, start: int = -1, context: int = 3) -> NetFile:
    """Return the own net change of one file; the walk begins at the version `start`."""
    versions = steps.versions
    done = walk(versions, read, start=start, woven=True, mark=steps.begin)
    why = [reason for n, reason in done.unreadable.items() if n >= steps.begin]
    told = _Told()
    if not why:
        _tell(told, done, steps)
    hunks = tuple(_hunks(told, context, steps))
    runs = [run for hunk in hunks for run in hunk.runs]
    return replace(
        without_lines(steps),
        added=sum(run.added for run in runs),
        removed=sum(run.removed for run in runs),
        removed_again=told.removed_again,
        brought_back=told.brought_back,
        shared=told.shared,
        reason=why[-1] if why else "",
        writers=tuple(writer_of(done.unknown, versions, n) for n in range(len(versions))),
        hunks=hunks,
        length=sum(len(hunk.lines) for hunk in hunks),
    )


def without_lines(steps: FileSteps) -> NetFile:
    """Return the own net change of one file but for its lines, which need its contents."""
    versions, last, made = steps.versions, steps.versions[-1], steps.begun
    began = steps.before if made == steps.begin else versions[made].after
    old_path = steps.old_path if made == steps.begin else versions[made].path
    fates = [*_fates(steps)]
    return NetFile(
        path=last.path,
        old_path=last.path if began is None else old_path,
        before=steps.before,
        after=last.after,
        own_before=began,
        own_after=steps.own_after,
        calls=_numbers(versions[n].writer for n in steps.own),
        others=_others(steps),
        mode=_mode(steps, began, made),
        again=tuple(name for name, whose in fates if whose == "again"),
        perhaps=tuple(name for name, whose in fates if whose == "perhaps"),
    )


def _tell(told: _Told, done: Walk, steps: FileSteps) -> None:
    if steps.everyone:
        told.lines += _plain(done, steps)
        told.changed += (n for n, line in enumerate(told.lines) if not _is_context(line))
        return
    own, shared, lines = steps.own, steps.shared, told.lines
    for line in done.woven or ():
        if line.new and line.writer < 0 and not line.turns:
            lines.append(line)
        elif line.new:
            wrote = line.writer in own
            back = not wrote and not line.old and line.back in own and line.turns[-2] not in own
            told.shared += line.writer in shared
            told.brought_back += back
            if wrote or back:
                told.changed.append(len(lines))
                lines.append(_line("+", line, line.back if back else line.writer, back))
            else:
                lines.append(line)
        elif line.replaced or (remover := _remover(line, own)) is None:
            continue
        elif line.writer in shared or (line.writer in own and remover in shared):
            told.shared += 1
        elif line.writer in own:
            told.removed_again += remover not in own
        elif remover in own:
            told.changed.append(len(lines))
            lines.append(_line("-", line, remover))
        else:
            told.shared += remover in shared


def _line(kind: Kind, line: Line, writer: int | None, back: bool = False) -> NetLine:
    by = -1 if kind == " " or writer is None else writer
    return NetLine(kind, line.text, line.old or None, line.new or None, by, back)


def _remover(line: Line, own: Collection[int]) -> int | None:
    """Who removed a line that is gone; what its own brought back and removed again does not count.

    None where it stands.
    """
    if not line.is_gone:
        return None
    turns = line.turns
    while len(turns) > 2 and turns[-1] in own and turns[-2] in own:
        turns = turns[:-2]
    return turns[-1]


def _plain(done: Walk, steps: FileSteps) -> Iterator[NetLine]:
    """The difference of the two ends alone, each line with who wrote or removed it."""
    old = sorted((line for line in done.woven or () if line.old), key=lambda line: line.old)
    at = 0
    end = len(done.lines)
    for one in (*changed_lines([line.text for line in old], done.texts), None):
        stop = len(old) if one is None else one.old_start
        start = end - (len(old) - at) if one is None else one.new_start - (stop - at)
        for n in range(stop - at):
            yield NetLine(" ", old[at + n].text, at + n + 1, start + n + 1, -1)
        if one is None:
            return
        for n in range(one.old_start, one.old_end):
            by = _remover(old[n], ())
            yield NetLine("-", old[n].text, n + 1, None, -1 if by is None else by)
        for n in range(one.new_start, one.new_end):
            line = done.lines[n]
            by = line.back if line.writer <= steps.begin else line.writer
            yield NetLine("+", line.text, None, n + 1, -1 if by is None else by)
        at = one.old_end


def _is_context(line: NetLine | Line) -> bool:
    return isinstance(line, Line) or line.kind == " "


def _hunks(told: _Told, context: int, steps: FileSteps) -> Iterator[NetHunk]:
    """The changed lines in hunks, each with so many lines around it."""
    lines, changed = told.lines, told.changed
    at = 0
    while at < len(changed):
        end = at
        while end + 1 < len(changed) and changed[end + 1] - changed[end] <= 2 * context + 1:
            end += 1
        first, last = max(0, changed[at] - context), changed[end] + context + 1
        yield _hunk(lines, first, min(last, len(lines)), steps)
        at = end + 1


def _hunk(lines: Sequence[NetLine | Line], first: int, last: int, steps: FileSteps) -> NetHunk:
    shown: list[NetLine] = []
    runs: list[NetRun] = []
    for is_context, group in groupby(lines[first:last], _is_context):
        some = [_line(" ", one, -1) if isinstance(one, Line) else one for one in group]
        if not is_context:
            some.sort(key=lambda line: line.kind == "+")  # what is gone before what has come
            runs.append(_run(len(shown), some, steps))
        shown += some
    olds = [line.old for line in shown if line.old and line.kind != "+"]
    news = [line.new for line in shown if line.new and line.kind != "-"]
    return NetHunk(
        old_start=min(olds) if olds else _last_before(lines[:first], "old"),
        old_count=len(olds),
        new_start=min(news) if news else _last_before(lines[:first], "new"),
        new_count=len(news),
        lines=tuple(shown),
        runs=tuple(runs),
    )


def _run(start: int, lines: Sequence[NetLine], steps: FileSteps) -> NetRun:
    by = {line.by for line in lines if line.by >= 0}
    counted = [line.kind for line in lines if steps.everyone or not line.brought_back]
    added, removed = counted.count("+"), counted.count("-")
    calls = _numbers(steps.versions[n].writer for n in by)
    return NetRun(start, start + len(lines), calls, added, removed)


def _numbers(writers: Iterable[Writer]) -> tuple[int, ...]:
    """The numbers of the calls that these are, or of which one is."""
    return tuple(sorted({call for one in writers for call in (one.call, *one.calls)} - {0}))


def _last_before(lines: Iterable[NetLine | Line], side: str) -> int:
    """The number of the last line before a hunk that is empty on a side; 0 where it is first."""
    return max((getattr(line, side) or 0 for line in lines), default=0)


def _others(steps: FileSteps) -> tuple[Writer, ...]:
    """Who else changed the file between the two points, each once."""
    found: dict[tuple[str, int], Writer] = {}
    for n, one in enumerate(steps.versions):
        if n > steps.begin and n not in steps.own:
            found.setdefault((one.writer.kind, one.writer.call or one.seq), one.writer)
    return tuple(found.values())


def _fates(steps: FileSteps) -> Iterator[tuple[Property, str]]:
    """What became of what the calls made of each property."""
    versions = steps.versions[steps.begin + 1 :]
    states = (steps.before, *(one.after for one in versions))
    modes = [None if steps.before is None else steps.before.mode]
    for state in states[1:]:
        modes.append(modes[-1] if state is None else state.mode)
    yield "kind", _fate(steps, [None if one is None else one.kind for one in states])
    yield "path", _fate(steps, [steps.old_path, *(one.path for one in versions)])
    yield "mode", _fate(steps, modes)


def _fate(steps: FileSteps, values: Sequence[object]) -> str:
    """Whether others changed a property `again` that the calls had changed, or `perhaps` one of
    them changed it last; "" where neither is so. `values` are those at the begin and after each
    step.
    """
    now, origin, own, fate = values[0], values[0], False, ""
    for n, value in enumerate(values[1:], steps.begin + 1):
        if value == now:
            continue
        if n in steps.own:
            origin, own, fate = origin if own else now, True, ""
        elif n in steps.shared:
            own, fate = False, "perhaps"
        elif own:
            own, fate = False, "again" if now != origin else ""
        now = value
    return fate


def _mode(steps: FileSteps, began: FileState | None, made: int) -> tuple[int, int] | None:
    """The permission bits at both ends, where one of the calls made them what they are."""
    after = steps.own_after
    if began is None or after is None or began.kind != after.kind or began.mode == after.mode:
        return None
    mode, by = began.mode, -1
    for n in range(made + 1, len(steps.versions)):
        state = steps.versions[n].after
        if state is not None and state.mode != mode:
            mode, by = state.mode, n
    return (began.mode, after.mode) if by in steps.own else None
