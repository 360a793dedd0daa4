"""A plan that takes back: shown, asked about, carried out."""

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import click

from loom_audit.cli.shared import exits
from loom_audit.cli.shared.holds import going_on
from loom_audit.cli.shared.invocation import Invocation
from loom_audit.cli.shared.lines import change_lines, numbers
from loom_audit.cli.shared.output import Line, Output, Style, progress
from loom_audit.cli.shared.records import plan_record
from loom_audit.errors import Conflict, InvalidArguments, NotFound
from loom_audit.model.git_points import git_folder
from loom_audit.model.plans.folder_choices import idle_choices
from loom_audit.model.plans.lists import BLOCKED, KEPT, MERGED, TOLD, PlanList
from loom_audit.model.plans.planning import Note, Plan, how_to_choose
from loom_audit.model.plans.request import PlanRequest
from loom_audit.model.text.display import count_text, first_few, one_line, visible
from loom_audit.ports import CallFilter

if TYPE_CHECKING:
    from loom_audit.api.face import AuditedWorkspace, UndoResult

RECORDING = {exits.CONFLICT: "", exits.FAILED: "", exits.UNAVAILABLE: ""}
CODES = {**RECORDING, exits.IN_PART: ""}

MOST_LINES = 50
"""The number of lines of what a plan changes that are shown; a dry run lists everything."""
_STYLES: Mapping[str, Style] = {"kept": "cyan", "blocked": "red"}


def check_patch(*, patch: bool, dry_run: bool) -> None:
    """InvalidArguments for a patch of what would be carried out at once."""
    if patch and not dry_run:
        raise InvalidArguments(
            "--patch prints what would change and changes nothing",
            hint="Give --dry-run with it.",
        )


def close_interrupted(workspace: "AuditedWorkspace", *, dry_run: bool) -> None:
    """Record what killed processes left first, so that the plan shown is the one carried out.

    And how calls of other programs ended, whose end only their transcripts tell. What is on disk
    and not on record yet is looked at with the plan: recorded here, it would move `head`.
    """
    if not dry_run:
        from loom_audit.api.control.holding import record_ended_calls

        record_ended_calls(workspace)
        workspace.recover()


def take_back(
    invocation: Invocation,
    workspace: "AuditedWorkspace",
    request: PlanRequest,
    *,
    dry_run: bool,
    yes: bool,
    patch: bool = False,
) -> int:
    """Show the plan of a request, then carry it out unless it is blocked or somebody says no.

    With `patch` a dry run shows what would change in git's format, instead of the plan. Where the
    sessions were held for it, calls of theirs may be open, which are named.
    """
    output, held = invocation.output, request.running
    plan = workspace.plan(request)
    _refuse_unknown(plan)
    refused = _refusal(plan)
    record = plan_record(plan) | {
        "marked": marked(plan),
        "refused": refused.message if refused else None,
        "carried_out": False,
        "call": None,
        "changed": [],
    }
    record |= _show(output, workspace, plan, dry_run=dry_run, patch=patch)
    if held:
        record |= going_on(workspace, output)
    if not patch:
        _note_choices(output, workspace, plan)
    done = exits.IN_PART if plan.in_part else exits.OK
    if output.json and (dry_run or refused):
        output.record(record)
    if dry_run:
        return _end_dry_run(output, refused) or done
    if refused:
        raise refused
    if plan.is_empty:
        _refuse_open_calls(workspace, held=held)
        if output.json:
            output.record(record)
        output.note("nothing was changed: there is nothing left to take back")
        return done
    if not _confirmed(output, plan, yes=yes):
        output.note("nothing was changed")
        return exits.FAILED
    before = workspace.log.head()
    try:
        with progress(output) as report:
            from loom_audit.api.control.holding import carry_out

            result = carry_out(workspace, plan, report=report)
    except KeyboardInterrupt:  # kept back until a step is whole, and the last one may be
        _tell_complete(output, workspace, plan, before)
        raise
    done = exits.IN_PART if result.in_use else done
    record |= {
        "carried_out": True,
        "call": result.call.seq,
        "changed": list(result.changed),
        "coverage": result.call.coverage.level,
        "coverage_reasons": list(result.call.coverage.reasons),
        "in_use": list(result.in_use),
    }
    if output.json:
        output.record(record)
    else:
        _print_done(output, plan, result)
    return done


