"""Hooks and settings of git come back only where a person asks for it, and are shown before."""

import os
import subprocess
from pathlib import Path

import pytest

from loom_audit import AuditedWorkspace, Session
from loom_audit.disk.writing.rename import exchange_names
from loom_audit.errors import Conflict, InvalidArguments, NotFound
from loom_audit.model.git.record import GitIntended
from loom_audit.ports import EventFilter
from loom_audit.ports.git import GitFile
from loom_audit.sandbox.git.settings import put_setting
from tests.history.undo.test_git_taken_back import act, as_git_says, differences, root
from tests.places.git_person import git

__all__ = ["root"]

CHANGED = (
    "git config user.name evil; echo '*.o' >> .git/info/exclude; rm .git/hooks/mine;"
    " printf '#!/bin/sh\\n' > .git/hooks/post-commit; chmod +x .git/hooks/post-commit"
)


@pytest.fixture
def hooked(workspace: AuditedWorkspace, root: Path, session: Session) -> Path:
    """A repository with a hook of a person's, of which a call changed the settings."""
    hook = root / ".git" / "hooks" / "mine"
    hook.write_text("#!/bin/sh\necho mine\n")
    hook.chmod(0o755)
    session.run(["true"])
    act(session, CHANGED)
    return root


def settings_of(root: Path) -> dict[str, tuple[bytes, int]]:
    names = ("config", "info/exclude", "hooks/mine", "hooks/post-commit")
    paths = [root / ".git" / name for name in names]
    return {
        str(one): (one.read_bytes(), one.stat().st_mode & 0o777) for one in paths if one.exists()
    }


def test_they_stay_without_being_asked_for_and_are_shown(
    workspace: AuditedWorkspace, hooked: Path, session: Session
) -> None:
    with pytest.raises(NotFound, match="nothing to undo"):
        workspace.plan_undo()
    act(session, "git branch made; git config user.email evil@example.org")
    now = settings_of(hooked)
    plan = workspace.plan_undo()
    assert [one.name for one in plan.git] == ["refs/heads/made"]
    assert dict(plan.git_settings)[".git/config"][-1].endswith("email = evil@example.org")
    assert any("without --git-config: config" in note.reason for note in plan.irreversible)
    workspace.carry_out(plan)
    assert settings_of(hooked) == now


def test_they_come_back_where_a_person_asks_for_them_and_a_redo_as_well(
    workspace: AuditedWorkspace, hooked: Path
) -> None:
    after = settings_of(hooked)
    plan = workspace.plan_undo(git_config=True)
    shown = dict(plan.git_settings)
    assert shown[".git/hooks/mine"][-2:] == ("+#!/bin/sh", "+echo mine")
    assert shown[".git/hooks/post-commit"][-1] == "-#!/bin/sh"
    assert shown[".git/hooks/mine"][0] == "mode 755"
    assert "hooks/mine comes back as it was: it can run code as you" in plan.git_words
    workspace.carry_out(plan)
    before = settings_of(hooked)
    assert before[str(hooked / ".git/hooks/mine")] == (b"#!/bin/sh\necho mine\n", 0o755)
    assert len(before) == 3 and b"evil" not in before[str(hooked / ".git/config")][0]
    assert git(hooked, "fsck") == ""
    [intended] = [
        event.fact
        for event in workspace.log.read(EventFilter(kinds=(GitIntended.kind,)))
        if isinstance(event.fact, GitIntended)
    ]
    assert {one.path for one in intended.changes} >= {"config", "hooks/mine", "info/exclude"}
    assert all(one.before != one.after for one in intended.changes)
    workspace.carry_out(workspace.plan_redo(git_config=True))
    assert settings_of(hooked) == after
    assert workspace.verify().findings == ()


