"""What a call would change, as a person sees it before answering."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from itertools import chain
from json import dumps
from typing import Any

from msgspec.structs import asdict

from loom_audit.errors import AuditError
from loom_audit.history.ground.attachment import Attachment
from loom_audit.history.record.edits import (
    Transform,
    plan_delete,
    plan_move,
    preview_edit,
    read_content,
)
from loom_audit.history.record.preconditions import Preconditions
from loom_audit.model.files import FileChange, FileState
from loom_audit.model.plans.planning import Plan
from loom_audit.model.text.cutting import cut
from loom_audit.model.text.display import size_text
from loom_audit.model.text.textdiff import unified
from loom_audit.tools.approvals.taking_back import past_of
from loom_audit.tools.calls.context import ToolContext
from loom_audit.tools.calls.places.area import SCRATCH
from loom_audit.tools.calls.tool import Preview

MAX_PREVIEW = 64 * 1024
"""Bytes of a preview's text, as UTF-8."""

_MAX_DIFFED = 1024 * 1024


def preview_write(
    ctx: ToolContext, path: str, new: Transform | bytes, *, parents: bool = True
) -> Preview:
    """What putting a content at a path would change."""
    if path.startswith(SCRATCH):
        return _scratch_preview(f"write {path}")
    with ctx.naming(path):
        changes, old, content = preview_edit(_attachment(ctx), path, new, create=parents)
    change = changes[-1]
    text = _diff_text(change, change.path, old, content)
    return _preview(changes, [text or f"{change.path} stays as it is\n"])


def preview_delete(ctx: ToolContext, path: str, *, recursive: bool = False) -> Preview:
    """What deleting a path would take away."""
    if path.startswith(SCRATCH):
        return _scratch_preview(f"delete {path}")
    attachment = _attachment(ctx)
    with ctx.naming(path):
        planned = plan_delete(Preconditions(attachment, keep=False), path, recursive=recursive)
    changes = sorted(planned, key=_path)
    return _preview(changes, _deletions(attachment, changes))


def preview_move(ctx: ToolContext, source: str, target: str, *, overwrite: bool = False) -> Preview:
    """What moving a path would change."""
    if source.startswith(SCRATCH) or target.startswith(SCRATCH):
        return _scratch_preview(f"move {source} to {target}")
    attachment = _attachment(ctx)
    preconditions = Preconditions(attachment, keep=False)
    with ctx.naming(source):
        planned, moves = plan_move(preconditions, source, target, overwrite=overwrite)
    changes = sorted(planned, key=_path)
    lines = sorted(f"rename {move.source} to {move.target}\n" for move in moves)
    replaced = [FileChange(c.path, c.before, None) for c in changes if c.before and c.after]
    return _preview(changes, [*lines, *_deletions(attachment, replaced)])


def preview_undo(ctx: ToolContext, number: int | None) -> Preview:
    """What taking back a call of the session, or its newest, would change."""
    plan = past_of(ctx).plan(number)
    return _preview(plan.changes, chain([f"undo of {plan.target}\n"], _differences(ctx, plan)))


def _differences(ctx: ToolContext, plan: Plan) -> Iterator[str]:
    past = past_of(ctx).past
    for change in plan.changes:
        shown: list[bytes | None] = []
        for state in (change.before, change.after):
            if state is not None and (state.blob is None or state.size > _MAX_DIFFED):
                break
            shown.append(past.content(state) if state else None)
        yield _diff_text(change, change.path, *shown) if len(shown) == 2 else _size_line(change)


def approval_hash(tool: str, arguments: Any, states: Mapping[str, FileState | None]) -> str:
    """SHA-256 of what an approval holds for: tool, arguments and what they were shown against.

    Over canonical JSON {arguments, states, tool}; a state is {blob, kind, mode, size} or null.
    """
    shown = {path: asdict(state) if state else None for path, state in states.items()}
    body = {"tool": tool, "arguments": arguments, "states": shown}
    text = dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return sha256(text.encode("ascii")).hexdigest()


def _path(change: FileChange) -> str:
    return change.path


def _scratch_preview(what: str) -> Preview:
    """Nothing of the workspace may change then."""
    return Preview(f"{what}, in the session's scratch directory\n", {})


def _attachment(ctx: ToolContext) -> Attachment:
    if ctx.writer is None:
        raise ctx.no_call_error()
    return ctx.writer.attachment


def _preview(changes: Sequence[FileChange], texts: Sequence[str] | Iterator[str]) -> Preview:
    shown: list[str] = []
    size = 0
    texts = iter(texts)
    for text in texts:
        shown.append(text)
        size += len(text)
        if size > MAX_PREVIEW:
            break
    states = {change.path: change.before for change in changes}
    more = f"… more is not shown: {len(states)} paths would change in all\n"
    if next(texts, None) is None:
        more = ""
    return Preview(cut("".join(shown), MAX_PREVIEW - len(more.encode())) + more, states)


def _deletions(attachment: Attachment, changes: Sequence[FileChange]) -> Iterator[str]:
    for change in changes:
        before = change.before
        if before is None:
            continue
        if before.kind == "directory":
            yield f"delete directory {change.path}\n"
            continue
        old: bytes | None = None
        if before.size <= _MAX_DIFFED:
            with suppress(AuditError):  # it is named with its size all the same
                old = read_content(attachment.on_disk, change.path, before)
        yield _diff_text(change, change.path, old, None) if old is not None else _size_line(change)


def _diff_text(change: FileChange, path: str, old: bytes | None, new: bytes | None) -> str:
    if max(len(old or b""), len(new or b"")) > _MAX_DIFFED:
        return _size_line(change)
    before = path if change.before else None
    after = path if new is not None else None
    diff = unified(before, after, old, new, state_old=change.before, state_new=change.after)
    return diff.decode("utf-8", "surrogateescape")


def _size_line(change: FileChange) -> str:
    """A change too large to be shown."""
    sides = (change.before, change.after)
    was, will = (f"{s.kind}, {size_text(s.size)}" if s else "absent" for s in sides)
    return f"{change.path}: {was} → {will}\n"
