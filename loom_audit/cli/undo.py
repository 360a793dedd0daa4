"""`loom-audit undo`: take back the newest call."""

from typing import Annotated

from loom_audit.cli.shared.command import command
from loom_audit.cli.shared.invocation import Invocation
from loom_audit.cli.shared.options import (
    ChooseOption,
    DryRunOption,
    PatchOption,
    SessionOption,
    YesOption,
    flag_option,
    read_choices,
)
from loom_audit.cli.shared.points import session_id
from loom_audit.cli.shared.taking_back.plans import CODES, check_patch, close_interrupted, take_back
from loom_audit.model.plans.request import GIT_CONFIG, NO_GIT, PlanRequest


@command(examples=("loom-audit undo --dry-run", "loom-audit undo --session ID"), codes=CODES)
def undo(
    invocation: Invocation,
    session: SessionOption = None,
    choose: ChooseOption = None,
    no_git: Annotated[bool, flag_option(NO_GIT)] = False,
    git_config: Annotated[bool, flag_option(GIT_CONFIG)] = False,
    dry_run: DryRunOption = False,
    patch: PatchOption = False,
    yes: YesOption = False,
) -> int:
    """Take back the newest call not yet taken back.

    It stays on record, and redo brings it back.
    """
    check_patch(patch=patch, dry_run=dry_run)
    with invocation.workspace() as workspace:
        close_interrupted(workspace, dry_run=dry_run)
        choices = read_choices(workspace.root, choose)
        chosen = None if session is None else session_id(workspace, session)
        request = PlanRequest(
            "undo", session=chosen, choices=choices, no_git=no_git, git_config=git_config
        )
        return take_back(invocation, workspace, request, dry_run=dry_run, yes=yes, patch=patch)
