"""`loom-audit cat`: a recorded file as it was at a point."""

import shlex
from functools import partial
from typing import TYPE_CHECKING, Annotated

from loom_audit.cli.shared.command import command
from loom_audit.cli.shared.invocation import Invocation
from loom_audit.cli.shared.lookup import not_there
from loom_audit.cli.shared.options import AtOption, workspace_path
from loom_audit.cli.shared.output import json_text
from loom_audit.cli.shared.parameters import argument, option
from loom_audit.cli.shared.points import read_point
from loom_audit.cli.shared.records import state_record
from loom_audit.errors import InvalidArguments
from loom_audit.model.text.display import visible

if TYPE_CHECKING:
    from loom_audit.api.face import AuditedWorkspace

PIECE = 1024 * 1024


@command(
    examples=(
        "loom-audit cat src/app.py --at head~3 > old.py",
        "loom-audit cat 1a2b3c4:src/app.py",
    )
)
def cat(
    invocation: Invocation,
    path: Annotated[str, argument("PATH")],
    point: AtOption = "head",
    raw: Annotated[bool, option("--raw", help="Bytes as they are, on a terminal too.")] = False,
) -> None:
    """Print a recorded file as it was at a point.

    Also one deleted since. The bytes are written as they are to a pipe or a file, and escaped
    to a terminal. A symlink gives its target. At the number of a `content.found` (see `log
    --events`) it is what a program had written into the file after it was replaced, or what a
    call of another program was about to change out of scope. At that of a `change.intended` it
    is what the call was about to change, also of a path that is not recorded.

    REV:PATH is a file as a commit of the workspace's git repository has it, also of one that no
    branch or stash holds any more, and that git has deleted. Branches and stashes are those of the
    point.
    """
    output = invocation.output
    with invocation.workspace() as workspace:
        name = workspace_path(workspace.root, path)
        seq = read_point(invocation, workspace, point)
        found = workspace.timeline.found(name, seq) if point.isdecimal() else None
        state = found or workspace.timeline.state(name, seq)
        if state is None and ":" in path and (content := _kept(workspace, path, seq)) is not None:
            if output.json:
                output.record({"text": json_text(content)})
            else:
                output.content([content], raw=raw)
            return
        if state is None and name:
            raise not_there(workspace, name, path, seq)
        if state is None or state.blob is None:
            shown = visible(name) or "the workspace"
            hint = f"`loom-audit ls {shlex.quote(path)}` lists it." if name else "`loom-audit ls`"
            raise InvalidArguments(f"{shown} is a directory", hint=hint)
        if output.json:
            text = json_text(workspace.timeline.content(state))
            output.record({"path": name, "at": seq, "state": state_record(state), "text": text})
        else:
            with workspace.timeline.stream(state) as stream:
                output.content(iter(partial(stream.read, PIECE), b""), raw=raw)


def _kept(workspace: "AuditedWorkspace", name: str, seq: int) -> bytes | None:
    """What a commit has at a path; None where no repository is on record."""
    revision, _, path = name.partition(":")
    if not revision:
        return None
    from loom_audit.api.upkeep.git_mirror import kept_git

    return kept_git(workspace, seq).blob(revision, path)
