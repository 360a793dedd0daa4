"""What a command changed of git is on record as git itself tells it, asked independently."""

import asyncio
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from loom_audit import AuditedWorkspace, Session, ToolResult
from loom_audit.errors import NotFound
from loom_audit.history.look.git import changes
from loom_audit.model.coverage import FULL
from loom_audit.model.git.record import GitChanged, GitState
from loom_audit.model.git.words import git_words
from loom_audit.ports import EventFilter
from loom_audit.sandbox.git.files import STAMPED_REFS
from tests.places.git_person import as_ann, git

Call = Callable[..., ToolResult]


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    as_ann(monkeypatch)
    root = tmp_path / "workspace"
    root.mkdir()
    git(root, "init", "-q", "-b", "main")
    for n in range(3):
        (root / "a.txt").write_text(f"{n}\n")
        git(root, "add", "a.txt")
        git(root, "commit", "-q", "-m", f"c{n}")
    git(root, "checkout", "-q", "-b", "feat")
    git(root, "commit", "-q", "--allow-empty", "-m", "only here")
    git(root, "checkout", "-q", "main")
    (root / "a.txt").write_text("work\n")
    git(root, "stash", "-q")
    return root


def facts(workspace: AuditedWorkspace) -> list[GitChanged]:
    events = workspace.timeline.events(EventFilter(kinds=(GitChanged.kind,)))
    return [event.fact for event in events if isinstance(event.fact, GitChanged)]


def check_against_git(workspace: AuditedWorkspace, root: Path) -> None:
    """The state folded from the log is what `for-each-ref`, `ls-files` and `stash list` say."""
    state = GitState()
    for fact in facts(workspace):
        state.follow(fact)
    refs = dict(
        line.split(" ")[::-1]
        for line in git(root, "for-each-ref", "--format=%(objectname) %(refname)").splitlines()
    )
    assert {k: v for k, v in state.names.items() if k.startswith("refs/")} == refs
    assert state.names["HEAD"] == "ref: " + git(root, "symbolic-ref", "HEAD").strip()
    listed = git(root, "ls-files", "-s", "-v", "-z")
    entries = state.files["index entries"]
    assert workspace.timeline.content(entries).decode().replace("intended ", "") == listed
    stashes = git(root, "stash", "list", "--format=%H").splitlines()
    assert [one.split(" ")[0] for one in state.names.get("stashes", "").splitlines()] == stashes
    assert workspace.verify().findings == ()


@pytest.mark.few(4)
@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("git reset -q --hard HEAD~1", "(1 commit back)"),
        ("git branch -D feat", "1 commit on no other ref)"),
        ("git stash drop", 'stash dropped: "WIP on main'),
        ("git checkout -q feat", "HEAD main → feat"),
        ("git tag v1", "tag v1 created at"),
        ("git merge -q feat", "(1 commit on)"),
        ("echo x > n; git add n", "index changed (1 path)"),
        ("echo x > n; git add -N n", "index changed (1 path)"),
        ("git update-index --assume-unchanged a.txt", "index changed (1 path)"),
        ("git config core.pager evil", "config changed: it can run code as you"),
        ("echo true > .git/hooks/post-commit", "hooks/post-commit changed: it can run code"),
        ("git checkout -q --detach && git pack-refs --all", "HEAD main → "),
        ("rm .git/index; git reset -q", "HEAD moved and came back, as its reflog tells"),
        ("cp .git/refs/heads/main .git/CHERRY_PICK_HEAD", "cherry-pick in progress"),
        (
            "for n in 1 2; do echo $n > a.txt; git stash -q; done; git stash clear; git tag x",
            'stash dropped: "WIP on main',
        ),
    ],
)
def test_what_a_command_changed_of_git_is_on_record_in_git_s_words(
    workspace: AuditedWorkspace, root: Path, call: Call, command: str, words: str
) -> None:
    call("shell_execute", command=command)
    [baseline, changed] = facts(workspace)
    assert (baseline.origin, changed.origin) == ("baseline", "command")
    assert any(words in line for line in git_words(changed))
    newest, *_ = workspace.timeline.calls()
    assert newest.coverage == FULL
    assert workspace.timeline.call(newest.seq or 0).git == (changed,)
    if "detach" not in command:
        check_against_git(workspace, root)


