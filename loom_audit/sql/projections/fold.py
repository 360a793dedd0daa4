"""Projections as a fold over events: the same code when appending and when rebuilding.

`fold` writes rows within the caller's transaction. It looks at nothing but the events and what
it wrote for earlier ones, so rebuilding from the log gives the same tables.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from loom_audit.model.events import (
    BaselineFinished,
    CallFinished,
    CallRequested,
    CheckpointMarked,
    Event,
    FilesChanged,
    ScopeAccepted,
    SessionEnded,
    SessionStarted,
    WorkspaceAttached,
)
from loom_audit.model.files import FileState
from loom_audit.sql.blob_rows import insert_absent
from loom_audit.sql.clock import to_micros
from loom_audit.sql.connection import Connection
from loom_audit.sql.packing import pack_id
from loom_audit.sql.projections import fold_statements
from loom_audit.sql.projections.summaries import failure, plain_text, summarize
from loom_audit.sql.projections.tree_rows import KEYFRAME_EVENTS, write_keyframe

_TYPE_BITS = {"file": 0o100000, "symlink": 0o120000, "directory": 0o040000}
_MICROS_PER_HOUR = 3_600_000_000


def fold(connection: Connection, log: int, events: Sequence[Event]) -> None:
    """Bring the projections of a log from before these events to after them."""
    for group in _between_keyframes(events):
        _note_sessions(connection, log, group)
        for event in group:
            write = _WRITERS.get(type(event.fact))
            if write is not None:
                write(connection, log, event, event.fact)
        if group[-1].seq % KEYFRAME_EVENTS == 0:
            write_keyframe(connection, log, group[-1].seq)


def _between_keyframes(events: Sequence[Event]) -> Iterator[Sequence[Event]]:
    start = 0
    for end, event in enumerate(events, 1):
        if event.seq % KEYFRAME_EVENTS == 0 or end == len(events):
            yield events[start:end]
            start = end


def st_mode(state: FileState) -> int:
    """Permission bits with the type's, as `lstat` has them."""
    return state.mode | _TYPE_BITS[state.kind]


# --- one writer for each fact -------------------------------------------------------------


def _note_sessions(connection: Connection, log: int, events: Sequence[Event]) -> None:
    """A session is on record from its first event to its last, whatever these say."""
    spans: dict[str, list[Event]] = {}
    for event in events:
        if event.session:
            spans.setdefault(event.session, []).append(event)
    rows = [
        {
            "log": log,
            "id": session,
            "actor": plain_text(span[0].actor),
            "started": span[0].seq,
            "started_at": to_micros(span[0].at),
            "last": span[-1].seq,
            "calls": sum(isinstance(event.fact, CallRequested) for event in span),
            "errors": sum(
                isinstance(event.fact, CallFinished) and event.fact.status != "ok" for event in span
            ),
        }
        for session, span in spans.items()
    ]
    fold_statements.SESSION_SEEN.run_many(connection, rows)
    fold_statements.REACHED.run(
        connection, log=log, latest=max(to_micros(event.at) for event in events)
    )


def _workspace_attached(
    connection: Connection, log: int, event: Event, fact: WorkspaceAttached
) -> None:
    fold_statements.WORKSPACE_ATTACHED.run(
        connection,
        log=log,
        root=fact.root.encode("utf-8", "surrogateescape"),
        ignore=plain_text(fact.ignore),
        max_file_bytes=fact.max_file_bytes,
        attached=event.seq,
        attached_at=to_micros(event.at),
    )


def _baseline_finished(connection: Connection, log: int, event: Event, _: BaselineFinished) -> None:
    fold_statements.BASELINE_FINISHED.run(connection, log=log, seq=event.seq)


def _scope_accepted(connection: Connection, log: int, event: Event, fact: ScopeAccepted) -> None:
    ignore = plain_text(fact.ignore)
    fold_statements.SCOPE_ACCEPTED.run(connection, log=log, ignore=ignore)


def _session_started(connection: Connection, log: int, event: Event, fact: SessionStarted) -> None:
    fold_statements.SESSION_STARTED.run(
        connection,
        log=log,
        id=event.session,
        agent=plain_text(fact.agent),
        actor=plain_text(event.actor),
        title=plain_text(fact.title),
        parent=fact.parent,
    )


def _session_ended(connection: Connection, log: int, event: Event, fact: SessionEnded) -> None:
    fold_statements.SESSION_ENDED.run(
        connection,
        log=log,
        id=event.session,
        ended=event.seq,
        ended_at=to_micros(event.at),
        status=fact.status,
    )


def _call_requested(connection: Connection, log: int, event: Event, fact: CallRequested) -> None:
    fold_statements.CALL_REQUESTED.run(
        connection,
        log=log,
        requested=event.seq,
        session=event.session,
        call_id=pack_id(fact.call_id),
        at=to_micros(event.at),
        actor=plain_text(event.actor),
        tool=plain_text(fact.tool),
        effect=fact.effect,
        summary=summarize(fact.arguments),
    )


