"""The objects that the log names are read from the mirror, whatever was done to the repository."""

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from loom_audit import AuditedWorkspace, ToolResult
from loom_audit.api.upkeep.git_mirror import kept_git
from loom_audit.errors import NotFound
from tests.places.git_person import as_ann

Call = Callable[..., ToolResult]


def git(root: Path, *words: str, given: bytes = b"") -> bytes:
    return subprocess.run(
        ["git", *words], cwd=root, input=given, capture_output=True, check=True
    ).stdout


@pytest.fixture(params=["sha1", "sha256"])
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Path:
    """A repository with a branch, a tag object, a stash, a staged blob, and a pack."""
    as_ann(monkeypatch)
    root = tmp_path / "workspace"
    root.mkdir()
    git(root, "init", "-q", "-b", "main", f"--object-format={request.param}")
    for n in range(3):
        (root / "a.txt").write_text(f"{n}\n" * 50)
        git(root, "add", ".")
        git(root, "commit", "-q", "-m", f"c{n}")
    git(root, "repack", "-adq")
    git(root, "checkout", "-q", "-b", "feat")
    (root / "only.txt").write_text("precious\n")
    git(root, "add", ".")
    git(root, "commit", "-q", "-m", "only here")
    git(root, "tag", "-a", "-m", "one", "v1")
    git(root, "checkout", "-q", "main")
    (root / "a.txt").write_text("work\n")
    git(root, "stash", "-q")
    (root / "staged.txt").write_text("staged, and nowhere else\n")
    git(root, "add", "staged.txt")
    return root


def named_objects(root: Path) -> dict[str, bytes]:
    """What git itself says of each object that HEAD, refs, stashes and the index lead to."""
    reached = git(root, "rev-list", "--objects", "--all", "--reflog").decode().splitlines()
    ids = {line.split(" ")[0] for line in reached}
    ids |= {line.split(" ")[1] for line in git(root, "ls-files", "-s").decode().splitlines()}
    return {id: told(root, id) for id in sorted(ids)}


def told(root: Path, id: str) -> bytes:
    """The kind, the size and the bytes of an object."""
    return git(root, "cat-file", "--batch", given=f"{id}\n".encode())


def kept(workspace: AuditedWorkspace, id: str) -> bytes:
    mirror = workspace.attachment.on_disk.mirror
    return told(Path(mirror.folder(long_ids=len(id) == 64)), id)


def content_of_git_folder(root: Path) -> dict[str, tuple[int, int, int]]:
    return {
        str(path): ((seen := path.lstat()).st_mode, seen.st_size, seen.st_mtime_ns)
        for path in [root / ".git", *(root / ".git").rglob("*")]
    }


def reasons(workspace: AuditedWorkspace) -> Iterator[str]:
    newest, *_ = workspace.timeline.calls()
    return (one for one in newest.coverage.reasons if one.startswith("git: "))


LOSSES = {
    "garbage collection": "git branch -D feat; git tag -d v1; git stash drop; git rm -qf --cached"
    " staged.txt; git reflog expire --expire=now --all; git gc -q --prune=now",
    "removal": "rm -rf .git",
    "replacement": "rm -rf .git; git init -q; git commit -q --allow-empty -m new",
    "overwriting": "chmod -R u+w .git/objects; find .git/objects -type f"
    " -exec sh -c 'printf evil > \"$1\"' - {} \\;; git symbolic-ref HEAD refs/heads/other",
}


@pytest.mark.few(2)
@pytest.mark.parametrize("loss", LOSSES)
def test_every_object_that_the_log_names_outlives_a_loss(
    workspace: AuditedWorkspace, root: Path, call: Call, loss: str
) -> None:
    call("shell_execute", command="true")
    before = named_objects(root)
    assert len(before) > 15
    call("shell_execute", command=LOSSES[loss])
    assert {id: kept(workspace, id) for id in before} == before
    if loss in ("garbage collection", "replacement"):
        assert [*reasons(workspace)] == []


