"""A `.git` that a call removed comes back whole, only onto an absent name, and arms nothing."""

import subprocess
from collections.abc import Sequence
from pathlib import Path

import anyio
import pytest

from loom_audit import AuditedWorkspace, AuditStore, Session
from loom_audit.api.upkeep.git_mirror import write_kept_git
from loom_audit.disk.access.identity import identity_at
from loom_audit.disk.writing.rename import rename_to_absent
from loom_audit.errors import AuditError, Conflict, ExecutionFailed, NotFound
from loom_audit.history.record.git.whole import whole_ids
from loom_audit.model.plans.request import PlanRequest
from loom_audit.sandbox.git.builder import ProgramGitBuilder
from tests.history.undo.test_git_taken_back import act, as_git_says, broken, differences, root
from tests.places.git_person import as_ann, git

__all__ = ["root"]

STATES = {
    "plain": "true",
    "unborn": "git switch -q --orphan none",
    "detached": "git checkout -q --detach",
    "stashes": "echo 1 > f0; git stash -q; echo 2 > f0; git stash push -q -m second",
    "merging": "git checkout -q -b side HEAD~1; echo s > f0; git commit -qam side;"
    "git merge main; true",
    "rebasing": "git checkout -q -b side HEAD~1; echo s > f0; git commit -qam side;"
    "git rebase main; true",
    "staged": "echo staged > g; git add g; git add -N f9; git update-index --assume-unchanged f0",
    "split index": "git update-index --split-index; echo s > g; git add g",
    "refs": "git tag t; git tag -a -m a a; git update-ref refs/odd/x HEAD; git notes add -m n;"
    "git symbolic-ref refs/heads/alias refs/heads/main; git branch feat2/inner; git pack-refs",
    "remote": "git remote add origin /nowhere; git update-ref refs/remotes/origin/main HEAD~1",
    "pruned": "git commit -q --amend -m other; git reflog expire --expire=now main;"
    "git gc -q --prune=now",
}


def left_over(root: Path) -> list[str]:
    return [one.name for one in root.rglob("*") if "loom-audit" in one.name]


@pytest.mark.few(3)
@pytest.mark.parametrize("state", STATES)
def test_a_removed_repository_comes_back_as_git_says(
    store: AuditStore, root: Path, state: str
) -> None:
    subprocess.run(["sh", "-c", STATES[state]], cwd=root, check=True, capture_output=True)
    workspace = store.attach(root)
    before, was_broken = as_git_says(root), broken(root)
    logs = git(root, "log", "-g", "--all", "--format=%H %gd %gs")
    settings = git(root, "config", "--local", "--list")
    with workspace.session("tester") as session:
        act(session, "rm -rf .git")
        plan = workspace.plan_undo()
        assert not plan.blocked
        assert not [one for one in plan.irreversible if one.path == ".git"]
        done = workspace.carry_out(plan)
    assert not differences(before, as_git_says(root))
    assert {*broken(root).splitlines()} <= {*was_broken.splitlines()}
    assert git(root, "log", "-g", "--all", "--format=%H %gd %gs") == logs
    assert git(root, "config", "--local", "--list") == settings
    assert not left_over(root)
    assert done.call.tool == "undo"
    assert workspace.verify().findings == ()
    assert not workspace.plan_rollback(workspace.log.head()).drifted


@pytest.mark.parametrize("ids", ["sha1", "sha256"])
@pytest.mark.parametrize("shallow", [False, True])
def test_a_shallow_one_and_one_of_long_ids_come_back(
    store: AuditStore,
    root: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    ids: str,
    shallow: bool,
) -> None:
    as_ann(monkeypatch)
    one, other = tmp_path / "one", tmp_path / "other"
    one.mkdir()
    git(one, "init", "-q", "-b", "main", f"--object-format={ids}")
    for n in range(3):
        git(one, "commit", "-q", "--allow-empty", "-m", f"c{n}")
    depth = ["--depth=2"] if shallow else []
    git(tmp_path, "clone", "-q", *depth, f"file://{one}", "other")
    workspace = store.attach(other)
    before = as_git_says(other)
    with workspace.session("tester") as session:
        act(session, "rm -rf .git")
        workspace.carry_out(workspace.plan_undo())
    assert not differences(before, as_git_says(other))
    assert broken(other) == ""


