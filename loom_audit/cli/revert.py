"""`loom-audit revert`: take back named calls, or paths of them, and keep the later ones."""

from itertools import takewhile
from typing import TYPE_CHECKING, Annotated

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
from loom_audit.cli.shared.points import SESSION, call_number, named_point
from loom_audit.cli.shared.taking_back.plans import CODES, check_patch, close_interrupted, take_back
from loom_audit.model.plans.request import GIT_CONFIG, WITH_GIT, PlanRequest

if TYPE_CHECKING:
    from loom_audit.api.face import AuditedWorkspace


@command(
    examples=(
        "loom-audit revert 42 45",
        "loom-audit revert 42 src/app.py",
        "loom-audit revert session:ID --choose src/app.py=merge",
    ),
    codes=CODES,
)
def revert(
    invocation: Invocation,
    targets: Annotated[
        list[str],
        argument(
            "TARGET",
            help="Numbers of calls or events, or session:ID; after these paths: only what the "
            "calls did there and below. ./42 is a path.",
        ),
    ],
    choose: ChooseOption = None,
    git: Annotated[bool, flag_option(WITH_GIT)] = False,
    git_config: Annotated[bool, flag_option(GIT_CONFIG)] = False,
    dry_run: DryRunOption = False,
    patch: PatchOption = False,
    yes: YesOption = False,
) -> int:
    """Take back the named calls, or paths of them, and keep the later ones.

    Where a later call changed the same text, both are merged.
    """
    check_patch(patch=patch, dry_run=dry_run)
    with invocation.workspace() as workspace:
        close_interrupted(workspace, dry_run=dry_run)
        choices = read_choices(workspace.root, choose)
        named = dict.fromkeys(_target(workspace, text) for text in _calls(targets))
        paths = [workspace_path(workspace.root, text) for text in targets[len(_calls(targets)) :]]
        request = PlanRequest(
            "revert",
            tuple(named),
            paths=tuple(paths),
            choices=choices,
            with_git=git,
            git_config=git_config,
        )
        return take_back(invocation, workspace, request, dry_run=dry_run, yes=yes, patch=patch)


def _calls(targets: list[str]) -> list[str]:
    """The targets before the first that is a path; the first of all is none."""
    rest = takewhile(lambda text: text.isdecimal() or text.startswith(SESSION), targets[1:])
    return [targets[0], *rest]


def _target(workspace: "AuditedWorkspace", text: str) -> int | str:
    return named_point(workspace, text) if text.startswith(SESSION) else call_number(text)
