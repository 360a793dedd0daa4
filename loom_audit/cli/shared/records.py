"""What is printed with --json: one plain dict for each thing. Field names are stable.

Times are RFC 3339 in UTC with microseconds, modes octal text, durations microseconds; a path
that is not UTF-8 carries surrogates. A field may be added, none is renamed or removed.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import asdict

from loom_audit.model.coverage import Coverage
from loom_audit.model.events import Event, FilesChanged
from loom_audit.model.files import FileChange, FileState
from loom_audit.model.git.record import GitChanged
from loom_audit.model.git.words import git_words, push_words, running_code
from loom_audit.model.git_points import GitSummary
from loom_audit.model.plans.lists import LISTS
from loom_audit.model.plans.planning import Plan
from loom_audit.model.records import Call, RecordedChange, Session

if TYPE_CHECKING:
    from loom_audit.api.face import ApprovalRequest

Record = dict[str, Any]


def time_text(at: datetime | None) -> str | None:
    """RFC 3339 in UTC with microseconds."""
    if at is None:
        return None
    return at.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def state_record(state: FileState | None) -> Record | None:
    """The record of a state has its kind, content, mode and size; the other fields are ours."""
    if state is None:
        return None
    return {
        "kind": state.kind,
        "blob": state.blob,
        "mode": f"{state.mode:04o}",
        "size": state.size,
    }


def call_record(call: Call, id: str, client_id: str = "") -> Record:
    """A call, under its number; `id` is that of its finish, or of its request while open.

    `client_id` is the one that it has with its client, where that is another than on record.
    `paths` are the first 20 of the `changed` ones.
    """
    return {
        "seq": call.seq,
        "id": id,
        "at": time_text(call.at),
        "session": call.session,
        "actor": call.actor,
        "kind": "call.requested" if call.seq is None else "call.finished",
        "tool": call.tool,
        "call_id": client_id or call.call_id,
        "status": call.status,
        "coverage": call.coverage.level,
        "coverage_reasons": list(call.coverage.reasons),
        "paths": list(call.paths),
        "changed": call.changed,
        "reverts": list(call.reverts),
        "undone_by": call.undone_by,
        "undone_in_part_by": list(call.undone_in_part_by),
        "requested": call.requested,
        "effect": call.effect,
        "summary": call.summary,
        "error": call.error,
        "duration_us": call.duration,
        "sandbox": call.sandbox,
    }


def event_record(event: Event) -> Record:
    """An event with its whole fact; the fields of a call are null where it has none."""
    fact = event.fact
    changes: Sequence[FileChange] = getattr(fact, "changes", ())
    coverage = getattr(fact, "coverage", None)
    return {
        "seq": event.seq,
        "id": event.id,
        "at": time_text(event.at),
        "session": event.session,
        "actor": event.actor,
        "kind": event.kind,
        "tool": getattr(fact, "tool", None),
        "call_id": getattr(fact, "call_id", None),
        "status": getattr(fact, "status", None),
        "coverage": coverage.level if isinstance(coverage, Coverage) else None,
        "paths": [change.path for change in changes],
        "reverts": list(getattr(fact, "reverts", ())),
        "origin": fact.origin if isinstance(fact, FilesChanged | GitChanged) else None,
        "occurred_at": time_text(event.occurred_at),
        "source": event.source,
        "parent": event.parent,
        "leaf_hash": event.leaf_hash.hex(),
        "fact": plain(fact),
    }


def plain(value: Any) -> Any:
    """A value of the model as JSON values: structs as dicts, states as `state_record`."""
    if isinstance(value, FileState):
        return state_record(value)
    if isinstance(value, Struct):
        return {name: plain(item) for name, item in asdict(value).items()}
    if isinstance(value, datetime):
        return time_text(value)
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    return value


def git_record(fact: GitChanged) -> Record:
    """What changed of git: each name and each file of the git folder, and the same in words."""
    return {
        "folder": fact.folder,
        "names": [
            {"name": one.name, "before": one.before, "after": one.after, "about": one.about}
            for one in fact.names
        ],
        "changes": plain(fact.changes),
        "origin": fact.origin,
        "causes": list(fact.causes),
        "runs_code": list(running_code(fact)),
        "words": list(git_words(fact)),
        "pushed": list(push_words(fact)),
    }


def git_state_record(state: GitSummary) -> Record:
    """What a repository named at a point, and the same in words."""
    return {**plain(state), "words": state.text}


def session_record(session: Session) -> Record:
    """The record of a session has the fields of `Session`, the status before the events."""
    return {
        "id": session.id,
        "agent": session.agent,
        "actor": session.actor,
        "title": session.title,
        "status": session.status,
        "started": session.started,
        "started_at": time_text(session.started_at),
        "ended": session.ended,
        "ended_at": time_text(session.ended_at),
        "calls": session.calls,
        "errors": session.errors,
        "files": session.files,
    }


def history_record(recorded: RecordedChange, call: int | None) -> Record:
    """A change of a path's history; `call` is the number of the call that made it."""
    return {
        "seq": recorded.seq,
        "at": time_text(recorded.at),
        "session": recorded.session,
        "actor": recorded.actor,
        "origin": recorded.origin,
        "call_id": recorded.call_id,
        "call": call,
        "causes": list(recorded.causes),
        **plain(recorded.change),
    }


def plan_record(plan: Plan) -> Record:
    """The record of a plan has what it would do, what it leaves and why, without contents."""
    return {
        "verb": plan.verb,
        "head": plan.head,
        "target": plan.target,
        "reverts": list(plan.reverts),
        "partly": {str(number): list(paths) for number, paths in plan.partly.items()},
        "changes": plain(plan.changes),
        "moves": plain(plan.moves),
        "git": [git_record(thing.as_change) for thing in plan.git],
        "git_words": list(plan.git_words),
        "lost_commits": list(plan.lost_commits),
        "git_settings": {path: list(lines) for path, lines in plan.git_settings},
        "already": list(plan.already),
        "decided": dict(plan.decided),
        **{one.name: plain(one.notes(plan)) for one in LISTS},
        "provisional": plan.provisional,
    }


def question_record(request: "ApprovalRequest") -> dict[str, Any]:
    """A question as a line of JSON."""
    return {
        "seq": request.seq,
        "requested": request.requested,
        "at": time_text(request.at),
        "session": request.session,
        "actor": request.actor,
        "effect": request.effect,
        "alive": request.alive,
        **plain(request.fact),
    }
