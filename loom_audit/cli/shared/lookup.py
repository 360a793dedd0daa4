"""What several commands look up in the log: calls, events, questions, lost paths."""

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from msgspec.structs import replace

from loom_audit.cli.shared.invocation import Invocation
from loom_audit.cli.shared.lines import call_line, local_time
from loom_audit.cli.shared.output import Line, Output, progress
from loom_audit.cli.shared.records import Record, call_record
from loom_audit.errors import FileNotFound, NotFound
from loom_audit.model.events import Event
from loom_audit.model.records import Call
from loom_audit.model.text.display import count_text, visible
from loom_audit.ports import CallFilter, EventFilter

if TYPE_CHECKING:
    from loom_audit.api.face import ApprovalRequest, AuditedWorkspace

PAGE = 500


def note_stopped(invocation: Invocation, workspace: "AuditedWorkspace") -> None:
    """Say first that nothing is recorded, and why, where that is so and is not said already."""
    error = workspace.why_stopped()
    if error is not None and workspace.why_cut_off() is None:
        invocation.note_stopped(error)


def note_baseline(invocation: Invocation, workspace: "AuditedWorkspace") -> None:
    """Say so when the first recording of the workspace was interrupted."""
    if workspace.timeline.first_listing() is None:
        invocation.output.note("the baseline is not finished; `loom-audit init` goes on with it")


def note_verified(invocation: Invocation, workspace: "AuditedWorkspace") -> None:
    """Say when what is listed was verified last: lists are not read from the log itself."""
    last = workspace.last_verified()
    if last is None:
        said = "never verified: `loom-audit verify`"
    else:
        later = workspace.log.head() - last.size
        said = f"last verified {local_time(last.at)}" + (" with findings" if last.code == 1 else "")
        said += f", {count_text(later, 'event')} ago" if later > 0 else ""
    invocation.output.note((said, "dim"))


def make_index(output: Output, workspace: "AuditedWorkspace") -> None:
    """Bring the index of words up to date, and show how far it is while that takes long.

    AuditUnavailable when there is something to add and the store cannot be written.
    """
    from loom_audit.api.face import prepare_search

    with progress(output) as report:
        prepare_search(workspace.timeline, report=report)


def calls_of(workspace: "AuditedWorkspace", query: CallFilter) -> Iterator[Call]:
    """The calls that match, read page by page."""
    return islice(_pages_of_calls(workspace, query), query.limit)


def _pages_of_calls(workspace: "AuditedWorkspace", query: CallFilter) -> Iterator[Call]:
    while page := workspace.timeline.calls(replace(query, limit=PAGE)):
        for call in page:
            if query.before is None or (call.seq is not None and call.seq < query.before):
                yield call
        if len(page) < PAGE:
            return
        last = page[-1].requested
        query = replace(query, before=last) if query.newest_first else replace(query, after=last)


def listed_lines(
    output: Output, workspace: "AuditedWorkspace", calls: Iterable[Call]
) -> Iterator[tuple[Call, str, Line]]:
    """Each call, whose session it is in, and its line in a list: the question it waits for, when it
    was heard last, and who made it where that is somebody else.

    Who took calls back is asked once for a page, in which a session is its first call's maker's.
    """
    asked, left = questions(workspace), iter(calls)
    while page := [*islice(left, PAGE)]:
        by_agents = workspace.timeline.taken_back_by_agents(page)
        by_age = sorted(page, key=lambda call: call.requested, reverse=True)
        owners = {call.session: call.actor for call in by_age}
        git = workspace.timeline.git_of(page)
        for call in page:
            line = call_line(
                call,
                width=output.width,
                question=question_about(asked, call),
                heard=workspace.timeline.last_heard(call),
                told=workspace.timeline.told_at(call.requested),
                by_agent=call.seq in by_agents,
                owner=owners[call.session],
                git=git.get(call.requested, ()),
            )
            yield call, owners[call.session], line


def event_at(workspace: "AuditedWorkspace", seq: int) -> Event:
    """The event at a seq. NotFound where none is; Corrupt where the end of the log is gone."""
    for event in workspace.timeline.events(EventFilter.only(seq)):
        return event
    workspace.timeline.proven.head()
    raise NotFound(f"no event {seq}", hint="`loom-audit log --events` lists them.")


def record_of(workspace: "AuditedWorkspace", call: Call) -> Record:
    """A call as `call_record` has it, with the ids that the log and its client know it by."""
    id = event_at(workspace, call.seq or call.requested).id
    return call_record(call, id, workspace.timeline.client_id(call))


def questions(workspace: "AuditedWorkspace") -> Mapping[tuple[str, str], "ApprovalRequest"]:
    """The questions that nobody has answered yet, by session and call id."""
    return {(one.session, one.call_id): one for one in workspace.questions.pending()}


def question_about(
    asked: Mapping[tuple[str, str], "ApprovalRequest"], call: Call
) -> "ApprovalRequest | None":
    """The question that a call waits for; None where it waits for none."""
    return asked.get((call.session, call.call_id)) if call.seq is None else None


def ever_recorded(workspace: "AuditedWorkspace", path: str) -> bool:
    """Whether anything is on record for a path, or below it."""
    return bool(workspace.timeline.history(path, below=True, limit=1))


def say_unknown(
    invocation: Invocation,
    workspace: "AuditedWorkspace",
    *points: int,
    folders: Sequence[str] = (),
) -> bool:
    """Name the paths of which it is not known what was there, and why; whether there are any.

    It is asked for one of these points, and for those in these folders, or above them. With JSON
    one record each, `unknown` says why.
    """
    said = False
    for path, why in workspace.timeline.unseen(*points).items():
        if any(_is_near(path, folder) for folder in folders or ("",)):
            said = True
            if invocation.output.json:
                invocation.output.record({"path": path, "unknown": why})
            invocation.output.note(f"not known what was there: {visible(path)} ({why})")
    return said


def _is_near(path: str, folder: str) -> bool:
    return not folder or f"{path}/".startswith(f"{folder}/") or folder.startswith(f"{path}/")


def not_there(workspace: "AuditedWorkspace", name: str, typed: str, seq: int) -> FileNotFound:
    """The error to raise about a path that is not there at a point, or never was."""
    if not ever_recorded(workspace, name):
        return FileNotFound(
            f"nothing is on record for {visible(name)}",
            hint="`loom-audit ls -r` lists what is there, `--at POINT` what was.",
        )
    timeline, shown = workspace.timeline, visible(name)
    says = "since when it is on record"
    if not timeline.is_listed(seq):
        message = f"unknown whether {shown} was there: {timeline.unlisted()}"
    elif why := timeline.why_unseen(name, seq):
        message = f"it is not known what was at {shown} at {seq}: {why}"
        says = "what it was when it was seen"
    elif timeline.is_unknown(name, seq):
        message = f"it is not known whether {shown} was there at {seq}"
    else:
        message, says = f"{shown} did not exist at {seq}", "when it did"
    hint = f"`loom-audit history {shlex.quote(typed)}` says {says}."
    return FileNotFound(message, hint=hint)
