"""`loom-audit ls`: what a folder held at a point."""

from typing import Annotated

from loom_audit.cli.shared.command import command
from loom_audit.cli.shared.invocation import Invocation
from loom_audit.cli.shared.lookup import not_there, say_unknown
from loom_audit.cli.shared.options import AtOption, workspace_path
from loom_audit.cli.shared.output import Line, Style
from loom_audit.cli.shared.parameters import argument, option
from loom_audit.cli.shared.points import read_point
from loom_audit.cli.shared.records import git_state_record, state_record
from loom_audit.model.files import FileState
from loom_audit.model.git_points import git_folder
from loom_audit.model.text.display import first_few, visible


@command(examples=("loom-audit ls src --at @before-merge",))
def ls(
    invocation: Invocation,
    path: Annotated[str, argument("PATH")] = ".",
    point: AtOption = "head",
    recursive: Annotated[bool, option("--recursive", "-r", help="Everything below, too.")] = False,
) -> None:
    """List what a folder of the workspace held at a point.

    Of a git repository in it, it is said what HEAD was then, and how many branches, tags and
    stashes there were.
    """
    from loom_audit.api.review.git_points import git_at

    output = invocation.output
    with invocation.workspace() as workspace:
        name = workspace_path(workspace.root, path)
        seq = read_point(invocation, workspace, point)
        tree = workspace.timeline.tree(seq)
        if not tree:
            workspace.timeline.check_listed(seq)
        prefix = f"{name}/" if name else ""
        if name and name not in tree:
            raise not_there(workspace, name, path, seq)
        listed = (
            [name]
            if name and tree[name].kind != "directory"
            else sorted(
                p
                for p in tree
                if p.startswith(prefix) and (recursive or "/" not in p[len(prefix) :])
            )
        )
        is_git = any(git_folder(one) is not None for one in listed)
        git = git_at(workspace, seq) if is_git else {}
        output.each(
            listed,
            lambda one: {
                "path": one,
                **(state_record(tree[one]) or {}),
                **({"git": git_state_record(git[one])} if one in git else {}),
            },
            lambda one: [entry_line(one if one == name else one[len(prefix) :], tree[one])],
        )
        for one in listed:
            if one in git:
                where = visible(one.removesuffix(".git")[len(prefix) :])
                output.note(f"{where}{': ' if where else ''}git: {git[one].text}")
        said = say_unknown(invocation, workspace, seq, folders=[name])
        if not workspace.timeline.is_listed(seq):
            output.note("what is not listed is unknown: the first listing was not finished")
        elif unknown := workspace.timeline.unknown_entries(name, seq, tree):
            shown = first_few(unknown, 10, visible)
            output.note(f"unknown whether they were there: {shown}")
        elif not (listed or said):
            output.note(f"nothing was there at {seq}")


def entry_line(path: str, state: FileState) -> Line:
    """The line of a listed path says its kind and mode, its size in bytes and its name."""
    kind = {"file": "-", "symlink": "l", "directory": "d", "opaque": "o"}[state.kind]
    size = "" if state.blob is None else str(state.size)
    tail = {"directory": "/", "opaque": "  (not recorded)"}.get(state.kind, "")
    style: Style = "cyan" if state.kind != "file" else ""
    return (f"{kind}{state.mode:04o} {size:>12}  ", (visible(path) + tail, style))
