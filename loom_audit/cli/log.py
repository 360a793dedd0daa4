"""`loom-audit log`: the calls on record, or the facts under them."""

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Annotated, get_args

from loom_audit.cli.shared.command import command
from loom_audit.cli.shared.failed_hooks import note_failed_hooks
from loom_audit.cli.shared.holds import note_holds
from loom_audit.cli.shared.invocation import Invocation
from loom_audit.cli.shared.lines import event_line
from loom_audit.cli.shared.lookup import (
    calls_of,
    listed_lines,
    make_index,
    note_baseline,
    note_verified,
    record_of,
)
from loom_audit.cli.shared.options import workspace_path
from loom_audit.cli.shared.output import Output
from loom_audit.cli.shared.parameters import most_rows, option
from loom_audit.cli.shared.points import read_point, session_id, typed_time
from loom_audit.cli.shared.records import event_record, time_text
from loom_audit.errors import InvalidArguments
from loom_audit.model.actors import OUTSIDE
from loom_audit.model.coverage import FAILED, NOT_FAILED, STATUS_FILTERS
from loom_audit.model.events import (
    CallFinished,
    Event,
    Fact,
    FilesChanged,
    PathsUntracked,
    ScopeAccepted,
    TreeRelisted,
)
from loom_audit.model.records import Call
from loom_audit.model.text.display import count_text, one_line
from loom_audit.ports import CallFilter, EventFilter

if TYPE_CHECKING:
    from loom_audit.api.face import AuditedWorkspace

MOST_OUTSIDE = 100
"""Changes from outside that are counted beside the calls of a list."""
KINDS = tuple(
    kind for fact in get_args(Fact) if isinstance(kind := getattr(fact, "kind", None), str)
)


@command(
    examples=(
        "loom-audit log --tool shell_execute --since 2h",
        "loom-audit log --path src/ --json | jq .seq",
        "loom-audit log --search 'pytest failed'",
    )
)
def log(
    invocation: Invocation,
    session: Annotated[
        str | None,
        option(metavar="ID", help="Only of this session; the start of its id is enough."),
    ] = None,
    tool: Annotated[str | None, option(metavar="NAME", help="Only of this tool.")] = None,
    path: Annotated[
        str | None,
        option(
            metavar="PATH",
            help="Only what changed or names this file, or something in here; name.py, *.json.",
        ),
    ] = None,
    search: Annotated[
        str | None,
        option(
            metavar="WORDS", help="Only calls whose command, arguments, output or paths say these."
        ),
    ] = None,
    actor: Annotated[
        str | None, option(metavar="ACTOR", help="Only of this actor: person:ada.")
    ] = None,
    status: Annotated[
        str | None,
        option(
            metavar="STATUS",
            help="ok, error, denied, timeout, cancelled, interrupted, unknown, running, open; "
            "failed: any that did not end well.",
        ),
    ] = None,
    kind: Annotated[
        list[str] | None,
        option(
            metavar="KIND", help="Only facts of this kind: files.changed; repeatable, --events."
        ),
    ] = None,
    since: Annotated[
        str | None, option(metavar="TIME", help="Not before this time, or age: 2h.")
    ] = None,
    until: Annotated[str | None, option(metavar="TIME", help="Not after this time.")] = None,
    after: Annotated[
        str | None, option("--from", metavar="POINT", help="Only after this point.")
    ] = None,
    upto: Annotated[
        str | None, option("--to", metavar="POINT", help="Only up to this point.")
    ] = None,
    events: Annotated[bool, option("--events", help="The facts under the calls.")] = False,
    oldest_first: Annotated[
        bool, option("--oldest-first", help="Oldest first; by default newest first.")
    ] = False,
    limit: Annotated[
        int, option("--limit", "-n", min=0, metavar="N", help="At most so many; 0 means all.")
    ] = 50,
) -> None:
    """List the calls on record, newest first.

    With --events the facts under them. With JSON, `paths` are the first 20 of the `changed`.
    --path takes a path, names of one wherever they stand (name.py), or a pattern (*.json); with
    --events only a path that was changed.
    --search finds calls that say all the words, the last of which may be only begun; the first time
    it makes an index. `find` finds them in prompts and messages, too.
    """
    if status is not None and status not in STATUS_FILTERS:
        known = ", ".join(STATUS_FILTERS)
        raise InvalidArguments(f"no status {status}", hint=f"There are: {known}.")
    for one in kind or ():
        if one not in KINDS:
            raise InvalidArguments(f"no kind {one}", hint=f"There are: {', '.join(KINDS)}.")
    for name, given in (("--search", search), ("--tool", tool), ("--actor", actor)):
        if given is not None and not given.strip():
            raise InvalidArguments(f"{name} is empty", hint="Name what is meant, or leave it out.")
    if search is not None and (events or kind):
        raise InvalidArguments(
            "--search finds calls, not the facts under them",
            hint="Leave out --events and --kind; `loom-audit show` lists the facts of a call.",
        )
    with invocation.workspace() as workspace:
        note_baseline(invocation, workspace)
        note_holds(workspace, invocation.output)
        note_failed_hooks(workspace, invocation.output)
        if search is not None:
            make_index(invocation.output, workspace)
        query = CallFilter(
            after=read_point(invocation, workspace, after) if after is not None else 0,
            before=read_point(invocation, workspace, upto) + 1 if upto is not None else None,
            session=None if session is None else session_id(workspace, session),
            tool=tool,
            actor=actor,
            status=None if status == FAILED else status,
            failed_only=status == FAILED,
            typed=workspace_path(workspace.root, path) or None if path is not None else None,
            words=search,
            since=typed_time(since) if since is not None else None,
            until=typed_time(until) if until is not None else None,
            newest_first=not oldest_first,
            limit=most_rows(limit),
        )
        if events or kind:
            found = _facts(workspace, query, tuple(kind or ()))
            none = "no events match"
            invocation.output.each(found, event_record, lambda one: [event_line(one)], none=none)
        else:
            _print_calls(invocation, workspace, query)
        note_verified(invocation, workspace)


