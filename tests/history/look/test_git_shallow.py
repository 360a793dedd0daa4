"""Of a shallow repository what is before its end is not missing; in another one it is."""

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from loom_audit import AuditedWorkspace, ToolResult
from tests.places.git_person import as_ann, git

Call = Callable[..., ToolResult]


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository outside of the workspace, all loose, whose second commit changed its file."""
    as_ann(monkeypatch)
    folder = tmp_path / "elsewhere"
    git(tmp_path, "init", "-q", "-b", "main", str(folder))
    for text in ("first", "second"):
        (folder / "a.txt").write_text(text)
        git(folder, "add", ".")
        git(folder, "commit", "-q", "-m", text)
    return folder


def unkept(workspace: AuditedWorkspace) -> Iterator[str]:
    newest, *_ = workspace.timeline.calls()
    return (one for one in newest.coverage.reasons if "object" in one)


def test_the_shallow_of_one_repository_hides_nothing_that_another_lacks(
    workspace: AuditedWorkspace, root: Path, call: Call, elsewhere: Path
) -> None:
    git(root, "clone", "-q", "--depth=1", f"file://{elsewhere}", "near")
    call("shell_execute", command="cd near; git commit -q --allow-empty -m more")
    assert [*unkept(workspace)] == []
    lost = git(elsewhere, "rev-parse", "HEAD~1:a.txt").strip()
    (elsewhere / ".git/objects" / lost[:2] / lost[2:]).unlink()
    subprocess.run(["cp", "-r", elsewhere, root / "far"], check=True)
    call("shell_execute", command="cd far; git branch new")
    assert [*unkept(workspace)] == ["git: 1 object that git names not in it"]
    # nor is it there when the shallow one is looked at
    call("shell_execute", command="cd near; git commit -q --allow-empty -m more")
    mirror = workspace.attachment.on_disk.mirror
    assert mirror is not None and mirror.missing().some == (lost,)
    (root / "again").write_text("first")
    call("shell_execute", command="cd far; git hash-object -w ../again; git branch other")
    assert mirror.missing().count == 0


def test_a_repository_that_is_shallow_no_more_is_followed_again(
    workspace: AuditedWorkspace, root: Path, call: Call, elsewhere: Path
) -> None:
    git(root, "clone", "-q", "--depth=1", f"file://{elsewhere}", "near")
    call("shell_execute", command="cd near; git branch new")
    assert [*unkept(workspace)] == []
    lost = git(elsewhere, "rev-parse", "HEAD~1:a.txt").strip()
    for path in (elsewhere / ".git/objects").glob("??/*"):
        there = root / "near/.git/objects" / path.parent.name / path.name
        if path.parent.name + path.name != lost and not there.exists():
            there.parent.mkdir(exist_ok=True)
            there.write_bytes(path.read_bytes())
    call("shell_execute", command="cd near; rm .git/shallow; git log --oneline")
    assert [*unkept(workspace)] == ["git: 1 object that git names not in it"]