def _show(
    output: Output, workspace: "AuditedWorkspace", plan: Plan, *, dry_run: bool, patch: bool
) -> dict[str, str]:
    """Print a plan, or the patch of it; as JSON the patch is a field of the record."""
    if patch:
        from loom_audit.cli.shared.taking_back.plan_patch import patch_text, print_plan_patch

        if output.json:
            return {"patch": patch_text(workspace, plan)}
        print_plan_patch(workspace, output, plan)
    elif not output.json:
        most = None if dry_run else MOST_LINES
        output.lines(plan_lines(plan, _sessions(workspace, plan), most=most))
    return {}


def _note_choices(output: Output, workspace: "AuditedWorkspace", plan: Plan) -> None:
    """Say how what stays as it is can be taken back all the same, or read."""
    if output.json:
        return
    if plan.kept and plan.verb == "rollback":
        output.note("`--outside`, or `--choose PATH=old`, takes back what is kept, too")
    elif any(note.path for note in plan.kept):
        output.note("`--choose PATH=old` takes back what is kept all the same")
    if maybe := [note for note in plan.passed_over if note.path]:
        output.note(how_to_choose(maybe))
    _note_kept_git(output, workspace, plan)


def _note_kept_git(output: Output, workspace: "AuditedWorkspace", plan: Plan) -> None:
    """Say how the objects of a repository are read that does not come back."""
    from loom_audit.api.review.git_points import git_at

    for note in (*plan.irreversible, *plan.blocked):
        folder = git_folder(note.path)
        if folder is None or not note.calls:
            continue
        wanted = CallFilter(numbers=note.calls, newest_first=False, limit=1)
        for call in workspace.timeline.calls(wanted):
            if note.path in git_at(workspace, call.requested):
                asked = f"loom-audit git --at {call.requested} {shlex.quote(folder or '.')}"
                output.note(f"`{visible(asked)} -- log --all` lists what is kept of its commits")


def _refuse_open_calls(workspace: "AuditedWorkspace", *, held: bool) -> None:
    """Conflict as `carry_out` has it: what open calls do may be what was to be taken back."""
    from loom_audit.api.control.holding import why_not_now

    if error := why_not_now(workspace, held=held):
        raise error


def _print_done(output: Output, plan: Plan, result: "UndoResult") -> None:
    """Say under which number it is on record, what of it was not captured, and what undoes it."""
    call, count = result.call, len(result.changed)
    output.line(
        (f"{call.tool} is call {call.seq}", "green"), f": {count_text(count, 'path')} changed"
    )
    output.lines(
        ((f"  coverage {call.coverage.level}: ", "yellow"), one_line(reason, 300))
        for reason in call.coverage.reasons
    )
    for path in result.in_use:
        output.line(("  left as it is, being written all the while: ", "yellow"), visible(path))
    # a repository that came back is not removed again
    changed = plan.changes or any(not one.is_whole for one in plan.git)
    if changed and plan.verb == "undo":
        output.note("`loom-audit redo` brings it back")
    elif changed and plan.verb != "redo":
        output.note("`loom-audit undo` takes it back")
    if plan.in_part or result.in_use:
        output.note(_said_of_part(plan, result))


def _said_of_part(plan: Plan, result: "UndoResult") -> str:
    """What a script is told by the exit code: how many paths stay, and what is not undone."""
    kept = {note.path for note in plan.kept if note.path} | {*result.in_use}
    stays = count_text(len(kept), "path") + f" kept as {'it is' if len(kept) == 1 else 'they are'}"
    said = [stays] if kept else []
    if plan.irreversible:
        said.append(f"{count_text(len(plan.irreversible), 'effect')} not undone")
    return f"in part: {', '.join(said)}, listed above (exit {exits.IN_PART})"


def _tell_complete(output: Output, workspace: "AuditedWorkspace", plan: Plan, before: int) -> None:
    """Say so where a plan was carried out as a whole since an event, although a signal came."""
    for call in workspace.timeline.calls(CallFilter(after=before, tool=plan.verb)):
        if call.status == "ok" and call.reverts == plan.reverts:
            changed = f"{count_text(call.changed, 'path')} changed"
            output.note(f"{plan.verb} {call.seq} is complete: {changed}")


