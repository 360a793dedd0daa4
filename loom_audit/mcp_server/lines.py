"""Who wrote which lines as resources: a file's lines at a point, and a session's own net change.

Each answer is bounded: so many lines and characters of them, and what is left out is said.
"""

import re
from collections.abc import Iterator
from typing import Any

from loom_audit.api.face import AuditedWorkspace
from loom_audit.api.lines import NetFile, Writer, everyone, joined, lines_of
from loom_audit.errors import InvalidArguments, TooLarge
from loom_audit.model.text.display import one_line, size_text, visible, visible_bytes

MOST_LINES = 300
"""Lines of one answer about a file."""

MOST_CHANGED = 1_000
"""Lines of hunks of one answer about a session."""

MOST_FILES = 200
"""Files of such an answer."""

MOST_CHARACTERS = 64 * 1024
"""The number of characters of the lines of one answer; a longer line is cut."""

MOST_PATCH = 1024 * 1024
"""Bytes of a patch; of a longer one a part would be no patch."""

_RANGE = re.compile(r"([0-9]{1,9})-([0-9]{1,9})")


def who_wrote(workspace: AuditedWorkspace, point: str, lines: str, path: str) -> dict[str, Any]:
    """Who wrote the lines `10-20` of a file at a point, as JSON.

    At most MOST_LINES of them; `next` is the range of what comes after. NotFound, Corrupt,
    InvalidArguments.
    """
    asked = _RANGE.fullmatch(lines)
    if asked is None:
        raise InvalidArguments(
            f"not a range of lines: {one_line(lines, 40)}", hint="Write 1-300; lines begin at 1."
        )
    first, last = int(asked[1]), int(asked[2])
    found = lines_of(workspace).blame(
        path, workspace.timeline.point(point), first=first, last=min(last, first + MOST_LINES - 1)
    )
    runs: list[dict[str, Any]] = []
    space, end = MOST_CHARACTERS, found.first - 1
    for run in joined(found.runs):
        texts: list[str] = []
        for line in range(run.first, run.last + 1):
            text = visible_bytes(found.texts[line - found.first].removesuffix(b"\n"))[:2_000]
            space -= len(text) + 1
            if space < 0:
                break
            texts.append(text)
        if texts:
            end = run.first + len(texts) - 1
            back = run.brought_back
            runs.append(
                {
                    "first": run.first,
                    "last": end,
                    "by": _writer(run.by),
                    "brought_back_by": back and back.text,
                    "lines": texts,
                }
            )
        if space < 0:
            break
    following = end + 1 if end < found.lines and found.first <= found.last else None
    return {
        "path": visible(path),
        "at": found.at,
        "lines_in_all": found.lines,
        "runs": runs,
        "not_told": found.reason,
        "next": following and f"{following}-{min(found.lines, following + MOST_LINES - 1)}",
    }


def _writer(by: Writer) -> dict[str, Any]:
    return {
        "said": by.text,
        "kind": by.kind,
        "call": by.call or None,
        "calls": [*by.calls],
        "event": by.event,
        "session": by.session,
        "actor": by.actor,
        "at": by.at.isoformat(),
        "reason": by.reason,
    }


def own_change(workspace: AuditedWorkspace, session: str) -> str:
    """What the calls of a session changed on balance, each line with its call, as text.

    NotFound, Corrupt.
    """
    lines = lines_of(workspace)
    net = lines.net(lines.of_session(session), max_lines=MOST_CHANGED, max_file_lines=MOST_CHANGED)
    parts = [f"{len(net.files)} files, +{net.added} -{net.removed} lines\n"]
    space = MOST_CHARACTERS
    for n, file in enumerate(net.files):
        if space <= 0 or n >= MOST_FILES:
            parts.append(f"and {len(net.files) - n} more files\n")
            break
        told = "".join(_of_file(file))
        parts.append(told if len(told) <= space else f"{told[:space]} …\nmore lines of it\n")
        space -= len(told)
    if net.cancelled:
        named = ", ".join(map(visible, net.cancelled[:20]))
        parts.append(f"changed and changed back ({len(net.cancelled)}): {named}\n")
    return "".join(parts)


def session_patch(workspace: AuditedWorkspace, session: str, *, everyones: bool = False) -> bytes:
    """How the files that a session changed differ from before it, as `git apply` takes it; of
    `everyones` all files that differ.

    TooLarge over MOST_PATCH bytes; Conflict where others changed one of them too. NotFound,
    Corrupt.
    """
    lines = lines_of(workspace)
    calls = lines.of_session(session)
    found = bytearray()
    for part in lines.patch(everyone(calls) if everyones else calls):
        found += part
        if len(found) > MOST_PATCH:
            raise TooLarge(
                f"the patch of session {one_line(session, 80)} has over {size_text(MOST_PATCH)}",
                hint="`loom-audit diff --session ID --patch` writes all of it.",
            )
    return bytes(found)


def _of_file(file: NetFile) -> Iterator[str]:
    moved = f"{visible(file.old_path)} -> " if file.old_path != file.path else ""
    calls = ", ".join(f"#{call}" for call in file.calls[:20])
    more = " …" if len(file.calls) > 20 else ""
    yield f"\n{moved}{visible(file.path)}  +{file.added} -{file.removed}  by {calls}{more}\n"
    if file.others:
        yield f"also changed by {', '.join(one.text for one in file.others[:4])}\n"
    if file.reason or file.omitted:
        yield f"lines not told: {file.reason or 'too many'}\n"
    for hunk in file.hunks:
        yield f"@@ -{hunk.old_start},{hunk.old_count} +{hunk.new_start},{hunk.new_count} @@\n"
        for line in hunk.lines:
            by = f"{file.writers[line.by].text}: " if line.by >= 0 else ""
            text = visible_bytes(line.content.removesuffix(b"\n"))[:2_000]
            yield f"{line.kind}{by}{text}\n"
