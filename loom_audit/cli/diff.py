"""`loom-audit diff`: two points compared, or the log with the disk."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from loom_audit.api.lines import lines_of
from loom_audit.api.review.git_points import git_between, git_by
from loom_audit.cli.shared import exits
from loom_audit.cli.shared.command import command
from loom_audit.cli.shared.diffs import (
    below,
    print_differences,
    print_git,
    print_names,
    print_patch,
    print_stat,
)
from loom_audit.cli.shared.invocation import Invocation
from loom_audit.cli.shared.lookup import ever_recorded, say_unknown
from loom_audit.cli.shared.net_change import print_own
from loom_audit.cli.shared.options import workspace_path
from loom_audit.cli.shared.parameters import argument, option
from loom_audit.cli.shared.points import call_number, is_point, read_point, session_id
from loom_audit.errors import FileNotFound, InvalidArguments
from loom_audit.model.files import is_within
from loom_audit.model.git_points import git_path
from loom_audit.model.text.display import visible

if TYPE_CHECKING:
    from loom_audit.api.face import AuditedWorkspace
    from loom_audit.model.files import FileChange
    from loom_audit.model.git.record import GitChanged


@command(
    examples=(
        "loom-audit diff                      # the log against the disk",
        "loom-audit diff 40 head src/",
        "loom-audit diff --call 42 --raw | git apply -R",
        "loom-audit diff --session ID --own   # which call wrote and removed each line",
    ),
    codes={exits.CONFLICT: "the own change of a session is not one tree"},
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
    session: Annotated[
        str | None,
        option("--session", metavar="ID", help="What changed from its start to its end."),
    ] = None,
    own: Annotated[
        bool,
        option(
            "--own", help="Of a session only what its own calls changed on balance, line by line."
        ),
    ] = False,
    all_changes: Annotated[
        bool, option("--all", help="Of a session all that changed meanwhile, as without --own.")
    ] = False,
    name_only: Annotated[bool, option("--name-only", help="Only the paths.")] = False,
    stat: Annotated[bool, option("--stat", help="Lines added and removed.")] = False,
    raw: Annotated[
        bool, option("--raw", help="A patch for `git apply`, contents not escaped.")
    ] = False,
    patch: Annotated[
        bool, option("--patch", help="The same with binary contents and git's own modes.")
    ] = False,
) -> None:
    """Compare two points, or the log with the disk.

    Without points the log with the disk; with one point, what happened from it until now. What
    differs of git on record is said apart, on standard error.
    Contents are shown escaped except with --raw and --patch. What a session's own calls changed is
    the lines that they wrote and that stand at its end, and those of others that they removed; what
    its subagents did is its own. A patch of that is given where nobody else changed these files.
    """
    output = invocation.output
    number = None if call is None else call_number(call)
    points, paths = _points_and_paths(arguments or [])
    _check_together(points, call, session, own=own, all_changes=all_changes, patch=patch)
    git: Sequence[GitChanged] = ()
    with invocation.workspace() as workspace:
        named = [workspace_path(workspace.root, path) for path in paths]
        if session is not None and own:
            calls = lines_of(workspace).of_session(session_id(workspace, session))
            print_own(workspace, output, calls, named, name_only, stat, patch)
            git = git_by(workspace, calls)
            print_git(output, [one for one in git if not named or _git_is_below(one, named)])
            return
        timeline = workspace.timeline
        disk = number is None and session is None and not points
        changes: tuple[FileChange, ...]
        compared: tuple[int, ...] = ()
        if number is not None:
            detail = timeline.call(number)
            changes, git = detail.changes, detail.git
        elif disk:
            changes = workspace.status().drift
            compared = (workspace.log.head(),)
        else:
            compared = _ends(invocation, workspace, points, session)
            timeline.check_listed(*compared)
            changes = timeline.diff(*compared)
            git = git_between(workspace, *compared)
        git = [one for one in git if not named or _git_is_below(one, named)]
        shown = below(changes, named)
        for path in named:
            if path and not below(shown, [path]) and not ever_recorded(workspace, path):
                raise FileNotFound(
                    f"nothing is on record for {visible(path)}",
                    hint="Name a path that was recorded, or a point: 42, head~3, @name.",
                )
        unknown = say_unknown(invocation, workspace, *compared, folders=named)
        if not (shown or git):
            output.note("no other differences" if unknown else "no differences")
        if stat:
            print_stat(workspace, output, shown, disk=disk)
        elif patch:
            print_patch(workspace, output, shown)
        elif not name_only:
            print_differences(workspace, output, shown, disk=disk, raw=raw)
        else:
            print_names(output, shown)
        print_git(output, git)


def _git_is_below(fact: "GitChanged", paths: Sequence[str]) -> bool:
    """Whether the `.git` of a repository is one of some paths, or below."""
    return "" in paths or is_within(git_path(fact.folder), paths)


def _check_together(
    points: Sequence[str],
    call: str | None,
    session: str | None,
    *,
    own: bool,
    all_changes: bool,
    patch: bool,
) -> None:
    """Refuse options that say different things, with INVALID_ARGUMENTS."""
    given = [bool(points), call is not None, session is not None]
    if given.count(True) > 1:
        raise InvalidArguments(
            "points, --call and --session cannot be given together", hint="Give one of them."
        )
    if (own or all_changes) and session is None:
        raise InvalidArguments(
            f"{'--own' if own else '--all'} is of a session", hint="Name it by --session ID."
        )
    if own and all_changes:
        raise InvalidArguments("--own and --all cannot be given together", hint="Give one of them.")
    if patch and not any(given):
        raise InvalidArguments(
            "a patch is of what is on record", hint="Name a point, --call or --session."
        )


def _ends(
    invocation: Invocation,
    workspace: "AuditedWorkspace",
    points: Sequence[str],
    session: str | None,
) -> tuple[int, int]:
    """The two points to compare: those named, or the start and the end of a session."""
    if session is not None:
        calls = lines_of(workspace).of_session(session_id(workspace, session))
        return calls.after, calls.until
    old = read_point(invocation, workspace, points[0])
    return old, read_point(invocation, workspace, points[1] if len(points) > 1 else "head")


def _points_and_paths(arguments: list[str]) -> tuple[list[str], list[str]]:
    count = 0
    while count < min(2, len(arguments)) and is_point(arguments[count]):
        count += 1
    return arguments[:count], arguments[count:]
