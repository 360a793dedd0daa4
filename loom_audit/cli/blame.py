"""`loom-audit blame`: who wrote each line of a file."""

import re
import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

from loom_audit.cli.shared.command import command
from loom_audit.cli.shared.invocation import Invocation
from loom_audit.cli.shared.lookup import not_there
from loom_audit.cli.shared.options import AtOption, workspace_path
from loom_audit.cli.shared.output import Output, json_text
from loom_audit.cli.shared.parameters import argument, option
from loom_audit.cli.shared.points import read_point
from loom_audit.cli.shared.records import Record, plain
from loom_audit.errors import InvalidArguments, NotFound
from loom_audit.model.text.display import columns, one_line, visible, visible_bytes
from loom_audit.model.text.textdiff import git_name

if TYPE_CHECKING:
    from loom_audit.api.face import AuditedWorkspace
    from loom_audit.api.lines import Blame, BlameRun, Writer

_RANGE = re.compile(r"([0-9]{1,9})?(?:,(\+?[0-9]{1,9})?)?")


@command(
    examples=(
        "loom-audit blame src/app.py",
        "loom-audit blame src/app.py -L 10,20 --at head~3",
    )
)
def blame(
    invocation: Invocation,
    path: Annotated[str, argument("PATH")],
    point: AtOption = "head",
    lines: Annotated[
        str, option("-L", metavar="FIRST,LAST", help="Only these lines; 10,+5 are five.")
    ] = "",
    porcelain: Annotated[
        bool, option("--porcelain", help="As `git blame --porcelain`, contents not escaped.")
    ] = False,
    full: Annotated[
        bool, option("--full", help="Read every event, not those that the tables suggest.")
    ] = False,
) -> None:
    """Name for each line of a file the call that wrote it.

    What commands, undos and other programs did to the file counts, and its moves are followed. A
    line that an undo, redo or rollback brought back is that of its first writer. Where several
    calls may have written a line all are named; what is not known is not guessed.
    """
    first, last = _read_range(lines)
    with invocation.workspace() as workspace:
        from loom_audit.api.lines import lines_of
        from loom_audit.api.upkeep.drift import is_as_recorded

        name = workspace_path(workspace.root, path)
        seq = read_point(invocation, workspace, point)
        try:
            found = lines_of(workspace).blame(name, seq, first=first, last=last, full=full)
        except NotFound:
            if workspace.timeline.state(name, seq) is None:
                raise not_there(workspace, name, path, seq) from None
            raise
        if found.reason:
            workspace.timeline.content(found.state)  # the error where it is gone or damaged
            raise InvalidArguments(
                f"the lines of {visible(name)} cannot be told: {found.reason}",
                hint=f"`loom-audit history {shlex.quote(path)}` lists its changes.",
            )
        if found.first > found.last and found.lines:
            raise InvalidArguments(
                f"{visible(name)} has only {found.lines} lines", hint="Name lines that it has."
            )
        if invocation.output.json:
            for run in found.runs:
                invocation.output.record(_record(found, run))
        elif porcelain:
            invocation.output.raw(b"".join(_porcelain(workspace, found)))
        else:
            _print(invocation.output, found)
        if seq == workspace.log.head() and not is_as_recorded(workspace, name):
            told = f"{visible(name)} has changes on disk that are not on record"
            shown = f"`loom-audit diff {shlex.quote(visible(path))}`"
            invocation.output.note((f"{told}: {shown}", "yellow"))


def _read_range(text: str) -> tuple[int, int | None]:
    """The first and last line that `10,20`, `10,+5`, `10` or `,20` names."""
    read = _RANGE.fullmatch(text)
    first = int(read[1] or 1) if read else 0
    if read is None or first < 1:
        raise InvalidArguments(
            f"-L {one_line(text, 40)}: not a range of lines",
            hint="Write 10,20 or 10,+5; lines are counted from 1.",
        )
    if read[2] is None:
        return first, None
    last = first - 1 + int(read[2]) if read[2].startswith("+") else int(read[2])
    if last < first:
        raise InvalidArguments(f"-L {text}: the last line is before the first", hint="Swap them.")
    return first, last


def _record(told: "Blame", run: "BlameRun") -> Record:
    texts = told.texts[run.first - told.first : run.last - told.first + 1]
    return {
        "path": told.path,
        "at": told.at,
        **plain(run),
        "text": json_text(b"".join(texts)),
    }


def _print(output: Output, told: "Blame") -> None:
    who = [_who(run.by, run.brought_back) for run in told.runs]
    width = max(map(columns, who), default=0)
    digits = len(str(told.last))
    for run, said in zip(told.runs, who, strict=True):
        before = said + " " * (width - columns(said))
        for number in range(run.first, run.last + 1):
            line = told.texts[number - told.first].removesuffix(b"\n")
            text = visible_bytes(line, multiline=True)
            output.marked(f"{before}  {number:>{digits}}) {text}", "")


def _who(writer: "Writer", brought_back: "Writer | None") -> str:
    """Who wrote a line, when, and what brought it back, in one column."""
    back = f", back by {brought_back.text}" if brought_back else ""
    actor = f"  {one_line(writer.actor, 24)}" if writer.kind == "call" else ""
    return f"{writer.text}{back}{actor}  {writer.at.astimezone():%Y-%m-%d %H:%M}"


def _porcelain(workspace: "AuditedWorkspace", told: "Blame") -> Iterator[bytes]:
    """The lines as git writes them for programs; a commit's name is the number, in 40 digits."""
    known: set[int] = set()
    for run in told.runs:
        writer = run.by
        number = writer.call or writer.event
        texts = told.texts[run.first - told.first : run.last - told.first + 1]
        for offset, line in enumerate(texts):
            at = run.first + offset
            count = f" {run.last - run.first + 1}" if offset == 0 else ""
            yield f"{number:040d} {run.old_first + offset} {at}{count}\n".encode()
            if number not in known:
                known.add(number)
                yield from _commit(workspace, writer)
            if offset == 0:
                yield b"filename %s\n" % git_name(run.old_path)
            yield b"\t" + line.removesuffix(b"\n") + b"\n"


def _commit(workspace: "AuditedWorkspace", writer: "Writer") -> Iterator[bytes]:
    name = one_line(writer.actor, 200) if writer.kind == "call" else writer.text
    summary = writer.text
    if writer.kind == "call":
        call = workspace.timeline.listed_call(writer.call)
        summary = f"{one_line(call.tool, 80)}: {one_line(call.summary, 200)}"
    for who in ("author", "committer"):
        yield f"{who} {name}\n{who}-mail <>\n".encode("utf-8", "backslashreplace")
        yield f"{who}-time {int(writer.at.timestamp())}\n{who}-tz +0000\n".encode()
    yield f"summary {summary}\n".encode("utf-8", "backslashreplace")
    if writer.kind == "unknown":
        yield b"boundary\n"
