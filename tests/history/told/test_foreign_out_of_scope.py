"""What another program's call overwrites out of scope, at paths that it names before it runs."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from loom_audit import AuditedWorkspace, AuditStore, ForeignSession
from loom_audit.model.events import ContentFound, Event
from loom_audit.model.files import FileState
from loom_audit.model.records import Call

PATH = ".venv/pyvenv.cfg"


@pytest.fixture
def foreign(workspace: AuditedWorkspace, root: Path) -> ForeignSession:
    (root / ".venv").mkdir()
    (root / PATH).write_text("old\n")
    return workspace.start_foreign_session("client", id="s", pid=os.getpid())


def kept(workspace: AuditedWorkspace) -> list[Event]:
    """The events that keep a content, oldest first."""
    return [event for event in workspace.log.read() if isinstance(event.fact, ContentFound)]


def states(workspace: AuditedWorkspace) -> dict[str, FileState]:
    """What is kept, by path."""
    facts = (event.fact for event in kept(workspace))
    return {fact.path: fact.state for fact in facts if isinstance(fact, ContentFound)}


def call_of(workspace: AuditedWorkspace, call_id: str = "c") -> Call:
    return next(one for one in workspace.timeline.calls() if one.call_id == call_id)


def write(foreign: ForeignSession, file: Path, content: str | None, *more: str) -> None:
    """Let a call named `c` write a file, or delete it, as the tools of clients do."""
    foreign.begin_call("c", "Write", {}, "write", paths=[str(file), *more])
    if content is None:
        file.unlink()
    else:
        file.write_text(content)
    foreign.end_call("c")


@pytest.mark.parametrize("content", ["new\n", None], ids=["overwritten", "deleted"])
@pytest.mark.parametrize("end", ["told", "session ended"])
def test_what_was_there_is_kept_and_the_call_and_the_plan_say_where(
    workspace: AuditedWorkspace, foreign: ForeignSession, root: Path, content: str | None, end: str
) -> None:
    begun = foreign.begin_call("c", "Write", {}, "write", paths=[PATH])
    [event] = kept(workspace)
    assert (event.seq, event.session, event.actor) == (begun.seq + 1, "s", "agent:client")
    if content is None:
        (root / PATH).unlink()
    else:
        (root / PATH).write_text(content)
    if end == "told":
        foreign.end_call("c")
    else:
        foreign.end()
    way = f"outside the scope: {PATH} (`loom-audit cat PATH --at {event.seq}` prints what it held)"
    call = call_of(workspace)
    assert way in call.coverage.reasons and call.coverage.level == "partial"
    assert call.seq is not None
    [note] = workspace.plan_revert([call.seq]).irreversible
    assert way in note.reason
    state = workspace.timeline.found(PATH, event.seq)
    assert state is not None and workspace.timeline.content(state) == b"old\n"
    assert PATH not in workspace.timeline.tree()
    assert workspace.verify().ok


def test_a_file_that_a_call_makes_out_of_scope_is_named(
    workspace: AuditedWorkspace, foreign: ForeignSession, root: Path
) -> None:
    write(foreign, root / ".venv/made", "new\n")
    assert call_of(workspace).coverage.reasons == ("outside the scope: .venv/made",)
    assert kept(workspace) == []


def test_nothing_is_said_of_a_call_that_left_the_file_as_it_was(
    workspace: AuditedWorkspace, foreign: ForeignSession, root: Path
) -> None:
    write(foreign, root / PATH, "old\n", ".venv/absent")
    assert call_of(workspace).coverage.level == "full"


def test_nothing_is_kept_of_a_call_that_only_reads_or_writes_in_scope(
    workspace: AuditedWorkspace, foreign: ForeignSession, root: Path
) -> None:
    foreign.begin_call("r", "Read", {}, "read", paths=[PATH])
    foreign.end_call("r")
    write(foreign, root / "a.txt", "new\n", "new/deep/file", "a.txt/below")
    assert kept(workspace) == []
    assert call_of(workspace).coverage.level == "full"


def test_a_link_in_scope_to_a_file_out_of_scope_is_followed_and_one_that_leads_out_is_not(
    workspace: AuditedWorkspace, foreign: ForeignSession, root: Path, tmp_path: Path
) -> None:
    outside = root.parent / "outside"
    outside.write_text("secret\n")
    (root / "link").symlink_to(PATH)
    (root / ".venv/out").symlink_to(outside)
    write(foreign, root / "link", "new\n", ".venv/out")
    found = states(workspace)
    assert found.keys() == {PATH, ".venv/out"}
    assert found[".venv/out"].kind == "symlink"
    assert workspace.timeline.content(found[".venv/out"]) == os.fsencode(outside)


@pytest.mark.parametrize("path", [".git/config", "sub/.git/config", ".git"])
def test_nothing_of_git_is_kept(
    workspace: AuditedWorkspace, foreign: ForeignSession, root: Path, path: str
) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text("old\n")
    write(foreign, root / path, "new\n")
    assert kept(workspace) == []


def test_a_fifo_an_unreadable_file_a_folder_and_what_is_in_it_are_not_kept_and_stop_nothing(
    workspace: AuditedWorkspace, foreign: ForeignSession, root: Path
) -> None:
    os.mkfifo(root / ".venv/fifo")
    (root / ".venv/folder/closed").mkdir(parents=True)
    (root / ".venv/secret").write_text("x")
    (root / ".venv/secret").chmod(0)
    (root / ".venv/folder/closed").chmod(0)
    names = [".venv/fifo", ".venv/folder", ".venv/folder/closed/x", ".venv/secret", ".venv"]
    try:
        write(foreign, root / PATH, "new\n", *names)
    finally:
        (root / ".venv/folder/closed").chmod(0o755)
    if os.geteuid():
        assert [*states(workspace)] == [PATH]
        assert "outside the scope: .venv/secret" in call_of(workspace).coverage.reasons
    assert workspace.verify().ok


def test_a_file_over_the_limit_is_neither_read_nor_kept_and_the_call_says_that_it_is_there(
    workspace: AuditedWorkspace, foreign: ForeignSession, root: Path
) -> None:
    with (root / ".venv/huge").open("wb") as file:
        file.truncate(1 << 44)  # hashing it would take days
    foreign.begin_call("c", "Write", {}, "write", paths=[".venv/huge"])
    assert kept(workspace) == []
    foreign.end_call("c")
    assert call_of(workspace).coverage.reasons == ("outside the scope: .venv/huge",)


def test_a_path_that_comes_into_scope_during_the_call_is_named_and_its_content_kept(
    workspace: AuditedWorkspace, foreign: ForeignSession, root: Path
) -> None:
    (root / ".loomignore").write_text("logs/\n")
    workspace.accept_scope()
    (root / "logs").mkdir()
    (root / "logs/x").write_text("old\n")
    foreign.begin_call("c", "Write", {}, "write", paths=["logs/x"])
    (root / ".loomignore").write_text("")
    workspace.accept_scope()
    (root / "logs/x").write_text("new\n")
    foreign.end_call("c")
    [event] = kept(workspace)
    reasons = call_of(workspace).coverage.reasons
    assert any(f"logs/x (`loom-audit cat PATH --at {event.seq}`" in reason for reason in reasons)
    assert workspace.verify().ok


def test_a_call_begun_twice_is_kept_once_and_the_first_content_stands(
    workspace: AuditedWorkspace, foreign: ForeignSession, root: Path
) -> None:
    begun = foreign.begin_call("c", "Write", {}, "write", paths=[PATH])
    (root / PATH).write_text("new\n")
    assert foreign.begin_call("c", "Write", {}, "write", paths=[PATH]) == begun
    foreign.end_call("c")
    [event] = kept(workspace)
    assert f"--at {event.seq}" in call_of(workspace).coverage.reasons[0]


def test_two_open_calls_of_one_file_each_keep_what_was_there_before_them(
    workspace: AuditedWorkspace, foreign: ForeignSession, root: Path
) -> None:
    foreign.begin_call("c", "Write", {}, "write", paths=[PATH])
    (root / PATH).write_text("new\n")
    foreign.begin_call("d", "Write", {}, "write", paths=[PATH])
    (root / PATH).write_text("newest\n")
    foreign.end_call("d")
    foreign.end_call("c")
    first, second = kept(workspace)
    assert f"--at {first.seq}" in call_of(workspace).coverage.reasons[0]
    assert f"--at {second.seq}" in call_of(workspace, "d").coverage.reasons[0]
    contents = [
        workspace.timeline.content(workspace.timeline.found(PATH, one.seq))  # type: ignore[arg-type]
        for one in (first, second)
    ]
    assert contents == [b"old\n", b"new\n"]


def test_a_call_of_many_long_paths_out_of_scope_is_put_on_record_whole(
    workspace: AuditedWorkspace, foreign: ForeignSession, root: Path
) -> None:
    folder = root / ".venv" / ("d" * 200) / ("e" * 200) / ("f" * 200)
    folder.mkdir(parents=True)
    names = [str(folder / f"{n}{'x' * 200}") for n in range(99)]
    for name in names:
        Path(name).write_text(name)
    foreign.begin_call("c", "Write", {}, "write", paths=names)
    for name in names:
        Path(name).write_text("new\n")
    foreign.end_call("c")
    assert len(kept(workspace)) == len(names)
    assert len(call_of(workspace).coverage.reasons) == len(names)
    assert workspace.verify().ok


def test_a_client_killed_while_its_call_runs_leaves_what_was_there(
    store: AuditStore, workspace: AuditedWorkspace, root: Path
) -> None:
    (root / ".venv").mkdir()
    (root / PATH).write_text("old\n")
    with subprocess.Popen([sys.executable, "-Sc", "input()"], stdin=subprocess.PIPE) as client:
        foreign = workspace.start_foreign_session("client", id="s", pid=client.pid)
        foreign.begin_call("c", "Write", {}, "write", paths=[PATH])
        (root / PATH).write_text("new\n")
        client.kill()
    workspace.recover()
    [event] = kept(workspace)
    call = call_of(workspace)
    assert call.status == "interrupted"
    assert any(f"--at {event.seq}`" in reason for reason in call.coverage.reasons)
    assert workspace.verify().ok
