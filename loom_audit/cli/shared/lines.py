"""What is printed for people: lines of pieces, made from the model's types."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from loom_audit.cli.shared.output import Line, Style
from loom_audit.model.backgrounds import BackgroundFinished, BackgroundStarted
from loom_audit.model.conversation import MessageReceived, PromptSubmitted
from loom_audit.model.events import (
    ApprovalRequested,
    BaselineFinished,
    CallDecided,
    CallFinished,
    CallRequested,
    ChangeIntended,
    ChangesAttributed,
    CheckpointMarked,
    ContentFound,
    Event,
    FilesChanged,
    HookFailed,
    PathsUntracked,
    SessionEnded,
    SessionHeld,
    SessionReleased,
    SessionStarted,
    TreeRelisted,
    WorkspaceAttached,
    WorkspaceForgotten,
)
from loom_audit.model.files import FileChange, FileState, Move, is_opaque, shown_moves
from loom_audit.model.git.record import GitChanged, GitIntended
from loom_audit.model.git.words import git_words, push_words, runs_code, words_of
from loom_audit.model.noted import HeadNoted
from loom_audit.model.records import Call
from loom_audit.model.text.display import (
    count_text,
    duration_text,
    first_few,
    one_line,
    size_text,
    visible,
)

if TYPE_CHECKING:
    from loom_audit.api.face import ApprovalRequest

NARROW = 90
"""Columns below which a list leaves out the year, the seconds, the zone and its own
columns."""

DIFF_STYLES: Mapping[str, Style] = {
    "head": "bold",
    "at": "cyan",
    "ins": "green",
    "del": "red",
    "": "",
}
"""By the mark that `marked_lines` gives a line of a diff."""

_STATUS: Mapping[str, Style] = {
    "ok": "green",
    "open": "yellow",
    "interrupted": "yellow",
    "unknown": "yellow",
    "running": "yellow",
}


def local_time(at: datetime) -> str:
    """A time in the reader's zone, to the second, with the zone; it can be typed so."""
    text = at.astimezone().isoformat(" ", "seconds")
    return text.removesuffix("+00:00") + "Z" if text.endswith("+00:00") else text


def mark(change: FileChange) -> tuple[str, Style]:
    """A letter tells what a change does: Added, Modified, Deleted, Type changed, Permissions."""
    before, after = change.before, change.after
    if before is None:
        return "A", "green"
    if after is None:
        return "D", "red"
    if before.kind != after.kind:
        return "T", "yellow"
    if before.blob == after.blob:
        return "P", "yellow"
    return "M", "yellow"


def change_lines(
    changes: Sequence[FileChange], moves: Iterable[Move] = (), *, indent: str = "  "
) -> Iterator[Line]:
    """A line per changed path; a deletion and a creation that are one move share theirs."""
    sources = {move.target: move.source for move in shown_moves(changes, moves)}
    by_path = {change.path: change for change in changes}
    moved = {s for t, s in sources.items() if t in by_path and s in by_path}
    for change in changes:
        source = sources.get(change.path)
        if change.path in moved and change.after is None:
            continue
        if source in moved and source is not None and change.before is None:
            yield (indent, ("R", "cyan"), f" {visible(source)} -> {visible(change.path)}")
            continue
        yield (indent, mark(change), " ", visible(change.path), (_about(change), "dim"))


def _about(change: FileChange) -> str:
    before, after = change.before, change.after
    state = after or before
    if is_opaque(state):
        return "  (what is in it is not recorded)"
    if before and after and before.kind == after.kind:
        if before.blob == after.blob:
            return f"  (mode {before.mode:04o} -> {after.mode:04o})"
        if before.mode != after.mode:
            return f"  ({_delta(before, after)}, mode {before.mode:04o} -> {after.mode:04o})"
        return f"  ({_delta(before, after)})"
    if before and after:
        return f"  ({before.kind} -> {after.kind})"
    if state is None or state.kind == "directory":
        return "/" if state else ""
    return f"  ({size_text(state.size)})" if state.kind == "file" else "  (symlink)"


def _delta(before: FileState, after: FileState) -> str:
    old, new = size_text(before.size), size_text(after.size)
    if old != new:
        return f"{old} -> {new}"
    return f"{old}, {after.size - before.size:+} B" if after.size != before.size else old


def half_move_lines(moves: Iterable[Move]) -> Iterator[Line]:
    """Moves of which nothing is at either path."""
    for one in moves:
        where = f"{visible(one.source)} -> {visible(one.target)}"
        yield ((f"  half moved: {where}; what it held is in the store", "yellow"),)


