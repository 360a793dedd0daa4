"""How many lines calls added and removed, counted when a page asks, since reading contents costs.

A page shows the rows first and asks for these then; what is large is not counted.
"""

from collections.abc import Iterable, Mapping, Sequence

from fastapi import APIRouter, Request
from msgspec import Struct
from starlette.responses import Response

from loom_audit.api.face import Timeline
from loom_audit.errors import AuditError, InvalidArguments
from loom_audit.model.files import FileChange, FileState
from loom_audit.model.text.textdiff import diff_lines
from loom_audit.web.shared.dependencies import Query, Render, Workspace, is_number

router = APIRouter()
MOST_CALLS = 200
MOST_FILES = 60
"""The number of files of one call."""
MOST_BYTES = 4 * 1024 * 1024
"""Bytes that are read for one answer, of both versions."""
MOST_OF_ONE = 256 * 1024
"""Bytes of a version."""


class Lines(Struct, frozen=True):
    """The lines that a call added and removed; not `whole` where some files were not counted."""

    added: int
    removed: int
    whole: bool


@router.get("/w/{workspace}/lines")
def lines(request: Request, workspace: Workspace, query: Query, pages: Render) -> Response:
    """The counts of the calls that a page lists, each for its place there.

    InvalidArguments for what are not the requests of at most MOST_CALLS calls.
    """
    asked = query.get("of", ())
    if len(asked) > MOST_CALLS or not all(map(is_number, asked)):
        raise InvalidArguments(f"`of` are the requests of at most {MOST_CALLS} calls")
    counted = count_lines(workspace.timeline, [int(one) for one in asked])
    return pages.page(request, "lines.html", counted=counted)


def count_lines(timeline: Timeline, requests: Sequence[int]) -> Mapping[int, Lines]:
    """The net changes of these calls in lines, as far as they are text, by the seqs of requests."""
    own: dict[int, dict[str, FileChange]] = {one: {} for one in requests}
    for recorded in timeline.listed_changes(requests):
        # what one only may have done is not counted for it, as it is not listed with it
        if (listed := own.get(recorded.requested or 0)) is None:
            continue
        path, first = recorded.change.path, listed.get(recorded.change.path)
        before = first.before if first else recorded.change.before
        listed[path] = FileChange(path, before, recorded.change.after)
    allowance = MOST_BYTES
    found: dict[int, Lines] = {}
    for one, changes in own.items():
        counted, allowance = _count(timeline, changes.values(), allowance)
        if counted is not None:
            found[one] = counted
    return found


def _count(
    timeline: Timeline, changes: Iterable[FileChange], allowance: int
) -> tuple[Lines | None, int]:
    """The lines of one call, None where it has no text, and how many bytes may still be read."""
    added, removed, whole, text = 0, 0, True, False
    for n, change in enumerate(_without_moved(changes)):
        before, after = map(_with_lines, (change.before, change.after))
        sides = [side for side in (before, after) if side is not None]
        size = sum(side.size for side in sides)
        if not sides or change.before == change.after:
            continue
        if n >= MOST_FILES or size > allowance or any(side.size > MOST_OF_ONE for side in sides):
            whole = False
            continue
        allowance -= size
        try:
            old, new = (
                timeline.content(side) if side is not None else None for side in (before, after)
            )
        except AuditError:  # the page of the call says what is wrong with it
            whole = False
            continue
        found = diff_lines(old, new)
        text = text or not found.binary
        added, removed = added + found.added, removed + found.removed
    return (Lines(added, removed, whole) if text or not whole else None), allowance


def _with_lines(state: FileState | None) -> FileState | None:
    """A state of a file whose content is on record."""
    return state if state and state.kind == "file" and state.blob else None


def _without_moved(changes: Iterable[FileChange]) -> Iterable[FileChange]:
    """The changes without files that only went elsewhere."""
    listed = [*changes]
    made = {one.after.blob for one in listed if one.before is None and one.after}
    gone = {one.before.blob for one in listed if one.after is None and one.before}
    for one in listed:
        state = one.after if one.before is None else one.before if one.after is None else None
        if state is None or state.blob is None or state.blob not in made & gone:
            yield one