def _call_finished(connection: Connection, log: int, event: Event, fact: CallFinished) -> None:
    coverage = fact.coverage
    key = {"log": log, "session": event.session, "call_id": pack_id(fact.call_id)}
    fold_statements.CALL_FINISHED.run(
        connection,
        **key,
        finished=event.seq,
        status=fact.status,
        coverage=None if coverage.level == "full" else coverage.level,
        reasons=_list(coverage.reasons),
        error=failure(fact.status, fact.result),
        reverts=_list(fact.reverts),
        duration=fact.duration,
        sandbox=plain_text(fact.sandbox),
    )
    reverts = [
        {"log": log, "number": event.seq, "target": target}
        for target in dict.fromkeys(fact.reverts)
    ]
    if fact.status == "ok":
        fold_statements.REVERTED.run_many(connection, reverts)
    fold_statements.CALL_ROLLED_UP.run(
        connection,
        log=log,
        hour=to_micros(event.at) // _MICROS_PER_HOUR,
        tool=plain_text(fact.tool),
        status=fact.status,
    )


def _checkpoint_marked(
    connection: Connection, log: int, event: Event, fact: CheckpointMarked
) -> None:
    fold_statements.CHECKPOINT_MARKED.run(
        connection,
        log=log,
        seq=event.seq,
        name=plain_text(fact.name),
        point=fact.point,
        at=to_micros(event.at),
        note=plain_text(fact.note),
    )


def _files_changed(connection: Connection, log: int, event: Event, fact: FilesChanged) -> None:
    key = {"log": log, "seq": event.seq}
    fold_statements.CHANGE_SET.run(
        connection,
        **key,
        session=event.session,
        at=to_micros(event.at),
        actor=plain_text(event.actor),
        origin=fact.origin,
        call=pack_id(fact.call_id) if fact.call_id else None,
        causes=_list(fact.causes),
    )
    rows = list(_change_rows(log, event, fact))
    insert_absent(
        connection, [s for c in fact.changes for s in (c.before, c.after) if s is not None]
    )
    fold_statements.PATH.run_many(connection, rows)
    fold_statements.FILE_CHANGE.run_many(connection, rows)
    # a path may be listed more than once; its last state is the tree's
    last = {row["path"]: row for row in rows}
    fold_statements.TREE_SET.run_many(
        connection, [r for r in last.values() if r["new_mode"] is not None]
    )
    fold_statements.TREE_DELETED.run_many(
        connection, [r for r in last.values() if r["new_mode"] is None]
    )
    _attribute(connection, key, event, fact)


def _attribute(
    connection: Connection, key: Mapping[str, int], event: Event, fact: FilesChanged
) -> None:
    """Name the changes with the calls that made them or may have."""
    for call_id in dict.fromkeys(([fact.call_id] if fact.call_id else []) + list(fact.causes)):
        requested = fold_statements.CALL_OF.value(
            connection, log=key["log"], session=event.session, call_id=pack_id(call_id)
        )
        if requested is None:
            continue
        own = int(call_id == fact.call_id)
        fold_statements.CALL_CHANGE.run(connection, **key, requested=requested, own=own)
        if own:
            fold_statements.CALL_CHANGED.run(connection, **key, requested=requested)
    if fact.call_id and event.session:
        fold_statements.SESSION_CHANGED.run(connection, **key, id=event.session)


def _change_rows(log: int, event: Event, fact: FilesChanged) -> Iterator[dict[str, Any]]:
    for n, change in enumerate(fact.changes):
        yield {
            "log": log,
            "seq": event.seq,
            "n": n,
            "path": change.path.encode("utf-8", "surrogateescape"),
            **_state_columns("old", change.before),
            **_state_columns("new", change.after),
        }


def _state_columns(side: str, state: FileState | None) -> dict[str, Any]:
    if state is None:
        return {f"{side}_mode": None, f"{side}_size": None, f"{side}_blob": None}
    return {
        f"{side}_mode": st_mode(state),
        f"{side}_size": state.size,
        f"{side}_blob": bytes.fromhex(state.blob) if state.blob else None,
    }


def _list(values: Sequence[Any]) -> str | None:
    return json.dumps(list(values), separators=(",", ":")) if values else None


_WRITERS: Mapping[type[Any], Callable[[Connection, int, Event, Any], None]] = {
    WorkspaceAttached: _workspace_attached,
    BaselineFinished: _baseline_finished,
    ScopeAccepted: _scope_accepted,
    SessionStarted: _session_started,
    SessionEnded: _session_ended,
    CallRequested: _call_requested,
    CallFinished: _call_finished,
    CheckpointMarked: _checkpoint_marked,
    FilesChanged: _files_changed,
}
