"""What is printed for people: lines of pieces, made from the model's types."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from loom_audit.cli.output import Piece, Style
from loom_audit.cli.waiting import how_to_answer
from loom_audit.model.display import duration_text, one_line, size_text, visible_path
from loom_audit.model.events import (
    ApprovalRequested,
    BaselineFinished,
    Call,
    CallDecided,
    CallFinished,
    CallRequested,
    ChangeIntended,
    CheckpointMarked,
    Event,
    FilesChanged,
    PathsUntracked,
    RecordedChange,
    SessionEnded,
    SessionStarted,
    WorkspaceAttached,
)
from loom_audit.model.files import FileChange, FileState, Move
from loom_audit.model.planning import Note, Plan

if TYPE_CHECKING:
    from loom_audit.history.approvals import ApprovalRequest

Line = tuple[Piece, ...]

LONG = 2_000
"""Characters of one value of a result's data, above which it is counted and not shown."""

NARROW = 90
"""Columns below which a list leaves out the year, the seconds and its own columns."""

_STATUS: Mapping[str, Style] = {"ok": "green", "open": "yellow", "interrupted": "yellow"}


def local_time(at: datetime) -> str:
    """Date and time where the reader is, to the second."""
    return at.astimezone().strftime("%Y-%m-%d %H:%M:%S")


def mark(change: FileChange) -> tuple[str, Style]:
    """One letter for what a change does: Added, Modified, Deleted, Type changed, Permissions."""
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
    sources = {move.target: move.source for move in moves}
    by_path = {change.path: change for change in changes}
    moved = {s for t, s in sources.items() if t in by_path and s in by_path}
    for change in changes:
        source = sources.get(change.path)
        if change.path in moved and change.after is None:
            continue
        if source in moved and source is not None and change.before is None:
            yield (indent, ("R", "cyan"), f" {visible_path(source)} -> {visible_path(change.path)}")
            continue
        yield (indent, mark(change), " ", visible_path(change.path), (_about(change), "dim"))


def _about(change: FileChange) -> str:
    before, after = change.before, change.after
    if before and after and before.kind == after.kind:
        if before.blob == after.blob:
            return f"  (mode {before.mode:04o} -> {after.mode:04o})"
        if before.mode != after.mode:
            return f"  ({_delta(before, after)}, mode {before.mode:04o} -> {after.mode:04o})"
        return f"  ({_delta(before, after)})"
    if before and after:
        return f"  ({before.kind} -> {after.kind})"
    state = after or before
    if state is None or state.kind == "directory":
        return "/" if state else ""
    return f"  ({size_text(state.size)})" if state.kind == "file" else "  (symlink)"


def _delta(before: FileState, after: FileState) -> str:
    old, new = size_text(before.size), size_text(after.size)
    if old != new:
        return f"{old} -> {new}"
    return f"{old}, {after.size - before.size:+} B" if after.size != before.size else old


def call_line(
    call: Call, *, width: int | None = None, question: "ApprovalRequest | None" = None
) -> Line:
    """One call on one line, cut to the terminal's width when there is one.

    An open one goes by the number of its request; `question` is what it waits for.
    """
    narrow = width is not None and width < NARROW
    number = f"{call.seq or call.requested:>6}"
    at = call.at.astimezone().strftime("%m-%d %H:%M") if narrow else local_time(call.at)
    said = "waits for approval" if question else call.status
    tool = one_line(call.tool, 16)
    status, tool = (said, f" {tool} ") if narrow else (f"{said:<11}", f" {tool:<16}  ")
    what = call.summary or ", ".join(visible_path(path) for path in call.paths)
    if call.error:
        what = f"{what}: {call.error}" if what else call.error
    notes = _notes(call, question)
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


def _notes(call: Call, question: "ApprovalRequest | None") -> str:
    notes = [] if question is None else [how_to_answer(question)]
    if call.changed:
        notes.append(counted(call.changed, "path"))
    if call.coverage.level != "full":
        notes.append(f"coverage {call.coverage.level}")
    if call.reverts:
        notes.append("takes back " + numbers(call.reverts))
    if call.undone_by is not None:
        notes.append(f"taken back by {call.undone_by}")
    return f"  [{'; '.join(notes)}]" if notes else ""