def test_what_a_call_made_is_kept_with_it_and_nothing_is_written_into_the_repository(
    workspace: AuditedWorkspace, root: Path, call: Call
) -> None:
    call("shell_execute", command="echo new > n; git add n; git commit -qm new")
    made = named_objects(root)
    seen = content_of_git_folder(root)
    call("shell_execute", command="true")
    assert content_of_git_folder(root) == seen
    assert {id: kept(workspace, id) for id in made} == made
    call(
        "shell_execute",
        command="git reset -q --hard HEAD~1; git reflog expire --expire=now --all;"
        " git gc -q --prune=now",
    )
    assert {id: kept(workspace, id) for id in made} == made
    assert [*reasons(workspace)] == []


def test_an_object_that_was_overwritten_before_the_first_look_is_named_and_not_kept_as_another(
    workspace: AuditedWorkspace, root: Path, call: Call
) -> None:
    id = git(root, "rev-parse", "feat:only.txt").decode().strip()
    lost = root / ".git/objects" / id[:2] / id[2:]
    good = lost.read_bytes()
    lost.chmod(0o600)
    lost.write_bytes((root / ".git/objects" / git_path(root, "HEAD:a.txt")).read_bytes())
    call("shell_execute", command="git branch other")
    [damaged, missing] = reasons(workspace)
    assert "1 file in .git/objects not what they are named" in damaged
    assert missing == "git: 1 object that git names not kept"
    lost.write_bytes(good)
    call("shell_execute", command="git branch another")
    call("shell_execute", command="git branch a-third")
    assert [*reasons(workspace)] == []
    assert b"precious" in kept(workspace, id)


def git_path(root: Path, name: str) -> str:
    """The path of a loose object with other content, made here."""
    id = git(root, "hash-object", "-w", "--stdin", given=name.encode()).decode().strip()
    return f"{id[:2]}/{id[2:]}"


HOSTILE = {
    "a linked folder of objects": (
        "mv {o}/{ab} ../away; ln -s $PWD/../away {o}/{ab}",
        "cannot be read",
    ),
    "linked objects": ("mv {o} ../away; ln -s $PWD/../away {o}", "is a symbolic link"),
    "a FIFO as an object": ("rm -f {o}/{id}; mkfifo {o}/{id}", "not what they are named"),
    "a link as an object": (
        "mv {o}/{id} ../o; ln -s $PWD/../o {o}/{id}",
        "not what they are named",
    ),
    "a FIFO as a pack": (
        "rm -f {o}/pack/*.pack; mkfifo $(ls {o}/pack/*.idx | sed s/idx$/pack/)",
        "not what they are named",
    ),
    "a cut pack": (
        "chmod u+w {o}/pack/*; truncate -s -1 {o}/pack/*.pack",
        "not what they are named",
    ),
    "alternates": ("echo /etc > {o}/info/alternates", "alternates names are not kept"),
}


@pytest.mark.few(4)
@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_repository_is_named_and_nothing_of_it_is_followed(
    workspace: AuditedWorkspace, root: Path, call: Call, kind: str
) -> None:
    command, said = HOSTILE[kind]
    id = git(root, "rev-parse", "feat:only.txt").decode().strip()
    names = {"o": ".git/objects", "ab": id[:2], "id": f"{id[:2]}/{id[2:]}"}
    command = command.format(**names)
    subprocess.run(["sh", "-c", command], cwd=root, check=True)
    long_name = root / ".git/objects/pack" / ("p" * 245 + ".idx")
    long_name.write_bytes(b"")
    call("shell_execute", command="echo ref: refs/heads/other > .git/HEAD")
    newest, *_ = workspace.timeline.calls()
    assert any(said in one for one in newest.coverage.reasons), newest.coverage.reasons
    mirror = Path(workspace.attachment.on_disk.mirror.folder(long_ids=len(id) == 64))
    assert not any(path.is_symlink() or path.is_fifo() for path in mirror.rglob("*"))
    assert not (mirror / "objects/info/alternates").exists()


