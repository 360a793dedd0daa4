"""What a plan does to git: which recorded changes of it are taken back."""

from collections.abc import Collection, Iterator, Sequence
from shlex import quote

from msgspec.structs import replace

from loom_audit.errors import AuditError, InvalidArguments
from loom_audit.history.ground.attachment import Attachment
from loom_audit.history.look.doers import UNKNOWN
from loom_audit.history.look.git.changes import look_at_git
from loom_audit.history.undo.concerned import request_and_number
from loom_audit.history.undo.git.brought_back import with_settings
from loom_audit.history.undo.git.checked_out import unless_checked_out
from loom_audit.history.undo.git.moved_back import (
    GitOnRecord,
    git_events,
    renamed_back_notes,
)
from loom_audit.history.undo.git.not_kept import not_kept_notes
from loom_audit.history.undo.git.said import said_of_git, settings_shown
from loom_audit.history.undo.notes import uncaptured_notes
from loom_audit.history.undo.selection import Selection
from loom_audit.model.files import is_same_identity
from loom_audit.model.git.record import GitChanged, GitState
from loom_audit.model.git.ways import SETTINGS, GitStep
from loom_audit.model.git_points import GitPoints, git_folder, git_path
from loom_audit.model.plans.git_things import (
    BROUGHT_BACK,
    LEAVE,
    GitVerdicts,
    git_verdicts,
    where_of,
    worktree_words,
)
from loom_audit.model.plans.placement import KEPT_BY_CHOICE
from loom_audit.model.plans.planning import Note, Plan
from loom_audit.model.plans.request import PlanRequest
from loom_audit.model.records import Call, RecordedChange
from loom_audit.model.text.display import visible

OUTSIDE_REFS = "its refs are those of a repository outside of the workspace, so that it stays"
CHOSEN_OUTSIDE = "takes it back there"
SETTINGS_OUTSIDE = "hooks and settings of a repository outside of the workspace are not written"


def git_of_plan(
    attachment: Attachment, request: PlanRequest, selection: Selection, on_record: GitOnRecord
) -> GitVerdicts:
    """The verdicts on what the selected calls did to git; none where the request leaves git.
    InvalidArguments for one that leaves git and asks for its settings.

    A revert leaves it unless asked to take it along, and so does what is limited to paths. What the
    log has of git is read into `on_record`.
    """
    if request.git_config and request.no_git:
        raise InvalidArguments(
            "hooks and settings of git cannot come back where git is left as it is",
            hint="Ask for one of the two: --git-config or --no-git.",
        )
    if leaves_git(request) or attachment.on_disk.git_restorer is None:
        return GitVerdicts()
    before: dict[str, GitState] = {}
    steps = [*_steps(attachment, request, selection, before, on_record)]
    seen = on_record
    if any(one.taken for one in steps):
        found_now = [*_unrecorded_steps(attachment, request)]
        steps += found_now
        seen = on_record.after(0, [one.fact for one in found_now])

    def place_of(folder: str) -> str | None:
        return _place_of(attachment, folder, selection)

    def verdicts(steps: Sequence[GitStep]) -> GitVerdicts:
        return git_verdicts(steps, before, place_of, with_settings=request.git_config)

    elsewhere = GitPoints(on_record.now).with_refs_elsewhere
    chosen = {one for one in elsewhere if request.choices.get(git_path(one)) == "old"}
    found = verdicts([one for one in steps if one.fact.folder not in elsewhere - chosen])
    found = _without_settings_elsewhere(found, elsewhere)
    for folder in sorted(elsewhere - chosen):
        own = verdicts([one for one in steps if one.fact.folder == folder])
        found = _with_what_stays(found, folder, own)
    return unless_checked_out(attachment, found, steps, seen.now)


def _place_of(attachment: Attachment, folder: str, selection: Selection) -> str | None:
    """What is at a `.git`: "" for nothing or what was there before the calls that are taken back,
    its identity where it is the empty folder that one of them left there, None for anything else.
    """
    path = git_path(folder)
    workspace = attachment.on_disk.workspace
    if workspace.stamp(path) is None:
        return ""
    first = selection.since
    if not selection.rollback:
        first = min((call.requested for call in selection.calls), default=0)
    changes = [*attachment.stored.reading.changes(after=first, paths=[path])]
    if not changes:
        return ""  # the file that named the folder which is gone
    last = changes[-1]
    if last.change.after is None or not _is_taken(selection, last):
        return None
    try:
        is_empty = not workspace.list(path)
    except AuditError:  # it is no folder, or cannot be read
        return None
    left = last.change.after.identity
    is_left = bool(left) and is_same_identity(workspace.identity(path), left)
    return left if is_empty and is_left else None


