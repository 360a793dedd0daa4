"""A linked worktree that a call removed: how its entry comes back, and what keeps it from that.

Its branch is its repository's. Were that moved since, the next commit in the worktree would revert,
by the index that came back, what somebody did.
"""

from collections.abc import Iterator

from msgspec.structs import replace

from loom_audit.history.undo.git.moved_back import GitOnRecord
from loom_audit.model.git.record import HEAD_COMMIT, GitState, is_setting
from loom_audit.model.git_points import git_folder
from loom_audit.model.plans.git_things import LEAVE, MOVED_SINCE, GitThing, GitVerdicts
from loom_audit.model.text.display import visible

CHECKED_OUT = f"is checked out in another worktree; {LEAVE}"


def is_linked_inside(thing: GitThing, verdicts: GitVerdicts, on_record: GitOnRecord) -> bool:
    """Whether it is a linked worktree of a repository that is here, and was not gone itself."""
    held = git_folder(thing.common) if not thing.common.startswith("/") else None
    if (
        not thing.common
        or held is None
        or any(one.folder == held and one.is_whole for one in verdicts.things)
    ):
        return False
    return bool(on_record.now.get(held, GitState()).names)


def linked_back(
    thing: GitThing, verdicts: GitVerdicts, on_record: GitOnRecord
) -> tuple[GitThing, list[str]]:
    """The entry of a linked worktree as it comes back, without settings, and what blocks that."""
    files = tuple(one for one in thing.files if not is_setting(one.path))
    return replace(thing, files=files), [*_why_blocked(thing, verdicts, on_record)]


def _why_blocked(thing: GitThing, verdicts: GitVerdicts, on_record: GitOnRecord) -> Iterator[str]:
    names = {one.name: one.after for one in thing.names}
    branch = (names.get("HEAD") or "").removeprefix("ref: ")
    if branch == names.get("HEAD"):
        return
    held = git_folder(thing.common) or ""
    state = on_record.now[held]
    for one in verdicts.things:
        if one.folder == held and not one.is_whole:
            state = state.after(one.as_change)
    if state.names.get(branch) != names.get(HEAD_COMMIT):
        yield f"{visible(branch)}, which goes with HEAD, {MOVED_SINCE}"
    others = [state.names.get("HEAD", "")]
    others += (
        value
        for name, value in state.names.items()
        if name.startswith("worktree ") and not name.endswith(f"/{thing.folder}")
    )
    if any(one.split(" ")[:2] == ["ref:", branch] for one in others):
        yield f"{visible(branch)} {CHECKED_OUT}"