def call_line(
    call: Call,
    *,
    width: int | None = None,
    question: "ApprovalRequest | None" = None,
    heard: datetime | None = None,
    told: datetime | None = None,
    by_agent: bool = False,
    owner: str | None = None,
    git: Sequence[GitChanged] = (),
) -> Line:
    """The line of a call fits the terminal's width where there is one.

    An open one goes by the number of its request; `question` is what it waits for, and `heard`
    when the program that reports it was heard last. `told` is when it was by its client's clock,
    where it was imported. `by_agent` says who took it back, if somebody did. `owner` is whose
    session it is in: another one who made the call is named. `git` is what it changed of git.
    """
    narrow = width is not None and width < NARROW
    number = f"{call.seq or call.requested:>6}"
    at = call.at.astimezone().strftime("%m-%d %H:%M") if narrow else local_time(call.at)
    said = "waits for approval" if question else call.status
    tool = one_line(call.tool, 16)
    status, tool = (said, f" {tool} ") if narrow else (f"{said:<11}", f" {tool:<16}  ")
    what = call.summary or ", ".join(visible(path) for path in call.paths)
    if call.error:
        what = f"{what}: {call.error}" if what else call.error
    words = [one_line(text, 140) for text in words_of(git)]
    notes = _notes(call, question, heard, told, by_agent, owner, words)
    head = f"{number}  {at}  {status}{tool}"
    room = 10_000 if width is None else width - len(head) - len(notes)
    return (
        (number, "bold"),
        f"  {at}  ",
        (status, _STATUS.get(call.status, "red")),
        tool,
        one_line(what, max(room, 20)),
        (notes, "dim"),
    )


def _notes(
    call: Call,
    question: "ApprovalRequest | None",
    heard: datetime | None,
    told: datetime | None,
    by_agent: bool,
    owner: str | None,
    git: Sequence[str],
) -> str:
    notes = [] if question is None else [how_to_answer(question)]
    if owner not in (None, call.actor):
        notes.append(f"by {one_line(call.actor, 60)}")
    if told is not None:
        notes.append(f"told {local_time(told)}")
    if heard is not None:
        notes.append(f"last heard {local_time(heard)}")
    if call.changed:
        notes.append(count_text(call.changed, "path"))
    if git:
        notes.append(first_few(git, 3, str))
    if call.coverage.level != "full":
        notes.append(f"coverage {call.coverage.level}")
    if call.reverts:
        notes.append("takes back " + numbers(call.reverts))
    if call.undone_by is not None:
        notes.append(taken_back_text(call.undone_by, by_agent))
    if call.undone_in_part_by:
        notes.append(f"taken back in part by {numbers(call.undone_in_part_by)}")
    return f"  [{'; '.join(notes)}]" if notes else ""


def taken_back_text(number: int, by_agent: bool) -> str:
    """A few words say which call took one back, and whether an agent did."""
    return f"taken back by the agent, {number}" if by_agent else f"taken back by {number}"


def numbers(seqs: Sequence[int]) -> str:
    """The numbers of calls, joined by commas; shortened when there are many."""
    return first_few(seqs, 8)


def answer_number(request: "ApprovalRequest") -> int:
    """A person answers a question by its call's number, or by its own when it was asked again."""
    return request.seq if request.fact.number > 1 else request.requested


def how_to_answer(request: "ApprovalRequest") -> str:
    """The commands that answer a question, or that close its call when nobody waits any more."""
    if not request.alive:
        return "its process is gone: `loom-audit recover` closes it"
    name = answer_number(request)
    return f"`loom-audit approve {name}` or `loom-audit deny {name}`"


def event_line(event: Event) -> Line:
    """The line of an event has its number, time, kind, fact and actor."""
    told = event.occurred_at if event.source == "import" else None
    by = ", by loom-audit connect" if event.source == "connect" else ""
    return (
        (f"{event.seq:>6}", "bold"),
        f"  {local_time(event.at)}  ",
        (f"{event.kind:<18} ", "cyan"),
        one_line(fact_text(event), 200),
        (f"  {event.actor}{by}", "dim"),
        (f"  [told {local_time(told)}]" if told else "", "dim"),
    )


