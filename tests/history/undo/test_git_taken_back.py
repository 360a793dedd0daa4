"""What an agent did to git is taken back: the repository is then what git itself said before."""

import os
import random
import subprocess
from pathlib import Path

import pytest

from loom_audit import AuditedWorkspace, AuditStore, Session
from loom_audit.errors import Conflict, NotFound
from loom_audit.model.plans.request import PlanRequest
from tests.places.git_person import as_ann, git

COMMANDS = (
    "echo {n} > f{m}; git add -A; git commit -qm c{n}",
    "git commit -q --allow-empty -m empty{n}",
    "git commit -q --amend --allow-empty -m amended{n}",
    "git branch b{m}",
    "git branch -D b{m}",
    "git branch -f b{m} HEAD~1",
    "git branch -m b{m} renamed{n}",
    "git branch -m b{m} b{m}/inner",
    "git checkout -q b{m}",
    "git checkout -q -b new{n}",
    "git checkout -q main",
    "git checkout -q --detach",
    "git switch -q --orphan orphan{n}",
    "git reset -q --hard HEAD~1",
    "git reset -q --soft HEAD~1",
    "git reset -q ORIG_HEAD",
    "echo w{n} > f{m}; git stash -q -u",
    "git stash pop -q",
    "git stash drop -q",
    "git stash clear",
    "git tag t{n}",
    "git tag -a -m annotated{n} a{n}",
    "git tag -d t{m}",
    "git merge -q --no-edit b{m}",
    "git merge --abort",
    "git rebase -q b{m}",
    "git rebase --abort",
    "git cherry-pick b{m}",
    "git cherry-pick --abort",
    "git revert --no-edit HEAD",
    "git add -N .; git add -A f{m}",
    "echo i{n} > f{m}; git add f{m}",
    "git rm -q --cached f{m}",
    "git mv f{m} moved{n}",
    "git update-index --assume-unchanged f{m}",
    "git update-index --skip-worktree f{m}",
    "git update-index --split-index",
    "git notes add -f -m note{n}",
    "git update-ref refs/odd/{n} HEAD",
    "git pack-refs --all",
    "git gc -q --prune=now",
    "git reflog expire --expire=now --all; git gc -q --prune=now",
    "git bisect start; git bisect bad; git bisect good HEAD~2",
    "git bisect reset",
    "git checkout -q -- .",
)


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    as_ann(monkeypatch)
    monkeypatch.setenv("GIT_EDITOR", "true")
    root = tmp_path / "workspace"
    root.mkdir()
    git(root, "init", "-q", "-b", "main")
    for n in range(3):
        (root / "f0").write_text(f"{n}\n")
        git(root, "add", "-A")
        git(root, "commit", "-q", "-m", f"c{n}")
    git(root, "branch", "feat", "HEAD~1")
    return root


def said(root: Path, *words: str) -> str:
    """What git says, and how it ends."""
    done = subprocess.run(["git", *words], cwd=root, capture_output=True)
    return f"{done.returncode} {done.stdout.decode('utf-8', 'replace')}"


def as_git_says(root: Path) -> dict[str, object]:
    """All that git says of a repository and its worktree, but for logs of refs."""
    files = {
        str(one.relative_to(root)): one.read_bytes()
        for one in root.rglob("*")
        if one.is_file() and ".git" not in one.relative_to(root).parts
    }
    begun = ("MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD", "rebase-merge", "BISECT_LOG")
    return {
        "head": said(root, "symbolic-ref", "-q", "HEAD") + said(root, "rev-parse", "-q", "HEAD"),
        "refs": said(root, "for-each-ref"),
        "stashes": said(root, "stash", "list", "--date=raw", "--format=%H %gd %gs %gn %ge"),
        "index": said(root, "ls-files", "-s", "-v", "-z"),
        "status": said(root, "status", "--porcelain=v2", "-z"),
        "diff": said(root, "diff", "HEAD"),
        "begun": [one for one in begun if (root / ".git" / one).exists()],
        "files": files,
    }


def broken(root: Path) -> str:
    done = subprocess.run(
        ["git", "fsck", "--connectivity-only", "--no-dangling"], cwd=root, capture_output=True
    )
    return done.stdout.decode() + done.stderr.decode()


def act(session: Session, command: str) -> None:
    session.run(["sh", "-c", f"{command}; true"])