def test_an_index_without_entries_that_comes_is_said(
    workspace: AuditedWorkspace, root: Path, call: Call
) -> None:
    git(root, "update-ref", "-d", "HEAD")
    (root / ".git/index").unlink()
    call("shell_execute", command="true")
    call("shell_execute", command="git read-tree --empty")
    assert [*git_words(facts(workspace)[-1])] == ["index written anew, with the same entries"]


def test_of_a_detached_head_it_is_told_how_far_it_moved(
    workspace: AuditedWorkspace, root: Path, call: Call
) -> None:
    git(root, "checkout", "-q", "--detach")
    call("shell_execute", command="git commit -q --allow-empty -m more")
    [said] = git_words(facts(workspace)[-1])
    assert said.startswith("HEAD ") and said.endswith(" (1 commit on)")


def test_stashes_of_one_message_are_counted(
    workspace: AuditedWorkspace, root: Path, call: Call
) -> None:
    for n in range(2):
        (root / "a.txt").write_text(f"{n}\n")
        git(root, "stash", "-q")
    call("shell_execute", command="git stash clear")
    assert any(
        one.startswith('3 stashes dropped: "WIP on') for one in git_words(facts(workspace)[-1])
    )


def test_what_can_run_code_and_what_is_lost_stands_before_the_rest(
    workspace: AuditedWorkspace, root: Path, call: Call
) -> None:
    hook = f".git/hooks/{'h' * 200}"
    made = "; ".join(f"git branch a{n}" for n in range(9))
    call("shell_execute", command=f"{made}; git branch -qD feat; echo true > {hook}")
    first, second, *_ = git_words(facts(workspace)[-1])
    assert first.endswith("h… changed: it can run code as you")
    assert len(first) < 100 and second.startswith("branch feat deleted (was ")


def test_a_repository_that_is_deleted_is_said_once_and_a_new_one_is_another(
    workspace: AuditedWorkspace, root: Path, call: Call
) -> None:
    call("shell_execute", command="rm -rf .git")
    _, gone = facts(workspace)
    assert [*git_words(gone)] == ["git repository gone: HEAD main, 2 refs, 1 stash"]
    newest, *_ = workspace.timeline.calls()
    assert newest.coverage.reasons == ("not on record: .git",)
    call("shell_execute", command="true")
    assert facts(workspace)[1:] == [gone]
    call("shell_execute", command="git init -q -b main")
    [new] = git_words(facts(workspace)[-1])
    assert new.startswith("git repository new or replaced: HEAD main")
    assert workspace.verify().findings == ()


def test_a_repository_that_comes_back_is_on_record_again(
    workspace: AuditedWorkspace, root: Path, call: Call
) -> None:
    call("shell_execute", command="sleep 0.1")
    call("shell_execute", command="mkdir .venv; mv .git .venv/kept")
    call("shell_execute", command="true")
    call("shell_execute", command="mv .venv/kept .git")
    told = [[*git_words(fact)] for fact in facts(workspace)]
    assert [one[0].partition(":")[0] for one in told] == [
        "git repository recorded",
        "git repository gone",
        "git repository new or replaced",
    ]
    check_against_git(workspace, root)


def test_the_model_reads_what_its_call_changed_of_git(root: Path, call: Call) -> None:
    (root / "a.txt").write_text("in the way\n")
    said = call("shell_execute", command="seq 9000; git branch -D feat").output
    assert said.splitlines()[-1].startswith("git: branch feat deleted (was ")
    assert "\ngit: " not in call("shell_execute", command="echo more").output


def test_what_git_only_reads_is_no_change(
    workspace: AuditedWorkspace, root: Path, call: Call
) -> None:
    call("shell_execute", command="touch a.txt; git status; git log; git gc -q")
    [baseline] = facts(workspace)
    newest, *_ = workspace.timeline.calls()
    assert baseline.origin == "baseline"
    assert not workspace.timeline.git_of([newest])


def test_what_a_person_did_to_git_between_calls_is_from_outside(
    workspace: AuditedWorkspace, root: Path, call: Call
) -> None:
    call("shell_execute", command="true")
    git(root, "branch", "-D", "feat")
    call("shell_execute", command="true")
    _, outside = facts(workspace)
    assert (outside.origin, outside.call_id, outside.causes) == ("outside", None, ())
    check_against_git(workspace, root)


