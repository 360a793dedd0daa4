"""`loom-audit verify`: recompute everything and report all that is wrong."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from loom_audit.cli.shared import exits
from loom_audit.cli.shared.command import command
from loom_audit.cli.shared.invocation import Invocation
from loom_audit.cli.shared.output import Style, progress
from loom_audit.cli.shared.parameters import option
from loom_audit.cli.shared.records import plain
from loom_audit.errors import InvalidArguments, NotFound, NoWorkspace
from loom_audit.model.text.display import count_text

if TYPE_CHECKING:
    from loom_audit.api.face import Verification
    from loom_audit.model.events import TreeHead


@command(
    examples=("loom-audit verify", "loom-audit verify --against /elsewhere/heads.txt"),
    codes={
        exits.OK: "all that was checked is as recorded; a head kept elsewhere vouches for it",
        1: "tampered",
        3: "inconsistent or incomplete, or no head kept elsewhere vouches for the last events",
        4: "cannot be read",
    },
    failure=exits.UNREADABLE,
)
def verify(
    invocation: Invocation,
    quick: Annotated[
        bool, option("--quick", help="Only events, order and tree; no contents.")
    ] = False,
    sample: Annotated[
        int | None,
        option(min=1, metavar="N", help="As --quick, and N events chosen at random."),
    ] = None,
    against: Annotated[
        str | None,
        option(metavar="FILE", help="More heads, as `loom-audit head` prints them; - for stdin."),
    ] = None,
) -> int:
    """Recompute everything and report all that is wrong.

    Every leaf, node, commitment and content, and what is derived from them, compared with the
    tree heads kept outside the store. It says by which keys of this store heads are signed, and to
    which event. As long as nothing but this account vouches, that is `isolation: same user`: a
    program that runs as you could have written the log, the heads and the signatures anew.
    """
    output = invocation.output
    with _log(invocation) as (id, check):
        heads = _heads_of(against, id) if against is not None else ()
        with progress(output) as report:
            verified = check(quick=quick, sample=sample, against=heads, report=report)
        if output.json:
            output.record(
                {
                    "log": verified.log,
                    "size": verified.size,
                    "root": verified.root.hex(),
                    "anchored": verified.anchored,
                    "unanchored": verified.unanchored,
                    "signed": plain(verified.signed),
                    "isolation": verified.isolation,
                    "checked": dict(verified.checked),
                    "findings": plain(verified.findings),
                    "exit_code": verified.exit_code,
                }
            )
        else:
            _print_verification(invocation, verified)
        return verified.exit_code


@contextmanager
def _log(invocation: Invocation) -> "Iterator[tuple[str, Callable[..., Verification]]]":
    """The id of the log asked for and what checks it, also where it is forgotten."""
    with ExitStack() as stack:
        try:
            workspace = stack.enter_context(invocation.workspace())
        except NoWorkspace as error:
            if "forgotten" not in error.details:
                raise
            store, id = stack.enter_context(invocation.store()), error.details["forgotten"]
            yield id, partial(store.verify_forgotten, id)
        else:
            yield workspace.id, workspace.verify


def _heads_of(against: str, log: str) -> "Sequence[TreeHead]":
    from loom_audit.api.upkeep.heads import parse_heads

    if not against:
        raise InvalidArguments("--against is empty", hint="Name a file, or leave it out.")
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


def _print_verification(invocation: Invocation, verified: "Verification") -> None:
    output = invocation.output
    for finding in verified.findings:
        where = "" if finding.seq is None else f"event {finding.seq}: "
        style: Style = "yellow" if finding.grade == "harmless" else "red"
        output.line((f"{finding.grade:<11}", style), where, finding.message)
    checked = [f"{n:,} {name.replace('_', ' ')}" for name, n in verified.checked.items() if n]
    output.line("checked    ", ", ".join(checked) or "nothing")
    if "contents" not in verified.checked or "sampled" in verified.checked:
        left = "contents and what is derived from events" + (
            ", but for the sample" if "sampled" in verified.checked else ""
        )
        output.line("unchecked  ", (left, "yellow"))
    output.line("root       ", f"{verified.root.hex()} over {count_text(verified.size, 'event')}")
    if verified.unanchored:
        text = (
            f"{count_text(verified.anchored, 'event')}; {verified.unanchored} later not vouched for"
        )
        output.line("anchored   ", (text, "yellow"))
    else:
        output.line(
            "anchored   ",
            f"all of {count_text(verified.size, 'event')} by a head kept outside the store",
        )
    by = ", ".join(f"by {one.key} to {one.size:,}" for one in verified.signed) or "by nobody"
    output.line("signed     ", f"{by}; isolation: {verified.isolation}")
    unsure = "incomplete"
    if verified.ok:
        newest = count_text(verified.unanchored, "newest event")
        unsure = (
            f"unanchored: nothing was found altered; if the {newest} had been rewritten, no head "
            "kept elsewhere would tell. `loom-audit head` prints one to keep"
        )
    verdict = {0: "ok", 1: "TAMPERED", 3: unsure, 4: "cannot be read"}
    good = verified.exit_code == exits.OK
    output.line((verdict.get(verified.exit_code, "not ok"), "green" if good else "red"))
