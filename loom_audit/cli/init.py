"""`loom-audit init`: put a folder under audit."""

from pathlib import Path
from typing import Annotated

from loom_audit.cli.shared import exits
from loom_audit.cli.shared.command import command
from loom_audit.cli.shared.invocation import Invocation
from loom_audit.cli.shared.options import folder
from loom_audit.cli.shared.output import progress
from loom_audit.cli.shared.parameters import argument, option
from loom_audit.errors import InvalidArguments
from loom_audit.model.text.display import count_text, size_text


@command(
    examples=("loom-audit init", "loom-audit init ~/project --max-file-bytes 1073741824"),
    codes={exits.FAILED: "", exits.UNAVAILABLE: ""},
)
def init(
    invocation: Invocation,
    path: Annotated[str, argument("PATH", help="The folder.")] = ".",
    max_file_bytes: Annotated[
        int | None,
        option(min=0, metavar="N", help="Larger files are recorded by hash only; 0 is 256 MiB."),
    ] = None,
    ignore: Annotated[
        str | None,
        option(
            metavar="FILE", help="Rules in gitignore syntax, by default the folder's .loomignore."
        ),
    ] = None,
    approvals: Annotated[
        str | None,
        option(metavar="recommended", help="Write recommended rules for what is asked about."),
    ] = None,
) -> None:
    """Put a folder under audit.

    Records what is in it now; doing it again changes nothing, but for another --max-file-bytes,
    which holds from then on. An interrupted first recording goes on where it stopped. Rules for
    approvals hold for every workspace of this person; those that are there stay as they are.
    """
    output = invocation.output
    if approvals not in (None, "recommended"):
        raise InvalidArguments(
            f"there are no rules named {approvals}", hint="There are: --approvals recommended."
        )
    from loom_audit.api.control.recommended import write_recommended
    from loom_audit.api.store import check_root

    rules = None if ignore is None else Path(ignore).read_text("utf-8", "replace")
    # Before a store is made, which would else stand in the folder that is then refused.
    check_root(folder(path), invocation.shared.store)
    with invocation.store(create=True) as store:
        with progress(output) as report:
            workspace = store.attach(
                folder(path), report=report, ignore=rules, max_file_bytes=max_file_bytes
            )
        written = write_recommended(invocation.settings) if approvals else []
        head = workspace.log.head()
        tree = workspace.timeline.tree()
        files = sum(1 for state in tree.values() if state.blob is not None)
        size = sum(state.size for state in tree.values())
        if output.json:
            output.record(
                {
                    "workspace": workspace.id,
                    "root": workspace.root,
                    "store": store.url,
                    "head": head,
                    "files": files,
                    "size": size,
                    "written": [*map(str, written)],
                }
            )
            return
        output.line((f"{workspace.root} is under audit", "green"))
        held = f"{count_text(files, 'file')}, {size_text(size)}"
        output.line(f"{held}; workspace {workspace.id}, log at {head}")
        for file in written:
            output.line(f"{file} is written; it holds from the next session on")
        if approvals and not written:
            output.note("approvals.toml and tools.toml are there already and stay as they are")
        output.note("next: `loom-audit run -- COMMAND`, then `loom-audit log`")