@pytest.mark.parametrize(
    "command", ["git config user.name other", "echo true > .git/hooks/post-commit"]
)
def test_a_call_that_changed_only_hooks_or_settings_is_passed_over_and_named(
    workspace: AuditedWorkspace, root: Path, call: Call, command: str
) -> None:
    call("write_file", path="new.txt", content="new")
    call("shell_execute", command=command)
    plan = workspace.plan_undo()
    [later] = plan.passed_over
    newest, first, *_ = workspace.timeline.calls()
    assert (later.path, later.calls) == ("", (newest.seq,))
    assert "it can run code as you" in later.reason
    assert plan.irreversible == ()
    assert plan.calls == (first.seq,)
    workspace.carry_out(plan)
    with pytest.raises(NotFound, match="nothing to undo") as refused:
        workspace.plan_undo()
    assert "changed git, which stays" in refused.value.hint


@pytest.mark.parametrize(
    "command", ["rm .git/HEAD", "mv .git/refs ../refs; ln -s ../../refs .git/refs"]
)
def test_a_repository_that_git_cannot_read_any_more_is_named(
    workspace: AuditedWorkspace, root: Path, call: Call, command: str
) -> None:
    call("shell_execute", command="true")
    call("shell_execute", command=command)
    newest, *_ = workspace.timeline.calls()
    assert any(one.startswith("git cannot be told: ") for one in newest.coverage.reasons)


@pytest.mark.parametrize(
    ("instead", "said"),
    [
        (
            "mv .git ../real && ln -s ../real .git",
            "git cannot be told: .git is a symbolic link, which is not",
        ),
        (
            "mv .git ../real && echo gitdir: ../real > .git",
            "git cannot be told: .git is a file that names a",
        ),
    ],
)
def test_a_repository_elsewhere_is_named_and_not_read_through(
    workspace: AuditedWorkspace, root: Path, call: Call, instead: str, said: str
) -> None:
    subprocess.run(["sh", "-c", instead], cwd=root, check=True)
    call("shell_execute", command="true")
    newest, *_ = workspace.timeline.calls()
    assert any(one.startswith(said) for one in newest.coverage.reasons)
    assert facts(workspace) == []


def test_a_git_folder_that_is_no_repository_is_not_one_on_record(
    workspace: AuditedWorkspace, root: Path, call: Call
) -> None:
    (root / ".git/HEAD").unlink()
    call("shell_execute", command="touch .git/index")
    newest, *_ = workspace.timeline.calls()
    assert not any("git" in one for one in newest.coverage.reasons)
    assert facts(workspace) == []


def test_what_is_in_progress_is_said_at_each_step(
    workspace: AuditedWorkspace, root: Path, call: Call
) -> None:
    for command in ("bisect start", "bisect bad", "bisect good HEAD~2", "bisect reset"):
        call("shell_execute", command=f"git {command}")
    said = [[one for one in git_words(fact) if "bisect " in one] for fact in facts(workspace)[1:]]
    assert [one for some in said for one in some if "ref" not in one] == [
        "bisect in progress",
        "bisect goes on",
        "bisect goes on",
        "bisect ended",
    ]


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("command", "words"),
    [
        (
            "git checkout -q -b x && git commit -qm x --allow-empty && git checkout -q main"
            " && git branch -qD x",
            "HEAD moved and came back, as its reflog tells",
        ),
        ("git reset -q --soft HEAD~1; git reset -q --soft HEAD@{1}", "branch main moved and came"),
        ("git reflog expire --expire=now --all", "reflog of branch main cut short"),
        ("git worktree add -q ../linked feat", "/linked created at feat"),
        (
            "git worktree add -q ../w feat; git -C ../w checkout -q -b y; git worktree lock ../w",
            "/w created at y",
        ),
    ],
)
def test_what_only_reflogs_and_worktrees_tell_is_on_record(
    workspace: AuditedWorkspace, root: Path, call: Call, command: str, words: str
) -> None:
    call("shell_execute", command=command)
    *_, changed = facts(workspace)
    assert any(words in line for line in git_words(changed)), [*git_words(changed)]
    check_against_git(workspace, root)
    logs = {
        f"logs/{path.relative_to(root / '.git/logs')}": path.read_bytes()
        for path in (root / ".git/logs").rglob("*")
        if path.is_file()
    }
    assert contents(workspace, "logs/") == logs


def contents(workspace: AuditedWorkspace, start: str) -> dict[str, bytes]:
    """What is on record of files of the git folder."""
    state = GitState()
    for fact in facts(workspace):
        state.follow(fact)
    found = {path: one for path, one in state.files.items() if path.startswith(start)}
    return {path: workspace.timeline.content(one) for path, one in found.items()}


