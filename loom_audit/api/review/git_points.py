"""What git named at a point of a workspace, and what of it differs between two points."""

from collections.abc import Mapping, Sequence

from loom_audit.api.workspace import AuditedWorkspace
from loom_audit.model.authorship.call_set import CallSet
from loom_audit.model.events import SessionStarted
from loom_audit.model.git.record import GitChanged
from loom_audit.model.git.words import git_words
from loom_audit.model.git_points import (
    GitPoints,
    GitSummary,
    git_differences,
    git_folder,
    git_path,
    git_summary,
)
from loom_audit.ports import EventFilter


def git_at(workspace: AuditedWorkspace, seq: int) -> Mapping[str, GitSummary]:
    """What each repository named after an event, by the paths of their `.git`. Corrupt."""
    points = GitPoints()
    points.follow(workspace.timeline.events(EventFilter(before=seq + 1, kinds=(GitChanged.kind,))))
    found = ((one, git_summary(state)) for one, state in points.states.items())
    return {git_path(one): said for one, said in found if said is not None}


def git_between(workspace: AuditedWorkspace, old: int, new: int) -> Sequence[GitChanged]:
    """What differs of the repositories between two points, whichever is the later. Corrupt."""
    first, last = sorted((old, new))
    kinds = (GitChanged.kind,)
    wanted = EventFilter(after=first, before=last + 1, kinds=kinds)
    if not (between := [*workspace.timeline.events(wanted)]):
        return ()
    points = GitPoints()
    points.follow(workspace.timeline.events(EventFilter(before=first + 1, kinds=kinds)))
    earlier = {**points.states}
    points.follow(between)
    if old == first:
        return [*git_differences(earlier, points.states)]
    return [*git_differences(points.states, earlier)]


def git_by(workspace: AuditedWorkspace, calls: CallSet) -> Sequence[GitChanged]:
    """What calls of some sessions, with those within, changed of git, or may have: then the causes
    name all calls that may have. Corrupt.
    """
    sessions = {*(calls.sessions or ())}
    kinds = (GitChanged.kind, SessionStarted.kind)
    wanted = EventFilter(after=calls.after, before=calls.until + 1, kinds=kinds)
    found: list[GitChanged] = []
    for event in workspace.timeline.events(wanted):
        fact = event.fact
        if isinstance(fact, SessionStarted) and fact.parent in sessions:
            sessions.add(event.session)
        elif isinstance(fact, GitChanged) and fact.call_id is not None:
            requests = (one for one in fact.causes if one)
            among = (workspace.timeline.verified.call_at(one).session for one in requests)
            if not sessions.isdisjoint((event.session, *among)):
                found.append(fact)
    return found


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
