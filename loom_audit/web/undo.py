"""Taking things back: first the plan as a page, then the same plan carried out."""

import hashlib
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast, get_args

from fastapi import APIRouter, Request
from msgspec import Struct
from msgspec.structs import replace
from starlette.responses import Response

from loom_audit.api.control import holding
from loom_audit.api.control.holding import (
    calls_left_open,
    has_to_be_told,
    hold_all,
    record_ended_calls,
    why_not_now,
)
from loom_audit.api.face import AuditedWorkspace
from loom_audit.api.upkeep.drift import content_of_drift
from loom_audit.errors import AuditError, Conflict, InvalidArguments
from loom_audit.model.events import FilesChanged
from loom_audit.model.files import FileChange, FileState
from loom_audit.model.plans.lists import BLOCKED, DECIDED, KEPT, MERGED, TOLD
from loom_audit.model.plans.planning import Note, Plan
from loom_audit.model.plans.request import FLAGS, Choice, PlanRequest, Verb
from loom_audit.model.text.display import visible
from loom_audit.ports import EventFilter
from loom_audit.web.live import Works
from loom_audit.web.shared.admission import Visitor
from loom_audit.web.shared.budget import Budget, Part, row_weight, weight
from loom_audit.web.shared.changes import LISTS, fragment_of, show_changes
from loom_audit.web.shared.dependencies import (
    Form,
    Query,
    Render,
    SignedIn,
    Workspace,
    is_number,
    number,
    point_text,
)
from loom_audit.web.shared.pages import Pages, obstacles, redirect, wants_fragment
from loom_audit.web.shared.urls import Fields, address, encoded, first, quoted, unquoted
from loom_audit.web.shared.urls import fields as read_fields

router = APIRouter()
CLEAN_FILES = 20
KEPT_PLANS = 3
CHOICE = "choice:"
WISH = "wish"
"""A field that holds others, as a query; those of the same name beside it count."""

ASKED = (BLOCKED, MERGED, KEPT, DECIDED)
"""The lists of which each path is chosen for."""
PLAN_LISTS = (*(one.name for one in (*ASKED, *TOLD)), "already", "reverts")
DECIDING, NOTING = 5_000, 2_000
"""What a list of questions and one of notes may weigh beside the others."""
SHOWN_CALLS = 8
"""Calls that a note of a plan shows."""


class LastPlans:
    """The plans that were shown last: a large one takes seconds to make, and is looked at in parts.

    One counts until something happens in its workspace.
    """

    def __init__(self) -> None:
        self._plans: OrderedDict[tuple[str, str, int], Plan] = OrderedDict()

    def get(self, workspace: AuditedWorkspace, asked: PlanRequest) -> Plan | None:
        """The plan that was shown for this request since the last event; None where it is gone."""
        return self._plans.get(self._key(workspace, asked))

    def put(self, workspace: AuditedWorkspace, asked: PlanRequest, plan: Plan) -> None:
        """Keep a plan as shown, and forget the one that was shown longest ago."""
        self._plans[self._key(workspace, asked)] = plan
        while len(self._plans) > KEPT_PLANS:
            self._plans.popitem(last=False)

    def _key(self, workspace: AuditedWorkspace, asked: PlanRequest) -> tuple[str, str, int]:
        return workspace.id, encoded(fields_of(asked)), workspace.log.head()


@router.get("/w/{workspace}/plan")
def plan(
    request: Request, workspace: Workspace, query: Query, pages: Render, visitor: SignedIn
) -> Response:
    """Show what would happen; nothing does.

    A page that shows why it cannot be carried out now asks by `stopped` whether that is still so.
    """
    asked = read_request(query)
    was = first(query, "stopped")
    if was and wants_fragment(request):
        same = was == name_of(why_not_now(workspace, held=asked.running))
        return Response(status_code=204) if same else Response(headers={"HX-Refresh": "true"})
    # its parts are of the plan that was shown; what is carried out is made again and compared
    shown: LastPlans = request.app.state.plans
    part = bool(first(query, "of") or first(query, "diff"))
    plan = shown.get(workspace, asked) if part else None
    if plan is None:
        plan = workspace.plan(asked)
        shown.put(workspace, asked, plan)
    return _show(request, workspace, pages, visitor, asked, plan, query)


@router.post("/w/{workspace}/look-again")
def record_ends(request: Request, workspace: Workspace, form: Form) -> Response:
    """Put on record how open calls ended, as far as their clients told it; then show the plan."""
    asked = read_request(form)
    record_ended_calls(workspace)
    return redirect(request, plan_address(workspace, asked))