def numbers(seqs: Sequence[int], limit: int = 8) -> str:
    """Call numbers as a list, shortened when there are many."""
    shown = ", ".join(str(seq) for seq in seqs[:limit])
    return shown if len(seqs) <= limit else f"{shown} and {len(seqs) - limit} more"


def event_line(event: Event) -> Line:
    """One fact on one line."""
    return (
        (f"{event.seq:>6}", "bold"),
        f"  {local_time(event.at)}  ",
        (f"{event.kind:<18} ", "cyan"),
        one_line(fact_text(event), 200),
        (f"  {event.actor}", "dim"),
    )


def fact_text(event: Event) -> str:
    """What an event says, in a few words."""
    match event.fact:
        case WorkspaceAttached(root=root):
            return root
        case BaselineFinished(files=files, size=size):
            return f"{counted(files, 'file')}, {size_text(size)}"
        case PathsUntracked(paths=paths):
            return ", ".join(f"{visible_path(p.path)} ({p.reason})" for p in paths[:5])
        case SessionStarted(agent=agent, title=title):
            return f"{agent} {title}".strip()
        case SessionEnded(status=status):
            return status
        case CallRequested(tool=tool, arguments=arguments):
            return f"{tool} {json.dumps(arguments, ensure_ascii=False, default=str)}"
        case ApprovalRequested(tool=tool, reason=reason, number=number):
            return f"{tool} asks, question {number}: {reason}"
        case CallDecided(tool=tool, decision=decision, by=by, reason=reason):
            return f"{tool} {decision} by {by} {reason}".strip()
        case ChangeIntended(changes=changes) | FilesChanged(changes=changes):
            return _changes_text(event, changes)
        case CallFinished(tool=tool, status=status, duration=duration):
            return f"{tool} {status} in {duration_text(duration)}"
        case CheckpointMarked(name=name, point=point):
            return f"@{name} at {point}"
    return ""


def _changes_text(event: Event, changes: Sequence[FileChange]) -> str:
    shown = ", ".join(f"{mark(c)[0]} {visible_path(c.path)}" for c in changes[:5])
    more = f" and {len(changes) - 5} more" if len(changes) > 5 else ""
    origin = getattr(event.fact, "origin", "")
    return (f"{origin}: " if origin and origin != "tool" else "") + shown + more


def history_line(recorded: RecordedChange, call: int | None, *, path: bool) -> Line:
    """One change of a path's history: its event's number, who did it, in which call."""
    letter, style = mark(recorded.change)
    who = recorded.actor if recorded.origin != "outside" else "outside"
    how: list[str] = [recorded.origin] if recorded.origin not in (who, "tool") else []
    how += [] if call is None else [f"call {call}"]
    return (
        (f"{recorded.seq:>6}", "bold"),
        f"  {local_time(recorded.at)}  ",
        (letter, style),
        f" {visible_path(recorded.change.path)}" if path else "",
        (_about(recorded.change), "dim"),
        f"  {one_line(who, 40)}",
        (f"  {', '.join(how)}" if how else "", "dim"),
    )