def differences(one: dict[str, object], other: dict[str, object]) -> dict[str, object]:
    return {key: (one[key], other[key]) for key in one if one[key] != other[key]}


TAPES = pytest.mark.parametrize(
    ("seed", "steps"),
    [(28, 25), *(pytest.param(n, 500, marks=pytest.mark.deep) for n in range(2))],
)


@TAPES
@pytest.mark.timeout(3600)
def test_each_step_of_a_tape_is_undone_and_redone_as_git_says(
    workspace: AuditedWorkspace, root: Path, session: Session, seed: int, steps: int
) -> None:
    chance = random.Random(seed)
    undone = 0
    for n in range(steps):
        command = chance.choice(COMMANDS).format(n=n, m=chance.randrange(3))
        before, was_broken, head = as_git_says(root), broken(root), workspace.log.head()
        act(session, command)
        after, is_broken = as_git_says(root), broken(root)
        if not differences(before, after):
            continue
        plan = workspace.plan_undo()
        assert plan.calls[0] > head, (n, command, "nothing of it can be taken back")
        assert not plan.blocked, (n, command, plan.blocked)
        workspace.carry_out(plan)
        undone += 1
        assert not differences(before, as_git_says(root)), (n, command)
        assert broken(root) == was_broken, (n, command)
        if chance.random() < 0.8:
            workspace.carry_out(workspace.plan_redo())
            assert not differences(after, as_git_says(root)), (n, command)
            assert broken(root) == is_broken, (n, command)
    assert undone > steps // 4
    assert workspace.verify().findings == ()


@TAPES
@pytest.mark.timeout(3600)
def test_a_tape_is_rolled_back_from_its_end_to_any_point(
    workspace: AuditedWorkspace, root: Path, session: Session, seed: int, steps: int
) -> None:
    chance = random.Random(seed)
    points = [(workspace.log.head(), as_git_says(root))]
    for n in range(steps):
        act(session, chance.choice(COMMANDS).format(n=n, m=chance.randrange(3)))
        points.append((workspace.log.head(), as_git_says(root)))
    for point, then in chance.sample(points[1:], min(len(points) - 1, 5 if steps < 100 else 50)):
        plan = workspace.plan_rollback(point)
        assert not plan.blocked, plan.blocked
        if not plan.is_empty:
            workspace.carry_out(plan)
        assert not differences(then, as_git_says(root)), point


def test_a_commit_of_a_person_since_blocks_head_and_the_files_with_it(
    workspace: AuditedWorkspace, root: Path, session: Session
) -> None:
    act(session, "echo agent > made; git add made; git commit -qm agent")
    (root / "mine").write_text("by hand\n")
    git(root, "add", "mine")
    git(root, "commit", "-q", "-m", "by hand")
    with pytest.raises(Conflict, match="was changed since"):
        workspace.carry_out(workspace.plan_undo())
    assert git(root, "log", "-1", "--format=%s").strip() == "by hand"
    assert (root / "made").exists()
    plan = workspace.plan_undo(git=False)
    assert not plan.git
    workspace.carry_out(plan)
    assert git(root, "log", "-1", "--format=%s").strip() == "by hand"
    assert not (root / "made").exists()


def test_a_branch_that_a_person_made_since_stays(
    workspace: AuditedWorkspace, root: Path, session: Session
) -> None:
    act(session, "git branch -D feat")
    git(root, "branch", "mine")
    workspace.carry_out(workspace.plan_undo())
    names = git(root, "for-each-ref", "--format=%(refname:short)").split()
    assert names == ["feat", "main", "mine"]


def test_the_plan_lists_the_commits_that_no_ref_would_hold(
    workspace: AuditedWorkspace, root: Path, session: Session
) -> None:
    act(session, "git commit -q --allow-empty -m lost; git commit -q --allow-empty -m too")
    plan = workspace.plan_undo()
    assert [one.split(" ", 1)[1] for one in plan.lost_commits] == ["ann: too", "ann: lost"]


def test_a_lock_of_another_git_is_waited_for_and_then_blocks(
    workspace: AuditedWorkspace, root: Path, session: Session
) -> None:
    act(session, "git commit -q --allow-empty -m agent")
    before = as_git_says(root)
    (root / ".git" / "index.lock").write_bytes(b"")
    with pytest.raises(Conflict, match=r"index\.lock is there"):
        workspace.carry_out(workspace.plan_undo())
    (root / ".git" / "index.lock").unlink()
    assert as_git_says(root) == before
    workspace.carry_out(workspace.plan_undo())
    assert git(root, "log", "-1", "--format=%s").strip() == "c2"