def test_what_no_ref_holds_is_read_by_its_commit_and_by_the_names_of_a_point(
    workspace: AuditedWorkspace, root: Path, call: Call
) -> None:
    call("shell_execute", command="true")
    point, feat = workspace.log.head(), git(root, "rev-parse", "feat").decode().strip()
    call("shell_execute", command=LOSSES["garbage collection"])
    call("shell_execute", command="rm -rf .git")
    now = kept_git(workspace, workspace.log.head())
    assert now.blob(feat, "only.txt") == b"precious\n"
    then = kept_git(workspace, point)
    assert then.blob("feat", "only.txt") == b"precious\n"
    assert then.blob("stash@{0}", "a.txt") == b"work\n"
    assert b"only here" in then.ask(["log", "--all", "--oneline"]).output
    assert b"WIP on main" in then.ask(["log", "-g", "--format=%gs", "refs/stash", "--"]).output


def test_the_objects_of_nested_repositories_and_of_linked_worktrees_are_kept(
    workspace: AuditedWorkspace, root: Path, call: Call
) -> None:
    call(
        "shell_execute",
        command="git init -q vendor/lib; cd vendor/lib; echo inner > i; git add .;"
        " git commit -qm in; cd ../..; git worktree add -q tree feat; cd tree; echo t > t;"
        " git add t; git commit -qm t; git checkout -q --detach;"
        " git commit -q --allow-empty -m detached",
    )
    point = workspace.log.head()
    made = named_objects(root / "vendor/lib") | named_objects(root / "tree")
    assert [*reasons(workspace)] == []
    call("shell_execute", command="rm -rf vendor tree .git")
    assert {id: kept(workspace, id) for id in made} == made
    inner = kept_git(workspace, point, "vendor/lib")
    assert inner.blob("HEAD", "i") == b"inner\n"
    assert kept_git(workspace, point, "tree").blob("HEAD", "t") == b"t\n"
    assert kept_git(workspace, workspace.log.head(), "vendor/lib").point.names == {}
    with pytest.raises(NotFound, match="no git repository in elsewhere"):
        kept_git(workspace, point, "elsewhere")


def test_a_worktree_without_a_commit_is_not_said_to_lack_an_object(
    workspace: AuditedWorkspace, root: Path, call: Call
) -> None:
    call("shell_execute", command="git worktree add -q tree; cd tree; git switch -q --orphan none")
    call("shell_execute", command="git branch other")
    assert [*reasons(workspace)] == []


def test_of_a_worktree_of_a_repository_elsewhere_it_is_said_that_no_object_is_kept(
    workspace: AuditedWorkspace, root: Path, call: Call, tmp_path: Path
) -> None:
    git(root, "init", "-q", str(tmp_path / "elsewhere"))
    git(tmp_path / "elsewhere", "commit", "-q", "--allow-empty", "-m", "one")
    git(tmp_path / "elsewhere", "worktree", "add", "-q", str(root / "tree"))
    call("shell_execute", command="true")
    said = {one for call in workspace.timeline.calls() for one in call.coverage.reasons}
    assert "git: the objects of the linked worktree in tree are elsewhere, and not kept" in said


@pytest.mark.few(3)
@pytest.mark.parametrize(
    ("file", "is_named"),
    [
        ("MERGE_HEAD", True),
        ("rebase-merge/onto", True),
        ("MERGE_MSG", False),
        ("SQUASH_MSG", False),
        ("rebase-merge/message", False),
    ],
)
def test_an_id_is_of_an_object_where_a_file_holds_ids_and_not_in_a_message(
    workspace: AuditedWorkspace, root: Path, call: Call, file: str, is_named: bool
) -> None:
    call("shell_execute", command="true")
    call("shell_execute", command=f"mkdir -p .git/rebase-merge; echo {'1' * 40} > .git/{file}")
    said = ["git: 1 object that git names not in it"]
    assert [*reasons(workspace)] == (said if is_named else [])
