"""Which paths are recorded: rules and names, a scope accepted meanwhile, what is out of scope."""

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from loom_audit import (
    AuditedWorkspace,
    AuditStore,
    Session,
    ToolResult,
    open_store,
)
from loom_audit.errors import InvalidArguments
from loom_audit.history.record.call import OpenCall
from loom_audit.model.events import FilesChanged, ScopeAccepted, WorkspaceAttached
from loom_audit.model.scope import Scope, bad_lines
from loom_audit.ports import EventFilter
from tests.oracles.trees import everything, tree_of

Call = Callable[..., ToolResult]


def run(session: Session, command: str, call_id: str | None = None) -> ToolResult:
    return anyio.run(lambda: session.call("shell_execute", {"command": command}, call_id=call_id))


def rollback(workspace: AuditedWorkspace, point: int | str, **options: object) -> None:
    workspace.carry_out(workspace.plan_rollback(point, **options))  # type: ignore[arg-type]


def undo(workspace: AuditedWorkspace) -> None:
    workspace.carry_out(workspace.plan_undo())


@pytest.mark.parametrize("name", ["x.log\n", "top\n", "build\n", ".env\n"])
def test_a_name_that_ends_in_a_newline_is_not_the_name_without_it(
    store: AuditStore, root: Path, name: str
) -> None:
    (root / ".loomignore").write_text("*.log\n/top\nbuild\n.env\n")
    workspace = store.attach(root)
    with workspace.session("tester") as session, session.recording("hide"):
        (root / name).write_text("hidden")
    assert name in workspace.timeline.tree()


@pytest.mark.parametrize(
    ("rules", "path"),
    [
        ("*.log", "a\nb/z.log"),
        ("*.log", "\nz.log"),
        ("a*z", "a\nz"),
        ("a?z", "a\nz"),
        ("a[!b]z", "a\nz"),
        ("**/gen/**", "a\nb/gen/c\nd/e"),
    ],
)
def test_a_wildcard_stands_for_a_newline_too(rules: str, path: str) -> None:
    assert not Scope(rules).includes(path)
    assert Scope(rules).includes("other\n")


@pytest.mark.parametrize("character", ["\x0b", "\x0c", "\x1c", "\x85", "\u2028", "\u2029", "\r"])
def test_a_comment_ends_where_git_ends_it(character: str) -> None:
    """Else a rule could hide in what is shown to a person as a comment."""
    assert Scope(f"# harmless{character}*\n").includes("a.txt")
    assert bad_lines(f"# harmless{character}!\n") == []
    assert not Scope("*.log\r\n").includes("a.log")


def test_an_open_session_follows_a_scope_accepted_meanwhile(
    root: Path, session: Session, call: Call
) -> None:
    (root / ".loomignore").write_text("*.log\n")
    call("shell_execute", command="echo 1 > before.log")
    with open_store() as other:
        other.workspace(root).accept_scope()
    done = call("shell_execute", command="echo 1 > after.log; echo 2 > before.log; echo 3 > kept")
    assert done.files_changed == ["kept"]
    call("write_file", path="direct.log", content="x")
    assert "direct.log" not in session.workspace.timeline.tree()


def test_what_an_accepted_scope_lets_in_is_nobodys_doing(
    root: Path, session: Session, call: Call
) -> None:
    (root / ".loomignore").write_text("*.log\n")
    session.workspace.accept_scope()
    (root / "old.log").write_text("mine\n")
    (root / "a.txt").write_text("changed outside\n")
    call("read_file", path="a.txt")
    opened = OpenCall(session.writer, "sh", {}, "execute", call_id="c")
    with opened.capture(final=True):
        (root / ".loomignore").unlink()
        with open_store() as other:
            other.workspace(root).accept_scope()
        (root / "new").write_text("the command's\n")
    opened.finish("ok", {})
    assert "old.log" not in opened.files_changed and "new" in opened.files_changed
    assert "old.log" in session.workspace.timeline.tree()
    plan = session.workspace.plan_undo()
    session.workspace.carry_out(plan)
    assert (root / "old.log").read_text() == "mine\n"
    assert not (root / "new").exists()


def test_a_path_let_in_again_and_gone_meanwhile_is_deleted(root: Path, session: Session) -> None:
    workspace = session.workspace
    (root / ".loomignore").write_text("src/\n")
    workspace.accept_scope()
    (root / "src" / "main.py").unlink()
    (root / ".loomignore").write_text("\n")
    workspace.accept_scope()
    assert "src/main.py" not in workspace.timeline.tree()
    assert workspace.status().drift == ()


