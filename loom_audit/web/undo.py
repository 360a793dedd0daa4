"""Taking things back: first the plan as a page, then the same plan carried out."""

import hashlib
from collections import OrderedDict

from fastapi import APIRouter, Request
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
from loom_audit.api.upkeep.drift import content_of_plan
from loom_audit.errors import AuditError, Conflict
from loom_audit.model.events import FilesChanged
from loom_audit.model.git.record import GitChanged
from loom_audit.model.plans.lists import TOLD
from loom_audit.model.plans.planning import Plan
from loom_audit.model.plans.request import FLAGS, GIT_CONFIG, NO_GIT, WITH_GIT, Flag, PlanRequest
from loom_audit.model.text.display import visible
from loom_audit.ports import CallFilter, EventFilter
from loom_audit.web.live import WorkProgress
from loom_audit.web.plans.requests import (
    fields_of,
    hidden_fields,
    plan_address,
    read_request,
    unfolded,
)
from loom_audit.web.plans.shown import (
    ASKED,
    PLAN_LISTS,
    SIDES,
    Lists,
    folder_count,
    folder_questions,
    merged_paths,
    side_changes,
)
from loom_audit.web.shared.admission import Visitor
from loom_audit.web.shared.budget import Budget
from loom_audit.web.shared.changes import LISTS, fragment_of, show_changes
from loom_audit.web.shared.dependencies import Form, Query, Render, SignedIn, Workspace, number
from loom_audit.web.shared.listing import git_on_page
from loom_audit.web.shared.pages import STATUS, Pages, obstacles, redirect, wants_fragment
from loom_audit.web.shared.urls import Fields, address, encoded, first

router = APIRouter()
CLEAN_FILES = 20
KEPT_PLANS = 3


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
        try:
            plan = workspace.plan(asked)
        except AuditError as error:
            return _no_plan(request, workspace, pages, error)
        shown.put(workspace, asked, plan)
    return _show(request, workspace, pages, visitor, asked, plan, query)


def _no_plan(
    request: Request, workspace: AuditedWorkspace, pages: Pages, error: AuditError
) -> Response:
    """Show why there is no plan, with the pages on which something else is chosen."""
    links = (
        *obstacles(request, error),
        ("All calls", address("w", workspace.id, "calls")),
        ("Compare points", address("w", workspace.id, "compare")),
    )
    status = STATUS.get(error.code, 500)
    return pages.refusal(
        request,
        status,
        error.code,
        error.message,
        error.hint,
        details=error.details,
        links=links if status < 500 else (),
    )


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
        work: WorkProgress = request.app.state.progress
        with work.tracking(form) as report:
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
            git=git_on_page(workspace.timeline, [undone]),
        )
    return redirect(request, address("w", workspace.id, "c", new))


def identity(plan: Plan) -> str:
    """A hash of all that the plan would do and leave; two equal plans are one decision.

    The head is not in it: calls that touch nothing of this must not make a person decide again.
    """
    parts = (
        plan.verb,
        plan.target,
        plan.changes,
        plan.git,
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
    notes = plan.merged or plan.kept or plan.blocked or plan.irreversible or plan.inexact
    undecided = bool(notes or plan.git)
    return (
        bool(plan.changes) and not (undecided or plan.ran_long) and len(plan.changes) <= CLEAN_FILES
    )


def _boxes(workspace: AuditedWorkspace, plan: Plan) -> list[Flag]:
    """What a plan can also be asked with; what is about git where there is something of git."""
    asked = plan.request
    offered = [flag for flag in FLAGS if flag.box and asked.verb in flag.verbs]
    if not (plan.git_settings or asked.git_config):
        offered = [flag for flag in offered if flag is not GIT_CONFIG]
    if plan.git or asked.no_git or asked.with_git or asked.git_config:
        return offered
    if asked.verb == "rollback":
        since = EventFilter(after=int(asked.targets[0]), kinds=(GitChanged.kind,), limit=1)
        changed = any(True for _ in workspace.timeline.events(since))
    else:
        wanted = CallFilter(numbers=plan.calls, limit=None)
        changed = bool(workspace.timeline.git_of(workspace.timeline.calls(wanted)))
    return [flag for flag in offered if changed or flag not in (NO_GIT, WITH_GIT)]


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
    content = content_of_plan(workspace, plan)
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
    lists = Lists(budget, plan, content).shown()
    side, merged = first(fields, "side"), merged_paths(plan)
    if side:
        sides = address("w", workspace.id, "plan", query=(*fields_of(asked), ("side", side)))
        changes = show_changes(side_changes(plan, side), content, fields, budget, sides)
    else:
        listed = plan.changes
        if not first(fields, "diff"):  # what is merged has its difference in the list of it
            listed = tuple(one for one in plan.changes if one.path not in merged)
        changes = show_changes(listed, content, fields, budget, base, moves=plan.moves)
    if answer := fragment_of(request, pages, changes, budget):
        return answer
    if wants_fragment(request) and budget.wanted:
        part = lists[budget.wanted]
        return pages.fragment(request, "_plan.html", "rest", base=base, part=part, plan=plan)
    return pages.page(
        request,
        "plan.html",
        status,
        base=base,
        asked=asked,
        fields=fields_of(asked),
        hidden=hidden_fields(fields_of(asked)),
        boxes=_boxes(workspace, plan),
        plan=plan,
        lists=lists,
        asked_lists=ASKED,
        told_lists=TOLD,
        folders=folder_questions(plan),
        changes=changes,
        heading=SIDES[side] if side else "Will change",
        merged=len(merged),
        folder_count=folder_count(one for one in plan.changes if one.path not in merged),
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
