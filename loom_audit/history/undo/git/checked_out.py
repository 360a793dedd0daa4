"""What keeps a plan from moving a branch that another worktree has checked out, or works on."""

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from loom_audit.errors import AuditError
from loom_audit.history.ground.attachment import Attachment
from loom_audit.history.record.git.in_use import GoingBack, UsedBranch
from loom_audit.model.files import FileState
from loom_audit.model.git.record import GitState
from loom_audit.model.git.ways import GitStep
from loom_audit.model.plans.git_things import LEAVE, GitVerdicts, where_of
from loom_audit.model.plans.verdicts import Note


def unless_checked_out(
    attachment: Attachment,
    verdicts: GitVerdicts,
    steps: Sequence[GitStep],
    now: Mapping[str, GitState],
) -> GitVerdicts:
    """The verdicts, blocked where a branch would move under a worktree that stays as it is.

    A branch that the steps made stays where they made the worktree, too, which stays.
    """
    first: dict[tuple[str, str], FileState | None] = {}
    for step in steps:
        for file in step.fact.changes:
            first.setdefault((step.fact.folder, file.path), file.before)

    def was_so(folder: str, path: str) -> bool:
        is_now = now[folder].files.get(path)
        return first.get((folder, path), is_now) == is_now

    going = GoingBack(verdicts.things, now, was_so)
    try:
        found = [*going.branches_in_use(attachment)]
    except AuditError as error:
        said = f"which branches are checked out elsewhere cannot be told: {error.message}; {LEAVE}"
        return replace(verdicts, blocked=(*verdicts.blocked, Note("", f"git: {said}")))
    came = {
        (step.fact.folder, one.name)
        for step in steps
        for one in step.fact.names
        if step.taken and one.before is None and one.name.startswith("worktree ")
    }
    staying = [one for one in found if _came_with_it(one, came)]
    blocking = [one for one in found if one not in staying]
    stays = {
        (one.thing.folder, one.branch): _note(one, "so that the branch stays") for one in staying
    }
    return replace(
        verdicts,
        things=tuple(one for one in verdicts.things if (one.folder, one.name) not in stays),
        stays=(*verdicts.stays, *stays.values()),
        blocked=(*verdicts.blocked, *dict.fromkeys(_note(one, LEAVE) for one in blocking)),
    )


def _came_with_it(used: UsedBranch, came: set[tuple[str, str]]) -> bool:
    thing = used.thing
    is_made = thing.name == used.branch and all(one.after is None for one in thing.names)
    return is_made and (thing.folder, f"worktree {used.use.worktree}") in came


def _note(used: UsedBranch, said: str) -> Note:
    return Note("", f"git{where_of(used.thing.folder)}: {used.words}; {said}")
