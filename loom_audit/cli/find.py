"""`loom-audit find`: words in calls, prompts, messages and changes from outside."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, get_args

from msgspec.structs import replace

from loom_audit.cli.shared.command import command
from loom_audit.cli.shared.invocation import Invocation
from loom_audit.cli.shared.lines import local_time
from loom_audit.cli.shared.lookup import make_index, note_baseline, note_verified
from loom_audit.cli.shared.output import Line, Piece
from loom_audit.cli.shared.parameters import argument, most_rows, option
from loom_audit.cli.shared.points import read_point, session_id
from loom_audit.cli.shared.records import Record, time_text
from loom_audit.errors import InvalidArguments
from loom_audit.model.coverage import STATUS_FILTERS
from loom_audit.model.records import FoundKind
from loom_audit.model.text.display import one_line
from loom_audit.ports import WordsFilter

if TYPE_CHECKING:
    from loom_audit.api.face import AuditedWorkspace, Hit

KINDS = get_args(FoundKind)
PAGE = 100


@command(
    examples=(
        "loom-audit find 'failing test'",
        "loom-audit find parser --kind prompt",
        "loom-audit find timeout --status failed --json | jq .call",
    )
)
def find(
    invocation: Invocation,
    words: Annotated[list[str], argument("WORDS")],
    kind: Annotated[
        str | None,
        option(metavar="KIND", help=f"Only of this kind: {', '.join(KINDS)}."),
    ] = None,
    session: Annotated[
        str | None,
        option(metavar="ID", help="Only of this session; the start of its id is enough."),
    ] = None,
    tool: Annotated[str | None, option(metavar="NAME", help="Only calls of this tool.")] = None,
    status: Annotated[
        str | None,
        option(metavar="STATUS", help="Only calls that ended so: ok, denied, failed for any."),
    ] = None,
    actor: Annotated[
        str | None, option(metavar="ACTOR", help="Only of this actor: agent:demo.")
    ] = None,
    upto: Annotated[
        str | None, option("--to", metavar="POINT", help="Only up to this point.")
    ] = None,
    limit: Annotated[
        int, option("--limit", "-n", min=0, metavar="N", help="At most so many; 0 means all.")
    ] = 20,
) -> None:
    """Find words in calls, prompts, messages and outside changes.

    Newest first. All the words must be said, by a call as a whole; the last may be only begun. The
    first time an index is made.
    """
    if kind is not None and kind not in KINDS:
        raise InvalidArguments(f"no kind {kind}", hint=f"There are: {', '.join(KINDS)}.")
    if status is not None and status not in STATUS_FILTERS:
        known = ", ".join(STATUS_FILTERS)
        raise InvalidArguments(f"no status {status}", hint=f"There are: {known}.")
    output = invocation.output
    with invocation.workspace() as workspace:
        note_baseline(invocation, workspace)
        make_index(output, workspace)
        wanted = WordsFilter(
            words=" ".join(words),
            kind=next((one for one in KINDS if one == kind), None),
            tool=tool,
            status=status,
            actor=actor,
            session=None if session is None else session_id(workspace, session),
            before=read_point(invocation, workspace, upto) + 1 if upto is not None else None,
        )
        hits = _hits(workspace, wanted, most_rows(limit))
        output.each(hits, _record, _lines, none="nothing says that")
        note_verified(invocation, workspace)


def _hits(workspace: "AuditedWorkspace", wanted: WordsFilter, limit: int) -> Iterator["Hit"]:
    """The hits, read page by page."""
    from loom_audit.api.face import find as find_words

    before: int | None = wanted.before if wanted.before is not None else workspace.log.head() + 1
    while before is not None and limit > 0:
        page = replace(wanted, before=before, limit=min(limit, PAGE))
        found = find_words(workspace.timeline, page)
        yield from found.hits
        limit -= len(found.hits)
        before = found.before


def _lines(hit: "Hit") -> Iterator[Line]:
    place, call = hit.place, hit.call
    number = f"{place.seq:>6}"
    if call is not None:
        about: Line = (f"{call.status:<8} {one_line(call.tool, 30)}  ", one_line(call.summary, 80))
    else:
        about = ((f"{place.kind:<8} ", "cyan"), one_line(hit.title, 100))
    where = f"  {one_line(place.session, 20)}" if place.session else ""
    yield ((number, "bold"), f"  {local_time(hit.at)}  ", *about, (where, "dim"))
    for one in hit.snippets:
        label = one.label if call is not None else ""
        marked: list[Piece] = [(text, "yellow" if mark else "") for text, mark in one.pieces]
        yield ("        ", (f"{one_line(label, 20)}: " if label else "", "dim"), *marked)


def _record(hit: "Hit") -> Record:
    place = hit.place
    return {
        "seq": place.seq,
        "kind": place.kind,
        "at": time_text(hit.at),
        "session": place.session,
        "actor": place.actor,
        "call": place.seq if hit.call is not None else None,
        "tool": place.tool,
        "status": place.status,
        "title": hit.title or (hit.call.summary if hit.call else ""),
        "snippets": [
            {"of": one.label, "text": "".join(text for text, _ in one.pieces)}
            for one in hit.snippets
        ],
    }