def _refuse_unknown(plan: Plan) -> None:
    """NOT_FOUND for a choice about a path that the plan has nothing to do with."""
    for path in idle_choices(plan):
        conflicts = first_few([one.path for one in plan.blocked if one.path], 5, visible)
        raise NotFound(
            f"the plan says nothing of {visible(path)}, so there is nothing to choose",
            hint=f"In conflict: {conflicts}." if conflicts else "Look at the plan with --dry-run.",
        )


def _confirmed(output: Output, plan: Plan, *, yes: bool) -> bool:
    """Whether to go on; a person is asked where there is one and `yes` is not given."""
    output.stdout.flush()  # what cannot be shown is not done
    if yes or not output.interactive:
        return True
    try:
        return click.confirm(f"{plan.verb.capitalize()}?", default=False, err=True)
    except click.Abort:
        output.note("")
        output.note("nothing was changed")
        raise


def _refusal(plan: Plan) -> Conflict | None:
    """Why a plan is not carried out as it stands; None where it is."""
    return _blocked(plan) if plan.blocked else _all_kept(plan) if plan.keeps_all else None


def _end_dry_run(output: Output, refused: Conflict | None) -> int:
    """Say why the plan would be refused, which the exit code tells too."""
    if refused is None:
        return exits.OK
    output.note(f"not carried out as it stands (exit {exits.CONFLICT}): {refused.message}")
    return exits.CONFLICT


def _blocked(plan: Plan) -> Conflict:
    from loom_audit.model.plans.left_out import is_left_out_block

    shown = first_few(plan.blocked, 5, lambda note: visible(note.path))
    if not all(note.path for note in plan.blocked):
        shown = first_few([note for note in plan.blocked if not note.path], 2, _reason)
        return Conflict(
            f"nothing was written: {shown}",
            hint="`--no-git` takes back the files alone.",
            details={"paths": [note.path for note in plan.blocked if note.path]},
        )
    if any(is_left_out_block(note) for note in plan.blocked):
        what = "cannot be taken back safely"
        hint = (
            "Where the reason names what is not on record, put that back yourself, or keep what "
            "is there: --choose PATH=current. Elsewhere PATH=old and PATH=merge do as well."
        )
    else:
        what = "would lose later changes"
        hint = (
            "Choose for each, or for a folder: --choose PATH=current keeps it, PATH=old takes what "
            "was, PATH=merge writes both with markers."
        )
    return Conflict(
        f"nothing was written: {shown} {what}",
        hint=hint,
        details={"paths": [note.path for note in plan.blocked]},
    )


def _reason(note: Note) -> str:
    return one_line(note.reason, 200)


def _all_kept(plan: Plan) -> Conflict:
    shown = first_few(plan.kept, 5, lambda note: visible(note.path))
    return Conflict(
        f"nothing was taken back: {shown} would be kept as it is",
        hint="Choose for each: --choose PATH=old takes it back all the same, where that can be; "
        "PATH=current keeps it, and the next undo goes on to the call before.",
        details={"paths": [note.path for note in plan.kept]},
    )


def _sessions(workspace: "AuditedWorkspace", plan: Plan) -> Mapping[str, Sequence[int]]:
    """The numbers that a plan takes back, by the session they belong to."""
    missing = set(plan.reverts)
    found: dict[str, list[int]] = {}
    before: int | None = None
    while missing:
        page = workspace.timeline.calls(CallFilter(before=before, limit=500))
        for call in page:
            if call.seq in missing:
                found.setdefault(f"session {call.session} ({call.actor})", []).append(call.seq)
                missing.discard(call.seq)
        if len(page) < 500 or page[-1].requested < min(missing, default=0):
            break
        before = page[-1].requested
    if missing:
        found["outside"] = list(missing)
    return {session: sorted(taken) for session, taken in found.items()}


