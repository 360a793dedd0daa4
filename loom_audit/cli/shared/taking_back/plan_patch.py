"""What a plan would change, as a patch in git's format."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from loom_audit.cli.shared.diffs import patch_of, print_patched
from loom_audit.cli.shared.output import Output, json_text
from loom_audit.model.files import FileChange
from loom_audit.model.plans.lists import BLOCKED, KEPT, TOLD
from loom_audit.model.plans.planning import Plan
from loom_audit.model.text.display import one_line, visible

if TYPE_CHECKING:
    from loom_audit.api.face import AuditedWorkspace


def patch_text(workspace: "AuditedWorkspace", plan: Plan) -> str:
    """The patch of a plan for a JSON record; bytes that are not UTF-8 as surrogates."""
    return json_text(b"".join(text for _, text in _patches(workspace, plan)))


def print_plan_patch(workspace: "AuditedWorkspace", output: Output, plan: Plan) -> None:
    """Print the patch of a plan; what the patch does not say is named beside it.

    Conflict for what is not on disk any more as it was when the plan was made.
    """
    for change, text in _patches(workspace, plan):
        print_patched(output, change, text)
    for one in (KEPT, BLOCKED, *TOLD):
        for note in one.notes(plan):
            name = f"{visible(note.path)}: " if note.path else ""
            output.note(f"{one.heading.lower()}: {name}{one_line(note.reason, 300)}")
    if not plan.changes:
        output.note("nothing on disk would change")


def _patches(workspace: "AuditedWorkspace", plan: Plan) -> Iterator[tuple[FileChange, bytes]]:
    """Each change of a plan with its patch."""
    from loom_audit.api.upkeep.drift import content_of_plan

    content = content_of_plan(workspace, plan)
    for change in plan.changes:
        yield change, patch_of(change, content)
