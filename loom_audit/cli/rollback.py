"""`loom-audit rollback`: bring the workspace back to a point."""

from typing import Annotated

from loom_audit.cli.shared.command import command
from loom_audit.cli.shared.invocation import Invocation
from loom_audit.cli.shared.options import (
    ChooseOption,
    DryRunOption,
    PatchOption,
    YesOption,
    flag_option,
    read_choices,
    workspace_path,
)
from loom_audit.cli.shared.parameters import argument
from loom_audit.cli.shared.points import named_point
from loom_audit.cli.shared.taking_back.plans import CODES, check_patch, close_interrupted, take_back
from loom_audit.model.plans.request import (
    GIT_CONFIG,
    HOLD,
    NO_GIT,
    OUTSIDE,
    PlanRequest,
)


@command(
    examples=(
        "loom-audit rollback head~3 --dry-run",
        "loom-audit rollback @before-merge src/ --outside",
        "loom-audit rollback session:ID --hold",
    ),
    codes=CODES,
)
def rollback(
    invocation: Invocation,
    point: Annotated[str, argument("POINT", help="42, head~3, a time, @name or session:ID.")],
    paths: Annotated[
        list[str] | None,
        argument(
            "PATH",
            help="Only these, and below; of what was moved since, each name stands for all.",
        ),
    ] = None,
    outside: Annotated[bool, flag_option(OUTSIDE)] = False,
    hold: Annotated[bool, flag_option(HOLD)] = False,
    no_git: Annotated[bool, flag_option(NO_GIT)] = False,
    git_config: Annotated[bool, flag_option(GIT_CONFIG)] = False,
    choose: ChooseOption = None,
    dry_run: DryRunOption = False,
    patch: PatchOption = False,
    yes: YesOption = False,
) -> int:
    """Bring the workspace, or the paths, back to a point.

    Takes back the recorded calls of all sessions after it. What came from outside (your editor,
    another program) after the point is kept and listed, unless --outside is given or the path
    is chosen.

    While a call is open that may change files, nothing is rolled back. With --hold every open
    session is held first, so that its next calls are refused; calls that are open then go on and
    are named, and what they change later is on record as theirs. The sessions stay held, also
    when nothing is rolled back, until `loom-audit release`.
    """
    check_patch(patch=patch, dry_run=dry_run)
    with invocation.workspace() as workspace:
        if hold and not dry_run:
            from loom_audit.api.control.holding import hold_all

            hold_all(workspace, f"rolled back to {point}"[:200])
        close_interrupted(workspace, dry_run=dry_run)
        request = PlanRequest(
            "rollback",
            (named_point(workspace, point),),
            paths=tuple(workspace_path(workspace.root, path) for path in paths or ()),
            choices=read_choices(workspace.root, choose),
            outside=outside,
            running=hold,
            no_git=no_git,
            git_config=git_config,
        )
        return take_back(invocation, workspace, request, dry_run=dry_run, yes=yes, patch=patch)