def test_an_edit_of_the_same_length_within_the_tick_of_the_index_stays_visible(
    workspace: AuditedWorkspace, root: Path, session: Session
) -> None:
    (root / "f0").write_text("x\n")
    index = (root / ".git" / "index").stat()
    os.utime(root / "f0", ns=(index.st_mtime_ns, index.st_mtime_ns))
    assert "f0" in git(root, "status", "--porcelain")
    act(session, "git add f0")
    workspace.carry_out(workspace.plan_undo())
    assert git(root, "status", "--porcelain") == " M f0\n"
    assert git(root, "diff", "--name-only") == "f0\n"


def test_hooks_and_settings_stay_and_are_named(
    workspace: AuditedWorkspace, root: Path, session: Session
) -> None:
    hook = root / ".git" / "hooks" / "post-checkout"
    act(session, f"echo 'touch {root}/ran' > .git/hooks/post-checkout; chmod +x .git/hooks/*")
    git(root, "config", "core.fsmonitor", f"touch {root}/ran; false")
    session.run(["true"])
    act(session, "rm .git/hooks/post-checkout; git config --unset core.fsmonitor; git branch x")
    plan = workspace.plan_undo()
    assert any("hooks and settings" in note.reason for note in plan.irreversible)
    workspace.carry_out(plan)
    assert not hook.exists()
    assert "fsmonitor" not in (root / ".git" / "config").read_text()
    assert "x" not in git(root, "for-each-ref", "--format=%(refname:short)").split()
    assert not (root / "ran").exists()


def test_a_remote_is_never_touched(
    workspace: AuditedWorkspace, root: Path, session: Session, tmp_path: Path
) -> None:
    git(tmp_path, "init", "-q", "--bare", "-b", "main", "remote")
    git(root, "remote", "add", "origin", str(tmp_path / "remote"))
    git(root, "push", "-q", "origin", "main")
    session.run(["true"])
    act(session, "git commit -q --amend --allow-empty -m other; git push -qf origin main")
    pushed = git(root, "rev-parse", "origin/main")
    plan = workspace.plan_undo()
    workspace.carry_out(plan)
    assert git(root, "rev-parse", "origin/main") == pushed
    assert git(tmp_path / "remote", "rev-parse", "main") == pushed
    assert git(root, "log", "-1", "--format=%s").strip() == "c2"


def test_a_revert_leaves_git_and_takes_it_with_git(
    workspace: AuditedWorkspace, root: Path, session: Session
) -> None:
    act(session, "git branch -D feat")
    act(session, "echo more > more")
    number = workspace.timeline.calls()[1].seq
    assert number
    with pytest.raises(Conflict):
        workspace.carry_out(workspace.plan_revert([number]))
    plan = workspace.plan_revert([number], git=True)
    workspace.carry_out(plan)
    assert "feat" in git(root, "for-each-ref", "--format=%(refname:short)").split()
    assert (root / "more").exists()


def test_without_git_a_call_that_changed_only_git_is_passed_over(
    workspace: AuditedWorkspace, root: Path, session: Session
) -> None:
    act(session, "git branch -D feat")
    with pytest.raises(NotFound, match="nothing to undo"):
        workspace.plan(PlanRequest("undo", no_git=True))


def test_objects_that_git_threw_away_come_back_from_the_mirror(
    workspace: AuditedWorkspace, root: Path, session: Session
) -> None:
    (root / "f0").write_text("work of a day\n")
    git(root, "stash", "-q")
    session.run(["true"])
    before = as_git_says(root)
    act(session, "git stash drop -q; git reflog expire --expire=now --all; git gc -q --prune=now")
    workspace.carry_out(workspace.plan_undo())
    assert not differences(before, as_git_says(root))
    git(root, "stash", "pop", "-q")
    assert (root / "f0").read_text() == "work of a day\n"