@router.post("/w/{workspace}/carry-out")
def carry_out(
    request: Request, workspace: Workspace, form: Form, pages: Render, visitor: SignedIn
) -> Response:
    """Carry out the plan that was shown, or at once a clean one (`quick`).

    With `hold` every open session is held first; what these changed since is taken back, too.
    """
    form = unfolded(form)
    asked = read_request(form)
    if asked.running:
        why = f"rolled back to {asked.targets[0]}"[:200]
        hold_all(workspace, why, actor=visitor.actor, label=visitor.label)
    else:
        record_ended_calls(workspace)
    plan = workspace.plan(asked)
    if first(form, "quick"):
        if not is_clean(plan):
            return redirect(request, plan_address(workspace, asked))
    elif not is_as_shown(workspace, plan, form) and not asked.running:
        problem = Conflict(
            "Nothing was changed: the workspace has moved on since the plan was shown.",
            hint="This is the new plan. Look through it and carry it out if it is right.",
        )
        return _show(request, workspace, pages, visitor, asked, plan, form, problem)
    try:
        works: Works = request.app.state.works
        with works.telling(form) as report:
            done = holding.carry_out(
                workspace,
                plan,
                actor=visitor.actor,
                label=visitor.label,
                visit=visitor.visit,
                report=report,
            )
    except Conflict as problem:
        plan = workspace.plan(asked)
        return _show(request, workspace, pages, visitor, asked, plan, form, problem)
    new = done.call.seq or done.call.requested
    if wants_fragment(request) and first(form, "row"):
        undone = workspace.timeline.call(number(form, "row") or new).call
        return pages.page(
            request,
            "undone.html",
            call=undone,
            done=done.call,
            number=new,
            nested=bool(undone.reverts),
        )
    return redirect(request, address("w", workspace.id, "c", new))


def unfolded(fields: Fields) -> Fields:
    """The fields with those that WISH holds."""
    inner = first(fields, WISH).encode("utf-8", "surrogateescape")
    return {**read_fields(inner), **fields} if inner else fields


def read_request(fields: Fields) -> PlanRequest:
    """The request that fields hold. InvalidArguments names what is missing or not understood."""
    fields = unfolded(fields)
    verb = first(fields, "verb")
    if verb not in get_args(Verb):
        raise InvalidArguments(f"{verb!r} is not one of {', '.join(get_args(Verb))}")
    targets = [target for target in fields.get("target", ()) if target]
    if not targets and verb in ("revert", "rollback"):
        raise InvalidArguments(f"{verb} needs a target", hint="A call's number, or a point.")
    choices: dict[str, Choice] = {}
    for name, values in fields.items():
        if name.startswith(CHOICE) and values:
            if values[-1] not in get_args(Choice):
                raise InvalidArguments(
                    f"{values[-1]!r} is not one of {', '.join(get_args(Choice))}"
                )
            choices[unquoted(name.removeprefix(CHOICE))] = cast(Choice, values[-1])
    request = PlanRequest(cast(Verb, verb), choices=choices)
    if verb == "revert":
        return replace(request, targets=tuple(int(t) if is_number(t) else t for t in targets))
    if verb != "rollback":
        return replace(request, session=next(iter(targets), None))
    paths = tuple(path.strip("/") for path in fields.get("path", ()) if path.strip("/"))
    flags = {flag.field: True for flag in FLAGS if first(fields, flag.name)}
    return replace(request, targets=(point_text(targets[0]),), paths=paths, **flags)


def fields_of(request: PlanRequest) -> tuple[tuple[str, str], ...]:
    """A request as form fields and query parameters; every name of a file percent-encoded."""
    targets = request.targets or filter(None, [request.session])
    return (
        ("verb", request.verb),
        *(("target", str(target)) for target in targets),
        *(("path.q", quoted(path, safe="/")) for path in request.paths),
        *((CHOICE + quoted(path, safe="/"), chosen) for path, chosen in request.choices.items()),
        *((flag.name, "1") for flag in request.flags),
    )


