"""Diffs on the command line: of two points, of one call, or of the log against the disk."""

import hashlib
import os
import stat
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from loom_audit.cli.shared.lines import DIFF_STYLES, change_lines, mark
from loom_audit.cli.shared.output import Output, Piece, Style, json_text
from loom_audit.cli.shared.records import git_record, plain
from loom_audit.errors import AuditError, Corrupt
from loom_audit.model.files import FileChange, FileState
from loom_audit.model.git.record import GitChanged
from loom_audit.model.git.words import git_words, runs_code
from loom_audit.model.git_points import git_path
from loom_audit.model.text.display import (
    count_text,
    one_line,
    size_text,
    visible,
    visible_bytes,
)
from loom_audit.model.text.git_patch import git_patch
from loom_audit.model.text.textdiff import marked_lines, unified

if TYPE_CHECKING:
    from loom_audit.api.face import AuditedWorkspace

MOST_BYTES = 4 * 1024 * 1024
"""A file over this is listed and not compared line by line."""


class Difference(Struct, frozen=True):
    """A changed path has its change as text in git's format; `omitted` says why there is none."""

    change: FileChange
    text: bytes
    omitted: str = ""


def difference(workspace: "AuditedWorkspace", change: FileChange, *, disk: bool) -> Difference:
    """The diff of one path; with `disk` the content after is read from the workspace.

    Corrupt, naming the path, for a content that is not the one on record.
    """
    states = [state for state in (change.before, change.after) if state is not None]
    biggest = max((state.size for state in states), default=0)
    if biggest > MOST_BYTES:
        return Difference(change, b"", f"{size_text(biggest)}, too large to compare here")
    try:
        old = _recorded(workspace, change.before)
        new = _on_disk(workspace.root, change) if disk else _recorded(workspace, change.after)
    except Corrupt as error:
        error.message = f"{visible(change.path)}: {error.message}"
        raise
    except AuditError as error:
        return Difference(change, b"", error.message)
    text = unified(
        change.path if change.before else None,
        change.path if change.after else None,
        old,
        new,
        state_old=change.before,
        state_new=change.after,
    )
    return Difference(change, text)


def print_differences(
    workspace: "AuditedWorkspace",
    output: Output,
    changes: Iterable[FileChange],
    *,
    disk: bool = False,
    raw: bool = False,
) -> None:
    """Print diffs: JSON objects, a patch as it is with `raw`, else escaped and coloured."""
    for change in changes:
        shown = difference(workspace, change, disk=disk)
        if output.json:
            text = json_text(shown.text)
            record = plain(change) | {"diff": text, "omitted": shown.omitted or None}
            output.record(record)
        elif raw:
            output.raw(shown.text)
            if shown.omitted:
                output.note(f"left out: {visible(change.path)}: {shown.omitted}")
        else:
            print_difference(output, shown)


def print_git(output: Output, facts: Iterable[GitChanged]) -> None:
    """Say what differs of git, apart from files; as JSON a record each, with the path of `.git`."""
    for fact in facts:
        if output.json:
            record = {
                "path": git_path(fact.folder),
                "before": None,
                "after": None,
                "git": git_record(fact),
            }
            output.record(record)
        for text in git_words(fact):
            style: Style = "red" if runs_code(text) else ""
            output.note("git: ", (one_line(text, 500), style))


def print_names(output: Output, changes: Sequence[FileChange]) -> None:
    """Print the paths alone, each with what became of it."""
    if output.json:
        for change in changes:
            output.record(plain(change))
    else:
        output.lines(change_lines(changes, indent=""))


def print_patch(
    workspace: "AuditedWorkspace", output: Output, changes: Iterable[FileChange]
) -> None:
    """Print a patch that `git apply` takes, with binary contents; as JSON one record each.

    What git does not know, a folder or another permission than to execute, is named beside it.
    Corrupt, TooLarge for a content that is not stored.
    """
    for change in changes:
        text = patch_of(change, workspace.timeline.content)
        if output.json:
            output.record(plain(change) | {"diff": json_text(text), "omitted": None})
            continue
        print_patched(output, change, text)


def patch_of(change: FileChange, content: Callable[[FileState], bytes]) -> bytes:
    """The patch of one path, with contents from a function; empty where git sees no difference."""
    old, new = (
        None if state is None or state.blob is None else content(state)
        for state in (change.before, change.after)
    )
    return git_patch(change, old, new)


def print_patched(output: Output, change: FileChange, patch: bytes) -> None:
    """Print the patch of one path; an empty one is named beside it."""
    output.raw(patch)
    if not patch:
        output.note(f"left out: {visible(change.path)}: git does not know such a change")


def print_stat(
    workspace: "AuditedWorkspace", output: Output, changes: Sequence[FileChange], *, disk: bool
) -> None:
    """Print for each path how many lines were added and removed, and the sum."""
    total = [0, 0]
    width = min(max((len(visible(change.path)) for change in changes), default=0), 60)
    for change in changes:
        shown = difference(workspace, change, disk=disk)
        added, removed = _counts(shown.text)
        total = [total[0] + added, total[1] + removed]
        if output.json:
            record = plain(change) | {"added": added, "removed": removed}
            output.record(record | {"omitted": shown.omitted or None})
            continue
        name = f" {visible(change.path):<{width}}"
        counts: tuple[Piece, ...] = ((f"  +{added}", "green"), (f" -{removed}", "red"))
        output.line(mark(change), name, *counts, f"  {shown.omitted}".rstrip())
    if not output.json:
        lines = count_text(total[0], "line")
        output.line(f"{count_text(len(changes), 'path')}, {lines} added, {total[1]} removed")


def _counts(text: bytes) -> tuple[int, int]:
    """Lines added and removed in a diff of one file."""
    body = text[text.find(b"\n@@") + 1 :].split(b"\n") if b"\n@@" in text else []
    return (sum(one[:1] == b"+" for one in body), sum(one[:1] == b"-" for one in body))


def print_difference(output: Output, shown: Difference, indent: str = "") -> None:
    """Print one diff for people."""
    if shown.omitted:
        output.line(indent, (visible(shown.change.path), "bold"), f": {shown.omitted}")
    texts = (visible_bytes(one, multiline=True) for one in shown.text.split(b"\n")[:-1])
    for text, part in marked_lines(texts):
        output.marked(text, DIFF_STYLES[part], indent)


def below(changes: Sequence[FileChange], paths: Sequence[str]) -> list[FileChange]:
    """The changes at the paths or inside them; all when no paths are named."""
    if not paths or "" in paths:
        return list(changes)
    prefixes = tuple(f"{path}/" for path in paths)
    exact = set(paths)
    return [c for c in changes if c.path in exact or c.path.startswith(prefixes)]


def _recorded(workspace: "AuditedWorkspace", state: FileState | None) -> bytes | None:
    if state is None or state.blob is None:
        return None
    return workspace.timeline.content(state)


def _on_disk(root: str, change: FileChange) -> bytes | None:
    """The content a status saw, read again for showing only and checked by its hash."""
    state = change.after
    if state is None or state.blob is None:
        return None
    path = os.path.join(os.fsencode(root), change.path.encode("utf-8", "surrogateescape"))
    try:
        content = os.readlink(path) if state.kind == "symlink" else _read(path)
    except OSError as error:
        raise AuditError(f"cannot be read: {error.strerror}") from error
    if hashlib.sha256(content).hexdigest() != state.blob:
        raise AuditError("changed while it was looked at")
    return content


def _read(path: bytes) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as stream:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise AuditError("is not a file any more")
        return stream.read(MOST_BYTES + 1)
