"""Commands that look at files: diff, cat, ls, history, status."""

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from loom_audit.cli.differences import below, print_differences, print_stat
from loom_audit.cli.lines import call_line, change_lines, entry_line, history_line
from loom_audit.cli.looking import event_id, note_baseline
from loom_audit.cli.names import named_point
from loom_audit.cli.options import Invocation, command, is_point, workspace_path
from loom_audit.cli.records import (
    call_record,
    change_record,
    history_record,
    plain,
    state_record,
)
from loom_audit.cli.waiting import question_about, questions
from loom_audit.errors import FileNotFound, InvalidArguments, TooLarge
from loom_audit.model.display import visible_bytes, visible_path
from loom_audit.model.events import Call

if TYPE_CHECKING:
    from loom_audit.api import AuditedWorkspace
    from loom_audit.model.events import RecordedChange
    from loom_audit.model.files import FileChange, FileState

PIECE = 1024 * 1024

AtOption = Annotated[
    str, typer.Option("--at", metavar="POINT", help="42, head, head~3, a time, @name, session:ID.")
]


def add(app: typer.Typer) -> None:
    """Put these commands on the application."""
    section = "Look"
    command(
        app,
        "diff",
        section=section,
        examples=(
            "loom-audit diff                      # the log against the disk",
            "loom-audit diff 40 head src/",
            "loom-audit diff --call 42 --raw | git apply -R",
        ),
    )(diff)
    command(
        app, "cat", section=section, examples=("loom-audit cat src/app.py --at head~3 > old.py",)
    )(cat)
    command(app, "ls", section=section, examples=("loom-audit ls src --at @before-merge",))(ls)
    command(app, "history", section=section, examples=("loom-audit history src/app.py",))(history)
    command(
        app,
        "status",
        section=section,
        examples=("loom-audit status", "loom-audit status --exit-code"),
        codes={1: "with --exit-code: disk and log differ, or something was interrupted"},
    )(status)


def diff(
    at: Invocation,
    arguments: Annotated[
        list[str] | None,
        typer.Argument(metavar="POINT|PATH", help="Up to two points, then paths."),
    ] = None,
    call: Annotated[
        int | None, typer.Option("--call", metavar="SEQ", help="What this call changed.")
    ] = None,
    name_only: Annotated[bool, typer.Option("--name-only", help="Only the paths.")] = False,
    stat: Annotated[bool, typer.Option("--stat", help="Lines added and removed.")] = False,
    raw: Annotated[
        bool, typer.Option("--raw", help="A patch for `git apply`, contents not escaped.")
    ] = False,
) -> None:
    """Compare two points, or the log with the disk.

    Without points the log with the disk; with one point, what happened from it until now.
    Contents are shown escaped except with --raw.
    """
    points, paths = _points_and_paths(arguments or [])
    if call is not None and points:
        raise InvalidArguments(
            "--call and points cannot be given together", hint="Give one of them."
        )
    with at.workspace() as workspace:
        timeline = workspace.timeline
        disk = call is None and not points
        changes: tuple[FileChange, ...]
        if call is not None:
            changes = timeline.call(call).changes
        elif disk:
            changes = workspace.status().drift
        else:
            old = timeline.point(named_point(workspace, points[0]))
            new = timeline.point(named_point(workspace, points[1] if len(points) > 1 else "head"))
            changes = timeline.diff(old, new)
        named = [workspace_path(workspace.root, path) for path in paths]
        shown = below(changes, named)
        for path in named:
            if path and not below(shown, [path]) and not _ever(workspace, path):
                raise FileNotFound(
                    f"nothing is on record for {visible_path(path)}",
                    hint="Name a path that was recorded, or a point: 42, head~3, @name.",
                )
        if not shown:
            at.output.note("no differences")
        if stat:
            print_stat(workspace, at.output, shown, disk=disk)
        elif not name_only:
            print_differences(workspace, at.output, shown, disk=disk, raw=raw)
        elif at.output.json:
            for change in shown:
                at.output.record(change_record(change))
        else:
            at.output.lines(change_lines(shown, indent=""))


def _ever(at: "AuditedWorkspace", path: str) -> bool:
    """Whether anything is on record for a path or below it."""
    return bool(at.timeline.history(path, below=True, limit=1))


def _points_and_paths(arguments: list[str]) -> tuple[list[str], list[str]]:
    count = 0
    while count < min(2, len(arguments)) and is_point(arguments[count]):
        count += 1
    return arguments[:count], arguments[count:]


def cat(
    at: Invocation,
    path: Annotated[str, typer.Argument(metavar="PATH")],
    point: AtOption = "head",
    raw: Annotated[
        bool, typer.Option("--raw", help="Bytes as they are, on a terminal too.")
    ] = False,
) -> None:
    """Print a recorded file as it was at a point.

    Also one deleted since. The bytes are written as they are to a pipe or a file, and escaped
    to a terminal. A symlink gives its target.
    """
    with at.workspace() as workspace:
        name = workspace_path(workspace.root, path)
        seq = workspace.timeline.point(named_point(workspace, point))
        state = workspace.timeline.state(name, seq)
        if state is None and name:
            raise _absent(workspace, name, path, seq)
        if state is None or state.blob is None:
            shown = visible_path(name) or "the workspace"
            hint = f"`loom-audit ls {shlex.quote(path)}` lists it." if name else "`loom-audit ls`"
            raise InvalidArguments(f"{shown} is a directory", hint=hint)
        if at.output.json:
            text = workspace.timeline.content(state).decode("utf-8", "surrogateescape")
            at.output.record({"path": name, "at": seq, "state": state_record(state), "text": text})
        elif raw or not at.output.stdout.isatty():
            _write_out(at, workspace, state)
        else:
            text = visible_bytes(workspace.timeline.content(state), multiline=True)
            at.output.text(text.removesuffix("\n"))