def fact_text(event: Event) -> str:
    """A few words tell what an event says."""
    match event.fact:
        case WorkspaceAttached(root=root, moved_from=before):
            return f"{root}, moved from {before}" if before else root
        case BaselineFinished(files=files, size=size):
            return f"{count_text(files, 'file')}, {size_text(size)}"
        case PathsUntracked(paths=paths):
            return ", ".join(f"{visible(p.path)} ({p.reason})" for p in paths[:5])
        case TreeRelisted(changes=changes, part=part):
            return f"{count_text(len(changes), 'path')}, part {part}"
        case SessionStarted(agent=agent, title=title):
            return f"{agent} {title}".strip()
        case SessionEnded(status=status):
            return status
        case PromptSubmitted(text=text):
            return text
        case MessageReceived(role=role, text=text):
            return text if role == "assistant" else f"{role}: {text}"
        case SessionHeld(by=by, reason=reason) | SessionReleased(by=by, reason=reason):
            return f"by {by} {reason}".strip()
        case CallRequested(tool=tool, arguments=arguments):
            return f"{tool} {json.dumps(arguments, ensure_ascii=False, default=str)}"
        case ApprovalRequested(tool=tool, reason=reason, number=number):
            return f"{tool} asks, question {number}: {reason}"
        case CallDecided(tool=tool, decision=decision, by=by, reason=reason):
            return f"{tool} {decision} by {by} {reason}".strip()
        case ChangeIntended(changes=changes) | FilesChanged(changes=changes):
            return _changes_text(event, changes)
        case GitChanged() as fact:
            return f"{fact.origin}: {'; '.join(git_words(fact))}"
        case GitIntended() as fact:
            return "; ".join(git_words(fact.as_change))
        case ContentFound(path=path, state=state, reason=reason):
            return f"{visible(path)}, {size_text(state.size)}: {reason}"
        case CallFinished(tool=tool, status=status, duration=duration):
            return f"{tool} {status} in {duration_text(duration)}"
        case BackgroundStarted(name=name, writes=writes):
            folders = first_few(writes, 5, lambda one: visible(one.path))
            return f"{name}, which can write {folders or 'nothing'}"
        case BackgroundFinished(name=name, how=how, exit_code=code):
            return f"{name} {how}" + (f", exit code {code}" if code is not None else "")
        case ChangesAttributed() as told:
            return f"call {told.call} {attributed_text(told)}"
        case HookFailed(client=client, session=session, count=count):
            when = f" from {local_time(event.occurred_at)} on" if event.occurred_at else ""
            return f"{count_text(count, 'hook')} of {client} failed{when} {session}".strip()
        case HeadNoted(size=size, key=key, replaced=replaced):
            from loom_audit.model.signed.signed_heads import id_of_hex

            before = f", in place of {id_of_hex(replaced)}" if replaced else ""
            return f"signed to {size:,}; from here on by {id_of_hex(key)}{before}"
        case CheckpointMarked(name=name, point=point):
            return f"@{name} at {point}"
        case WorkspaceForgotten(reason=reason, payloads=payloads, contents=contents, size=size):
            held = f"{count_text(payloads, 'payload')}, {count_text(contents, 'content')}"
            return f"{held}, {size_text(size)} erased {reason}".strip()
    return ""


def git_lines(fact: GitChanged) -> Iterator[Line]:
    """A line for each thing of git that changed; what can run code stands out."""
    for text in git_words(fact):
        yield ("  ", (one_line(text, 500), "red" if runs_code(text) else ""))
    yield from ((f"  {text}",) for text in push_words(fact))


def attributed_text(told: ChangesAttributed) -> str:
    """The words that say which changes a call may have made, as was told later."""
    shown = first_few(told.paths, 5, visible)
    return f"may have been: {shown} of event {told.event}, as {told.grounds}"


def _changes_text(event: Event, changes: Sequence[FileChange]) -> str:
    shown = first_few(changes, 5, lambda one: f"{mark(one)[0]} {visible(one.path)}")
    origin = getattr(event.fact, "origin", "")
    return (f"{origin}: " if origin and origin != "tool" else "") + shown


def value_lines(value: Any, indent: str = "  ") -> list[str]:
    """A JSON value indented for reading; a text of several lines as it is."""
    if isinstance(value, str):
        return [indent + line for line in value.split("\n")]
    if isinstance(value, dict) and value:
        lines = []
        for key, item in value.items():
            if isinstance(item, str) and "\n" in item.rstrip("\n"):
                lines.append(f"{indent}{key}:")
                lines += [f"{indent}  | {line}" for line in item.rstrip("\n").split("\n")]
            else:
                shown = item if isinstance(item, str) else json.dumps(item, ensure_ascii=False)
                lines.append(f"{indent}{key}: {shown}")
        return lines
    return [indent + json.dumps(value, ensure_ascii=False, default=str)]