def test_a_hook_that_a_call_planted_and_a_setting_do_not_come_back(
    workspace: AuditedWorkspace, root: Path, session: Session
) -> None:
    ran = root / "ran"
    (root / ".git" / "hooks" / "pre-commit").write_text("#!/bin/sh\nexit 0\n")
    (root / ".git" / "hooks" / "pre-commit").chmod(0o755)
    session.run(["true"])
    act(
        session,
        f"printf '#!/bin/sh\\ntouch {ran}\\n' > .git/hooks/post-checkout; chmod +x .git/hooks/*;"
        f"git config core.fsmonitor 'touch {ran}; false'; git config core.sshCommand 'touch {ran}'",
    )
    act(session, "rm -rf .git")
    plan = workspace.plan_undo()
    assert any("hooks/post-checkout" in note.reason for note in plan.irreversible)
    workspace.carry_out(plan)
    assert not (root / ".git" / "hooks" / "post-checkout").exists()
    assert "touch" not in (root / ".git" / "config").read_text()
    git(root, "checkout", "-q", "feat")
    git(root, "status")
    assert not ran.exists()


def test_hooks_of_the_first_look_come_back(store: AuditStore, root: Path) -> None:
    hook = root / ".git" / "hooks" / "pre-commit"
    hook.write_text("#!/bin/sh\nexit 0\n")
    hook.chmod(0o755)
    git(root, "config", "user.nickname", "a person")
    workspace = store.attach(root)
    with workspace.session("tester") as session:
        act(session, "echo x >> .git/hooks/pre-commit; git config --unset user.nickname")
        act(session, "rm -rf .git")
        workspace.carry_out(workspace.plan_undo())
    assert hook.read_text() == "#!/bin/sh\nexit 0\n"
    assert hook.stat().st_mode & 0o111
    assert git(root, "config", "user.nickname").strip() == "a person"


