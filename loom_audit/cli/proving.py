"""Commands that prove and repair: head, verify, doctor, salvage."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from loom_audit.cli import exits
from loom_audit.cli.lines import counted
from loom_audit.cli.options import Invocation, command, existing_store, folder
from loom_audit.cli.output import Style
from loom_audit.cli.progress import progress
from loom_audit.cli.records import plain, tree_head_record
from loom_audit.errors import NotFound

if TYPE_CHECKING:
    from loom_audit.history.verification import Verification
    from loom_audit.model.events import TreeHead


def add(app: typer.Typer) -> None:
    """Put these commands on the application."""
    section = "Prove"
    command(app, "head", section=section, examples=("loom-audit head >> /elsewhere/heads.txt",))(
        head
    )
    command(
        app,
        "verify",
        section=section,
        examples=("loom-audit verify", "loom-audit verify --against /elsewhere/heads.txt"),
        codes={
            exits.OK: "all that was checked is as recorded; a head kept elsewhere vouches for it",
            1: "tampered",
            3: "incomplete, or no head kept elsewhere vouches for the last events",
            4: "cannot be read",
        },
        failure=exits.UNREADABLE,
    )(verify)
    command(
        app,
        "doctor",
        section=section,
        examples=("loom-audit doctor",),
        codes={exits.FAILED: "there is a problem"},
    )(doctor)
    command(
        app,
        "salvage",
        section=section,
        examples=(
            "loom-audit salvage --to /safe/place",
            "loom-audit --store old.db salvage --to x",
        ),
        codes={
            exits.FAILED: "something could not be read; failures.txt lists it",
            exits.CONFLICT: "the folder is not empty",
        },
    )(salvage)


def head(at: Invocation) -> None:
    """Print the Merkle root over all events.

    Kept elsewhere, `verify --against` finds everything that was changed since.
    """
    from loom_audit.disk.heads import head_line

    with at.workspace() as workspace:
        found = workspace.head()
        if at.output.json:
            at.output.record(tree_head_record(found))
        else:
            at.output.line(head_line(found))


def doctor(at: Invocation) -> int:
    """Check this machine, the store and the workspaces.

    SQLite's version and settings, permissions, free space, scope rules, the clock. Changes
    nothing, and goes on after every problem.
    """
    from loom_audit.api.doctor import check_all
    from loom_audit.config import read_settings

    styles: dict[str, Style] = {"ok": "green", "warning": "yellow", "problem": "red"}
    problems = 0
    for check in check_all(read_settings(at.shared.store)):
        problems += check.verdict == "problem"
        if at.output.json:
            at.output.record(plain(check))
            continue
        at.output.line(
            (f"{check.verdict:<8}", styles[check.verdict]), f"{check.name}: ", check.text
        )
        if check.hint and check.verdict != "ok":
            at.output.line("        ", (f"-> {check.hint}", "dim"))
    return exits.FAILED if problems else exits.OK


def verify(
    at: Invocation,
    quick: Annotated[
        bool, typer.Option("--quick", help="Only events, order and tree; no contents.")
    ] = False,
    sample: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="As --quick, and N events chosen at random."),
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Heads as `loom-audit head` prints them; - for stdin."),
    ] = None,
) -> int:
    """Recompute everything and report all that is wrong.

    Every leaf, node, commitment and content, and what is derived from them, compared with the
    tree heads kept outside the store.
    """
    with at.workspace() as workspace:
        heads = _heads_of(against, workspace.id) if against is not None else ()
        with progress(at.output) as report:
            found = workspace.verify(quick=quick, sample=sample, against=heads, report=report)
        if at.output.json:
            at.output.record(
                {
                    "log": found.log,
                    "size": found.size,
                    "root": found.root.hex(),
                    "anchored": found.anchored,
                    "unanchored": found.unanchored,
                    "checked": dict(found.checked),
                    "findings": plain(found.findings),
                    "exit_code": found.exit_code,
                }
            )
        else:
            _print_verification(at, found)
        return found.exit_code


def _heads_of(against: str, log: str) -> "Sequence[TreeHead]":
    from loom_audit.disk.heads import parse_heads

    text = sys.stdin.read() if against == "-" else Path(against).read_text("utf-8", "replace")
    heads = parse_heads(text)
    if not heads:
        raise NotFound(
            f"{against} holds no tree head",
            hint="`loom-audit head` prints one: `loom-audit-head v1 LOG SIZE ROOT`.",
        )
    own = [head for head in heads if head.log == log]
    # One of another log is not passed over: a log that was started over has a new id.
    return own or heads[-1:]


def _print_verification(at: Invocation, found: "Verification") -> None:
    out = at.output
    for finding in found.findings:
        where = "" if finding.seq is None else f"event {finding.seq}: "
        out.line((f"{finding.grade:<11}", "red"), where, finding.message)
    checked = [f"{n:,} {name.replace('_', ' ')}" for name, n in found.checked.items() if n]
    out.line("checked    ", ", ".join(checked) or "nothing")
    if "contents" not in found.checked or "sampled" in found.checked:
        left = "contents and what is derived from events" + (
            ", but for the sample" if "sampled" in found.checked else ""
        )
        out.line("unchecked  ", (left, "yellow"))
    out.line("root       ", f"{found.root.hex()} over {counted(found.size, 'event')}")
    if found.unanchored:
        text = f"{counted(found.anchored, 'event')}; {found.unanchored} later not vouched for"
        out.line("anchored   ", (text, "yellow"))
    else:
        out.line("anchored   ", f"all {found.size} events by a head kept outside the store")
    unsure = "incomplete" if found.findings else "unanchored: `loom-audit head` prints one to keep"
    verdict = {0: "ok", 1: "TAMPERED", 3: unsure, 4: "cannot be read"}
    good = found.exit_code == exits.OK
    out.line((verdict.get(found.exit_code, "not ok"), "green" if good else "red"))


def salvage(
    at: Invocation,
    to: Annotated[str, typer.Option("--to", metavar="DIR", help="Absent or empty.")],
) -> int:
    """Get everything readable out of a damaged store.

    Also out of a locked or a read-only one, which is only read. Writes events/LOG.jsonl, every
    content as blobs/SHA256, the last tree of each log as files in trees/LOG, and failures.txt.
    """
    from loom_audit.config import read_settings
    from loom_audit.sql.salvage.salvage import salvage as get_out

    settings = read_settings(at.shared.store)
    file = existing_store(settings.url, hint="Name it with --store.")
    target = folder(to)
    with progress(at.output) as report:
        done = get_out(str(file), str(target), report=report)
    if at.output.json:
        at.output.record({"store": str(file), **plain(done)})
    else:
        at.output.line(
            f"{counted(done.events, 'event')}, {counted(done.contents, 'content')},"
            f" {counted(done.files, 'file')} in {target}"
        )
        if done.notice:
            at.output.note(("note: ", "yellow"), done.notice)
        if done.failures:
            text = f"{counted(len(done.failures), 'failure')}, listed in failures.txt"
            at.output.line((text, "red"))
    return exits.FAILED if done.failures else exits.OK
