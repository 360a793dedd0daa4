"""Which call wrote each line of a file, as it stands at a point."""

from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from loom_audit.model.authorship.line_map import LineMap
from loom_audit.model.authorship.versions import Version, Writer
from loom_audit.model.files import FileState


class BlameRun(Struct, frozen=True):
    """Lines `first` to `last` written `by` one, and what undo, redo or rollback brought them back.

    `old_path` is what the file was called as they were written, `old_first` the number that the
    first of them had then. `before` is where the file was before that, None where it was not there,
    or it is not known.
    """

    first: int
    last: int
    by: Writer
    brought_back: Writer | None
    old_path: str
    old_first: int
    before: str | None = None


class Blame(Struct, frozen=True):
    """Who wrote the lines `first` to `last` of a file with `lines` lines, at the point `at`.

    `texts` are these lines with their endings. With a `reason` the lines are not told. `versions`
    is how many recorded steps of the file were read.
    """

    path: str
    at: int
    state: FileState
    lines: int
    first: int
    last: int
    runs: tuple[BlameRun, ...]
    texts: tuple[bytes, ...]
    versions: int
    reason: str = ""


def blame_runs(
    told: LineMap, versions: Sequence[Version], first: int, last: int
) -> tuple[BlameRun, ...]:
    """Return the runs of the lines `first` to `last`, counted from 1."""
    found, above = [], 0
    for one in told.ranges:
        start, end = max(first, above + 1), min(last, above + one.count)
        if start <= end:
            writer = one.writer
            step = versions[max(writer, 0)]
            known = writer >= 0 and step.before is not None and not step.gap
            found.append(
                BlameRun(
                    first=start,
                    last=end,
                    by=writer_of(told.unknown, versions, writer),
                    brought_back=None if one.back is None else versions[one.back].writer,
                    old_path=step.path if writer >= 0 else step.old_path,
                    old_first=one.number + start - above - 1,
                    before=step.old_path if known else None,
                )
            )
        above += one.count
    return tuple(found)


def joined(runs: Sequence[BlameRun]) -> tuple[BlameRun, ...]:
    """Return the runs with those joined that differ only in where their lines stood."""
    result: list[BlameRun] = []
    for run in runs:
        last = result[-1] if result else None
        if last and (last.by, last.brought_back) == (run.by, run.brought_back):
            result[-1] = replace(last, last=run.last)
        else:
            result.append(run)
    return tuple(result)


def writer_of(unknown: Mapping[int, str], versions: Sequence[Version], n: int) -> Writer:
    """Return who wrote the lines of the version `n`; -1 is the state before the first.

    `unknown` has the versions of whose lines that is not known, each with the reason.
    """
    writer = versions[max(n, 0)].writer
    if n < 0:
        return _unknown(writer, "it was there before")
    return _unknown(writer, unknown[n]) if n in unknown else writer


def _unknown(writer: Writer, reason: str) -> Writer:
    return Writer("unknown", writer.event, writer.at, reason=reason)