def hidden_fields(asked: Sequence[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """The fields of a request in few: paths and choices, of which there are many, in one."""
    many = [pair for pair in asked if pair[0].startswith(("path.q", CHOICE))]
    few = [pair for pair in asked if pair not in many]
    return (*few, *(((WISH, encoded(many)),) if many else ()))


def plan_address(workspace: AuditedWorkspace, asked: PlanRequest) -> str:
    """The address at which the plan of a request is shown."""
    return address("w", workspace.id, "plan", query=fields_of(asked))


def identity(plan: Plan) -> str:
    """A hash of all that the plan would do and leave; two equal plans are one decision.

    The head is not in it: calls that touch nothing of this must not make a person decide again.
    """
    parts = (
        plan.verb,
        plan.target,
        plan.changes,
        plan.reverts,
        plan.moves,
        plan.already,
        plan.merged,
        plan.kept,
        plan.blocked,
        plan.irreversible,
        plan.inexact,
    )
    return hashlib.sha256(repr(parts).encode("utf-8", "backslashreplace")).hexdigest()


def is_as_shown(workspace: AuditedWorkspace, plan: Plan, form: Fields) -> bool:
    """Whether a plan is the one that was shown, as the form tells it.

    What came from outside since, at paths of which the shown one said nothing, is kept by both.
    """
    shown, head = first(form, "plan"), number(form, "head")
    if shown == identity(plan):
        return True
    if head is None:
        return False
    later = workspace.log.read(EventFilter(after=head, kinds=(FilesChanged.kind,)))
    facts = (event.fact for event in later if isinstance(event.fact, FilesChanged))
    came = {one.path for fact in facts if fact.origin == "outside" for one in fact.changes}
    kept = tuple(note for note in plan.kept if note.path not in came)
    return shown == identity(replace(plan, kept=kept))


def name_of(error: AuditError | None) -> str:
    """A short name for what an error says; "" for none."""
    return hashlib.sha256(visible(error.message).encode()).hexdigest()[:16] if error else ""


def is_clean(plan: Plan) -> bool:
    """Whether one click may carry it out: nothing to decide and few enough files to oversee."""
    undecided = plan.merged or plan.kept or plan.blocked or plan.irreversible or plan.inexact
    return bool(plan.changes) and not undecided and len(plan.changes) <= CLEAN_FILES


class Question(Struct, frozen=True):
    """What is to be done with one path, as it is chosen now; `merge` names that answer, if any."""

    note: Note
    chosen: Choice
    merge: str = ""


def lists_of(budget: Budget, plan: Plan, choices: Mapping[str, Choice]) -> Mapping[str, Part[Any]]:
    """The part of each list of a plan that the page shows, by the list's name."""

    def questions(notes: Iterable[Note], chosen: Choice, merge: str) -> list[Question]:
        return [Question(note, choices.get(note.path, chosen), merge) for note in notes]

    asked: dict[str, list[Question]] = {
        "blocked": questions(plan.blocked, "current", "Merge with conflict markers"),
        "merged": questions(plan.merged, "merge", "Merge"),
        "kept": [_kept(note, choices) for note in plan.kept if note.path],
    }
    listed = {one.note.path for questions in asked.values() for one in questions}
    asked["decided"] = [
        Question(Note(path, ""), chosen, "Merge with conflict markers")
        for path, chosen in choices.items()
        if path not in listed
    ]
    told = {one.name: one.notes(plan) for one in TOLD}
    return {
        **{
            name: budget.part(name, found, _with_weight, most=DECIDING)
            for name, found in asked.items()
        },
        **{name: budget.part(name, found, _noted, most=NOTING) for name, found in told.items()},
        "already": budget.part("already", plan.already, lambda p: (p, row_weight(2, p)), most=0),
        "reverts": budget.part("reverts", plan.reverts, lambda n: (n, weight(3)), most=NOTING),
    }


def _kept(note: Note, choices: Mapping[str, Choice]) -> Question:
    merge = "Merge" if note.path in choices or "moved here" in note.reason else ""
    return Question(note, choices.get(note.path, "current"), merge)


def _with_weight(question: Question) -> tuple[Question, int]:
    note = question.note
    nodes = 8 + 3 * bool(question.merge) + len(note.calls[:SHOWN_CALLS])
    return question, weight(nodes, note.reason) + row_weight(0, note.path)


def _noted(note: Note) -> tuple[Note, int]:
    return note, weight(2 + len(note.calls[:SHOWN_CALLS]), note.reason) + row_weight(0, note.path)


def _show(
    request: Request,
    workspace: AuditedWorkspace,
    pages: Pages,
    visitor: Visitor,
    asked: PlanRequest,
    plan: Plan,
    fields: Fields,
    problem: AuditError | None = None,
) -> Response:
    unrecorded = [FileChange(one.path, None, one.before) for one in plan.changes]
    there = content_of_drift(workspace, unrecorded)

    def content(state: FileState) -> bytes:
        merged = plan.contents.get(state.blob) if state.blob else None
        return there(state) if merged is None else merged

    status = 409 if problem else 200
    base = plan_address(workspace, asked)
    if problem and wants_fragment(request):
        links = (("Look at the plan", base), *obstacles(request, problem))
        return pages.refusal(
            request, status, problem.code, problem.message, problem.hint, links=links
        )
    stopped = why_not_now(workspace, held=asked.running)
    if stopped and problem and name_of(problem) == name_of(stopped):
        problem = None
    budget = Budget(fields, (*PLAN_LISTS, *LISTS), fragment=wants_fragment(request))
    lists = lists_of(budget, plan, asked.choices)
    changes = show_changes(plan.changes, content, fields, budget, base, moves=plan.moves)
    if answer := fragment_of(request, pages, changes, budget):
        return answer
    if wants_fragment(request) and budget.wanted:
        part = lists[budget.wanted]
        return pages.fragment(request, "_plan.html", "rest", base=base, part=part)
    return pages.page(
        request,
        "plan.html",
        status,
        base=base,
        asked=asked,
        fields=fields_of(asked),
        hidden=hidden_fields(fields_of(asked)),
        boxes=[flag for flag in FLAGS if flag.box],
        plan=plan,
        lists=lists,
        asked_lists=ASKED,
        told_lists=TOLD,
        changes=changes,
        held=workspace.timeline.holds() if asked.running else (),
        left_open=calls_left_open(workspace) if asked.running else (),
        identity=identity(plan),
        person=visitor.shown,
        problem=problem,
        obstacles=obstacles(request, problem) if problem else (),
        stopped=stopped,
        pressed=status == 409,
        in_the_way=obstacles(request, stopped) if stopped else (),
        may_have_ended=stopped is not None and has_to_be_told(workspace, stopped),
        still=name_of(stopped),
        section="undo",
    )