def test_after_an_undo_that_left_them_it_is_said_how_they_come_back(
    workspace: AuditedWorkspace, hooked: Path, session: Session
) -> None:
    act(session, "git branch made; echo evil > .git/hooks/late")
    number = workspace.timeline.calls()[0].seq
    workspace.carry_out(workspace.plan_undo())
    said = f"`loom-audit revert {number} --git-config` takes back hooks and settings of git"
    plan = workspace.plan_undo(git_config=True)  # the call before
    assert [one.reason for one in plan.passed_over if said in one.reason]
    workspace.carry_out(plan)
    with pytest.raises(NotFound, match="nothing to undo") as refused:
        workspace.plan_undo(git_config=True)
    assert refused.value.hint.startswith(said)
    workspace.carry_out(workspace.plan_revert([number or 0], git_config=True))
    assert not (hooked / ".git" / "hooks" / "late").exists()
    plan = workspace.plan_undo(git_config=True)  # the revert
    assert not [one.reason for one in plan.passed_over if said in one.reason]


@pytest.mark.parametrize("verb", ["revert", "rollback"])
def test_a_revert_and_a_rollback_take_them_along_when_asked(
    workspace: AuditedWorkspace, hooked: Path, verb: str
) -> None:
    number = workspace.timeline.calls()[0].seq
    assert number is not None
    if verb == "revert":
        plan = workspace.plan_revert([number], git_config=True)
    else:
        point = workspace.timeline.calls()[0].requested - 1
        plan = workspace.plan_rollback(point, git_config=True)
    assert not plan.blocked
    workspace.carry_out(plan)
    assert b"evil" not in (hooked / ".git" / "config").read_bytes()
    assert not (hooked / ".git" / "hooks" / "post-commit").exists()


def test_what_a_person_set_since_blocks_them(workspace: AuditedWorkspace, hooked: Path) -> None:
    git(hooked, "config", "user.name", "ann")
    now = settings_of(hooked)
    with pytest.raises(Conflict, match="config, which goes with settings, was changed since"):
        workspace.carry_out(workspace.plan_undo(git_config=True))
    assert settings_of(hooked) == now


def test_what_a_person_set_since_blocks_nothing_else(
    workspace: AuditedWorkspace, root: Path, session: Session
) -> None:
    act(session, "git config user.name evil; git branch made")
    git(root, "config", "user.name", "ann")
    plan = workspace.plan_undo()
    assert not plan.blocked and any("without --git-config" in n.reason for n in plan.irreversible)
    workspace.carry_out(plan)
    assert git(root, "branch", "--list", "made") == ""
    assert git(root, "config", "user.name") == "ann\n"


def test_more_hooks_than_are_shown_are_counted(
    workspace: AuditedWorkspace, root: Path, session: Session
) -> None:
    act(session, "for n in $(seq 103); do echo $n > .git/hooks/h$n; done; git branch x")
    plan = workspace.plan_undo()
    assert plan.git_settings[100:] == (("and 3 more", ()),)


def test_to_leave_git_and_to_ask_for_its_settings_is_refused(
    workspace: AuditedWorkspace, hooked: Path
) -> None:
    with pytest.raises(InvalidArguments, match="settings of git cannot come back"):
        workspace.plan_rollback("head~1", no_git=True, git_config=True)


def test_text_of_a_hook_reaches_no_terminal_as_it_is(
    workspace: AuditedWorkspace, root: Path, session: Session
) -> None:
    act(
        session,
        "printf 'a\\033[2J\\342\\200\\256b\\r\\013c\\n\\377' > .git/hooks/evil; git branch x",
    )
    [(path, lines)] = workspace.plan_undo().git_settings
    assert path == ".git/hooks/evil"
    assert all(one.isprintable() for one in lines) and "\\x1b[2J" in lines[-3]
    assert lines[-1] == "\\ No newline at end of file"


def test_text_behind_a_nul_in_a_hook_is_shown(
    workspace: AuditedWorkspace, root: Path, session: Session
) -> None:
    act(session, "printf '#!/bin/sh\\n\\000\\nevil\\n' > .git/hooks/evil; git branch x")
    [(_, lines)] = workspace.plan_undo().git_settings
    assert lines[-3:] == ("-#!/bin/sh", "-\\x00", "-evil")