def plan_lines(
    plan: Plan, sessions: Mapping[str, Sequence[int]] | None = None, *, most: int | None = None
) -> Iterator[Line]:
    """A plan: what will change, what is left alone, what stops it, each with its reason.

    `sessions` are the calls taken back by the session they belong to; `most` bounds the lines
    of what will change and what is there already.
    """
    yield ((f"{plan.verb} {one_line(plan.target)}".rstrip(), "bold"), f"  (log at {plan.head})")
    for session, taken in (sessions or {}).items():
        yield ("takes back: ", numbers(taken), (f"  of {one_line(session, 60)}", "dim"))
    if plan.changes:
        yield ("will change:",)
        yield from _bounded(list(change_lines(plan.changes, plan.moves)), most)
    if holds := marked(plan):
        yield (("will hold conflict markers:", "red"),)
        yield from ((f"  {visible_path(path)}",) for path in holds)
    if plan.already:
        yield ("already there:",)
        yield from _bounded([(f"  {visible_path(path)}",) for path in plan.already], most)
    for title, notes, style in (
        ("kept because it came from outside or later:", plan.kept, "cyan"),
        ("conflict, choose with --choose PATH=current|old|merge:", plan.blocked, "red"),
        ("cannot be undone:", plan.irreversible, "yellow"),
    ):
        if notes:
            yield ((title, style),)  # type: ignore[misc]
            yield from (note_line(note) for note in notes)
    if not (plan.changes or plan.blocked):
        yield ("nothing on disk will change",)


def marked(plan: Plan) -> list[str]:
    """The paths that a plan writes with conflict markers in them, as was chosen."""
    if plan.request is None or "merge" not in plan.request.choices.values():
        return []
    texts = {b: text for b, text in plan.contents.items() if b"\n<<<<<<< " in b"\n" + text}
    return [c.path for c in plan.changes if c.after is not None and c.after.blob in texts]


def _bounded(lines: Sequence[Line], most: int | None) -> Iterator[Line]:
    yield from lines[:most]
    if most is not None and len(lines) > most:
        yield ((f"  and {len(lines) - most} more; --dry-run lists them all", "dim"),)


def counted(n: int, what: str) -> str:
    """A number with its noun: `1 call`, `2 calls`."""
    return f"{n} {what}" if n == 1 else f"{n} {what}s"


def note_line(note: Note) -> Line:
    told = all(re.search(rf"\b{seq}\b", note.reason) for seq in note.calls)
    word = "call" if len(note.calls) == 1 else "calls"
    calls = "" if told else f" ({word} {numbers(note.calls)})"
    name = visible_path(note.path)
    return (f"  {name}: " if name else "  ", one_line(note.reason, 300), (calls, "dim"))


def entry_line(path: str, state: FileState) -> Line:
    """One path of a listing: kind and mode, size, name."""
    kind = {"file": "-", "symlink": "l", "directory": "d"}[state.kind]
    size = "" if state.kind == "directory" else str(state.size)
    tail = "/" if state.kind == "directory" else ""
    style: Style = "cyan" if state.kind != "file" else ""
    return (f"{kind}{state.mode:04o} {size:>12}  ", (visible_path(path) + tail, style))


def result_lines(result: Any) -> list[str]:
    """A tool's result without what is said elsewhere: the paths, the success, empty fields.

    Of its data, texts that the output holds are left out, and long ones are counted.
    """
    if not isinstance(result, dict):
        return value_lines(result)
    told = {"files_changed", "success", "data"}
    shown = {k: v for k, v in result.items() if k not in told and v not in (None, "")}
    found = result.get("data")
    if not isinstance(found, dict):
        return value_lines(shown if found in (None, "") else shown | {"data": found})
    output = str(result.get("output") or "")
    kept = {k: _counted(v) for k, v in found.items() if not _said(v, output)}
    said = value_lines(shown) if shown else []
    return said + (["  data:", *value_lines(kept, "    ")] if kept else [])


def _said(value: Any, output: str) -> bool:
    """Whether a value is empty, or a text that is in the output anyway."""
    if isinstance(value, str):
        return value.strip() in output
    return value is None or value == []


def _counted(value: Any) -> Any:
    """A value to be shown; a long text or list as how much of it there is."""
    if isinstance(value, str) and len(value) > LONG:
        lines = value.count("\n") + (not value.endswith("\n"))
        return (
            f"({counted(lines, 'line')}, {size_text(len(value.encode(errors='replace')))}; "
            "--json has it)"
        )
    if isinstance(value, list | dict) and len(json.dumps(value, default=str)) > LONG:
        n = len(value)
        return f"({n} {'entry' if n == 1 else 'entries'}; --json has {'it' if n == 1 else 'them'})"
    return value


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
