"""What a push did to a remote stays, and is said with the command that a person may type."""

import re
import subprocess
from pathlib import Path

import pytest

from loom_audit import AuditedWorkspace, Session
from loom_audit.model.git.record import GitName
from loom_audit.model.git.words import pushed_back
from tests.history.undo.test_git_taken_back import act, root
from tests.places.git_person import git

__all__ = ["root"]


@pytest.fixture
def remote(tmp_path: Path, root: Path) -> Path:
    """A repository to which `main` and `feat` were pushed."""
    remote = tmp_path / "remote.git"
    git(tmp_path, "init", "-q", "--bare", "-b", "main", str(remote))
    git(root, "remote", "add", "origin", str(remote))
    git(root, "push", "-q", "origin", "main", "feat")
    return remote


def commit(repository: Path, name: str) -> str:
    done = subprocess.run(
        ["git", "rev-parse", "-q", "--verify", name], cwd=repository, capture_output=True
    )
    return done.stdout.decode().strip()


def stays(workspace: AuditedWorkspace) -> str:
    [note] = (note for note in workspace.plan_undo().irreversible if "remote" in note.reason)
    return note.reason


def typed(root: Path, said: str) -> subprocess.CompletedProcess[bytes]:
    """A person types the command that was shown, in a shell."""
    [command] = re.findall(r"`(git push .*)`", said)
    return subprocess.run(["sh", "-c", command], cwd=root, capture_output=True)


def test_a_forced_push_is_said_with_a_command_that_takes_it_back(
    workspace: AuditedWorkspace, root: Path, session: Session, remote: Path
) -> None:
    old = commit(remote, "main")
    act(session, "git commit -q --amend --allow-empty -m other; git push -q --force origin main")
    new = commit(remote, "main")
    said = stays(workspace)
    command = f"git push --force-with-lease=main:{new} origin {old}:refs/heads/main"
    assert said == f"git: a remote is never touched; `{command}` puts it back"
    workspace.carry_out(workspace.plan_undo())
    assert commit(root, "main") == old and commit(root, "origin/main") == new
    assert commit(remote, "main") == new != old
    assert typed(root, said).returncode == 0
    assert commit(remote, "main") == old == commit(root, "origin/main")
    git(remote, "update-ref", "refs/heads/main", commit(root, "feat"))
    assert typed(root, said).returncode != 0, "the remote is not where it was then"


def test_a_branch_that_a_push_made_or_deleted_is_said_too(
    workspace: AuditedWorkspace, root: Path, session: Session, remote: Path
) -> None:
    feat = commit(remote, "feat")
    act(session, "git push -q origin main:made; git branch here")
    said = stays(workspace)
    assert typed(root, said).returncode == 0 and commit(remote, "made") == ""
    act(session, "git push -q origin --delete feat; git branch also")
    said = stays(workspace)
    assert said.endswith("puts it back, if a push deleted it")
    assert typed(root, said).returncode == 0 and commit(remote, "feat") == feat


@pytest.mark.parametrize("name", ["team/up", "origin/x"])
def test_a_remote_with_a_slash_in_its_name_is_named_whole(
    workspace: AuditedWorkspace, root: Path, session: Session, remote: Path, name: str
) -> None:
    git(root, "remote", "remove", "origin")
    git(root, "remote", "add", name, str(remote))
    git(root, "fetch", "-q", name)
    old, feat = commit(remote, "main"), commit(remote, "feat")
    session.run(["true"])
    act(session, f"git commit -q --amend --allow-empty -m x; git push -qf {name} main")
    assert commit(remote, "main") != old
    said = stays(workspace)
    assert typed(root, said).returncode == 0 and commit(remote, "main") == old
    act(session, f"git push -q {name} --delete feat; git branch also")
    assert typed(root, stays(workspace)).returncode == 0 and commit(remote, "feat") == feat


def test_a_branch_that_can_be_of_two_remotes_has_no_command(
    workspace: AuditedWorkspace, root: Path, session: Session, remote: Path
) -> None:
    git(root, "remote", "add", "origin/x", str(remote))
    session.run(["true"])
    act(session, "git push -q origin main:x/main; git branch here")
    assert commit(remote, "x/main") and "git push" not in stays(workspace)


def test_a_fetch_is_no_push(
    workspace: AuditedWorkspace, root: Path, session: Session, remote: Path
) -> None:
    git(remote, "update-ref", "refs/heads/main", commit(remote, "feat"))
    act(session, "git fetch -q origin; git branch here")
    assert stays(workspace) == "git: a remote is never touched: remote branch origin/main"


def test_what_a_person_fetched_since_leaves_no_command(
    workspace: AuditedWorkspace, root: Path, session: Session, remote: Path
) -> None:
    act(session, "git push -q --force origin feat:main; git branch here")
    assert "git push" in stays(workspace)
    git(remote, "update-ref", "refs/heads/main", commit(root, "main~2"))
    git(root, "fetch", "-q", "origin")
    assert "git push" not in stays(workspace)


def test_a_name_of_an_agent_says_nothing_to_the_shell_that_it_is_typed_in(
    workspace: AuditedWorkspace, root: Path, session: Session, remote: Path
) -> None:
    name = "a';touch${IFS}ran;$(touch${IFS}ran)`touch${IFS}ran`&\"!|<x>"
    (root / "name").write_text(name)
    act(session, 'git push -q origin "main:refs/heads/$(cat name)"; git branch here')
    assert commit(remote, f"refs/heads/{name}")
    [note] = (one for one in workspace.plan_undo().irreversible if "remote" in one.reason)
    command = note.reason.partition("; `")[2].rpartition("` puts")[0]
    subprocess.run(["sh", "-c", command], cwd=root, check=True, capture_output=True)
    assert commit(remote, f"refs/heads/{name}") == "" and not (root / "ran").exists()


@pytest.mark.parametrize(
    "name",
    [
        "refs/remotes/--upload-pack=x/main",
        "refs/remotes/origin/\u202emain",
        "refs/remotes/origin/\udcff",
        f"refs/remotes/origin/{'x' * 80}",
        "refs/remotes/origin",
        "refs/heads/main",
    ],
)
def test_a_name_that_cannot_be_typed_as_it_is_shown_has_no_command(name: str) -> None:
    assert pushed_back(GitName(name, "1" * 40, "2" * 40, "pushed")) == ""
    assert pushed_back(GitName("refs/remotes/origin/x", "ref: y", "2" * 40, "pushed")) == ""
    assert pushed_back(GitName("refs/remotes/origin/x", "1" * 40, "2" * 40, "1 commit on")) == ""
    for size in (40, 64):
        assert pushed_back(GitName("refs/remotes/origin/x", "1" * size, "2" * size, "pushed"))
