"""`loom-audit salvage`: everything readable out of a damaged store."""

from typing import Annotated

import typer

from loom_audit.cli.shared import exits
from loom_audit.cli.shared.command import command
from loom_audit.cli.shared.invocation import Invocation, existing_store
from loom_audit.cli.shared.lines import counted
from loom_audit.cli.shared.options import folder
from loom_audit.cli.shared.output import progress
from loom_audit.cli.shared.records import plain


@command(
    examples=(
        "loom-audit salvage --to /safe/place",
        "loom-audit --store old.db salvage --to x",
    ),
    codes={
        exits.FAILED: "something could not be read; failures.txt lists it",
        exits.CONFLICT: "the folder is not empty",
    },
)
def salvage(
    invocation: Invocation,
    to: Annotated[str, typer.Option("--to", metavar="DIR", help="Absent or empty.")],
) -> int:
    """Get everything readable out of a damaged store.

    Also out of a locked or a read-only one, which is only read. Writes events/LOG.jsonl, every
    content as blobs/SHA256, the last tree of each log as files in trees/LOG, and failures.txt.
    """
    from loom_audit.config import read_settings
    from loom_audit.sql.salvage.salvage import salvage as get_out

    settings = read_settings(invocation.shared.store)
    file = existing_store(settings.url, hint="Name it with --store.")
    target = folder(to)
    with progress(invocation.output) as report:
        done = get_out(str(file), str(target), report=report)
    if invocation.output.json:
        invocation.output.record({"store": str(file), **plain(done)})
    else:
        invocation.output.line(
            f"{counted(done.events, 'event')}, {counted(done.contents, 'content')},"
            f" {counted(done.files, 'file')} in {target}"
        )
        if done.notice:
            invocation.output.note(("note: ", "yellow"), done.notice)
        if done.failures:
            text = f"{counted(len(done.failures), 'failure')}, listed in failures.txt"
            invocation.output.line((text, "red"))
    return exits.FAILED if done.failures else exits.OK
