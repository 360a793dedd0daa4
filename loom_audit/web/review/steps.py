"""A session's steps: prompts, words, calls and what came from outside, as one conversation."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import groupby
from typing import TypeAlias

from fastapi import APIRouter, Request
from msgspec import Struct
from starlette.responses import Response

from loom_audit.api.control.approvals import decisions
from loom_audit.api.face import AuditedWorkspace
from loom_audit.api.review.conversation import Said, conversation_of
from loom_audit.api.review.sessions import SessionReview, last_lines
from loom_audit.model.coverage import NOT_FAILED
from loom_audit.model.records import Call, OutsideChange, Session
from loom_audit.ports import CallFilter
from loom_audit.web.review.net import reviews_of
from loom_audit.web.review.said import Quote, quote
from loom_audit.web.review.scope import fields_in
from loom_audit.web.shared.budget import NODE, weight
from loom_audit.web.shared.dependencies import Query, Render, Workspace, number
from loom_audit.web.shared.listing import GIT_LINES, git_lines, git_on_page, reads_title
from loom_audit.web.shared.ticks import calls_ticked
from loom_audit.web.shared.urls import address, unquoted

router = APIRouter()
STEPS = 120
SPACE = 19_000
PROMPT, WORDS = 1_500, 900
"""Characters of a prompt, and of a message, that stand among the steps."""
FOLDED = 3
"""The number of reads after each other from which on they are one step."""
INSIDE = 12
"""The number of calls of a subagent that are listed where it began."""
OUTSIDE = 20
"""The number of changes from outside that stand among the steps of a page."""
NESTED = 8
"""The number of subagents of a page whose calls are listed."""


class Reads(Struct, frozen=True):
    """Calls after each other that only looked, oldest first."""

    calls: tuple[Call, ...]

    @property
    def requested(self) -> int:
        """The seq of the first request."""
        return self.calls[0].requested

    @property
    def title(self) -> str:
        """What the row says of them all."""
        return reads_title(self.calls)


class Part(Struct, frozen=True):
    """A session within this one, with its prompt, its last words and its first calls."""

    session: Session
    prompt: Quote | None = None
    words: Quote | None = None
    calls: tuple[Call, ...] = ()


Step: TypeAlias = Quote | Call | OutsideChange | Session
Row: TypeAlias = Quote | Call | OutsideChange | Part | Reads


class Steps(Struct, frozen=True):
    """A page of steps, oldest first; `older` and `newer` are where its neighbours begin.

    `crowded`: there may be more changes from outside between them than are listed. `git` is what
    calls changed of git, in git's words, by their requests.
    """

    rows: tuple[Row, ...]
    older: int | None
    newer: int | None
    crowded: bool = False
    git: Mapping[int, Sequence[str]] = {}


@router.get("/w/{workspace}/s/{session}/steps")
def steps(
    request: Request, workspace: Workspace, session: str, query: Query, pages: Render
) -> Response:
    """Show what was asked, said and done in a session, oldest first."""
    reviewed = reviews_of(request).of(workspace, unquoted(session))
    shown = reviewed.session
    after, before = number(query, "after"), number(query, "before")
    fields = fields_in(query)
    if after is None and before is None:
        after = max([int(value) - (name == "turn") for name, value in fields], default=0)
    found = page_of_steps(workspace, reviewed, after or 0, before)
    calls = [row for row in found.rows if isinstance(row, Call)]
    failed = [one for one in calls if one.seq and one.status not in NOT_FAILED]
    base = address("w", workspace.id, "s", shown.id, "steps")
    return pages.page(
        request,
        "steps.html",
        session=shown,
        steps=found,
        reviewed=reviewed,
        decided=reviewed.decided if reviewed.whole else decisions(workspace, calls),
        git=found.git,
        lines=last_lines(workspace, [one for one in failed if one.effect == "execute"]),
        head=workspace.log.head(),
        base=base,
        ticks=calls_ticked(
            query,
            base,
            [
                ("Older steps", (("before", found.older),) if found.older else ()),
                ("Newer steps", (("after", found.newer),) if found.newer else ()),
            ],
        ),
        fields=fields,
        tab="steps",
        section="overview",
    )


def page_of_steps(
    workspace: AuditedWorkspace, reviewed: SessionReview, after: int, before: int | None
) -> Steps:
    """The steps after an event, or the last ones before one, as many as a page holds."""
    backwards, session = before is not None, reviewed.session
    found = sorted(_steps(workspace, reviewed, after, before), key=place_of, reverse=backwards)
    calls = [step for step in found if isinstance(step, Call)]
    git = git_lines(reviewed.git) if reviewed.whole else git_on_page(workspace.timeline, calls)
    kept, space = list[Step](), SPACE
    for step in found:
        space -= weight_of(step, git)
        if kept and (space < 0 or len(kept) == STEPS):
            break
        kept.append(step)
    more = len(kept) < len(found)
    if backwards:
        kept.reverse()
    first, last = (place_of(kept[0]), place_of(kept[-1])) if kept else (after, after)
    low = first - 1 if backwards and more else max(after, session.started)
    high = last if more and not backwards else (session.ended or workspace.timeline.log.head())
    high = min(high, before - 1) if before is not None else high
    outside = [one for one in reviewed.outside if low < one.seq <= high][: OUTSIDE + 1]
    if not reviewed.whole:
        outside = [*workspace.timeline.outside(after=low, before=high + 1, limit=OUTSIDE + 1)]
    kept = sorted([*kept, *outside[:OUTSIDE]], key=place_of)
    return Steps(
        (*_rows(workspace, reviewed, kept),),
        older=first if kept and (more if backwards else after > session.started) else None,
        newer=last if kept and (backwards or more) else None,
        crowded=len(outside) > OUTSIDE,
        git=git,
    )


def _steps(
    workspace: AuditedWorkspace, reviewed: SessionReview, after: int, before: int | None
) -> Iterator[Step]:
    """What a session was asked, said and did: of each as much as a page holds, and one more."""
    backwards, limit = before is not None, STEPS + 1
    session, conversation = reviewed.session, conversation_of(workspace)

    def here(seq: int) -> bool:
        return after < seq and (before is None or seq < before)

    if reviewed.whole:
        some = slice(-limit, None) if backwards else slice(limit)
        places = reviewed.said_in(session.id, after=after, before=before)[some]
        said: Sequence[Said] = conversation.read(session.id, places)
        own = (call for call in reviewed.calls if call.session == session.id)
        calls: Sequence[Call] = [call for call in own if here(call.requested)][some]
        parts: Sequence[Session] = reviewed.subagents
    else:
        said = conversation.some(
            session.id, after=after, before=before, newest_first=backwards, limit=limit
        )
        calls = workspace.timeline.calls(
            CallFilter(
                session=session.id, after=after, before=before, newest_first=backwards, limit=limit
            )
        )
        parts = conversation.sessions_within(session.id)
    for one in said:
        found = quote(one, PROMPT if one.role == "prompt" else WORDS)
        if found is not None:
            yield found
    yield from calls
    yield from (one for one in parts if one.parent == session.id and here(one.started))


def place_of(step: Step) -> int:
    """Where a step stands among the others."""
    match step:
        case Quote():
            return step.said.seq
        case Call():
            return step.requested
        case Session():
            return step.started
    return step.seq


def weight_of(step: Step, git: Collection[int]) -> int:
    """How much of the page a step takes."""
    match step:
        case Quote():
            return step.weight
        case Call():
            texts = len(step.summary[:200]) + len(step.error[:160])
            nodes = 14 + 2 * GIT_LINES * (step.requested in git)
            return nodes * NODE + texts + sum(map(len, step.paths))
        case Session():
            return (14 + 5 * INSIDE) * NODE + INSIDE * 100 + weight(4, step.title[:160]) + 600
    return 10 * NODE + 2 * sum(map(len, step.paths))


def _rows(
    workspace: AuditedWorkspace, reviewed: SessionReview, kept: Sequence[Step]
) -> Iterator[Row]:
    nested = 0
    for looked, some in groupby(kept, _only_looked):
        together = [*some]
        if looked and len(together) >= FOLDED:
            yield Reads(tuple(step for step in together if isinstance(step, Call)))
            continue
        for step in together:
            if isinstance(step, Session):
                nested += 1
                yield part_of(workspace, reviewed, step, INSIDE if nested <= NESTED else 0)
            else:
                yield step


def _only_looked(step: Step) -> bool:
    return isinstance(step, Call) and step.effect == "read" and step.status == "ok"


def part_of(
    workspace: AuditedWorkspace, reviewed: SessionReview, session: Session, most: int
) -> Part:
    """A session within another, with its first calls, at most so many."""
    talk, id = conversation_of(workspace), session.id
    if not reviewed.whole:
        wanted = CallFilter(session=id, newest_first=False, limit=most)
        calls = tuple(workspace.timeline.calls(wanted)) if most else ()
        prompt, words = talk.first_asked(id), talk.last_words(id)
        return Part(session, quote(prompt, 300), quote(words, 300), calls)
    own = [call for call in reviewed.calls if call.session == id]
    prompt = talk.one(id, reviewed.said_in(id, "prompt")[:1])
    words = talk.one(id, reviewed.said_in(id, "assistant")[-1:])
    return Part(session, quote(prompt, 300), quote(words, 300), (*own[:most],))
