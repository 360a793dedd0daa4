"""`loom-audit git`: the kept objects of a repository, asked with git's own commands."""

from typing import Annotated

from loom_audit.cli.shared import exits
from loom_audit.cli.shared.command import command
from loom_audit.cli.shared.invocation import Invocation
from loom_audit.cli.shared.options import AtOption, folder, workspace_path
from loom_audit.cli.shared.output import json_text
from loom_audit.cli.shared.parameters import argument, option
from loom_audit.cli.shared.points import read_point
from loom_audit.errors import InvalidArguments


@command(
    examples=(
        "loom-audit git . -- log --oneline --all",
        "loom-audit git --at head~3 . -- show stash@{0}",
        "loom-audit git . -- ls-tree -r 1a2b3c4",
        "loom-audit git --at 42 --to /tmp/old .",
    ),
    codes={
        exits.FAILED: "git says that it failed",
        exits.CONFLICT: "the folder is not empty",
    },
    passes_on=True,
)
def git(
    invocation: Invocation,
    repository: Annotated[str, argument("REPOSITORY")],
    words: Annotated[list[str] | None, argument("COMMAND")] = None,
    point: AtOption = "head",
    to: Annotated[str, option("--to", metavar="DIR", help="Write it there: absent or empty.")] = "",
    raw: Annotated[bool, option("--raw", help="Bytes as they are, on a terminal too.")] = False,
) -> int:
    """Ask git about a repository of the workspace as it was at a point.

    Its objects were kept as calls changed the repository: also those that no branch and no stash
    holds any more, that git has deleted, or of a `.git` that is gone. HEAD, branches, tags and
    stashes are those of the point. The workspace's own repository is not read.

    COMMAND is one of `blame`, `cat-file`, `diff-tree`, `for-each-ref`, `grep`, `log`,
    `ls-tree`, `merge-base`, `rev-list`, `rev-parse`, `shortlog` and `show`, with options that
    neither write a file nor run a program.

    With `--to` the repository of that point is written into a new folder, with its refs, stashes,
    logs and index, and without hooks and settings; `git -C DIR checkout .` then gives the files.
    """
    from loom_audit.api.upkeep.git_mirror import kept_git, write_kept_git

    output = invocation.output
    with invocation.workspace() as workspace:
        place = workspace_path(workspace.root, repository)
        words = words or []
        if words[:1] == ["--"]:
            words = words[1:]
        if to and words:
            raise InvalidArguments("--to takes no command", hint="Leave out what follows `--`.")
        if to:
            seq = read_point(invocation, workspace, point)
            made, summary, left_out = write_kept_git(workspace, seq, place, folder(to))
            for one in left_out:
                output.note(one)
            if output.json:
                output.record({"point": seq, "to": str(made), "git": summary.text})
            else:
                output.line(f"{made} as of {seq}: {summary.text}")
            return exits.OK
        if not words:
            raise InvalidArguments(
                "no command given", hint="Write `loom-audit git . -- log --oneline`."
            )
        done = kept_git(workspace, read_point(invocation, workspace, point), place).ask(words)
    errors = done.errors.strip()
    if output.json:
        text = json_text(done.output)
        output.record({"code": done.code, "output": text, "errors": errors})
    else:
        output.content([done.output], raw=raw)
        for line in errors.splitlines():
            output.note(line)
    return exits.FAILED if done.code else exits.OK