def test_two_gits_at_once_end_in_a_conflict_or_are_both_done(
    workspace: AuditedWorkspace, root: Path, session: Session
) -> None:
    act(session, "git commit -q --allow-empty -m agent")
    plan = workspace.plan_undo()
    others = subprocess.Popen(
        ["sh", "-c", "for n in 1 2 3 4 5 6 7 8; do git commit -q --allow-empty -m beside; done"],
        cwd=root,
        stderr=subprocess.DEVNULL,
    )
    try:
        workspace.carry_out(plan)
        is_done = True
    except Conflict:
        is_done = False
    others.wait()
    log = git(root, "log", "--format=%s").split()
    assert log.count("beside") + ("agent" in log) > 0
    assert ("agent" in log) is (not is_done)
    assert broken(root) == ""
    assert not (root / ".git" / "index.lock").exists()


def test_a_call_that_changed_only_git_counts_as_taken_back_by_each_verb(
    workspace: AuditedWorkspace, root: Path, session: Session
) -> None:
    point = workspace.log.head()
    act(session, "git branch -D feat")
    number = workspace.timeline.calls()[0].seq
    assert number
    asked = [
        PlanRequest("undo"),
        PlanRequest("revert", (number,), with_git=True),
        PlanRequest("rollback", (point,)),
    ]
    for request in asked:
        plan = workspace.plan(request)
        assert number in plan.reverts, request
        done = workspace.carry_out(plan).call
        assert workspace.timeline.call(number).call.undone_by == done.seq, request
        assert "feat" in git(root, "branch")
        again = workspace.plan(PlanRequest("revert", (done.seq or 0,), with_git=True))
        workspace.carry_out(again)
        assert workspace.timeline.call(number).call.undone_by is None, request
        assert "feat" not in git(root, "branch")


def test_what_a_repository_outside_shares_stays_and_does_not_count(
    store: AuditStore, root: Path, tmp_path: Path
) -> None:
    git(root, "worktree", "add", "-q", str(tmp_path / "linked"), "feat")
    workspace = store.attach(tmp_path / "linked")
    with workspace.session("tester") as session:
        session.run(["sh", "-c", "git commit -q --allow-empty -m inside"])
        said = as_git_says(root)
        with pytest.raises(NotFound, match="nothing to undo"):
            workspace.plan_undo()
        session.run(["sh", "-c", "echo x > made; git commit -q --allow-empty -m more"])
        plan = workspace.plan_undo()
        assert [one.reason for one in plan.irreversible if "outside" in one.reason]
        workspace.carry_out(plan)
    assert git(tmp_path / "linked", "log", "-1", "--format=%s").strip() == "more"
    assert said["head"] == as_git_says(root)["head"]


@pytest.mark.parametrize("ids", ["sha1", "sha256"])
def test_a_first_commit_is_taken_back_to_no_commit_at_all(
    store: AuditStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ids: str
) -> None:
    as_ann(monkeypatch)
    root = tmp_path / "new"
    root.mkdir()
    git(root, "init", "-q", "-b", "main", f"--object-format={ids}")
    (root / "f").write_text("f\n")
    workspace = store.attach(root)
    before = as_git_says(root)
    with workspace.session("tester") as session:
        act(session, "git add f; git commit -qm first; git tag t; git gc -q --prune=now")
        after = as_git_says(root)
        workspace.carry_out(workspace.plan_undo())
        assert not differences(before, as_git_says(root))
        assert not (root / ".git" / "index").exists()
        git(root, "gc", "-q", "--prune=now")
        workspace.carry_out(workspace.plan_redo())
        assert not differences(after, as_git_says(root))
        assert broken(root) == ""


def test_a_linked_worktree_and_the_branch_in_its_repository_go_back_together(
    store: AuditStore, root: Path
) -> None:
    git(root, "worktree", "add", "-q", "linked", "feat")
    workspace = store.attach(root)
    before = as_git_says(root), as_git_says(root / "linked")
    with workspace.session("tester") as session:
        act(session, "cd linked; echo y > f0; git commit -qam inside")
        workspace.carry_out(workspace.plan_undo())
    after = as_git_says(root), as_git_says(root / "linked")
    for one, other in zip(before, after, strict=True):
        assert not differences(one, other)


def test_a_stash_of_a_person_since_blocks_the_list(
    workspace: AuditedWorkspace, root: Path, session: Session
) -> None:
    (root / "f0").write_text("one\n")
    git(root, "stash", "-q")
    act(session, "git stash drop -q")
    (root / "f0").write_text("two\n")
    git(root, "stash", "-q")
    plan = workspace.plan_undo()
    assert [note.reason for note in plan.blocked if "stash" in note.reason]
    assert git(root, "stash", "list").count("\n") == 1