def test_a_setting_that_somebody_writes_just_now_is_put_back(tmp_path: Path) -> None:
    tmp_path = tmp_path / "git"
    tmp_path.mkdir()
    base = os.open(tmp_path, os.O_RDONLY)
    (tmp_path / "config").write_text("old\n")
    (tmp_path / "config").chmod(0o644)
    old, new = GitFile("file", 0o644, b"old\n"), GitFile("file", 0o644, b"new\n")

    def meanwhile(*ends: object) -> None:
        if not done:
            done.append(1)
            (tmp_path / "theirs").write_text("theirs\n")
            (tmp_path / "theirs").rename(tmp_path / "config")
        exchange_names(*ends)  # type: ignore[arg-type]

    done: list[int] = []
    with pytest.raises(Conflict, match="config was changed by somebody else just now"):
        put_setting(base, "config", old, new, meanwhile)
    assert (tmp_path / "config").read_text() == "theirs\n"
    with pytest.raises(Conflict):
        put_setting(base, "config", old, None, exchange_names)
    with pytest.raises(Conflict):
        put_setting(base, "config", None, new, exchange_names)
    assert sorted(os.listdir(tmp_path)) == ["config"]
    (tmp_path / "hooks").symlink_to(tmp_path.parent)
    with pytest.raises(Exception, match="hooks"):
        put_setting(base, "hooks/x", None, new, exchange_names)
    assert not (tmp_path.parent / "x").exists()
    os.close(base)


@pytest.mark.parametrize("what", ["deleted", "exchanged"])
@pytest.mark.parametrize("theirs", ["file", "folder"])
def test_what_two_write_just_now_is_kept_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str, theirs: str
) -> None:
    tmp_path = tmp_path / "git"
    tmp_path.mkdir()
    base = os.open(tmp_path, os.O_RDONLY)
    (tmp_path / "config").write_text("old\n")
    (tmp_path / "config").chmod(0o644)
    old, new = GitFile("file", 0o644, b"old\n"), GitFile("file", 0o644, b"new\n")
    rename, times = os.rename, [0]

    def write(*_: object) -> None:
        times[0] += 1
        written = tmp_path / "written"
        if theirs == "folder" and times[0] == 1:
            written.mkdir()
            (tmp_path / "config").unlink()
        else:
            written.write_text(f"written {times[0]}\n")
        rename(written, tmp_path / "config")

    def between(*ends: object, **more: object) -> None:
        if times[0] == 0:
            write()
        if what == "deleted":
            rename(*ends, **more)  # type: ignore[arg-type]
        else:
            exchange_names(*ends)  # type: ignore[arg-type]
        if times[0] == 1:
            write()

    with monkeypatch.context() as patched:
        if what == "deleted":
            patched.setattr(os, "rename", between)
        with pytest.raises(Conflict, match="just now, and once more: what was there before that"):
            put_setting(base, "config", old, None if what == "deleted" else new, between)
    [kept] = {*os.listdir(tmp_path)} - {"config"}
    assert kept.startswith("loom-audit.kept-")
    assert (tmp_path / "config").read_text() == "written 2\n"
    assert (tmp_path / kept).is_dir() == (theirs == "folder")
    assert (tmp_path / kept).is_dir() or (tmp_path / kept).read_text() == "written 1\n"
    os.close(base)


@pytest.mark.parametrize("theirs", ["folder", "pipe"])
def test_what_is_no_file_just_now_is_put_back(tmp_path: Path, theirs: str) -> None:
    tmp_path = tmp_path / "git"
    tmp_path.mkdir()
    base = os.open(tmp_path, os.O_RDONLY)
    (tmp_path / "config").write_text("old\n")
    (tmp_path / "config").chmod(0o644)
    old, new = GitFile("file", 0o644, b"old\n"), GitFile("file", 0o644, b"new\n")

    def meanwhile(*ends: object) -> None:
        if not done:
            done.append(1)
            (tmp_path / "config").unlink()
            (os.mkdir if theirs == "folder" else os.mkfifo)(tmp_path / "config")
        exchange_names(*ends)  # type: ignore[arg-type]

    done: list[int] = []
    with pytest.raises(Conflict, match="config was changed by somebody else just now"):
        put_setting(base, "config", old, new, meanwhile)
    assert os.listdir(tmp_path) == ["config"]
    assert (tmp_path / "config").is_dir() == (theirs == "folder")
    assert (tmp_path / "config").is_fifo() == (theirs == "pipe")
    os.close(base)