def plan_lines(
    plan: Plan, sessions: Mapping[str, Sequence[int]] | None = None, *, most: int | None = None
) -> Iterator[Line]:
    """The lines of a plan: what will change, what stays, what stops it, each with its reason.

    `sessions` are the calls taken back by the session they belong to; `most` bounds the lines of
    what will change and what is so already.
    """
    yield ((f"{plan.verb} {one_line(plan.target)}".rstrip(), "bold"), f"  (log at {plan.head})")
    if plan.provisional:
        yield (("provisional: what is on disk is not on record yet", "yellow"),)
    for session, taken in (sessions or {}).items():
        yield ("takes back: ", numbers(taken), (f"  of {one_line(session, 60)}", "dim"))
    for number, paths in plan.partly.items():
        yield ("takes back in part: ", str(number), f"  {first_few(paths, 5, visible)}")
    merged = {note.path for note in plan.merged}
    gone = {change.path for change in plan.changes if change.after is None}
    merged |= {move.source for move in plan.moves if move.target in merged} & gone
    if changes := [change for change in plan.changes if change.path not in merged]:
        yield ("will change:",)
        yield from _bounded(list(change_lines(changes, plan.moves)), most)
    if plan.git:
        yield ("will change of git:",)
        yield from _bounded([(f"  {one_line(text, 300)}",) for text in plan.git_words], most)
    if plan.lost_commits:
        yield (("on no ref any more, and kept beside the store:", "yellow"),)
        yield from _bounded([(f"  {visible(one)}",) for one in plan.lost_commits], most)
    if plan.git_settings:
        back = plan.request.git_config
        yield (("hooks and settings of git, which can run code as you:", "red" if back else ""),)
        yield from _bounded([*_setting_lines(plan)], most)
    if plan.merged:
        yield ((MERGED.title, "cyan"),)
        yield from _bounded(list(_merged_lines(plan)), most)
    if holds := marked(plan):
        yield (("will hold conflict markers:", "red"),)
        yield from ((f"  {visible(path)}",) for path in holds)
    if plan.already:
        yield ("already so:",)
        yield from _bounded([(f"  {visible(path)}",) for path in plan.already], most)
    for one in (KEPT, BLOCKED, *TOLD):
        yield from section_lines(one, one.notes(plan))
    if not (plan.changes or plan.blocked or plan.git):
        yield ("nothing on disk will change",)


def section_lines(one: PlanList, notes: Sequence[Note]) -> Iterator[Line]:
    """The lines of one list of a plan: its title, then each note; nothing where it is empty."""
    if notes:
        yield ((one.title, _STYLES.get(one.name, "yellow")),)
        yield from map(note_line, notes)


def _setting_lines(plan: Plan) -> Iterator[Line]:
    """What differs of each file of hooks and settings, from what is there to what was."""
    stays = "" if plan.request.git_config else "; stays without --git-config"
    for path, lines in plan.git_settings:
        yield (f"  {one_line(path, 200)}{stays}",)
        yield from ((f"    {visible(one)}",) for one in lines)


def _merged_lines(plan: Plan) -> Iterator[Line]:
    """A line per merged path: its change, and which later change is kept in it."""
    sources = {move.target: move.source for move in plan.moves}
    changes = {change.path: change for change in plan.changes}
    for note in plan.merged:
        names = [path for path in (sources.get(note.path), note.path) if path]
        *_, line = change_lines([changes[path] for path in names], plan.moves)
        _, *reason = note_line(note)
        yield (*line, ": ", *reason)


def marked(plan: Plan) -> list[str]:
    """The paths that a plan writes with conflict markers in them, as was chosen."""
    if "merge" not in plan.request.choices.values():
        return []
    texts = {b: text for b, text in plan.contents.items() if b"\n<<<<<<< " in b"\n" + text}
    return [c.path for c in plan.changes if c.after is not None and c.after.blob in texts]


def _bounded(lines: Sequence[Line], most: int | None) -> Iterator[Line]:
    yield from lines[:most]
    if most is not None and len(lines) > most:
        yield ((f"  and {len(lines) - most} more; --dry-run lists them all", "dim"),)


def note_line(note: Note) -> Line:
    """A note of a plan as a line: its path, the reason and the calls behind it."""
    told = all(re.search(rf"\b{seq}\b", note.reason) for seq in note.calls)
    word = "call" if len(note.calls) == 1 else "calls"
    calls = "" if told else f" ({word} {numbers(note.calls)})"
    name = visible(note.path)
    return (f"  {name}: " if name else "  ", one_line(note.reason, 300), (calls, "dim"))