def test_the_log_says_which_scope_a_change_was_recorded_under(
    root: Path, session: Session, call: Call
) -> None:
    (root / ".loomignore").write_text("*.log\n")
    call("shell_execute", command="echo 1 > x.log")
    session.workspace.accept_scope()
    call("shell_execute", command="echo 2 > x.log; echo 2 > y.txt")
    kinds = (FilesChanged.kind, ScopeAccepted.kind)
    scope, seen = "", {}
    for event in session.workspace.log.read(EventFilter(kinds=kinds)):
        if isinstance(event.fact, ScopeAccepted):
            scope = event.fact.ignore
        elif isinstance(event.fact, FilesChanged):
            seen.update({change.path: scope for change in event.fact.changes})
    assert (seen["x.log"], seen["y.txt"]) == ("", "*.log\n")


def test_a_new_limit_is_on_record_and_content_once_over_it_is_kept(
    store: AuditStore, root: Path, session: Session, call: Call
) -> None:
    workspace = session.workspace
    store.attach(root, max_file_bytes=4)
    call("shell_execute", command="printf 123456 > large")
    state = workspace.timeline.tree()["large"]
    assert state.blob is not None and state.blob not in workspace.blobs
    events = workspace.log.head()
    store.attach(root, max_file_bytes=4)
    assert workspace.log.head() == events
    store.attach(root, max_file_bytes=100)
    assert workspace.timeline.content(state) == b"123456"
    facts = [event.fact for event in workspace.log.read(EventFilter(after=events))]
    (fact,) = [fact for fact in facts if isinstance(fact, WorkspaceAttached)]
    assert (fact.root, fact.ignore, fact.max_file_bytes) == (str(root), "", 100)
    assert workspace.verify().exit_code in (0, 3)
    call("shell_execute", command="rm large")
    workspace.carry_out(workspace.plan_undo())
    assert (root / "large").read_bytes() == b"123456"


def test_what_a_person_takes_out_of_scope_is_neither_drift_nor_deleted(
    workspace: AuditedWorkspace, root: Path, session: Session
) -> None:
    run(session, "mkdir gen; echo 1 > gen/x")
    (root / ".loomignore").write_text("gen/\n")
    run(session, "true")
    workspace.accept_scope()
    (root / "gen" / "x").write_text("2")
    (root / "gen" / "y").write_text("3")
    assert workspace.status().drift == ()
    with workspace.session("later") as later:
        assert run(later, "rm gen/x; echo 4 > gen/z").files_changed == []
    assert "gen/x" not in workspace.timeline.tree()


@pytest.mark.parametrize("line", ["!", "a[z-a]"])
def test_a_line_that_is_not_a_pattern_is_refused_and_excludes_nothing(
    store: AuditStore, root: Path, line: str
) -> None:
    (root / ".loomignore").write_text(f"{line}\n*.log\n")
    workspace = store.attach(root)
    (root / "b.log").write_text("not recorded")
    assert workspace.status().drift == ()
    assert "a.txt" in workspace.timeline.tree()
    with pytest.raises(InvalidArguments, match="not a pattern"):
        workspace.accept_scope()
    assert workspace.status().drift == ()


def test_a_link_that_becomes_a_heavy_folder_does_not_bring_it_into_scope(
    workspace: AuditedWorkspace, root: Path, session: Session, tmp_path: Path
) -> None:
    run(session, "ln -s src venv")
    assert run(session, "rm venv; mkdir -p venv/lib; echo 1 > venv/lib/x").files_changed == ["venv"]
    assert workspace.status().drift == ()
    assert workspace.plan_undo().blocked
    assert workspace.replay("head", tmp_path / "again") == 3


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("delete_file", {"path": "node_modules", "recursive": True}),
        ("delete_file", {"path": "node_modules/a.js"}),
        ("move_file", {"from": "node_modules/a.js", "to": "a.js"}),
    ],
)
def test_a_tool_does_not_take_away_what_is_not_recorded(
    root: Path, call: Call, name: str, arguments: dict[str, Any]
) -> None:
    (root / "node_modules").mkdir()
    (root / "node_modules" / "a.js").write_text("1")
    before = everything(root)
    call(name, **arguments, fails="CONFLICT")
    assert everything(root) == before


def test_the_users_git_repository_is_never_touched(
    workspace: AuditedWorkspace, root: Path, call: Call
) -> None:
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    git_before = tree_of(root / ".git")
    point = workspace.log.head()
    call("write_file", path="a.txt", content="changed")
    call("shell_execute", command="rm -r src")
    call("write_file", path=".git/config", content="evil", fails="INVALID_PATH")
    rollback(workspace, point)
    assert tree_of(root / ".git") == git_before


def test_nested_repositories_and_no_repository_are_recorded_alike(
    workspace: AuditedWorkspace, root: Path, call: Call
) -> None:
    (root / "nested").mkdir()
    subprocess.run(["git", "init", "-q", str(root / "nested")], check=True)
    (root / "nested" / "code.py").write_bytes(b"1\n")
    call("shell_execute", command="true")
    call("shell_execute", command="echo 2 > nested/code.py")
    undo(workspace)
    assert (root / "nested" / "code.py").read_bytes() == b"1\n"
