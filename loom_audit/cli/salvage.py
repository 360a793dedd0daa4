"""`loom-audit salvage`: everything readable out of a damaged store."""

from typing import Annotated

from loom_audit.cli.shared import exits
from loom_audit.cli.shared.command import command
from loom_audit.cli.shared.invocation import Invocation
from loom_audit.cli.shared.options import folder
from loom_audit.cli.shared.output import progress
from loom_audit.cli.shared.parameters import option
from loom_audit.cli.shared.records import plain
from loom_audit.model.text.display import count_text


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
    to: Annotated[str, option("--to", metavar="DIR", help="Absent or empty.")],
) -> int:
    """Get everything readable out of a damaged store.

    Also out of a locked or a read-only one, which is only read. Writes events/LOG.jsonl, every
    content as blobs/SHA256, the last tree of each log as files in trees/LOG, and failures.txt.
    """
    output = invocation.output
    from loom_audit.api.upkeep import database

    file = invocation.store_file(hint="Name it with --store.")
    target = folder(to)
    with progress(output) as report:
        done = database.salvage(file, target, report=report)
    if output.json:
        output.record({"store": str(file), **plain(done)})
    else:
        output.line(
            f"{count_text(done.events, 'event')}, {count_text(done.contents, 'content')},"
            f" {count_text(done.files, 'file')} in {target}"
        )
        if done.notice:
            output.note(("note: ", "yellow"), done.notice)
        if done.failures:
            text = f"{count_text(len(done.failures), 'failure')}, listed in failures.txt"
            output.line((text, "red"))
    return exits.FAILED if done.failures else exits.OK
