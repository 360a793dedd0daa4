"""What a call put in the place of a `.git` that it removed: an empty folder gives way, all else
stays, and blocks by name.
"""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from loom_audit import AuditedWorkspace, AuditStore, Session
from loom_audit.disk.access.identity import identity_at
from loom_audit.disk.writing.rename import rename_to_absent
from loom_audit.errors import Conflict
from loom_audit.model.events import Event
from loom_audit.model.git.record import GitChanged
from loom_audit.model.plans.request import PlanRequest
from loom_audit.ports import EventFilter
from loom_audit.sandbox.git.builder import ProgramGitBuilder
from tests.history.undo.test_git_brought_back import left_over
from tests.history.undo.test_git_taken_back import act, as_git_says, broken, differences, root
from tests.places.git_person import git

__all__ = ["root"]

IN_ITS_PLACE = {
    "a file": "echo mine > .git",
    "a link": "ln -s /tmp .git",
    "a pipe": "mkfifo .git",
    "a folder with a file": "mkdir .git; echo mine > .git/precious",
    "a repository": "git init -q",
}


@pytest.mark.few(1)
@pytest.mark.parametrize(("verb", "calls"), [("undo", 1), ("rollback", 1), ("rollback", 2)])
def test_an_empty_folder_in_its_place_gives_way(
    workspace: AuditedWorkspace, root: Path, session: Session, verb: str, calls: int
) -> None:
    point, before, was_broken = workspace.log.head(), as_git_says(root), broken(root)
    done = ["rm -rf .git f0", "mkdir .git"]
    for one in done if calls == 2 else ["; ".join(done)]:
        act(session, one)
    plan = workspace.plan_undo() if verb == "undo" else workspace.plan_rollback(point)
    workspace.carry_out(plan)
    assert not differences(before, as_git_says(root))
    assert broken(root) == was_broken
    assert not left_over(root)
    assert workspace.verify().findings == ()
    act(session, "git commit -q --allow-empty -m on")
    workspace.carry_out(workspace.plan_undo())
    assert not differences(before, as_git_says(root))


@pytest.mark.parametrize("what", IN_ITS_PLACE)
def test_what_else_is_in_its_place_blocks_and_stays(
    workspace: AuditedWorkspace, root: Path, session: Session, what: str
) -> None:
    act(session, f"rm -rf .git f0; {IN_ITS_PLACE[what]}")
    was = os.lstat(root / ".git")
    plan = workspace.plan_undo()
    [note] = [one for one in plan.blocked if "stays; --no-git" in one.reason]
    assert "--to DIR" in note.reason
    with pytest.raises(Conflict, match="stays"):
        workspace.carry_out(plan)
    assert workspace.plan_undo().calls == plan.calls
    workspace.carry_out(workspace.plan(PlanRequest("undo", no_git=True)))
    assert (root / "f0").read_text() == "2\n"
    now = os.lstat(root / ".git")
    assert (now.st_ino, now.st_mode, now.st_mtime_ns) == (was.st_ino, was.st_mode, was.st_mtime_ns)


def test_it_comes_back_once_a_person_removed_what_was_in_its_place(
    workspace: AuditedWorkspace, root: Path, session: Session
) -> None:
    before = as_git_says(root)
    act(session, "rm -rf .git; echo x > .git")
    (root / ".git").unlink()
    workspace.carry_out(workspace.plan_undo())
    assert not differences(before, as_git_says(root))


def test_an_empty_folder_of_a_person_stays(
    workspace: AuditedWorkspace, root: Path, session: Session
) -> None:
    act(session, "rm -rf .git f0; mkdir .git")
    (root / ".git").rmdir()
    (root / ".git").mkdir()
    identity = os.stat(root / ".git").st_ino
    assert any("stays" in one.reason for one in workspace.plan_undo().blocked)
    assert os.stat(root / ".git").st_ino == identity