def _absent(at: "AuditedWorkspace", name: str, typed: str, seq: int) -> FileNotFound:
    """The error about a path that is not there at a point, or never was."""
    if not _ever(at, name):
        return FileNotFound(
            f"nothing is on record for {visible_path(name)}",
            hint="`loom-audit ls -r` lists what is there, `--at POINT` what was.",
        )
    return FileNotFound(
        f"{visible_path(name)} did not exist at {seq}",
        hint=f"`loom-audit history {shlex.quote(typed)}` says when it did.",
    )


def _write_out(at: Invocation, workspace: "AuditedWorkspace", state: "FileState") -> None:
    assert state.blob is not None
    if state.blob not in workspace.blobs:
        raise TooLarge(
            "the content was over the limit and recorded by hash only",
            hint="`loom-audit init --max-file-bytes N` raises the limit for what comes later.",
        )
    with workspace.blobs.open(state.blob) as stream:
        while piece := stream.read(PIECE):
            at.output.raw(piece)


def ls(
    at: Invocation,
    path: Annotated[str, typer.Argument(metavar="PATH")] = ".",
    point: AtOption = "head",
    recursive: Annotated[
        bool, typer.Option("--recursive", "-r", help="Everything below, too.")
    ] = False,
) -> None:
    """List what a folder of the workspace held at a point."""
    with at.workspace() as workspace:
        name = workspace_path(workspace.root, path)
        seq = workspace.timeline.point(named_point(workspace, point))
        tree = workspace.timeline.tree(seq)
        prefix = f"{name}/" if name else ""
        if name and name not in tree:
            raise _absent(workspace, name, path, seq)
        listed = (
            [name]
            if name and tree[name].kind != "directory"
            else sorted(
                p
                for p in tree
                if p.startswith(prefix) and (recursive or "/" not in p[len(prefix) :])
            )
        )
        for one in listed:
            if at.output.json:
                at.output.record({"path": one, **_state(tree[one])})
            else:
                shown = one if one == name else one[len(prefix) :]
                at.output.line(*entry_line(shown, tree[one]))
        if not listed:
            at.output.note(f"nothing was there at {seq}")


def _state(state: "FileState") -> dict[str, Any]:
    return state_record(state) or {}


def history(
    at: Invocation,
    path: Annotated[str, typer.Argument(metavar="PATH")],
    below: Annotated[
        bool, typer.Option("--below", help="Of everything in this folder, too.")
    ] = False,
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=0, metavar="N", help="0 means all.")
    ] = 50,
) -> None:
    """List every change of one path, newest first."""
    with at.workspace() as workspace:
        name = workspace_path(workspace.root, path)
        inside = below or not name
        found = workspace.timeline.history(name, below=inside, limit=limit or 2**31)
        if not found:
            raise FileNotFound(
                f"nothing is on record for {visible_path(name) or 'the workspace'}",
                hint="`loom-audit ls -r` lists what is; --below includes a folder's content.",
            )
        for recorded in found:
            call = _call(workspace, recorded)
            if at.output.json:
                at.output.record(history_record(recorded, call))
            else:
                at.output.line(*history_line(recorded, call, path=inside))


def _call(workspace: "AuditedWorkspace", recorded: "RecordedChange") -> int | None:
    """The number of the call that made a change; None while it is open, and where there is none."""
    if recorded.call_id is None:
        return None
    return workspace.timeline.call_of(recorded).seq


def status(
    at: Invocation,
    exit_code: Annotated[
        bool, typer.Option("--exit-code", help="Exit with 1 when there is anything to see.")
    ] = False,
) -> int:
    """Compare the disk with the log, naming every drift.

    Names open calls and interrupted changes, too. Nothing is recorded by looking.
    """
    with at.workspace() as workspace:
        note_baseline(at, workspace)
        found = workspace.status()
        anything = bool(found.drift or found.untracked or found.interrupted)
        if at.output.json:
            at.output.record(
                {
                    "workspace": workspace.id,
                    "root": workspace.root,
                    "head": found.head,
                    "drift": [change_record(change) for change in found.drift],
                    "untracked": plain(found.untracked),
                    "open_calls": _calls(workspace, found.open_calls),
                    "interrupted": _calls(workspace, found.interrupted),
                }
            )
        else:
            _print_status(at, workspace, found)
        return 1 if exit_code and anything else 0


def _calls(workspace: "AuditedWorkspace", calls: Sequence[Call]) -> list[dict[str, Any]]:
    return [call_record(call, event_id(workspace, call.seq or call.requested)) for call in calls]


def _print_status(at: Invocation, workspace: "AuditedWorkspace", found: Any) -> None:
    out = at.output
    out.line((f"workspace {workspace.root}", "bold"), f"  (log at {found.head})")
    if found.drift:
        out.line("changed on disk and not on record yet:")
        out.lines(change_lines(found.drift))
    if found.untracked:
        out.line("on record, but cannot be looked at now:")
        out.lines((f"  {visible_path(one.path)}: {one.reason}",) for one in found.untracked)
    gone = {call.requested for call in found.interrupted}
    if still_open := [call for call in found.open_calls if call.requested not in gone]:
        out.line("open calls:")
        asked = questions(workspace)
        for call in still_open:
            out.line(*call_line(call, width=out.width, question=question_about(asked, call)))
    if found.interrupted:
        out.line(("interrupted; see `loom-audit recover`:", "yellow"))
        out.lines(call_line(call, width=out.width) for call in found.interrupted)
    if not (found.drift or found.untracked or found.interrupted):
        out.line("the disk is as the log says")