def _print_calls(invocation: Invocation, workspace: "AuditedWorkspace", query: CallFilter) -> None:
    output, calls = invocation.output, calls_of(workspace, query)
    if output.json:
        for call in calls:
            heard = time_text(workspace.timeline.last_heard(call))
            told = time_text(workspace.timeline.told_at(call.requested))
            record = record_of(workspace, call)
            output.record(record | {"last_heard": heard, "occurred_at": told})
        return
    shown, first = None, None
    for call, owner, line in listed_lines(output, workspace, calls):
        first = call if first is None or call.requested < first.requested else first
        if call.session != shown:
            shown = call.session
            output.line((f"session {one_line(shown, 80)}  {one_line(owner, 60)}", "dim"))
        output.line(*line)
    everything = query == CallFilter(newest_first=query.newest_first, limit=query.limit)
    if shown is None:
        output.note("no calls are on record" if everything else "no calls match")
    if everything:
        _note_outside(output, workspace, first)


def _note_outside(output: Output, workspace: "AuditedWorkspace", first: Call | None) -> None:
    """Count what came from outside since the first call of a list, which shows calls only; since
    the beginning, where there is none. What `connect` wrote is counted by itself.
    """
    since = 0 if first is None else first.requested
    found = workspace.timeline.outside(after=since, limit=MOST_OUTSIDE)
    changed = {"from outside": 0, "by loom-audit connect": 0}
    for one in found:
        changed["from outside" if one.actor == OUTSIDE else "by loom-audit connect"] += one.changed
    if found:
        least = "at least " if len(found) == MOST_OUTSIDE else ""
        counted = [
            f"{count_text(count, 'change')} {who}" for who, count in changed.items() if count
        ]
        said = f"{least}{' and '.join(counted)}"
        said += "" if first is None else f" since call {first.seq or first.requested}"
        how = "`loom-audit history PATH`, `loom-audit log --events`"
        output.note((f"{said}: {how}", "dim"))


def _facts(
    workspace: "AuditedWorkspace", query: CallFilter, kinds: tuple[str, ...]
) -> Iterator[Event]:
    """The events that match what a call filter asks for."""
    wanted = EventFilter(
        after=query.after,
        before=query.before,
        kinds=kinds,
        session=query.session,
        newest_first=query.newest_first,
    )
    matching = (one for one in workspace.timeline.events(wanted) if _matches(one, query))
    return islice(matching, query.limit)


def _matches(event: Event, query: CallFilter) -> bool:
    fact = event.fact
    return (
        (query.since is None or event.at >= query.since)
        and (query.until is None or event.at <= query.until)
        and (query.actor is None or event.actor == query.actor)
        and (query.tool is None or getattr(fact, "tool", None) == query.tool)
        and (query.status is None or getattr(fact, "status", None) == query.status)
        and (not query.failed_only or _failed(fact))
        and (query.typed is None or _touches(event, query.typed))
    )


def _failed(fact: Fact) -> bool:
    return isinstance(fact, CallFinished) and fact.status not in NOT_FAILED


def _touches(event: Event, path: str) -> bool:
    fact = event.fact
    paths: list[str] = []
    if isinstance(fact, PathsUntracked):
        paths = [untracked.path for untracked in fact.paths]
    elif isinstance(fact, (FilesChanged, TreeRelisted)):
        paths = [change.path for change in fact.changes]
    elif isinstance(fact, ScopeAccepted):
        paths = [*fact.untracked]
    return any(one == path or one.startswith(path + "/") for one in paths)
