"""`loom-audit init`: put a folder under audit."""

import shlex
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from loom_audit.cli.shared import exits
from loom_audit.cli.shared.command import command
from loom_audit.cli.shared.invocation import Invocation
from loom_audit.cli.shared.options import folder
from loom_audit.cli.shared.output import Output, progress
from loom_audit.cli.shared.parameters import argument, option
from loom_audit.cli.shared.under_audit import note_repository
from loom_audit.errors import InvalidArguments
from loom_audit.model.files import FileState, is_opaque
from loom_audit.model.scope import IGNORE_FILE, NEVER
from loom_audit.model.text.display import count_text, first_few, size_text, visible

if TYPE_CHECKING:
    from loom_audit.api.face import AuditedWorkspace, AuditStore

_SECRET = frozenset({".env", ".netrc", ".npmrc", ".pypirc", "id_rsa", "id_ecdsa", "id_ed25519"})
_SECRET_ENDS = (".pem", ".key", ".p12")
"""Names of files that mostly hold secrets."""


@command(
    examples=("loom-audit init", "loom-audit init ~/project --max-file-bytes 1073741824"),
    codes={exits.FAILED: "", exits.UNAVAILABLE: "", exits.CONFLICT: ""},
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
    with ExitStack() as made, ExitStack() as stack:
        written = write_recommended(invocation.settings) if approvals else []
        for file in written:
            made.callback(file.unlink, missing_ok=True)
        store = stack.enter_context(invocation.store(create=True))
        with progress(output) as report:
            workspace = store.attach(
                folder(path), report=report, ignore=rules, max_file_bytes=max_file_bytes
            )
        made.pop_all()
        _say(invocation, store, workspace, written, asked=approvals is not None)


def _say(
    invocation: Invocation,
    store: "AuditStore",
    workspace: "AuditedWorkspace",
    written: Sequence[Path],
    *,
    asked: bool,
) -> None:
    """What is under audit, what is on record of it, which rules were written, and what is next."""
    from loom_audit.api.upkeep.database import size_in_words

    output = invocation.output
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
    _say_what_is_recorded(output, tree)
    output.line(f"store: {invocation.settings.file or store.url}")
    output.line(f"       {size_in_words(invocation.settings)}")
    for file in written:
        output.line(f"{file} is written; it holds from the next session on")
    if asked and not written:
        output.note("approvals.toml and tools.toml are there already and stay as they are")
    note_repository(output, workspace.root)
    if (Path(workspace.root) / ".git").exists():
        output.note(
            "a commit that an agent makes bears your name, as git has it; `loom-audit log` "
            "tells which they are (git_identity in tools.toml)"
        )
    output.note("next: `loom-audit run -- COMMAND`, then `loom-audit log`")
    named = shlex.quote(visible(workspace.root))
    output.note(f"`loom-audit workspaces forget {named}` erases what is on record of it")


def _say_what_is_recorded(output: Output, tree: Mapping[str, FileState]) -> None:
    """What goes on record of the folder, secrets too, and what does not."""
    files = (path for path, state in tree.items() if state.blob is not None)
    names = [path for path in files if _is_secret(path)]
    such = first_few(names, 3, visible) if names else "`.env`, keys"
    output.line(
        f"recorded: what is in every file, also of those that git ignores, and secrets ({such})"
    )
    left = sorted({path for path, state in tree.items() if is_opaque(state)} - NEVER)
    folders = first_few(left, 3, visible) if left else "folders like node_modules"
    said = f"what is in .git, in {folders}, and what {IGNORE_FILE} names"
    output.line(f"not recorded: {said}; `loom-audit scope` says all")


def _is_secret(path: str) -> bool:
    name = path.rpartition("/")[2]
    return name in _SECRET or name.startswith(".env.") or name.endswith(_SECRET_ENDS)