def test_the_index_is_on_record_with_its_time_and_its_shared_file(
    workspace: AuditedWorkspace, root: Path, call: Call
) -> None:
    call("shell_execute", command="git update-index --split-index; echo x > n; git add n")
    *_, changed = facts(workspace)
    state = GitState()
    for fact in facts(workspace):
        state.follow(fact)
    assert state.names["index mtime"] == str((root / ".git/index").stat().st_mtime_ns)
    on_disk = {path.name: path.read_bytes() for path in (root / ".git").glob("*index*")}
    assert contents(workspace, "index") | contents(workspace, "shared") == {
        **on_disk,
        "index entries": contents(workspace, "index entries")["index entries"],
    }
    assert any(name.startswith("sharedindex.") for name in on_disk)
    call("shell_execute", command="touch a.txt; git status")
    assert facts(workspace)[-1] == changed


def test_a_ref_that_is_written_in_place_is_of_the_call_that_wrote_it(
    workspace: AuditedWorkspace, root: Path, call: Call
) -> None:
    older = git(root, "rev-parse", "main").strip()
    for command in ("true", "sleep 0.1", "true"):
        call("shell_execute", command=command)
    call("shell_execute", command=f"printf {older} > .git/refs/heads/feat")
    _, found = facts(workspace)
    assert [one.name for one in found.names] == ["refs/heads/feat"]
    assert found.origin == "command" and found.causes == ()
    check_against_git(workspace, root)


def test_what_the_stamps_did_not_tell_is_found_at_the_session_s_end(
    workspace: AuditedWorkspace, root: Path
) -> None:
    feat, older = git(root, "rev-parse", "feat", "main").split()
    for n in range(STAMPED_REFS):  # more are not stamped, and feat comes after them
        git(root, "branch", f"a{n}")
    git(root, "config", "core.logAllRefUpdates", "false")
    with workspace.session("late") as session:

        def run(command: str) -> None:
            asyncio.run(shell(session, command))

        run("true")
        run("sleep 0.1")  # git's stamps are trusted once they are older than some ticks
        run("true")
        in_place = f"printf {older} > .git/refs/heads/feat"
        run(in_place)
        assert len(facts(workspace)) == 1
    _, found = facts(workspace)
    [moved] = found.names
    assert (moved.name, moved.before, moved.after) == ("refs/heads/feat", feat, older)
    assert found.origin == "outside"
    call = next(one for one in workspace.timeline.calls() if "printf" in one.summary)
    assert call.requested in found.causes
    assert any(one.startswith("found later: branch feat ") for one in call.coverage.reasons)
    check_against_git(workspace, root)


@pytest.mark.parametrize(
    "setting", ["core.repositoryFormatVersion=2", "extensions.ofAnotherDay=true"]
)
def test_of_a_repository_of_a_newer_git_it_is_said_that_git_is_too_old_and_nothing_is_guessed(
    workspace: AuditedWorkspace, root: Path, call: Call, setting: str
) -> None:
    call("shell_execute", command="git config core.repositoryFormatVersion 1")
    on_record = facts(workspace)
    head = on_record[-1].head
    key, _, value = setting.partition("=")
    call("shell_execute", command=f"git config {key} {value}; rm .git/refs/heads/feat")
    newest, *_ = workspace.timeline.calls()
    assert "git cannot be told: git is too old for this repository" in newest.coverage.reasons
    # its settings are bytes, which git need not tell
    *before, last = facts(workspace)
    assert before == on_record and (last.names, last.head) == ((), head)
    assert [one.path for one in last.changes] == ["config"]


def test_what_has_just_changed_is_not_asked_again_while_its_contents_are_the_same(
    workspace: AuditedWorkspace, root: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changes, "SETTLED", 10**15)  # so that no stamp is ever trusted
    older = git(root, "rev-parse", "main").strip()

    def looks() -> list[bool]:
        with workspace.attachment.exclusive():
            return [one.unasked for one in changes.look_at_git(workspace.attachment)]

    call("shell_execute", command="echo x > n; git add n; git commit -qm more")
    assert looks() == looks() == [True]
    (root / ".git/refs/heads/feat").write_text(f"{older}\n")
    assert looks() == looks() == [False]  # nobody puts on record what this look found
    call("shell_execute", command="true")
    assert [one.name for one in facts(workspace)[-1].names] == ["refs/heads/feat"]
    assert looks() == [True]
    check_against_git(workspace, root)


async def shell(session: Session, command: str) -> None:
    await session.call("shell_execute", {"command": command})
