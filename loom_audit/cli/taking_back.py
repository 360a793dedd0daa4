"""Commands that take back: undo, redo, revert, rollback, recover."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from loom_audit.cli import exits
from loom_audit.cli.lines import call_line, counted, marked, plan_lines
from loom_audit.cli.looking import event_id
from loom_audit.cli.names import SESSION, named_point, session_id
from loom_audit.cli.options import (
    ChooseOption,
    DryRunOption,
    Invocation,
    YesOption,
    command,
    read_choices,
    workspace_path,
)
from loom_audit.cli.progress import progress
from loom_audit.cli.records import call_record, plan_record
from loom_audit.cli.waiting import how_to_answer, questions
from loom_audit.errors import Conflict, InvalidArguments, NotFound
from loom_audit.model.display import visible_path
from loom_audit.model.planning import Plan
from loom_audit.ports import CallFilter

if TYPE_CHECKING:
    from loom_audit.api import AuditedWorkspace

SessionOption = Annotated[
    str | None, typer.Option(metavar="ID", help="In this session; by default the newest one.")
]

_CODES = {exits.CONFLICT: "", exits.FAILED: "", exits.UNAVAILABLE: "", exits.CORRUPT: ""}


MOST_LINES = 50
"""Of what a plan changes when it is carried out; a dry run lists everything."""


def add(app: typer.Typer) -> None:
    """Put these commands on the application."""
    for body, examples in (
        (undo, ("loom-audit undo --dry-run", "loom-audit undo --session ID")),
        (redo, ("loom-audit redo",)),
        (
            revert,
            (
                "loom-audit revert 42 45",
                "loom-audit revert session:ID --choose src/app.py=merge",
            ),
        ),
        (
            rollback,
            (
                "loom-audit rollback head~3 --dry-run",
                "loom-audit rollback @before-merge src/ --outside",
            ),
        ),
    ):
        command(app, body.__name__, section="Take back", examples=examples, codes=_CODES)(body)
    command(
        app,
        "recover",
        section="Take back",
        examples=("loom-audit recover", "loom-audit recover --continue"),
        codes=_CODES,
    )(recover)


def undo(
    at: Invocation,
    session: SessionOption = None,
    choose: ChooseOption = None,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
) -> int:
    """Take back the newest call not yet taken back.

    It stays on record, and redo brings it back.
    """
    with at.workspace() as workspace:
        _close_interrupted(workspace, dry_run=dry_run)
        choices = read_choices(workspace.root, choose)
        chosen = None if session is None else session_id(workspace, session)
        plan = workspace.plan_undo(session=chosen, choices=choices)
        return _settle(at, workspace, plan, dry_run=dry_run, yes=yes)


def redo(
    at: Invocation,
    session: SessionOption = None,
    choose: ChooseOption = None,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
) -> int:
    """Bring back what the newest undo took back."""
    with at.workspace() as workspace:
        _close_interrupted(workspace, dry_run=dry_run)
        choices = read_choices(workspace.root, choose)
        chosen = None if session is None else session_id(workspace, session)
        plan = workspace.plan_redo(session=chosen, choices=choices)
        return _settle(at, workspace, plan, dry_run=dry_run, yes=yes)


def revert(
    at: Invocation,
    targets: Annotated[
        list[str],
        typer.Argument(metavar="TARGET", help="Numbers of calls or events, or session:ID."),
    ],
    choose: ChooseOption = None,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
) -> int:
    """Take back the named calls, keep the later ones.

    Where a later call changed the same text, both are merged.
    """
    with at.workspace() as workspace:
        _close_interrupted(workspace, dry_run=dry_run)
        choices = read_choices(workspace.root, choose)
        named = [_target(workspace, text) for text in targets]
        plan = workspace.plan_revert(named, choices=choices)
        return _settle(at, workspace, plan, dry_run=dry_run, yes=yes)


def _target(workspace: "AuditedWorkspace", text: str) -> int | str:
    if text.isdecimal() and text.isascii():
        return int(text)
    if text.startswith(SESSION):
        return named_point(workspace, text)
    raise InvalidArguments(
        f"not a call: {text}", hint="Name it by the number in `loom-audit log`, or session:ID."
    )


def rollback(
    at: Invocation,
    point: Annotated[
        str, typer.Argument(metavar="POINT", help="42, head~3, a time, @name or session:ID.")
    ],
    paths: Annotated[
        list[str] | None, typer.Argument(metavar="PATH", help="Only these, and below.")
    ] = None,
    outside: Annotated[
        bool, typer.Option("--outside", help="Take back what came from outside, too.")
    ] = False,
    choose: ChooseOption = None,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
) -> int:
    """Bring the workspace, or the paths, back to a point.

    Takes back the recorded calls of all sessions after it. What came from outside (your editor,
    another program) after the point is kept and listed, unless --outside is given or the path
    is chosen.
    """
    with at.workspace() as workspace:
        _close_interrupted(workspace, dry_run=dry_run)
        plan = workspace.plan_rollback(
            named_point(workspace, point),
            paths=[workspace_path(workspace.root, path) for path in paths or ()],
            choices=read_choices(workspace.root, choose),
            outside=outside,
        )
        return _settle(at, workspace, plan, dry_run=dry_run, yes=yes)


def _close_interrupted(workspace: "AuditedWorkspace", *, dry_run: bool) -> None:
    """Record what killed processes left first, so that the plan shown is the one carried out."""
    if not dry_run:
        workspace.recover()


def _refuse_unknown(plan: Plan) -> None:
    """NOT_FOUND for a choice about a path that the plan has nothing to do with."""
    notes = (*plan.kept, *plan.blocked, *plan.irreversible)
    known = {change.path for change in plan.changes} | {note.path for note in notes}
    known |= set(plan.already)
    chosen = set(plan.request.choices if plan.request else ())
    for path in sorted(chosen - known):
        raise NotFound(
            f"the plan says nothing of {path}, so there is nothing to choose",
            hint="Look at the plan with --dry-run.",
        )


def _settle(
    at: Invocation, workspace: "AuditedWorkspace", plan: Plan, *, dry_run: bool, yes: bool
) -> int:
    """Show the plan, then carry it out unless it is blocked or somebody says no."""
    out = at.output
    _refuse_unknown(plan)
    record = plan_record(plan) | {
        "marked": marked(plan),
        "carried_out": False,
        "call": None,
        "changed": [],
    }
    if not out.json:
        most = None if dry_run else MOST_LINES
        out.lines(plan_lines(plan, _sessions(workspace, plan), most=most))
    if plan.kept and not out.json and plan.verb == "rollback":
        out.note("`--outside`, or `--choose PATH=old`, takes back what is kept, too")
    elif any("other commands" in note.reason for note in plan.kept) and not out.json:
        out.note("`--choose PATH=old` takes it back all the same")
    if dry_run:
        if out.json:
            out.record(record)
        return exits.CONFLICT if plan.blocked else exits.OK
    if plan.blocked:
        if out.json:
            out.record(record)
        raise _blocked(plan)
    if not plan.changes and not plan.reverts:
        if out.json:
            out.record(record)
        out.note("nothing was changed, and nothing is recorded")
        return exits.OK
    if not yes and out.interactive and not _confirmed(at, plan):
        out.note("nothing was changed")
        return exits.FAILED
    with progress(out):
        try:
            result = workspace.carry_out(plan)
        except Conflict as error:
            raise _or_waiting(workspace, error) from None
    record |= {"carried_out": True, "call": result.call.seq, "changed": list(result.changed)}
    if out.json:
        out.record(record)
    else:
        count = len(result.changed)
        out.line(
            (f"{plan.verb} is call {result.call.seq}", "green"),
            f": {counted(count, 'path')} changed",
        )
        if not plan.changes:
            return exits.OK
        if plan.verb == "undo":
            out.note("`loom-audit redo` brings it back")
        elif plan.verb != "redo":
            out.note("`loom-audit undo` takes it back")
    return exits.OK


def _confirmed(at: Invocation, plan: Plan) -> bool:
    at.output.stdout.flush()
    try:
        return typer.confirm(f"{plan.verb.capitalize()}?", default=False, err=True)
    except typer.Abort:
        at.output.note("")
        at.output.note("nothing was changed")
        raise


def _or_waiting(workspace: "AuditedWorkspace", error: Conflict) -> Conflict:
    """The conflict; with a call that waits for an answer, how to answer it."""
    for question in questions(workspace).values():
        if question.requested in (error.details.get("calls") or ()):
            return Conflict(
                f"{question.tool} waits for approval: {question.reason}",
                hint=f"Answer it first: {how_to_answer(question)}.",
                details=error.details,
            )
    return error


def _blocked(plan: Plan) -> Conflict:
    from loom_audit.model.left_out import is_left_out_block

    shown = ", ".join(visible_path(note.path) for note in plan.blocked[:5])
    more = f" and {len(plan.blocked) - 5} more" if len(plan.blocked) > 5 else ""
    if any(is_left_out_block(note) for note in plan.blocked):
        what = "cannot be taken back safely"
        hint = (
            "Where the reason names what is not on record, put that back yourself, or keep what "
            "is there: --choose PATH=current. Elsewhere PATH=old and PATH=merge do as well."
        )
    else:
        what = "would lose later changes"
        hint = (
            "Choose for each: --choose PATH=current keeps it, PATH=old takes what was, "
            "PATH=merge writes both with markers."
        )
    return Conflict(
        f"nothing was written: {shown}{more} {what}",
        hint=hint,
        details={"paths": [note.path for note in plan.blocked]},
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


def recover(
    at: Invocation,
    go_on: Annotated[
        bool, typer.Option("--continue", help="Finish an interrupted undo or rollback.")
    ] = False,
    abandon: Annotated[
        bool, typer.Option("--abandon", help="Leave an interrupted undo or rollback as it is.")
    ] = False,
) -> None:
    """Close the calls of processes that are gone.

    Records what is on disk now. Never writes the workspace, except to finish an interrupted
    undo with --continue.
    """
    if go_on and abandon:
        raise InvalidArguments(
            "--continue and --abandon cannot be given together", hint="Give one of them."
        )
    mode: Literal["auto", "continue", "abandon"] = (
        "continue" if go_on else "abandon" if abandon else "auto"
    )
    with at.workspace() as workspace:
        recovered = workspace.recover(mode)
        for one in recovered:
            number = one.call.seq or one.call.requested
            if at.output.json:
                at.output.record(
                    {
                        "call": call_record(one.call, event_id(workspace, number)),
                        "outcomes": [{"path": p, "outcome": o} for p, o in one.outcomes],
                        "waiting": one.waiting,
                    }
                )
                continue
            at.output.line(*call_line(one.call, width=at.output.width))
            for path, outcome in one.outcomes:
                at.output.line(f"  {visible_path(path)}: {outcome}")
        if not recovered:
            at.output.note("nothing to recover")
        if any(one.waiting for one in recovered):
            raise Conflict(
                "an interrupted change waits for a decision",
                hint="`loom-audit recover --continue` finishes it, `--abandon` leaves it as it is.",
            )
