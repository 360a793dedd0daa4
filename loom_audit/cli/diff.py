"""`loom-audit diff`: two points compared, or the log with the disk."""

from typing import TYPE_CHECKING, Annotated

from loom_audit.cli.shared.command import command
from loom_audit.cli.shared.diffs import below, print_differences, print_stat
from loom_audit.cli.shared.invocation import Invocation
from loom_audit.cli.shared.lines import change_lines
from loom_audit.cli.shared.lookup import ever_recorded, say_unknown
from loom_audit.cli.shared.options import workspace_path
from loom_audit.cli.shared.parameters import argument, option
from loom_audit.cli.shared.points import call_number, is_point, read_point
from loom_audit.cli.shared.records import plain
from loom_audit.errors import FileNotFound, InvalidArguments
from loom_audit.model.text.display import visible_path

if TYPE_CHECKING:
    from loom_audit.model.files import FileChange


@command(
    examples=(
        "loom-audit diff                      # the log against the disk",
        "loom-audit diff 40 head src/",
        "loom-audit diff --call 42 --raw | git apply -R",
    )
)
def diff(
    invocation: Invocation,
    arguments: Annotated[
        list[str] | None,
        argument("POINT|PATH", help="Up to two points, then paths."),
    ] = None,
    call: Annotated[
        str | None, option("--call", metavar="SEQ", help="What this call changed.")
    ] = None,
    name_only: Annotated[bool, option("--name-only", help="Only the paths.")] = False,
    stat: Annotated[bool, option("--stat", help="Lines added and removed.")] = False,
    raw: Annotated[
        bool, option("--raw", help="A patch for `git apply`, contents not escaped.")
    ] = False,
) -> None:
    """Compare two points, or the log with the disk.

    Without points the log with the disk; with one point, what happened from it until now.
    Contents are shown escaped except with --raw.
    """
    output = invocation.output
    number = None if call is None else call_number(call)
    points, paths = _points_and_paths(arguments or [])
    if number is not None and points:
        raise InvalidArguments(
            "--call and points cannot be given together", hint="Give one of them."
        )
    with invocation.workspace() as workspace:
        timeline = workspace.timeline
        disk = number is None and not points
        changes: tuple[FileChange, ...]
        compared: tuple[int, ...] = ()
        if number is not None:
            changes = timeline.call(number).changes
        elif disk:
            changes = workspace.status().drift
            compared = (workspace.log.head(),)
        else:
            old = read_point(invocation, workspace, points[0])
            new = read_point(invocation, workspace, points[1] if len(points) > 1 else "head")
            timeline.check_listed(old, new)
            changes = timeline.diff(old, new)
            compared = (old, new)
        named = [workspace_path(workspace.root, path) for path in paths]
        shown = below(changes, named)
        for path in named:
            if path and not below(shown, [path]) and not ever_recorded(workspace, path):
                raise FileNotFound(
                    f"nothing is on record for {visible_path(path)}",
                    hint="Name a path that was recorded, or a point: 42, head~3, @name.",
                )
        unknown = say_unknown(invocation, workspace, *compared, folders=named)
        if not shown:
            output.note("no other differences" if unknown else "no differences")
        if stat:
            print_stat(workspace, output, shown, disk=disk)
        elif not name_only:
            print_differences(workspace, output, shown, disk=disk, raw=raw)
        elif output.json:
            for change in shown:
                output.record(plain(change))
        else:
            output.lines(change_lines(shown, indent=""))


def _points_and_paths(arguments: list[str]) -> tuple[list[str], list[str]]:
    count = 0
    while count < min(2, len(arguments)) and is_point(arguments[count]):
        count += 1
    return arguments[:count], arguments[count:]
