"""What a page asks for while it is open: whether there is something new, how far long work is."""

from collections.abc import Iterator
from contextlib import contextmanager

from fastapi import APIRouter, Request
from starlette.responses import PlainTextResponse, Response

from loom_audit.model.actors import OUTSIDE
from loom_audit.model.events import CallRequested, FilesChanged
from loom_audit.model.text.display import count_text, one_line
from loom_audit.ports import OnProgress, Progress
from loom_audit.web.shared.dependencies import Query, Render, Workspace, number
from loom_audit.web.shared.listing import call_filter, lists_outside
from loom_audit.web.shared.urls import Fields, first

router = APIRouter()
COUNTED = 100
"""The number of new calls that are counted; for more a page says "more than"."""
AT_ONCE = 50
"""The number of pieces of long work that are tracked at once; others are done untracked."""
JOB = 64
"""Characters of the name that a page gives to its work."""


class WorkProgress:
    """How far the long work of this dashboard is, by the names that pages gave it."""

    def __init__(self) -> None:
        self._now: dict[str, Progress] = {}

    @contextmanager
    def tracking(self, form: Fields) -> Iterator[OnProgress | None]:
        """Give a form that names its work a function that takes reports; None to any other."""
        job = first(form, "job")[:JOB]
        if not job or len(self._now) >= AT_ONCE:
            yield None
            return
        self._now[job] = Progress("beginning", 0)
        try:
            yield lambda progress: self._now.__setitem__(job, progress)
        finally:
            self._now.pop(job, None)

    def in_words(self, job: str) -> str:
        """The last report in words, "" when there is none."""
        found = self._now.get(job[:JOB])
        if found is None:
            return ""
        done = f"{found.done:,}" if found.total is None else f"{found.done:,} of {found.total:,}"
        return one_line(f"{found.stage}: {done} {found.unit}", 200)


@router.get("/progress")
def progress(request: Request, query: Query) -> Response:
    """Tell how far the work of this name is; no content when it is not at work."""
    work: WorkProgress = request.app.state.progress
    told = work.in_words(first(query, "job"))
    return PlainTextResponse(told) if told else Response(status_code=204)


@router.get("/w/{workspace}/fresh")
def fresh(request: Request, workspace: Workspace, query: Query, pages: Render) -> Response:
    """Tell how much is new since the event `since` of what a page lists; no content for nothing.

    The calls of the requests `own` were made on the page and are no news to it.
    """
    since = number(query, "since") or 0
    # one small query, as long as nothing happens
    if not workspace.log.newest((CallRequested.kind, FilesChanged.kind), since)[1]:
        return Response(status_code=204)
    session = first(query, "session") or None
    flagged_calls = request.app.state.flagged_calls
    own = {one for one in query.get("own", ()) if one.isdecimal()}
    most = COUNTED + 1 + len(own)
    wanted = call_filter(workspace, query, session, flagged_calls, after=since, limit=most)
    lists_calls = first(query, "only") != "outside"
    found_calls = workspace.timeline.calls(wanted) if lists_calls else ()
    calls = sum(str(call.requested) not in own for call in found_calls)
    outside = ours = 0
    if lists_outside(query, session):
        typed = wanted.typed or ""
        found = workspace.timeline.outside(after=since, typed=typed, limit=COUNTED + 1)
        outside = sum(one.actor == OUTSIDE for one in found)
        ours = len(found) - outside
    changes = {" from outside": outside, " by loom-audit connect": ours}
    shown = [_said(calls, "new call")] * bool(calls)
    shown += [_said(count, "new change") + how for how, count in changes.items() if count]
    if not shown:
        return Response(status_code=204)
    return pages.page(request, "fresh.html", text=", ".join(shown))


def _said(count: int, noun: str) -> str:
    return f"more than {COUNTED} {noun}s" if count > COUNTED else count_text(count, noun)