def test_a_repository_that_a_call_made_comes_back_without_hooks_and_settings(
    store: AuditStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    as_ann(monkeypatch)
    root = tmp_path / "new"
    root.mkdir()
    workspace = store.attach(root)
    with workspace.session("tester") as session:
        act(
            session,
            "git init -q -b main; git config core.pager evil; echo evil > .git/hooks/pre-commit;"
            "chmod +x .git/hooks/pre-commit; git commit -nq --allow-empty -m one",
        )
        act(session, "rm -rf .git")
        workspace.carry_out(workspace.plan_undo())
    assert git(root, "log", "--format=%s").split() == ["one"]
    assert "evil" not in (root / ".git" / "config").read_text()
    assert not (root / ".git" / "hooks" / "pre-commit").exists()


def told(folder: Path) -> dict[str, bytes]:
    return {str(one): one.read_bytes() for one in folder.rglob("*") if one.is_file()}


@pytest.mark.parametrize("by", ["a person", "the call"])
def test_another_repository_in_its_place_blocks_and_stays(
    workspace: AuditedWorkspace, root: Path, session: Session, by: str
) -> None:
    removed = "rm -rf .git; rm f0"
    made = "git init -q -b main; git commit -q --allow-empty -m new"
    act(session, f"{removed}; {made}" if by == "the call" else removed)
    if by == "a person":
        subprocess.run(["sh", "-c", made], cwd=root, check=True)
    was = told(root)
    plan = workspace.plan_undo()
    [note] = [one for one in plan.blocked if "another repository" in one.reason]
    assert "--to DIR" in note.reason
    with pytest.raises(Conflict, match="another repository is there now"):
        workspace.carry_out(plan)
    assert told(root) == was
    workspace.carry_out(workspace.plan(PlanRequest("undo", no_git=True)))
    assert (root / "f0").read_text() == "2\n"
    assert git(root, "log", "--format=%s").split() == ["new"]


@pytest.mark.parametrize("what", ["folder", "file", "link", "empty folder"])
def test_what_comes_to_its_place_at_the_last_moment_stays(tmp_path: Path, what: str) -> None:
    builder = ProgramGitBuilder(str(tmp_path), identity_at, rename_to_absent)
    place = tmp_path / ".git"
    with builder.begin("") as building:
        if what == "file":
            place.write_text("gitdir: /elsewhere")
        elif what == "link":
            place.symlink_to(tmp_path / "nowhere")
        else:
            place.mkdir()
            if what == "folder":
                (place / "HEAD").write_text("ref: refs/heads/main")
        with pytest.raises(Conflict, match=r"something is at \.git"):
            building.finish()
    assert not left_over(tmp_path)
    assert sorted(place.rglob("*")) == ([place / "HEAD"] if what == "folder" else [])
    with pytest.raises(Conflict, match=r"something is at \.git"):
        builder.begin("")


def test_a_folder_put_in_the_place_of_the_temporary_one_stays(tmp_path: Path) -> None:
    builder = ProgramGitBuilder(str(tmp_path), identity_at, rename_to_absent)
    with builder.begin("") as building:
        built = tmp_path / building.name
        built.rename(tmp_path / "away")
        built.mkdir()
        (built / "precious").write_text("mine")
        with pytest.raises(Conflict, match="somebody else"):
            building.finish()
    assert (built / "precious").read_text() == "mine"
    assert not builder.release("", building.name, building.identity)
    assert (built / "precious").read_text() == "mine"
    assert not (tmp_path / ".git").exists()


def test_a_removed_folder_comes_back_with_the_repository_in_it(
    store: AuditStore, root: Path
) -> None:
    inner = root / "vendor" / "lib"
    inner.mkdir(parents=True)
    git(inner, "init", "-q", "-b", "main")
    (inner / "code").write_text("code\n")
    git(inner, "add", "-A")
    git(inner, "commit", "-q", "-m", "vendored")
    workspace = store.attach(root)
    before, inside = as_git_says(root), as_git_says(inner)
    with workspace.session("tester") as session:
        act(session, "rm -rf vendor")
        plan = workspace.plan_undo()
        assert not plan.blocked
        workspace.carry_out(plan)
    assert not differences(before, as_git_says(root))
    assert not differences(inside, as_git_says(inner))
    assert broken(inner) == ""
    assert workspace.verify().findings == ()


def test_an_earlier_call_can_be_taken_back_after_it_came_back(
    workspace: AuditedWorkspace, root: Path, session: Session
) -> None:
    point, before = workspace.log.head(), as_git_says(root)
    act(session, "echo agent > f0; git commit -qam agent; git branch -D feat")
    made = as_git_says(root)
    act(session, "rm -rf .git")
    workspace.carry_out(workspace.plan_undo())
    assert not differences(made, as_git_says(root))
    workspace.carry_out(workspace.plan_undo())
    assert not differences(before, as_git_says(root))
    act(session, "git branch later; rm -rf .git")
    workspace.carry_out(workspace.plan_rollback(point))
    assert not differences(before, as_git_says(root))


def test_a_commit_of_a_person_before_it_was_removed_comes_back_or_blocks(
    workspace: AuditedWorkspace, root: Path, session: Session
) -> None:
    point = workspace.log.head()
    act(session, "git commit -q --allow-empty -m agent")
    git(root, "commit", "-q", "--allow-empty", "-m", "mine")
    act(session, "rm -rf .git")
    plan = workspace.plan_rollback(point)
    assert [one for one in plan.blocked if "was changed since" in one.reason]
    workspace.carry_out(workspace.plan_undo())
    assert git(root, "log", "-2", "--format=%s").split() == ["mine", "agent"]


def test_one_whose_objects_are_not_kept_is_not_begun(
    workspace: AuditedWorkspace, root: Path, session: Session
) -> None:
    session.run(["true"])
    mirror = workspace.attachment.on_disk.mirror
    assert mirror is not None
    act(session, "rm -rf .git")
    for folder in mirror.folders():
        for one in (Path(folder) / "objects").rglob("*"):
            if one.is_file() and one.stat().st_size:
                one.unlink()
    with pytest.raises(AuditError) as raised:
        workspace.carry_out(workspace.plan_undo())
    assert isinstance(raised.value, ExecutionFailed | Conflict)
    assert not (root / ".git").exists()
    assert not left_over(root)


def test_the_old_one_is_had_beside_another(
    workspace: AuditedWorkspace, root: Path, session: Session, tmp_path: Path
) -> None:
    (root / "f0").write_text("work\n")
    git(root, "stash", "-q")
    session.run(["true"])
    before, point = as_git_says(root), workspace.log.head()
    act(session, "git config core.pager evil; rm -rf .git; git init -q")
    (tmp_path / "full" / "of").mkdir(parents=True)
    with pytest.raises(Conflict, match="not an empty directory"):
        write_kept_git(workspace, point, "", tmp_path / "full")
    with pytest.raises(Conflict):
        write_kept_git(workspace, point, "", root / "inside")
    beside = tmp_path / "beside"
    made, summary, _ = write_kept_git(workspace, point, "", beside)
    assert made == beside / ".git"
    assert "1 stash" in summary.text
    git(beside, "checkout", "-q", ".")
    assert not differences(before, as_git_says(beside))
    assert broken(beside) == ""
    assert "evil" not in (made / "config").read_text()
    with pytest.raises(NotFound):
        write_kept_git(workspace, 1, "", tmp_path / "none")


def with_a_persons_settings(root: Path) -> None:
    git(root, "config", "user.nickname", "a person")
    hook = root / ".git" / "hooks" / "pre-push"
    hook.write_text("#!/bin/sh\n")
    hook.chmod(0o755)


def test_settings_come_back_over_another_repository_that_came_and_went(
    store: AuditStore, root: Path
) -> None:
    with_a_persons_settings(root)
    workspace = store.attach(root)
    with workspace.session("tester") as session:
        act(session, "true")
        point = workspace.log.head()
        act(session, "rm -rf .git")
        act(session, "git init -q -b other --object-format=sha256; git config core.pager evil")
        act(session, "rm -rf .git")
        workspace.carry_out(workspace.plan_rollback(point))
    assert git(root, "config", "user.nickname").strip() == "a person"
    assert (root / ".git" / "hooks" / "pre-push").exists()
    assert "evil" not in (root / ".git" / "config").read_text()
    assert git(root, "log", "-1", "--format=%s").strip() == "c2"


@pytest.mark.parametrize("reads", [True, False])
def test_settings_come_back_where_calls_before_the_first_look_only_read(
    store: AuditStore, root: Path, reads: bool
) -> None:
    with_a_persons_settings(root)
    workspace = store.attach(root)
    with workspace.session("tester") as session:
        tool, more = ("read_file", {}) if reads else ("write_file", {"content": "1"})
        assert anyio.run(lambda: session.call(tool, {"path": "f0", **more})).success
        act(session, "rm -rf .git")
        plan = workspace.plan_undo()
        workspace.carry_out(plan)
    said = [one for one in plan.irreversible if "before any call is not on record" in one.reason]
    assert bool(said) != reads
    assert (root / ".git" / "hooks" / "pre-push").exists() == reads


def test_an_alias_called_worktree_is_no_other_place(store: AuditStore, root: Path) -> None:
    git(root, "config", "alias.worktree", "log -1")
    workspace = store.attach(root)
    with workspace.session("tester") as session:
        act(session, "rm -rf .git")
        workspace.carry_out(workspace.plan_undo())
    assert git(root, "config", "alias.worktree").strip() == "log -1"


def test_one_without_a_commit_comes_back_with_its_length_of_ids(
    store: AuditStore, tmp_path: Path
) -> None:
    root = tmp_path / "new"
    root.mkdir()
    git(root, "init", "-q", "--object-format=sha256")
    workspace = store.attach(root)
    with workspace.session("tester") as session:
        act(session, "rm -rf .git")
        workspace.carry_out(workspace.plan_undo())
    assert git(root, "rev-parse", "--show-object-format").strip() == "sha256"
    made, *_ = write_kept_git(workspace, workspace.log.head(), "", tmp_path / "beside")
    assert git(made.parent, "rev-parse", "--show-object-format").strip() == "sha256"


def commit_of(root: Path, text: str) -> str:
    """A commit with a text of its own, which git is not let check."""
    made = ["git", "hash-object", "-t", "commit", "-w", "--stdin", "--literally"]
    done = subprocess.run(made, cwd=root, input=text.encode(), capture_output=True, check=True)
    return done.stdout.decode().strip()


BY = "author a <a@x> 1 +0000\ncommitter a <a@x> 1 +0000\n\nx\n"


@pytest.mark.parametrize("lost", ["tree", "parent"])
def test_what_only_a_log_names_comes_back_beside_what_is_not_whole(
    store: AuditStore, root: Path, lost: str
) -> None:
    git(root, "commit", "-q", "--allow-empty", "-m", "only in logs")
    logged = git(root, "rev-parse", "HEAD").strip()
    git(root, "reset", "-q", "--hard", "HEAD~1")
    workspace = store.attach(root)
    gone, tree = "1" * 40, git(root, "rev-parse", "HEAD^{tree}").strip()
    lines = f"tree {gone}\n" if lost == "tree" else f"tree {tree}\nparent {gone}\n"
    with workspace.session("tester") as session:
        made = commit_of(root, lines + BY)
        act(session, f"echo '{logged} {made} a <a@x> 1 +0000\tx' >> .git/logs/HEAD")
        act(session, "rm -rf .git")
        done = workspace.carry_out(workspace.plan_undo())
    assert git(root, "cat-file", "-t", logged).strip() == "commit"
    assert any("1 object that only logs name" in one for one in done.call.coverage.reasons)


@pytest.mark.parametrize("bad", [set(), {3}, {0, 1, 9}, set(range(10))])
def test_ids_that_are_whole_are_found_by_halves(bad: set[int]) -> None:
    asked = [0]

    def missing(ids: Sequence[str]) -> Sequence[str]:
        asked[0] += 1
        if {str(one) for one in bad} & {*ids}:
            raise ExecutionFailed("a parent is not there")
        return ()

    ids = [str(n) for n in range(10)]
    assert sorted(whole_ids(missing, ids)) == [one for one in ids if int(one) not in bad]
    assert whole_ids(lambda ids: [one for one in ids if one > "4"], ids) == ids[:5]


def test_old_faults_of_form_do_not_keep_it_from_coming_back(store: AuditStore, root: Path) -> None:
    head, tree = git(root, "rev-parse", "HEAD", "HEAD^{tree}").split()
    by = BY.replace("1 +0000", "1313584730 +051800")
    made = commit_of(root, f"tree {tree}\nparent {head}\n{by}")
    git(root, "update-ref", "refs/heads/main", made)
    workspace = store.attach(root)
    before = as_git_says(root)
    with workspace.session("tester") as session:
        act(session, "rm -rf .git")
        workspace.carry_out(workspace.plan_undo())
    assert not differences(before, as_git_says(root))


def test_faults_that_lead_elsewhere_do(store: AuditStore, root: Path) -> None:
    (root / ".gitmodules").write_text('[submodule "x"]\n\tpath = x\n\turl = -u./x\n')
    git(root, "add", ".gitmodules")
    git(root, "commit", "-q", "-m", "modules")
    workspace = store.attach(root)
    with workspace.session("tester") as session:
        act(session, "rm -rf .git f0")
        [note] = workspace.plan_undo().blocked
        assert "gitmodules" in note.reason and "--no-git" in note.reason
        requested = workspace.log.head()
        with pytest.raises(Conflict, match="gitmodules"):
            workspace.carry_out(workspace.plan_undo())
        assert workspace.log.head() == requested
        workspace.carry_out(workspace.plan(PlanRequest("undo", no_git=True)))
    assert not (root / ".git").exists() and (root / "f0").exists()


def test_a_state_file_that_is_a_link_does_not_come_back(
    store: AuditStore, root: Path, tmp_path: Path
) -> None:
    (tmp_path / "persons").mkdir()
    workspace = store.attach(root)
    with workspace.session("tester") as session:
        act(session, f"ln -s {tmp_path}/persons .git/sequencer; ln -s {tmp_path}/x .git/MERGE_MSG")
        point = workspace.log.head()
        act(session, "rm -rf .git")
        plan = workspace.plan_undo()
        assert any("MERGE_MSG, sequencer" in one.reason for one in plan.irreversible)
        workspace.carry_out(plan)
    made, *_ = write_kept_git(workspace, point, "", tmp_path / "beside")
    for folder in (root / ".git", made):
        assert not [one for one in folder.rglob("*") if one.is_symlink()]


def test_it_comes_back_private(workspace: AuditedWorkspace, root: Path, session: Session) -> None:
    (root / ".git").chmod(0o700)
    act(session, "rm -rf .git")
    workspace.carry_out(workspace.plan_undo())
    assert (root / ".git").stat().st_mode & 0o777 == 0o700
