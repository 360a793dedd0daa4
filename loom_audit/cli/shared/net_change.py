"""The own net change of some calls, printed: line by line with the call of each, or as a patch."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from loom_audit.api.lines import CallSet, NetFile, NetHunk, lines_of
from loom_audit.cli.shared.diffs import below, print_patch
from loom_audit.cli.shared.lines import numbers
from loom_audit.cli.shared.output import Output, Piece, Style, json_text
from loom_audit.cli.shared.records import Record, plain
from loom_audit.model.files import FileChange
from loom_audit.model.text.display import count_text, first_few, visible, visible_bytes

if TYPE_CHECKING:
    from loom_audit.api.face import AuditedWorkspace

_STYLES: dict[str, Style] = {"+": "green", "-": "red", " ": ""}


def print_own(
    workspace: "AuditedWorkspace",
    output: Output,
    calls: CallSet,
    paths: Sequence[str],
    name_only: bool,
    stat: bool,
    patch: bool,
) -> None:
    """Print what the calls changed on balance, in all files or at some paths.

    Conflict where a patch is asked for, and their change is not one tree.
    """
    lines = lines_of(workspace)
    if patch:
        print_patch(workspace, output, below(lines.difference(calls), paths))
        return
    limit = 2**31
    found = lines.net(calls, max_lines=limit, max_file_lines=limit)
    inside = {change.path for change in below(_as_changes(found.files), paths)}
    shown = [one for one in found.files if one.path in inside]
    for one in shown:
        if output.json:
            output.record(_record(one, whole=not (stat or name_only)))
        elif name_only:
            output.line(visible(one.path))
        else:
            _print_file(output, one, whole=not stat)
    if not output.json and not name_only:
        added, removed = (sum(getattr(one, name) for one in shown) for name in ("added", "removed"))
        paths_text = count_text(len(shown), "path")
        output.note(f"{paths_text}, {count_text(added, 'line')} added, {removed} removed")


def _as_changes(files: Sequence[NetFile]) -> list[FileChange]:
    return [FileChange(one.path, one.before, one.after) for one in files]


def _print_file(output: Output, one: NetFile, *, whole: bool) -> None:
    moved = f"{visible(one.old_path)} -> " if one.old_path != one.path else ""
    pieces: list[Piece] = [(f"{moved}{visible(one.path)}", "bold")]
    pieces += [(f"  +{one.added}", "green"), (f" -{one.removed}", "red")]
    notes = _notes(one)
    pieces.append((f"  [{'; '.join(notes)}]" if notes else "", "dim"))
    output.line(*pieces)
    if whole:
        told = {line.by for hunk in one.hunks for line in hunk.lines if line.by >= 0}
        width = max((len(one.writers[n].text) for n in told), default=0)
        for hunk in one.hunks:
            _print_hunk(output, one, hunk, width)


def _notes(one: NetFile) -> list[str]:
    notes = [f"by {numbers(one.calls)}"] if one.calls else []
    if one.reason:
        notes.append(f"lines not told: {one.reason}")
    if one.own_after is None or one.own_before is None:
        notes.append("gone" if one.own_after is None else "new")
    elif one.after is None:
        notes.append("deleted since by others")
    if one.mode:
        notes.append(f"mode {one.mode[0]:04o} -> {one.mode[1]:04o}")
    for count, said in (
        (one.removed_again, "removed again by others"),
        (one.brought_back, "brought back"),
        (one.shared, "shared with other calls"),
    ):
        if count:
            notes.append(f"{count_text(count, 'line')} {said}")
    if one.others:
        others = first_few([writer.text for writer in one.others], 4)
        notes.append(f"changed by others: {others}")
    return notes


def _print_hunk(output: Output, one: NetFile, hunk: NetHunk, width: int) -> None:
    old, new = f"{hunk.old_start},{hunk.old_count}", f"{hunk.new_start},{hunk.new_count}"
    output.line((f"@@ -{old} +{new} @@", "cyan"))
    for line in hunk.lines:
        by = one.writers[line.by].text if line.by >= 0 else ""
        text = visible_bytes(line.content.removesuffix(b"\n"), multiline=True)
        output.marked(f"{by:<{width}} {line.kind}{text}", _STYLES[line.kind])


def _record(one: NetFile, *, whole: bool) -> Record:
    """A file with its sums and, where wanted, its hunks with the writer of each line."""
    record: Record = plain(replace(one, hunks=()))
    hunks = [
        plain(replace(hunk, lines=()))
        | {
            "lines": [
                {
                    "kind": line.kind,
                    "text": json_text(line.content),
                    "old": line.old,
                    "new": line.new,
                    "by": line.by,
                    "brought_back": line.brought_back,
                }
                for line in hunk.lines
            ]
        }
        for hunk in one.hunks
    ]
    return record | {"hunks": hunks} if whole else record