def test_a_nested_one_comes_back_in_place_of_an_empty_folder(store: AuditStore, root: Path) -> None:
    inner = root / "lib"
    inner.mkdir()
    git(inner, "init", "-q", "-b", "main")
    git(inner, "commit", "-q", "--allow-empty", "-m", "inner")
    workspace = store.attach(root)
    before = as_git_says(inner)
    with workspace.session("tester") as session:
        act(session, "rm -rf lib/.git; mkdir lib/.git")
        workspace.carry_out(workspace.plan_undo())
    assert not differences(before, as_git_says(inner))


def test_one_that_was_moved_away_and_replaced_by_an_empty_folder(
    workspace: AuditedWorkspace, root: Path, session: Session
) -> None:
    before = as_git_says(root)
    act(session, "mv .git old; mkdir .git")
    plan = workspace.plan_undo()
    if plan.blocked:
        with pytest.raises(Conflict):
            workspace.carry_out(plan)
        (root / ".git").rmdir()
        plan = workspace.plan_undo()
    workspace.carry_out(plan)
    assert not differences(before, as_git_says(root))


@pytest.mark.parametrize("what", ["file", "link", "full folder", "other empty folder", "nothing"])
def test_what_comes_in_place_of_the_empty_folder_at_the_last_moment_stays(
    tmp_path: Path, what: str
) -> None:
    builder = ProgramGitBuilder(str(tmp_path), identity_at, rename_to_absent)
    place = tmp_path / ".git"
    place.mkdir()
    folder = os.open(tmp_path, os.O_RDONLY)
    over = identity_at(folder, b".git")
    os.close(folder)
    with builder.begin("", over) as building:
        place.rmdir()
        if what == "file":
            place.write_text("gitdir: /elsewhere")
        elif what == "link":
            place.symlink_to(tmp_path)
        elif what != "nothing":
            place.mkdir()
            if what == "full folder":
                (place / "HEAD").write_text("ref: refs/heads/main")
        if what in ("file", "link", "full folder"):
            with pytest.raises(Conflict, match=r"something is at \.git"):
                building.finish()
        else:  # nothing can be lost
            building.finish()
    assert not left_over(tmp_path)
    if what == "full folder":
        assert [one.name for one in place.iterdir()] == ["HEAD"]
    (tmp_path / "more").mkdir()
    with pytest.raises(Conflict, match=r"something is at \.git"):
        builder.begin("", over)


@pytest.mark.parametrize(
    ("done", "times"),
    # whether a call that changed no file can be taken back at all is asked before
    [("rm -rf .git", 1), ("git branch b", 2), ("mv .git old; echo x > x", 1)],
)
def test_what_the_log_has_of_git_is_read_once_for_a_plan(
    workspace: AuditedWorkspace,
    root: Path,
    session: Session,
    monkeypatch: pytest.MonkeyPatch,
    done: str,
    times: int,
) -> None:
    act(session, done)
    workspace.plan_undo()
    log = workspace.attachment.stored.log
    asked: list[EventFilter] = []
    read = log.read

    def counted(filter: EventFilter = EventFilter()) -> Iterator[Event]:
        asked.append(filter)
        return read(filter)

    monkeypatch.setattr(log, "read", counted)
    workspace.plan_undo()
    of_git = [one for one in asked if one.kinds == (GitChanged.kind,) and not one.after]
    assert len(of_git) == times


@pytest.mark.parametrize("folder", ["", "made"])
def test_of_a_repository_that_a_call_made_nothing_is_there_to_choose(
    workspace: AuditedWorkspace, root: Path, session: Session, folder: str
) -> None:
    act(session, "echo before > before")
    shutil.rmtree(root / ".git")
    session.run(["true"])
    act(session, f"git init -q ./{folder}")
    plan = workspace.plan_undo()
    path = f"{folder}/.git" if folder else ".git"
    assert path not in [note.path for note in plan.kept]
    [note] = [one for one in plan.irreversible if one.path == path]
    assert note.reason == "what is in it is not on record, so it stays"
    workspace.carry_out(plan)
    assert (root / path / "HEAD").exists()
    workspace.carry_out(workspace.plan_undo())  # the call before
    assert not (root / "before").exists()
