"""A `.git` that is a file: submodules and linked worktrees are on record, victims are not read."""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from loom_audit import AuditedWorkspace, AuditStore, Session, ToolResult
from loom_audit.model.git.record import HEAD_COMMIT, SHARED_REFS, GitChanged, GitState
from loom_audit.model.git.words import git_words
from loom_audit.ports import EventFilter
from tests.history.look.test_git_nested import LIB, check_against_git, facts, repository
from tests.places.git_person import as_ann, git

Call = Callable[..., ToolResult]
ALLOWED = ("-c", "protocol.file.allow=always")


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A workspace that is a repository, with a submodule and a linked worktree."""
    as_ann(monkeypatch)
    repository(tmp_path / "upstream")
    root = tmp_path / "workspace"
    repository(root)
    git(root, *ALLOWED, "submodule", "--quiet", "add", str(tmp_path / "upstream"), LIB)
    git(root, "commit", "-q", "-m", "with a submodule")
    git(root, "worktree", "add", "-q", "-b", "side", "linked")
    return root


def words(workspace: AuditedWorkspace, folder: str) -> list[str]:
    return [*git_words(facts(workspace, folder)[-1])]


def state_of(workspace: AuditedWorkspace, folder: str) -> GitState:
    state = GitState()
    for fact in facts(workspace, folder):
        state.follow(fact)
    return state


def check_worktree(workspace: AuditedWorkspace, folder: str) -> None:
    """HEAD and index of a linked worktree on record are what git says there."""
    here, state = Path(workspace.root) / folder, state_of(workspace, folder)
    head = subprocess.run(["git", "symbolic-ref", "-q", "HEAD"], cwd=here, capture_output=True)
    commit = git(here, "rev-parse", "HEAD").strip()
    if head.stdout:
        assert state.names["HEAD"] == "ref: " + head.stdout.decode().strip()
        assert state.names[HEAD_COMMIT] == commit
    else:
        assert (state.names["HEAD"], state.names.get(HEAD_COMMIT)) == (commit, None)
    entries = workspace.timeline.content(state.files["index entries"]).decode()
    assert entries == git(here, "ls-files", "-s", "-v", "-z")
    assert [one for one in state.names if one.startswith("refs/")] == []
    assert workspace.verify().findings == ()


def test_all_three_kinds_are_on_record_from_the_first_call_on(
    workspace: AuditedWorkspace, call: Call
) -> None:
    call("shell_execute", command="true")
    assert [fact.folder for fact in facts(workspace)] == ["", "linked", LIB]
    assert {fact.origin for fact in facts(workspace)} == {"baseline"}
    assert words(workspace, "linked") == [
        "linked: linked worktree recorded: HEAD side, refs shared with .git"
    ]
    newest, *_ = workspace.timeline.calls()
    assert not any("git" in one for one in newest.coverage.reasons)
    check_against_git(workspace, LIB)
    check_worktree(workspace, "linked")


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("git commit -q --allow-empty -m more", f"{LIB}: HEAD main "),
        ("git checkout -q -b own", f"{LIB}: HEAD main → own"),
        ("echo x > f.txt; git stash -q", f'{LIB}: stash made: "WIP on main: '),
        ("git tag t; git tag -d t; git tag u", f"{LIB}: tag u created at"),
    ],
)
def test_what_a_command_changed_of_a_submodule_is_on_record(
    workspace: AuditedWorkspace, call: Call, command: str, said: str
) -> None:
    call("shell_execute", command=f"cd {LIB}; {command}; true")
    assert any(one.startswith(said) for one in words(workspace, LIB))
    check_against_git(workspace, LIB)


def test_a_submodule_update_is_on_record(
    workspace: AuditedWorkspace, root: Path, session: Session
) -> None:
    git(root / LIB, "checkout", "-q", "HEAD~1")
    ran = session.run(("git", "submodule", "--quiet", "update"))
    assert any(one.startswith(f"{LIB}: HEAD ") for one in ran.git_changed)
    head = git(root / LIB, "rev-parse", "HEAD").strip()
    assert state_of(workspace, LIB).names["HEAD"] == head
    session.run(("git", "submodule", "--quiet", "deinit", "-f", LIB))
    assert words(workspace, LIB)[0].startswith(f"{LIB}: git repository gone")


def test_a_commit_in_a_linked_worktree_is_told_there_and_its_branch_with_the_refs(
    workspace: AuditedWorkspace, call: Call
) -> None:
    call("shell_execute", command="cd linked; echo x > n; git add n; git commit -qm more")
    head, index = words(workspace, "linked")
    assert head.startswith("linked: HEAD side ") and head.endswith(" (1 commit on)")
    assert index == "linked: index changed (1 path)"
    assert any(one.startswith("branch side ") for one in words(workspace, ""))
    assert {fact.origin for fact in facts(workspace)[3:]} == {"command"}
    check_worktree(workspace, "linked")


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("git checkout -q feat", "linked: HEAD side → feat"),
        ("git checkout -q --detach", "linked: HEAD side → "),
        ("git reset -q --hard HEAD~1", "linked: HEAD side "),
        ("git checkout -q feat; git checkout -q side", "linked: HEAD moved and came back"),
        ("git bisect start; git bisect bad", "linked: bisect in progress"),
    ],
)
def test_what_a_command_changed_of_a_linked_worktree_is_on_record(
    workspace: AuditedWorkspace, call: Call, command: str, said: str
) -> None:
    call("shell_execute", command=f"cd linked; {command}")
    told = words(workspace, "linked")
    assert any(one.startswith(said) for one in told), told
    if "bisect" not in command:
        check_worktree(workspace, "linked")


def test_a_branch_of_a_linked_worktree_that_moves_elsewhere_is_found(
    workspace: AuditedWorkspace, call: Call
) -> None:
    call("shell_execute", command="sleep 0.1")
    call("shell_execute", command="true")
    call("shell_execute", command="git update-ref refs/heads/side HEAD~1")
    assert words(workspace, "linked")[0].startswith("linked: HEAD side ")
    check_worktree(workspace, "linked")


def test_a_linked_worktree_that_is_made_and_removed_is_said(
    workspace: AuditedWorkspace, call: Call
) -> None:
    call("shell_execute", command="git worktree add -q second feat")
    assert words(workspace, "second") == [
        "second: linked worktree new or replaced: HEAD feat, refs shared with .git"
    ]
    call("shell_execute", command="git worktree remove --force second")
    assert words(workspace, "second")[0].startswith("second: linked worktree gone: HEAD feat")


def test_a_workspace_that_is_a_linked_worktree_has_the_refs_of_all(
    store: AuditStore, root: Path, tmp_path: Path
) -> None:
    git(root, "worktree", "add", "-q", "-b", "away", str(tmp_path / "away"))
    workspace = store.attach(tmp_path / "away")
    with workspace.session("tester") as session:
        session.run(("true",))
        [first] = facts(workspace)
        assert [*git_words(first)] == [
            f"linked worktree recorded: HEAD away, 4 refs, 1 stash, refs shared with {root}/.git"
        ]
        committed = session.run(("git", "commit", "-q", "--allow-empty", "-m", "more"))
        assert committed.git_changed[0].startswith("HEAD away ")
        assert facts(workspace)[-1].causes == ()
        deleted = session.run(("git", "branch", "-qD", "feat"))
        assert deleted.git_changed[0].startswith("branch feat deleted (was ")
        # another worktree outside may have done that
        assert 0 in facts(workspace)[-1].causes
    refs = git(root, "for-each-ref", "--format=%(refname)").split()
    assert {one for one in state_of(workspace, "").names if one[:5] == "refs/"} == set(refs)
    assert workspace.verify().findings == ()


def victim(root: Path) -> Path:
    """A repository outside with a branch that nobody else has, and an entry of a worktree."""
    folder = root.parent / "victim"
    repository(folder)
    git(folder, "branch", "secret")
    git(folder, "worktree", "add", "-q", "-b", "other", str(root.parent / "theirs"))
    return folder


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("file", "said"),
    [
        ("gitdir: {victim}/.git", "names a folder elsewhere, which is not looked at"),
        ("gitdir: ../../../victim/.git", "names a folder elsewhere, which is not looked at"),
        ("gitdir: {victim}/.git/worktrees/theirs", "names the entry of another worktree"),
        ("gitdir: {victim}/.git/modules/x", "names a folder elsewhere, which is not looked at"),
        ("gitdir: ../../.git/worktrees/linked", "names the entry of another worktree"),
        ("gitdir: ../../through/.git/modules/x", "names a folder which cannot be read"),
        ("gitdir: ../../.git/modules/none", "names a folder which cannot be read"),
        ("something else", "names no git folder"),
    ],
)
def test_a_file_that_names_another_s_git_folder_is_named_and_not_read_through(
    workspace: AuditedWorkspace, root: Path, call: Call, file: str, said: str
) -> None:
    there = victim(root)
    (there / ".git/modules").mkdir()
    shutil.copytree(there / ".git", root.parent / "copy")
    shutil.move(root.parent / "copy", there / ".git/modules/x")
    os.symlink(there, root / "through")
    (root / "in/folder").mkdir(parents=True)
    (root / "in/folder/.git").write_text(file.format(victim=there) + "\n")
    call("shell_execute", command="true")
    newest, *_ = workspace.timeline.calls()
    assert any(
        one.startswith("git cannot be told in in/folder: .git is a file that") and said in one
        for one in newest.coverage.reasons
    ), newest.coverage.reasons
    assert facts(workspace, "in/folder") == []
    assert "secret" not in repr(facts(workspace))


def test_an_entry_that_names_a_victim_as_its_common_folder_is_not_read(
    workspace: AuditedWorkspace, root: Path, call: Call
) -> None:
    there = victim(root)
    (root / ".git/worktrees/linked/commondir").write_text(f"{there}/.git\n")
    call("shell_execute", command="true")
    newest, *_ = workspace.timeline.calls()
    said = "git cannot be told in linked: the entry of this worktree names another common folder"
    assert said in newest.coverage.reasons
    assert "secret" not in repr(facts(workspace))


def test_links_in_a_common_folder_are_not_read_through(
    workspace: AuditedWorkspace, root: Path, call: Call
) -> None:
    (root / ".git/objects").rename(root.parent / "objects")
    os.symlink(root.parent / "objects", root / ".git/objects")
    call("shell_execute", command="true")
    newest, *_ = workspace.timeline.calls()
    assert (
        "git cannot be told in linked: .git/objects is a symbolic link" in newest.coverage.reasons
    )
    [found] = facts(workspace, "linked")
    assert {one.name for one in found.names} >= {"HEAD", HEAD_COMMIT, "index"}


def test_a_git_folder_of_a_submodule_that_is_made_anew_is_replaced(
    workspace: AuditedWorkspace, root: Path, call: Call
) -> None:
    call("shell_execute", command="true")
    into = f".git/modules/{LIB}"
    made = f"git init -q -b main x; rm -rf {into}; mv x/.git {into}"
    call("shell_execute", command=made)
    assert words(workspace, LIB) == [f"{LIB}: git repository new or replaced: HEAD main, 0 refs"]


def test_an_entry_that_is_repaired_is_looked_at_again(
    workspace: AuditedWorkspace, root: Path, call: Call
) -> None:
    entry = root / ".git/worktrees/linked"
    entry.rename(root / "kept")
    call("shell_execute", command="true")
    assert facts(workspace, "linked") == []
    (root / "kept").rename(entry)
    call("shell_execute", command="true")
    check_worktree(workspace, "linked")


def test_the_name_of_the_common_folder_is_on_record(
    workspace: AuditedWorkspace, call: Call
) -> None:
    call("shell_execute", command="true")
    assert state_of(workspace, "linked").names[SHARED_REFS] == ".git"
    events = workspace.timeline.events(EventFilter(kinds=(GitChanged.kind,)))
    assert len([*events]) == 3


@pytest.mark.parametrize("path", ["../../hooks2", "{root}/.git/hooks2"])
def test_that_settings_of_a_submodule_lead_into_the_git_folder_above_is_said(
    workspace: AuditedWorkspace, root: Path, call: Call, path: str
) -> None:
    call("shell_execute", command="true")
    where = path.format(root=root)
    setting = "include.path" if where.startswith("..") else "core.hooksPath"
    call("shell_execute", command=f"git -C {LIB} config {setting} {where}")
    newest, *_ = workspace.timeline.calls()
    led = ".git/modules/hooks2" if where.startswith("..") else ".git/hooks2"
    assert f"git: settings lead to {led}, which is not looked at" in newest.coverage.reasons
