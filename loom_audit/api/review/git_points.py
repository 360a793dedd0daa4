"""What git named at a point of a workspace, and what of it differs between two points."""

from collections.abc import Mapping, Sequence

from loom_audit.api.workspace import AuditedWorkspace
from loom_audit.model.git import GitChanged, GitState, git_words
from loom_audit.model.git_points import (
    GitPoints,
    GitSummary,
    git_differences,
    git_folder,
    git_summary,
)
from loom_audit.ports import EventFilter


def git_at(workspace: AuditedWorkspace, seq: int) -> Mapping[str, GitSummary]:
    """What each repository named after an event, by the paths of their `.git`. Corrupt."""
    found = ((one, git_summary(state)) for one, state in _states(workspace, seq).items())
    return {f"{one}/.git" if one else ".git": said for one, said in found if said is not None}


def git_between(workspace: AuditedWorkspace, old: int, new: int) -> Sequence[GitChanged]:
    """What differs of the repositories between two points, whichever is the later. Corrupt."""
    kinds = EventFilter(after=min(old, new), before=max(old, new) + 1, kinds=(GitChanged.kind,))
    if not any(True for _ in workspace.timeline.events(kinds)):
        return ()
    return [*git_differences(_states(workspace, old), _states(workspace, new))]


def git_changes(workspace: AuditedWorkspace, path: str, most: int) -> Sequence[str]:
    """What events say of the repository whose `.git` a path is, the newest first; each line begins
    with the number of its event. Nothing for another path. Corrupt.
    """
    lines: list[str] = []
    if git_folder(path) is None:
        return lines
    wanted = EventFilter(kinds=(GitChanged.kind,), newest_first=True)
    for event in workspace.timeline.events(wanted):
        if isinstance(event.fact, GitChanged) and event.fact.is_about(path):
            lines += (f"#{event.seq} {text}" for text in git_words(event.fact))
        if len(lines) > most:
            break
    return lines


def _states(workspace: AuditedWorkspace, seq: int) -> Mapping[str, GitState]:
    points = GitPoints()
    points.follow(workspace.timeline.events(EventFilter(before=seq + 1, kinds=(GitChanged.kind,))))
    return points.states
