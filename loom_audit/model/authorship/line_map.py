"""Line maps: who wrote which lines of one version of a file, as ranges without any text.

A map that was kept is a claim. It says of which version of which file it is by a name that is made
of all versions up to that one, so that none is taken for that of another; and what it says of a
line is looked up in the contents of the versions that it names.
"""

from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256

from msgspec import Struct, ValidationError, msgpack

from loom_audit.model.authorship.versions import Version, brought_back
from loom_audit.model.authorship.walk import Line, Read, UnreadableLines, Walk, changed_lines
from loom_audit.model.files import FileState

_FORM = b"loom-audit line map 1"
"""Begins what names are made of; another way to follow lines needs another one."""


class LineRange(Struct, frozen=True, array_like=True):
    """`count` lines of the version `writer`, the first of which was its line `number`.

    `back` is the version that brought them back, None for none; -1 as a writer stands for the state
    before the first version.
    """

    count: int
    writer: int
    number: int
    back: int | None = None


class LineMap(Struct, frozen=True, array_like=True):
    """The lines of a version in order; `unknown` says why nobody is known to have written those of
    some of the versions that are named.
    """

    ranges: tuple[LineRange, ...]
    unknown: dict[int, str]

    @property
    def count(self) -> int:
        """How many lines the version has."""
        return sum(one.count for one in self.ranges)


def line_map(done: Walk) -> LineMap:
    """Return the map of the version that was followed last."""
    ranges: list[LineRange] = []
    begun: Line | None = None
    count = 0
    for line in done.lines:
        if begun is not None and (
            line.writer == begun.writer
            and line.number == begun.number + count
            and line.back == begun.back
        ):
            count += 1
            continue
        if begun is not None:
            ranges.append(LineRange(count, begun.writer, begun.number, begun.back))
        begun, count = line, 1
    if begun is not None:
        ranges.append(LineRange(count, begun.writer, begun.number, begun.back))
    named = {one.writer for one in ranges}
    return LineMap(tuple(ranges), {n: why for n, why in sorted(done.unknown.items()) if n in named})


def encoded_map(kept: LineMap) -> bytes:
    """Return a map as it is kept."""
    return msgpack.encode(kept)


def decoded_map(data: bytes, last: int) -> LineMap | None:
    """Return the map of the version `last` from what was kept; None where it cannot be one."""
    try:
        found = msgpack.decode(data, type=LineMap)
    except (ValidationError, ValueError, RecursionError):
        return None
    for one in found.ranges:
        back = last if one.back is None else one.back
        if one.count < 1 or one.number < 1 or not -1 <= one.writer <= last or not 0 <= back <= last:
            return None
    return found


def names_of(versions: Sequence[Version]) -> list[bytes]:
    """Return the name of the map of each version: a hash of all that its lines depend on."""
    names, so_far = list[bytes](), sha256(_FORM)
    for one in versions:
        taken = one.taken_back
        told = (
            one.seq,
            _content(one.before),
            _content(one.after),
            one.gap,
            one.writer.kind,
            one.writer.call,
            one.writer.reason,
            None if taken is None else (sorted(taken.numbers), taken.point),
        )
        so_far.update(msgpack.encode(told))
        names.append(so_far.copy().digest())
    return names


def _content(state: FileState | None) -> tuple[str, str | None, int] | None:
    return None if state is None else (state.kind, state.blob, state.size)


def last_steps(versions: Sequence[Version]) -> list[int]:
    """Return the versions from whose maps the last one can be reached, the newest first.

    None of those that come after it brings back what stood before it.
    """
    found, needed = [], len(versions) - 1
    for n in range(len(versions) - 1, -1, -1):
        if n <= needed:
            found.append(n)
        source = brought_back(versions, n)
        needed = min(needed, source.index) if source else needed
    return found


def begun_walk(kept: LineMap, texts: Sequence[bytes] | UnreadableLines) -> Walk | None:
    """Return a walk that followed a version with these lines; None where the map is of others."""
    if isinstance(texts, UnreadableLines) or kept.count != len(texts):
        return None
    lines: list[Line] = []
    for one in kept.ranges:
        turns = () if one.back is None else (one.back, one.back)
        for number in range(one.number, one.number + one.count):
            lines.append(Line(texts[len(lines)], one.writer, number, turns))
    return Walk(lines=lines, texts=texts, unknown={**kept.unknown})


def is_borne_out(
    kept: LineMap, versions: Sequence[Version], read: Read, texts: Sequence[bytes], first: int
) -> bool:
    """Whether the versions wrote the lines from `first` on of which a map says so.

    Each of these `texts` must be among those that its writer put there, with the number that the
    map tells, and in what the undo left that is said to have brought it back.
    """
    claims = [*_claims(kept, first, len(texts))]
    wrote = {writer: _written(versions, writer, read) for writer in {one[0] for one in claims}}
    undone = {back for _, _, back in claims if back is not None}
    undo = {back: _after_undo(versions[back], read) for back in undone}
    for writer, (_, unknown) in wrote.items():
        if kept.unknown.get(writer) != unknown:
            return False
    return len(claims) == len(texts) and all(
        wrote[writer][0].get(number) == text and (back is None or text in undo[back])
        for text, (writer, number, back) in zip(texts, claims, strict=True)
    )


def _claims(kept: LineMap, first: int, count: int) -> Iterator[tuple[int, int, int | None]]:
    """Of each line its writer, its number there, and what brought it back."""
    above, last = 0, first - 1 + count
    for one in kept.ranges:
        for line in range(max(above, first - 1), min(above + one.count, last)):
            yield one.writer, one.number + line - above, one.back
        above += one.count


def _written(
    versions: Sequence[Version], writer: int, read: Read
) -> tuple[Mapping[int, bytes], str | None]:
    """The lines that a version put there, by number, and why nobody may have written them."""
    if writer < 0:
        return dict(enumerate(_texts(read(versions[0].before)), 1)), None
    step = versions[writer]
    was = versions[writer - 1].after if writer else versions[0].before
    before, after = read(was), _texts(read(step.after))
    lost = step.gap or (before.reason if isinstance(before, UnreadableLines) else "")
    unknown = step.writer.reason if step.writer.kind == "unknown" else lost or None
    same_kind = was is None or step.after is None or was.kind == step.after.kind
    texts = () if isinstance(before, UnreadableLines) or lost or not same_kind else before
    own = {
        number: after[number - 1]
        for edit in changed_lines(texts, after)
        for number in range(edit.new_start + 1, edit.new_end + 1)
    }
    return own, unknown


def _texts(read: Sequence[bytes] | UnreadableLines) -> Sequence[bytes]:
    return () if isinstance(read, UnreadableLines) else read


def _after_undo(step: Version, read: Read) -> frozenset[bytes]:
    """The lines that an undo left; none for what took nothing back."""
    return frozenset(_texts(read(step.after)) if step.taken_back else ())