def test_one_that_somebody_writes_just_now_leaves_all_of_git_as_it_was(
    workspace: AuditedWorkspace, hooked: Path, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    act(session, f"{CHANGED}; echo b > b; git add b; git commit -qm more; git stash -q; git tag t")
    act(
        session,
        "git config user.name worse; echo 1 >> .git/info/exclude; echo c > c; git add c;"
        " git commit -qm last; git tag -d t; echo 1 >> .git/hooks/post-commit",
    )
    now, settings = as_git_says(hooked), settings_of(hooked)
    hook = hooked / ".git" / "hooks" / "post-commit"

    def meanwhile(*ends: object) -> None:
        if ends[-1] == b"post-commit" and not done:
            done.append(hook.read_bytes())
            hook.write_text("by hand\n")
        exchange_names(*ends)  # type: ignore[arg-type]

    done: list[bytes] = []
    plan = workspace.plan_undo(git_config=True)
    assert {path for path, _ in plan.git_settings} == {
        ".git/config",
        ".git/info/exclude",
        ".git/hooks/post-commit",
    }
    restorer = workspace.attachment.on_disk.git_restorer
    monkeypatch.setattr(restorer, "_exchange", meanwhile)
    with pytest.raises(Conflict, match="hooks/post-commit was changed by somebody else just now"):
        workspace.carry_out(plan)
    assert done and hook.read_text() == "by hand\n"
    assert not differences(now, as_git_says(hooked))
    hook.write_bytes(done[0])
    assert settings_of(hooked) == settings
    workspace.carry_out(workspace.plan_undo(git_config=True))
    assert "last" not in git(hooked, "log", "--format=%s") and git(hooked, "tag", "--list") == "t\n"
    assert workspace.verify().findings == ()


IN_THE_WAY = {
    "a folder": ("rm .git/hooks/d/new; mkdir .git/hooks/d/new", "", "a folder is in its place"),
    "a folder with a file": (
        "rm .git/hooks/d/new; mkdir .git/hooks/d/new; echo x > .git/hooks/d/new/x",
        "",
        "a folder is in its place",
    ),
    "a file above": ("rm -r .git/hooks/d", "echo x > .git/hooks/d", "no folder is above it"),
}


@pytest.mark.parametrize("what", IN_THE_WAY)
def test_what_is_in_their_place_blocks_the_plan_and_keeps_head_and_the_index_together(
    workspace: AuditedWorkspace, hooked: Path, session: Session, what: str
) -> None:
    by_agent, by_person, said = IN_THE_WAY[what]
    act(session, "mkdir .git/hooks/d; echo 1 > .git/hooks/d/new; git add .; git commit -qm more")
    act(session, f"{by_agent}; echo c > b; git commit -qam last")
    plan = workspace.plan_undo(git_config=True)
    subprocess.run(["sh", "-c", by_person], cwd=hooked, check=True)
    now = git(hooked, "rev-parse", "HEAD"), git(hooked, "ls-files", "-s")
    [note] = workspace.plan_undo(git_config=True).blocked
    assert note.reason.startswith("git: hooks/d/new cannot be put back: ")
    assert said in note.reason
    with pytest.raises(Conflict, match="hooks/d/new cannot be put back"):
        workspace.carry_out(plan)
    assert (git(hooked, "rev-parse", "HEAD"), git(hooked, "ls-files", "-s")) == now


def test_a_folder_with_a_hook_comes_back_in_place_of_the_file_that_the_call_made(
    workspace: AuditedWorkspace, hooked: Path, session: Session
) -> None:
    act(session, "mkdir .git/hooks/d; echo 1 > .git/hooks/d/new")
    act(session, "rm -r .git/hooks/d; echo x > .git/hooks/d")
    workspace.carry_out(workspace.plan_undo(git_config=True))
    assert (hooked / ".git" / "hooks" / "d" / "new").read_text() == "1\n"
    [note] = workspace.plan_redo(git_config=True).blocked
    assert "hooks/d cannot be put back: a folder is in its place" in note.reason
