"""Commands that look at sessions and calls: log, show, session."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, get_args

import typer

from loom_audit.cli.differences import difference, print_difference
from loom_audit.cli.lines import (
    call_line,
    change_lines,
    counted,
    event_line,
    local_time,
    numbers,
    result_lines,
    value_lines,
)
from loom_audit.cli.options import Invocation, command, point_text, read_time, workspace_path
from loom_audit.cli.records import (
    call_record,
    change_record,
    event_record,
    plain,
    session_record,
)
from loom_audit.errors import InvalidArguments, NotFound
from loom_audit.history.questions import waits
from loom_audit.model.display import duration_text, one_line
from loom_audit.model.events import (
    BaselineFinished,
    Call,
    Event,
    FilesChanged,
    PathsUntracked,
    Session,
    Status,
)
from loom_audit.ports import CallFilter, EventFilter

if TYPE_CHECKING:
    from loom_audit.session import AuditedWorkspace

PAGE = 500


def add(app: typer.Typer) -> None:
    """Put these commands on the application."""
    section = "Look"
    command(
        app,
        "log",
        section=section,
        examples=(
            "loom-audit log --tool shell_execute --since 2h",
            "loom-audit log --path src/ --json | jq .seq",
        ),
    )(log)
    command(
        app, "show", section=section, examples=("loom-audit show 42", "loom-audit show 42 --json")
    )(show)
    command(
        app, "session", section=section, examples=("loom-audit session", "loom-audit session ID")
    )(session)


def log(
    at: Invocation,
    session: Annotated[str | None, typer.Option(metavar="ID", help="Only of this session.")] = None,
    tool: Annotated[str | None, typer.Option(metavar="NAME", help="Only of this tool.")] = None,
    path: Annotated[
        str | None,
        typer.Option(metavar="PATH", help="Only what changed this file, or something in here."),
    ] = None,
    actor: Annotated[
        str | None, typer.Option(metavar="ACTOR", help="Only of this actor: person:ada.")
    ] = None,
    status: Annotated[
        str | None,
        typer.Option(
            metavar="STATUS", help="ok, error, denied, timeout, cancelled, interrupted or open."
        ),
    ] = None,
    kind: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KIND", help="Only facts of this kind: files.changed; repeatable, --events."
        ),
    ] = None,
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="Not before this time, or age: 2h.")
    ] = None,
    until: Annotated[str | None, typer.Option(metavar="TIME", help="Not after this time.")] = None,
    after: Annotated[
        str | None, typer.Option("--from", metavar="POINT", help="Only after this point.")
    ] = None,
    upto: Annotated[
        str | None, typer.Option("--to", metavar="POINT", help="Only up to this point.")
    ] = None,
    events: Annotated[bool, typer.Option("--events", help="The facts under the calls.")] = False,
    oldest_first: Annotated[
        bool, typer.Option("--oldest-first", help="Oldest first; by default newest first.")
    ] = False,
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=0, metavar="N", help="At most so many; 0 means all.")
    ] = 50,
) -> None:
    """List the calls on record, newest first.

    With --events the facts under them. With JSON, `paths` are the first 20 of the `changed`.
    """
    known = (*get_args(Status), "open")
    if status is not None and status not in known:
        raise InvalidArguments(f"no status {status}", hint=f"There are: {', '.join(known)}.")
    with at.workspace() as workspace:
        timeline = workspace.timeline
        note_baseline(at, workspace)
        query = CallFilter(
            after=timeline.point(point_text(after)) if after else 0,
            before=timeline.point(point_text(upto)) + 1 if upto else None,
            session=session,
            tool=tool,
            actor=actor,
            status=status,
            path=workspace_path(workspace.root, path) or None if path else None,
            since=read_time(since) if since else None,
            until=read_time(until) if until else None,
            newest_first=not oldest_first,
            limit=limit or None,
        )
        if events or kind:
            _print_events(at, _facts(workspace, query, tuple(kind or ())))
        else:
            _print_calls(at, workspace, _calls(workspace, query))


def note_baseline(at: Invocation, workspace: "AuditedWorkspace") -> None:
    """Say so when the first recording of the workspace was interrupted."""
    done = EventFilter(kinds=(BaselineFinished.kind,), limit=1)
    if not any(True for _ in workspace.timeline.events(done)):
        at.output.note("the baseline is not finished; `loom-audit init` goes on with it")


def _calls(at: "AuditedWorkspace", query: CallFilter) -> Iterator[Call]:
    """The calls that match, read page by page."""
    from dataclasses import replace

    left = query.limit
    while left is None or left > 0:
        page = at.timeline.calls(replace(query, limit=PAGE))
        for call in page:
            if query.before is not None and (call.seq is None or call.seq >= query.before):
                continue
            yield call
            if left is not None:
                left -= 1
                if left == 0:
                    return
        if len(page) < PAGE:
            return
        last = page[-1].requested
        query = replace(query, before=last) if query.newest_first else replace(query, after=last)


def _print_calls(at: Invocation, workspace: "AuditedWorkspace", calls: Iterator[Call]) -> None:
    shown = None
    for call in calls:
        if at.output.json:
            at.output.record(call_record(call, event_id(workspace, call.seq or call.requested)))
            continue
        if (call.session, call.actor) != shown:
            shown = (call.session, call.actor)
            name = one_line(call.session, 80)
            at.output.line((f"session {name}  {one_line(call.actor, 60)}", "dim"))
        waiting = call.seq is None and waits(workspace.at.log, call)
        at.output.line(*call_line(call, width=at.output.width, waits=waiting))
    if shown is None:
        at.output.note("no calls match")


def event_id(at: "AuditedWorkspace", seq: int) -> str:
    """The id of the event at a seq."""
    return _event(at, seq).id


def _event(at: "AuditedWorkspace", seq: int) -> Event:
    for event in at.timeline.events(EventFilter(after=seq - 1, before=seq + 1)):
        return event
    raise NotFound(f"no event {seq}", hint="`loom-audit log --events` lists them.")


def _facts(at: "AuditedWorkspace", query: CallFilter, kinds: tuple[str, ...]) -> Iterator[Event]:
    """The events that match what a call filter asks for."""
    wanted = EventFilter(
        after=query.after,
        before=query.before,
        kinds=kinds,
        session=query.session,
        newest_first=query.newest_first,
    )
    left = query.limit
    for event in at.timeline.events(wanted):
        if not _matches(event, query):
            continue
        yield event
        if left is not None:
            left -= 1
            if left == 0:
                return


def _matches(event: Event, query: CallFilter) -> bool:
    fact = event.fact
    return (
        (query.since is None or event.at >= query.since)
        and (query.until is None or event.at <= query.until)
        and (query.actor is None or event.actor == query.actor)
        and (query.tool is None or getattr(fact, "tool", None) == query.tool)
        and (query.status is None or getattr(fact, "status", None) == query.status)
        and (query.path is None or _touches(event, query.path))
    )


def _touches(event: Event, path: str) -> bool:
    fact = event.fact
    paths: list[str] = []
    if isinstance(fact, PathsUntracked):
        paths = [untracked.path for untracked in fact.paths]
    elif isinstance(fact, FilesChanged):
        paths = [change.path for change in fact.changes]
    return any(one == path or one.startswith(path + "/") for one in paths)


def _print_events(at: Invocation, events: Iterator[Event]) -> None:
    any_printed = False
    for event in events:
        any_printed = True
        if at.output.json:
            at.output.record(event_record(event))
        else:
            at.output.line(*event_line(event))
    if not any_printed:
        at.output.note("no events match")


def show(
    at: Invocation,
    seq: Annotated[int, typer.Argument(min=1, help="The number of any event of the call.")],
    no_diff: Annotated[bool, typer.Option("--no-diff", help="Only name what changed.")] = False,
) -> None:
    """Show one call whole, or any other event.

    A call with its arguments, decision, result and its own diff.
    """
    with at.workspace() as workspace:
        try:
            detail = workspace.timeline.call(seq)
        except NotFound:
            _show_event(at, workspace, _event(workspace, seq), diff=not no_diff)
            return
        call = detail.call
        if at.output.json:
            at.output.record(
                call_record(call, event_id(workspace, call.seq or call.requested))
                | {
                    "arguments": detail.arguments,
                    "decision": plain(detail.decision),
                    "result": detail.result,
                    "changes": [change_record(change) for change in detail.changes],
                    "moves": plain(detail.moves),
                    "events": [event.seq for event in detail.events],
                }
            )
            return
        _print_header(at, call)
        if detail.decision is not None:
            decided = detail.decision
            at.output.line("decided    ", f"{decided.decision} by {decided.by} {decided.reason}")
        shown = (
            ("arguments", value_lines(detail.arguments)),
            ("result", result_lines(detail.result)),
        )
        for title, lines in shown:
            at.output.line((f"{title}:", "bold"))
            for line in lines:
                at.output.marked(line, "")
        if detail.changes:
            at.output.line(("changes:", "bold"))
            at.output.lines(change_lines(detail.changes, detail.moves))
            if not no_diff:
                for change in detail.changes:
                    print_difference(at.output, difference(workspace, change, disk=False))


def _print_header(at: Invocation, call: Call) -> None:
    state = "open" if call.seq is None else f"call {call.seq}"
    at.output.line((f"{state}  {call.tool}", "bold"), f"  {call.status}")
    at.output.line("at         ", local_time(call.at), f"  {duration_text(call.duration)}")
    at.output.line("session    ", call.session, f"  {call.actor}")
    at.output.line("call_id    ", call.call_id, f"  effect {call.effect}  {call.sandbox}".rstrip())
    at.output.line("coverage   ", "; ".join((call.coverage.level, *call.coverage.reasons)))
    if call.error:
        at.output.line("error      ", (call.error, "red"))
    if call.reverts:
        at.output.line("takes back ", numbers(call.reverts))
    if call.undone_by is not None:
        at.output.line("taken back by ", str(call.undone_by))


def _show_event(at: Invocation, workspace: "AuditedWorkspace", event: Event, *, diff: bool) -> None:
    if at.output.json:
        at.output.record(event_record(event))
        return
    at.output.line(*event_line(event))
    record = event_record(event)["fact"]
    fact = event.fact
    if isinstance(fact, FilesChanged):
        record.pop("changes")
    for line in value_lines(record):
        at.output.marked(line, "")
    if isinstance(fact, FilesChanged):
        shown = fact.changes if fact.origin != "baseline" else ()
        at.output.lines(change_lines(fact.changes, fact.moves))
        for change in shown if diff else ():
            print_difference(at.output, difference(workspace, change, disk=False))


def session(
    at: Invocation,
    id: Annotated[str | None, typer.Argument(help="Show this one with its calls.")] = None,
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=0, metavar="N", help="0 means all.")
    ] = 20,
) -> None:
    """List the sessions, or show one.

    The list is newest first; one is shown with its calls in order.
    """
    with at.workspace() as workspace:
        if id is not None:
            found = workspace.timeline.session(id)
            if at.output.json:
                at.output.record(session_record(found))
                return
            _print_session(at, found)
            query = CallFilter(session=id, newest_first=False, limit=None)
            for call in _calls(workspace, query):
                at.output.line(*call_line(call, width=at.output.width))
            return
        for found in workspace.timeline.sessions(limit=limit or 2**31):
            if at.output.json:
                at.output.record(session_record(found))
            else:
                _print_session(at, found)


def _print_session(at: Invocation, session: Session) -> None:
    errors = f", {session.errors} failed" if session.errors else ""
    done = f"{counted(session.calls, 'call')}{errors}, {counted(session.files, 'file')}"
    at.output.line(
        (session.id, "bold"),
        f"  {local_time(session.started_at)}  ",
        one_line(session.agent, 40),
        f"  {session.status}  {done}",
        f"  {one_line(session.title, 80)}" if session.title else "",
    )
