"""The paths that a call of another program says it changes."""

import os
from pathlib import Path

import pytest

from loom_audit import AuditedWorkspace, ForeignSession, InvalidPath
from loom_audit.model.events import CallRequested


@pytest.fixture
def foreign(workspace: AuditedWorkspace, root: Path) -> ForeignSession:
    (root / "folder").symlink_to("src")
    (root / "file").symlink_to("src/main.py")
    (root / "whole").symlink_to(".")
    (root / "out").symlink_to(root.parent)
    (root / "round").symlink_to("round")
    return workspace.start_foreign_session("client", id="s", pid=os.getpid())


@pytest.mark.parametrize("path", [".", "", "src/..", "ROOT", "whole", "whole/folder/.."])
def test_the_root_stands_for_every_path(
    workspace: AuditedWorkspace, foreign: ForeignSession, root: Path, path: str
) -> None:
    named = [str(root) if path == "ROOT" else path, "a.txt"]
    foreign.begin_call("c1", "Write", {}, "write", paths=named)
    (root / "src" / "new").touch()
    (root / "made").touch()
    ended = foreign.end_call("c1")
    call = workspace.timeline.call(ended.seq).call
    assert (set(call.paths), call.coverage.level) == ({"src/new", "made"}, "full")


@pytest.mark.parametrize("path", ["folder/main.py", "folder", "file", "whole/file", "src/main.py"])
def test_a_path_through_links_is_the_file_behind_them(
    workspace: AuditedWorkspace, foreign: ForeignSession, root: Path, path: str
) -> None:
    foreign.begin_call("bash", "Bash")
    named = [str(root / path)]
    begun = foreign.begin_call("c1", "Edit", {}, "write", paths=named)
    (root / "src" / "main.py").write_text("new")
    (root / "a.txt").write_text("not c1's")
    ended = foreign.end_call("c1")
    assert foreign.begin_call("c1", "Edit", {}, "write", paths=named) == begun
    foreign.end_call("bash")
    call = workspace.timeline.call(ended.seq).call
    assert (call.paths, call.coverage.level) == (("src/main.py",), "full")


@pytest.mark.parametrize("path", ["file", "folder", "out", "round"])
def test_a_link_that_is_itself_changed_is_the_call_s(
    workspace: AuditedWorkspace, foreign: ForeignSession, root: Path, path: str
) -> None:
    foreign.begin_call("c1", "Delete", {}, "write", paths=[path])
    (root / path).unlink()
    ended = foreign.end_call("c1")
    assert workspace.timeline.call(ended.seq).call.paths == (path,)


@pytest.mark.parametrize("path", ["out/x", "round/x"])
def test_a_path_in_a_folder_outside_is_refused(
    workspace: AuditedWorkspace, foreign: ForeignSession, path: str
) -> None:
    head = workspace.log.head()
    with pytest.raises(InvalidPath):
        foreign.begin_call("c1", "Write", {}, "write", paths=[path])
    assert workspace.log.head() == head


@pytest.mark.parametrize("path", ["new/deep/file", "a.txt/below"])
def test_a_path_that_does_not_exist_stays_as_it_is_written(
    foreign: ForeignSession, path: str
) -> None:
    begun = foreign.begin_call("c1", "Write", {}, "write", paths=[path])
    assert isinstance(begun.fact, CallRequested) and begun.fact.paths == (path,)
