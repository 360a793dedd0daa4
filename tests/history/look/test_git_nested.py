"""What a command changed of git in folders below the top is on record, as git itself tells it."""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from loom_audit import AuditedWorkspace, Session, ToolResult, open_store
from loom_audit.history.look.git import changes as looking
from loom_audit.model.coverage import FULL
from loom_audit.model.git.record import GitChanged, GitState
from loom_audit.model.git.words import git_words, words_of
from loom_audit.ports import EventFilter
from tests.places.git_person import as_ann, git

Call = Callable[..., ToolResult]
LIB = "vendor/lib"


def repository(folder: Path) -> None:
    """A repository of two commits, with a branch that has one more, and a stash."""
    folder.mkdir(parents=True, exist_ok=True)
    git(folder, "init", "-q", "-b", "main")
    for n in range(2):
        (folder / "f.txt").write_text(f"{n}\n")
        git(folder, "add", "f.txt")
        git(folder, "commit", "-q", "-m", f"c{n}")
    git(folder, "checkout", "-q", "-b", "feat")
    git(folder, "commit", "-q", "--allow-empty", "-m", "only here")
    git(folder, "checkout", "-q", "main")
    (folder / "f.txt").write_text("work\n")
    git(folder, "stash", "-q")


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A workspace that is no repository, with one below."""
    as_ann(monkeypatch)
    root = tmp_path / "workspace"
    repository(root / LIB)
    return root


def facts(workspace: AuditedWorkspace, folder: str | None = None) -> list[GitChanged]:
    events = workspace.timeline.events(EventFilter(kinds=(GitChanged.kind,)))
    found = [event.fact for event in events if isinstance(event.fact, GitChanged)]
    return [fact for fact in found if folder in (None, fact.folder)]


def check_against_git(workspace: AuditedWorkspace, folder: str) -> None:
    """The state folded from the log is what git says of the repository in a folder."""
    here, state = Path(workspace.root) / folder, GitState()
    for fact in facts(workspace, folder):
        state.follow(fact)
    listed = git(here, "for-each-ref", "--format=%(refname) %(objectname) %(symref)").splitlines()
    refs = {
        name: f"ref: {target} {found}" if target else found
        for name, found, target in (line.split(" ") for line in listed)
    }
    assert {k: v for k, v in state.names.items() if k.startswith("refs/")} == refs
    assert state.names["HEAD"] == "ref: " + git(here, "symbolic-ref", "HEAD").strip()
    entries = workspace.timeline.content(state.files["index entries"]).decode()
    assert entries.replace("intended ", "") == git(here, "ls-files", "-s", "-v", "-z")
    stashes = git(here, "stash", "list", "--format=%H").splitlines()
    assert [one.split(" ")[0] for one in state.names.get("stashes", "").splitlines()] == stashes
    assert workspace.verify().findings == ()


CHANGES = [
    ("git commit -q --allow-empty -m more", "vendor/lib: HEAD main ", "(1 commit on)"),
    ("git reset -q --hard HEAD~1", "vendor/lib: HEAD main ", "(1 commit back)"),
    ("git branch -qD feat", "vendor/lib: branch feat deleted (was ", "1 commit on no other ref)"),
    ("git stash drop -q", 'vendor/lib: stash dropped: "WIP on main', ""),
    ("git config alias.x '!sh'", "vendor/lib: config changed: ", "it can run code as you"),
]


@pytest.mark.few(2)
@pytest.mark.parametrize(("command", "start", "end"), CHANGES)
def test_what_a_command_changed_of_a_nested_repository_is_on_record_with_its_folder(
    workspace: AuditedWorkspace, call: Call, command: str, start: str, end: str
) -> None:
    said = call("shell_execute", command=f"cd {LIB} && {command}").output
    baseline, changed = facts(workspace)
    assert (baseline.folder, baseline.origin) == (LIB, "baseline")
    assert (changed.folder, changed.origin) == (LIB, "command")
    [words] = [text for text in git_words(changed) if text.startswith(start)]
    assert words.endswith(end)
    assert f"git: {start}" in said
    newest, *_ = workspace.timeline.calls()
    assert newest.coverage == FULL
    assert workspace.timeline.call(newest.seq or 0).git == (changed,)
    check_against_git(workspace, LIB)


@pytest.mark.few(2)
@pytest.mark.parametrize(("command", "start", "end"), CHANGES)
def test_a_run_says_what_it_changed_of_a_nested_repository(
    workspace: AuditedWorkspace, session: Session, command: str, start: str, end: str
) -> None:
    ran = session.run(("sh", "-c", f"cd {LIB} && {command}"))
    assert any(one.startswith(start) and one.endswith(end) for one in ran.git_changed)
    assert ran.coverage == FULL
    check_against_git(workspace, LIB)


def test_each_repository_is_on_record_by_itself(
    workspace: AuditedWorkspace, root: Path, call: Call
) -> None:
    repository(root)
    repository(root / "b")
    call("shell_execute", command="git tag top; cd b; git tag below")
    assert [fact.folder for fact in facts(workspace)] == ["", "b", LIB, "", "b"]
    told = words_of(facts(workspace)[3:])
    assert [one.split(" created")[0] for one in told] == ["tag top", "b: tag below"]
    for folder in ("", "b", LIB):
        check_against_git(workspace, folder)
    call("shell_execute", command="true")
    assert len(facts(workspace)) == 5


def test_one_that_a_command_makes_is_the_command_s(
    workspace: AuditedWorkspace, root: Path, call: Call
) -> None:
    call("shell_execute", command="git init -q -b main new/one")
    [made] = facts(workspace, "new/one")
    assert (made.origin, [*git_words(made)]) == (
        "command",
        ["new/one: git repository new or replaced: HEAD main, 0 refs"],
    )
    call("shell_execute", command="cd new/one; git commit -q --allow-empty -m first")
    check_against_git(workspace, "new/one")


def test_one_that_is_deleted_is_said_once_and_one_made_anew_is_another(
    workspace: AuditedWorkspace, root: Path, call: Call
) -> None:
    call("shell_execute", command=f"rm -rf {LIB}")
    _, gone = facts(workspace)
    assert [*git_words(gone)] == [f"{LIB}: git repository gone: HEAD main, 2 refs, 1 stash"]
    call("shell_execute", command="true")
    assert facts(workspace)[1:] == [gone]
    again = f"git init -q -b main {LIB}; cd {LIB}; git commit -q --allow-empty -m x"
    call("shell_execute", command=again)
    [new] = git_words(facts(workspace)[-1])
    assert new == f"{LIB}: git repository new or replaced: HEAD main, 1 ref"
    check_against_git(workspace, LIB)


def test_one_that_is_moved_and_moved_back_by_an_undo_is_never_told_as_from_outside(
    workspace: AuditedWorkspace, call: Call
) -> None:
    call("shell_execute", command="mv vendor moved")
    told = words_of(facts(workspace)[1:])
    counted = "HEAD main, 2 refs, 1 stash"
    assert f"{LIB}: git repository gone: moved to moved/lib, {counted}" in told
    assert f"moved/lib: git repository new or replaced: moved from {LIB}, {counted}" in told
    assert {fact.origin for fact in facts(workspace)[1:]} == {"command"}
    check_against_git(workspace, "moved/lib")
    workspace.carry_out(workspace.plan_undo())
    call("shell_execute", command="true")
    assert {fact.origin for fact in facts(workspace)[3:]} == {"baseline"}
    told = words_of(facts(workspace)[3:])
    assert f"moved/lib: git repository gone: moved to {LIB}, {counted}" in told
    assert f"{LIB}: git repository recorded: moved from moved/lib, {counted}" in told
    check_against_git(workspace, LIB)


def test_one_made_anew_within_a_call_is_replaced_and_not_compared_ref_by_ref(
    workspace: AuditedWorkspace, call: Call
) -> None:
    again = f"rm -rf {LIB}; git init -q -b main {LIB}; cd {LIB}; git commit -q --allow-empty -m x"
    call("shell_execute", command=again)
    _, new = facts(workspace)
    assert [*git_words(new)] == [f"{LIB}: git repository new or replaced: HEAD main, 1 ref"]
    check_against_git(workspace, LIB)


def test_one_that_is_deleted_while_nobody_looks_is_gone_from_outside(
    workspace: AuditedWorkspace, root: Path
) -> None:
    with workspace.session("one") as session:
        session.run(("true",))
    shutil.rmtree(root / "vendor")
    # another process, which has seen nothing
    with open_store() as again, again.attach(root).session("two") as session:
        session.run(("true",))
    _, gone = facts(workspace)
    assert (gone.is_gone, gone.folder, gone.origin) == (True, LIB, "outside")


def test_what_another_process_kept_of_stamps_is_trusted_and_what_changed_since_is_found(
    workspace: AuditedWorkspace, root: Path
) -> None:
    with workspace.session("one") as session:
        session.run(("sleep", "0.1"))
        session.run(("true",))
    git(root / LIB, "branch", "-qD", "feat")
    with open_store() as again, again.attach(root).session("two") as session:
        session.run(("true",))
    _, changed = facts(workspace)
    assert (changed.origin, changed.folder) == ("outside", LIB)
    check_against_git(workspace, LIB)


@pytest.mark.parametrize(
    ("instead", "said"),
    [
        ("mv .git ../../../victim && ln -s ../../../victim .git", ".git is a symbolic link"),
        ("mv .git ../../../victim && echo gitdir: ../../../victim > .git", ".git is a file that"),
    ],
)
def test_a_nested_git_folder_elsewhere_is_named_and_not_read_through(
    workspace: AuditedWorkspace, root: Path, call: Call, instead: str, said: str
) -> None:
    subprocess.run(["sh", "-c", instead], cwd=root / LIB, check=True)
    call("shell_execute", command="true")
    newest, *_ = workspace.timeline.calls()
    assert any(
        one.startswith(f"git cannot be told in {LIB}: {said}") for one in newest.coverage.reasons
    )
    assert facts(workspace) == []


def test_a_folder_above_one_that_became_a_link_is_not_followed(
    workspace: AuditedWorkspace, root: Path, call: Call
) -> None:
    call("shell_execute", command="true")
    (root / "vendor").rename(root.parent / "victim")
    os.symlink(root.parent / "victim", root / "vendor")
    git(root.parent / "victim/lib", "tag", "secret")
    call("shell_execute", command="true")
    _, gone = facts(workspace)
    assert gone.is_gone and gone.folder == LIB
    assert "secret" not in repr(facts(workspace))


def test_repositories_that_are_left_out_of_scope_are_not_looked_at(
    workspace: AuditedWorkspace, root: Path, call: Call
) -> None:
    repository(root / "node_modules/x")
    call("shell_execute", command="cd node_modules/x; git tag t")
    assert {fact.folder for fact in facts(workspace)} == {LIB}


def test_more_repositories_than_are_looked_at_are_counted(
    workspace: AuditedWorkspace, root: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(looking, "MOST_NESTED", 2)
    call("shell_execute", command="true")
    for name in ("a", "b", "c"):
        git(root, "init", "-q", name)
    call("shell_execute", command="true")
    newest, *_ = workspace.timeline.calls()
    assert "git: 2 more folders with a repository not looked at" in newest.coverage.reasons
    assert {fact.folder for fact in facts(workspace)} == {LIB, "a"}


def test_repositories_that_there_is_no_time_for_are_counted(
    workspace: AuditedWorkspace, root: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository(root)
    monkeypatch.setattr(looking, "LONGEST", -1.0)
    call("shell_execute", command=f"cd {LIB}; git tag unseen")
    newest, *_ = workspace.timeline.calls()
    assert "git: 1 more folder with a repository not looked at" in newest.coverage.reasons
    assert {fact.folder for fact in facts(workspace)} == {""}


def test_taking_back_a_call_takes_a_nested_repository_along(
    workspace: AuditedWorkspace, root: Path, call: Call
) -> None:
    before = git(root / LIB, "for-each-ref")
    call("shell_execute", command=f"echo x > made; cd {LIB}; git branch -qD feat")
    plan = workspace.plan_undo()
    assert [(one.folder, one.name) for one in plan.git] == [(LIB, "refs/heads/feat")]
    workspace.carry_out(plan)
    assert git(root / LIB, "for-each-ref") == before
    assert not (root / "made").exists()


def test_a_name_is_looked_for_in_every_repository_and_a_folder_s_git_in_one(
    workspace: AuditedWorkspace, root: Path, call: Call
) -> None:
    repository(root)
    call("shell_execute", command=f"git config a.b c; cd {LIB}; git config a.b c; git branch new")
    top, below = facts(workspace)[-2:]
    for name, of_top, of_below in [
        (".git", True, True),
        (f"{LIB}/.git", False, True),
        (".git/config", True, False),
        (f"{LIB}/.git/config", False, True),
        (f"{LIB}/.git/hooks", False, False),
        ("other/.git", False, False),
        ("new", False, True),
        ("main", False, False),
    ]:
        assert (top.is_about(name), below.is_about(name)) == (of_top, of_below), name