def _is_taken(selection: Selection, change: RecordedChange) -> bool:
    """Whether a change was surely made by calls that are taken back."""
    if selection.rollback:
        return change.requested is not None and change.seq > selection.since
    calls = {call.requested for call in selection.calls}
    return change.requested is not None and {change.requested, *change.causes} <= calls


def _with_what_stays(verdicts: GitVerdicts, folder: str, own: GitVerdicts) -> GitVerdicts:
    """The verdicts with those on a folder whose refs are those of a repository outside of the
    workspace: unless a person chose it all of it stays, and nothing of it blocks.
    """
    own = _without_settings_elsewhere(own, {folder})
    whole = tuple(one for one in own.things if one.is_whole)
    asked = f"--choose {visible(quote(git_path(folder)))}=old"
    note = Note("", f"git{where_of(folder)}: {OUTSIDE_REFS}; `{asked}` {CHOSEN_OUTSIDE}")
    is_left = own.blocked or len(own.things) > len(whole)
    return replace(
        verdicts,
        things=(*verdicts.things, *whole),
        stays=(*verdicts.stays, *own.stays, *([note] if is_left else ())),
        there=(*verdicts.there, *own.there),
        settings=(*verdicts.settings, *own.settings),
    )


def _without_settings_elsewhere(verdicts: GitVerdicts, elsewhere: Collection[str]) -> GitVerdicts:
    """The verdicts in which hooks and settings of repositories outside of the workspace stay."""
    shared = {
        one.folder for one in verdicts.things if one.folder in elsewhere and one.name == SETTINGS
    }
    stays = (Note("", f"git{where_of(one)}: {SETTINGS_OUTSIDE}") for one in sorted(shared))
    things = (one for one in verdicts.things if not (one.name == SETTINGS and one.folder in shared))
    return replace(verdicts, things=tuple(things), stays=(*verdicts.stays, *stays))


def with_git(
    attachment: Attachment, plan: Plan, selection: Selection, calls: Sequence[Call]
) -> Plan:
    """The plan with what of git goes back with the files, and what keeps it from that.

    Of the `calls` that are taken back those that changed no file count as taken back where git is.
    """
    on_record = GitOnRecord()
    verdicts = git_of_plan(attachment, plan.request, selection, on_record)
    found = with_settings(attachment, verdicts, on_record)
    moved = renamed_back_notes(attachment, plan, selection, found.verdicts.things, on_record)
    plan = replace(plan, blocked=(*plan.blocked, *moved))
    plan, verdicts = _unless_kept(plan, _unless_renamed(plan, found.verdicts))
    back = {git_path(one.folder) for one in verdicts.things if one.is_whole}
    plan = _without_gone(plan, {*back, *map(git_path, verdicts.there)}, calls)
    plan = _without_idle_choices(plan, verdicts)
    verdicts = _without_worktrees_back(verdicts, attachment.on_disk.workspace.root)
    points = GitPoints(on_record.now)
    not_kept = not_kept_notes(attachment, verdicts.things)
    alone = {
        call.seq
        for call in calls
        if call.seq and call.requested > selection.since and not call.changed
        if call.requested in on_record.changed_by
    }
    counted = set(plan.reverts)
    if verdicts.things:
        counted |= alone
    elif verdicts.stays or found.stay_gone:
        counted -= alone
    stay_gone = found.stay_gone
    # else an undo that does nothing would count as one
    stopped = () if plan.changes or verdicts.things else stay_gone
    words, lost = said_of_git(attachment, verdicts.things, points)
    settings = (*verdicts.settings, *(one for one in verdicts.things if one.name == SETTINGS))
    return replace(
        plan,
        git=verdicts.things,
        git_words=words,
        reverts=tuple(sorted(counted)),
        blocked=(
            *plan.blocked,
            *verdicts.blocked,
            *found.blocked,
            *not_kept,
            *(_with_choice(one) for one in stopped),
        ),
        irreversible=(*plan.irreversible, *verdicts.stays, *(() if stopped else stay_gone)),
        contents={**plan.contents, **found.contents},
        lost_commits=lost,
        git_settings=tuple(settings_shown(attachment, settings)),
    )


