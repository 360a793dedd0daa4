"""`loom-audit import`: transcripts of other programs, in logs of their own."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from loom_audit.cli.shared import exits
from loom_audit.cli.shared.command import command
from loom_audit.cli.shared.invocation import Invocation
from loom_audit.cli.shared.options import DryRunOption, YesOption, folder
from loom_audit.cli.shared.output import progress
from loom_audit.cli.shared.parameters import argument, option
from loom_audit.cli.shared.records import plain
from loom_audit.cli.shared.taking_back.recovering import recover_file
from loom_audit.clients.programs import NAMED
from loom_audit.errors import AuditError, InvalidArguments
from loom_audit.model.text.display import count_text, size_text

if TYPE_CHECKING:
    from loom_audit.api.agents.importing import Imported, Origin
    from loom_audit.cli.shared.output import Output


@command(
    examples=(
        "loom-audit import ~/.claude/projects/-home-ada-shop/*.jsonl",
        "loom-audit import export.json --client opencode",
        "loom-audit import --found",
        "loom-audit import --recover src/app.py --take 2",
    ),
    codes={
        exits.FAILED: "a file could not be imported; the others were",
        exits.UNAVAILABLE: "",
        exits.CONFLICT: "the file to be put back changed meanwhile",
    },
)
def import_(
    invocation: Invocation,
    files: Annotated[list[str] | None, argument("FILE", help="Transcripts.")] = None,
    client: Annotated[
        str | None,
        option(metavar="NAME", help=f"{NAMED}, where that is open."),
    ] = None,
    found: Annotated[
        bool, option("--found", help="Only list those of this user that name this repository.")
    ] = False,
    recover: Annotated[
        str | None,
        option(metavar="PATH", help="List the versions of a file that are kept anywhere."),
    ] = None,
    take: Annotated[
        int | None, option("--take", min=1, metavar="N", help="Put that version back.")
    ] = None,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
) -> int:
    """Put transcripts of other programs on record, in logs of their own.

    Those of Claude Code, Codex and Gemini CLI, and what `opencode export` prints. There is a log
    for each folder that they name; it can be read and not written, and doing it again adds what is
    new in them. Files are as the transcript tells them; a call's coverage says where it does not.

    With --recover nothing is imported: what transcripts, git's objects and the log of the workspace
    hold of a file is listed, with where it is from and how it may differ. --take puts one of these
    back, in a workspace under audit and on record, after its plan was shown.
    """
    output = invocation.output
    if [bool(files), found, recover is not None].count(True) != 1:
        raise InvalidArguments("name transcripts, or --found, or --recover PATH", hint=_HINT)
    if recover is None and (take is not None or dry_run or yes):
        raise InvalidArguments("--take is for --recover", hint="Name a file: --recover PATH.")
    if found:
        return _print_findings(output)
    if recover is not None:
        return recover_file(invocation, recover, take, dry_run=dry_run, yes=yes)
    return _import(invocation, files or [], client)


def _import(invocation: Invocation, files: Sequence[str], client: str | None) -> int:
    from loom_audit.api.agents.importing import import_file, origin_of

    output, known, failed = invocation.output, list["tuple[Path, Origin]"](), list[str]()
    for file in files:
        with _noting(output, file, files, failed):
            path = Path(folder(file))
            known.append((path, origin_of(path, client)))
    if not known:  # a store made now would stay empty
        return exits.FAILED
    with invocation.store(create=True) as store:
        for path, origin in known:
            with _noting(output, str(path), files, failed):
                with progress(output) as report:
                    done = import_file(store, path, origin, report=report)
                if output.json:
                    output.record(plain(done))
                else:
                    _show(output, done)
    return exits.FAILED if failed else exits.OK


@contextmanager
def _noting(output: "Output", file: str, files: Sequence[str], failed: list[str]) -> Iterator[None]:
    """Say why one of several files cannot be imported, and go on; it is one of the failed then."""
    try:
        yield
    except AuditError as error:
        if len(files) == 1:
            raise
        failed.append(file)
        output.note((f"{file}: ", "red"), error.message)


_HINT = "`loom-audit import --found` lists the transcripts that name this repository."


def _print_findings(output: "Output") -> int:
    from loom_audit.api.agents.finding import find_transcripts

    finding = find_transcripts(Path.cwd())
    for one in finding.found:
        if output.json:
            output.record(plain(one))
            continue
        when = datetime.fromtimestamp(one.modified, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
        output.line(f"{when}  {one.client:<11}  {size_text(one.size):>9}  ", (one.file, "bold"))
        if one.cwd != finding.root:
            output.line(f"  in {one.cwd}")
    for file, why in finding.unread:
        output.note((f"{file}: ", "yellow"), why)
    if not finding.found:
        looked = count_text(finding.looked, "transcript")
        output.note(f"none of {looked} names {finding.root}; `opencode export ID` writes others")
    return exits.OK


def _show(output: "Output", done: "Imported") -> None:
    new = f"{count_text(done.calls, 'new call')} in {count_text(len(done.sessions), 'session')}"
    output.line((done.file, "bold"), f"  {done.client}: {new}")
    output.line(f"  in {done.root}, workspace {done.workspace}")
    for number, reason in done.skipped:
        output.line((f"  line {number} skipped: ", "yellow"), reason)
    for kind, count in sorted(done.unread.items()):
        output.line(f"  not understood: {kind}, {count} times")