def _unless_renamed(plan: Plan, verdicts: GitVerdicts) -> GitVerdicts:
    """The verdicts without what comes back as the folder that it was: by a rename, with files."""
    renamed = {change.path for change in plan.changes if change.after is not None}
    things = (one for one in verdicts.things if git_path(one.folder) not in renamed)
    return replace(verdicts, things=tuple(things))


def _unless_kept(plan: Plan, verdicts: GitVerdicts) -> tuple[Plan, GitVerdicts]:
    """The plan and the verdicts in which what was chosen to stay gone does."""
    choices = plan.request.choices
    gone = [git_path(one.folder) for one in verdicts.things if one.is_whole]
    kept = [one for one in gone if choices.get(one) == "current"]
    things = [one for one in verdicts.things if git_path(one.folder) not in kept]
    notes = (Note(one, KEPT_BY_CHOICE) for one in kept)
    plan = replace(plan, kept=(*plan.kept, *notes))
    return plan, replace(verdicts, things=tuple(things))


def _without_gone(plan: Plan, paths: Collection[str], calls: Sequence[Call]) -> Plan:
    """The plan that does not say of these git folders that they are gone for good."""
    if not paths:
        return plan
    said = uncaptured_notes(calls)
    rest = (note for note in plan.irreversible if note.path not in paths and note not in said)
    return replace(plan, irreversible=(*rest, *uncaptured_notes(calls, paths)))


def _without_worktrees_back(verdicts: GitVerdicts, root: str) -> GitVerdicts:
    """The verdicts that do not say of a linked worktree which comes back that it does not."""
    said = {
        worktree_words(git_folder(one.common) or "", f"worktree {root}/{one.folder}")
        for one in verdicts.things
        if one.is_whole and one.common
    }
    return replace(verdicts, stays=tuple(one for one in verdicts.stays if one.reason not in said))


def _with_choice(note: Note) -> Note:
    return replace(note, reason=f"{note.reason}; {LEAVE}")


def _without_idle_choices(plan: Plan, verdicts: GitVerdicts) -> Plan:
    """The plan that offers no choice about a repository which an undo brought back: it stays."""
    said = {note.reason for note in verdicts.stays}
    kept = [
        note
        for note in plan.kept
        if (folder := git_folder(note.path)) is None
        or f"git{where_of(folder)}: {BROUGHT_BACK}" not in said
    ]
    return replace(plan, kept=tuple(kept))


def leaves_git(request: PlanRequest) -> bool:
    """Whether a request takes back files only."""
    left = request.verb == "revert" and not (request.with_git or request.git_config)
    return request.no_git or bool(request.paths) or left


def _steps(
    attachment: Attachment,
    request: PlanRequest,
    selection: Selection,
    before: dict[str, GitState],
    on_record: GitOnRecord,
) -> Iterator[GitStep]:
    """The changes of git from the first taken one on; `before` gets the states before them."""
    calls = {call.requested: call for call in selection.calls}
    first = selection.since if selection.rollback else min(calls, default=0)
    begun = False
    for event in git_events(attachment, on_record):
        fact = event.fact
        if not isinstance(fact, GitChanged):
            before.clear()  # it was erased
            continue
        if event.seq <= first:
            before.setdefault(fact.folder, GitState()).follow(fact)
            continue
        maybe = {one for one in fact.causes if isinstance(one, int)}
        own, number = 0, event.seq
        if fact.call_id is not None:
            own, number = request_and_number(attachment.stored, event.session, fact.call_id)
        whose = maybe | ({own} if own else set())
        on_record.changed_by |= whose
        if selection.rollback:
            taken = request.outside or (bool(own) and UNKNOWN not in fact.causes)
            taken = taken and fact.origin != "baseline"
            doubtful = not taken and bool(maybe)
        else:
            taken = bool(whose) and UNKNOWN not in fact.causes and whose <= calls.keys()
            taken = taken and bool(own)
            doubtful = not taken and not whose.isdisjoint(calls)
        begun = begun or taken or doubtful
        if begun:
            yield GitStep(fact, taken, number, doubtful, event.seq)
        else:
            before.setdefault(fact.folder, GitState()).follow(fact)


def _unrecorded_steps(attachment: Attachment, request: PlanRequest) -> Iterator[GitStep]:
    """What others did to git that is not on record yet, with the seq that it will have."""
    seq = attachment.stored.log.head() + 1
    for look in look_at_git(attachment):
        if look.change is not None:
            taken = request.verb == "rollback" and request.outside
            yield GitStep(look.change, taken, seq, seq=seq)
