"""What is read of loose objects without git is what git says, and else it is left to git."""

import os
import subprocess
import zlib
from collections.abc import Iterator
from hashlib import sha1
from pathlib import Path

import pytest

from loom_audit.disk.access.identity import identity_at
from loom_audit.sandbox.git.loose import are_whole, loose_object
from loom_audit.sandbox.git.mirrored import ProgramMirroredGit
from loom_audit.sandbox.git.program_git import ProgramGit
from tests.places.git_person import as_ann


def git(root: Path, *words: str) -> str:
    done = subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def commit(root: Path, **files: str) -> str:
    for name, text in files.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    git(root, "add", ".")
    git(root, "commit", "-q", "-m", "more")
    return git(root, "rev-parse", "HEAD")


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    as_ann(monkeypatch)
    git(tmp_path, "init", "-q", "-b", "main")
    commit(tmp_path, a="1", below__b="1", other__c="1")
    return tmp_path


@pytest.fixture
def objects(root: Path) -> Iterator[int]:
    opened = os.open(root / ".git/objects", os.O_RDONLY)
    yield opened
    os.close(opened)


def path_of(root: Path, id: str) -> Path:
    return root / ".git/objects" / id[:2] / id[2:]


def written(root: Path, kind: str, body: bytes) -> str:
    """An object of any content under its own name."""
    whole = f"{kind} {len(body)}\0".encode() + body
    id = sha1(whole).hexdigest()
    path_of(root, id).parent.mkdir(exist_ok=True)
    path_of(root, id).write_bytes(zlib.compress(whole))
    return id


def test_what_is_whole_is_not_so_without_any_one_of_its_objects(root: Path, objects: int) -> None:
    git(root, "checkout", "-q", "-b", "side")
    commit(root, below__b="2")
    git(root, "checkout", "-q", "main")
    commit(root, other__c="2")
    git(root, "merge", "-q", "side", "-m", "both")
    git(root, "tag", "-a", "v1", "-m", "first")
    tag = git(root, "rev-parse", "v1")
    assert are_whole(objects, [tag], [])
    reached = [line.split()[0] for line in git(root, "rev-list", "--objects", tag).splitlines()]
    for id in (tag, *reached):
        path_of(root, id).rename(root / "away")
        assert not are_whole(objects, [tag], []), id
        (root / "away").rename(path_of(root, id))
    assert are_whole(objects, [tag], [])


def test_what_a_known_commit_leads_to_is_not_looked_for(root: Path, objects: int) -> None:
    known = git(root, "rev-parse", "HEAD")
    unchanged = git(root, "rev-parse", "HEAD:other")
    new = commit(root, below__b="2")
    path_of(root, unchanged).unlink()
    assert are_whole(objects, [new], [known]) and not are_whole(objects, [new], [])
    path_of(root, git(root, "rev-parse", "HEAD:below/b")).unlink()
    assert not are_whole(objects, [new], [known])


def test_what_is_packed_is_left_to_git(root: Path, objects: int) -> None:
    git(root, "repack", "-q", "-a", "-d")
    known = git(root, "rev-parse", "HEAD")
    assert not are_whole(objects, [known], [])
    assert are_whole(objects, [known], [known])


def test_what_is_not_what_its_name_says_is_not_read(root: Path, objects: int) -> None:
    blob = git(root, "rev-parse", "HEAD:a")
    assert loose_object(objects, blob)
    path_of(root, blob).chmod(0o600)
    path_of(root, blob).write_bytes(zlib.compress(b"blob 1\x002"))
    assert loose_object(objects, blob) is None


@pytest.mark.parametrize(
    "body",
    [
        b"100644 a\0" + b"\1" * 19,
        b"100644 a\0%(blob)s100644 a\0%(blob)s",
        b"100600 a\0%(blob)s",
        b"040000 a\0%(blob)s",
        b"100644 a",
    ],
)
def test_a_tree_in_another_form_than_git_writes_is_left_to_git(
    root: Path, objects: int, body: bytes
) -> None:
    blob = bytes.fromhex(git(root, "rev-parse", "HEAD:a"))
    tree = written(root, "tree", body.replace(b"%(blob)s", blob))
    text = f"tree {tree}\nauthor a <a> 1 +0000\ncommitter a <a> 1 +0000\n\nx\n"
    assert not are_whole(objects, [written(root, "commit", text.encode())], [])


@pytest.mark.parametrize("is_known", [False, True])
@pytest.mark.parametrize("form", ["tag", "parent", "file"])
def test_what_is_of_another_kind_than_is_said_of_it_is_left_to_git(
    root: Path, objects: int, form: str, is_known: bool
) -> None:
    blob, head = git(root, "rev-parse", "HEAD:a"), git(root, "rev-parse", "HEAD")
    tree = git(root, "rev-parse", "HEAD^{tree}")
    by = "author a <a> 1 +0000\ncommitter a <a> 1 +0000\n\nx\n"
    if form == "tag":
        id = written(root, "tag", f"object {blob}\ntype commit\ntag v\n\nx\n".encode())
    elif form == "parent":
        id = written(root, "commit", f"tree {tree}\nparent {blob}\n{by}".encode())
    else:
        tree = written(root, "tree", b"100644 a\0" + bytes.fromhex(head))
        id = written(root, "commit", f"tree {tree}\n{by}".encode())
    assert not are_whole(objects, [id], [blob, head] if is_known else [])
    # where it was noted nevertheless, what else there is can be told
    mirrored, mirror = ProgramMirroredGit("/nonexistent"), str(root / ".git")
    new, lost = commit(root, b="2"), git(root, "rev-parse", "HEAD:b")
    path_of(root, lost).unlink()
    assert mirrored.missing(mirror, [new], [head, id], b"") == [lost]


def test_thousands_of_trees_within_each_other_are_left_to_git(root: Path, objects: int) -> None:
    inner = git(root, "rev-parse", "HEAD:below")
    for _ in range(2_000):
        inner = written(root, "tree", b"40000 d\0" + bytes.fromhex(inner))
    text = f"tree {inner}\nauthor a <a> 1 +0000\ncommitter a <a> 1 +0000\n\nx\n"
    assert not are_whole(objects, [written(root, "commit", text.encode())], [])


def test_another_repository_in_a_tree_leads_nowhere(root: Path, objects: int) -> None:
    git(root, "update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},module")
    git(root, "commit", "-q", "-m", "module")
    assert are_whole(objects, [git(root, "rev-parse", "HEAD")], [])


def test_how_far_a_name_moved_is_told_as_git_tells_it(root: Path) -> None:
    ids = [git(root, "rev-parse", "HEAD"), *(commit(root, a=text) for text in "23")]
    git(root, "checkout", "-q", "-b", "side", ids[0])
    side = commit(root, below__b="2")
    git(root, "merge", "-q", "main", "-m", "both")
    merged = git(root, "rev-parse", "HEAD")
    asked = ProgramGit(str(root), identity_at)
    for old in (*ids, side, merged):
        for new in (*ids, side, merged):
            if old != new:
                counts = git(root, "rev-list", "--count", "--left-right", f"{old}...{new}").split()
                words = [
                    f"{n} commit{'s' * (n != '1')} {where}"
                    for n, where in zip(counts, ("back", "on"), strict=True)
                    if n != "0"
                ]
                assert asked.distances([(old, new)]) == [", ".join(words)]


def test_where_a_history_is_cut_off_the_parents_of_a_commit_do_not_count(root: Path) -> None:
    old, new = git(root, "rev-parse", "HEAD"), commit(root, a="2")
    (root / ".git/shallow").write_text(f"{new}\n")
    assert ProgramGit(str(root), identity_at).distances([(old, new)]) == [
        "1 commit back, 1 commit on"
    ]


@pytest.mark.parametrize("folder", ["refs/heads", "logs/refs/heads"])
def test_a_link_that_is_named_like_a_sample_is_not_read_through(root: Path, folder: str) -> None:
    (root.parent / "elsewhere").write_text(f"{git(root, 'rev-parse', 'HEAD')}\n")
    os.symlink(root.parent / "elsewhere", root / ".git" / folder / "x.sample")
    seen = ProgramGit(str(root), identity_at).seen()
    assert f".git/{folder}/x.sample is a symbolic link" in "".join(seen.untold.values())
    assert f"{folder}/x.sample" not in {*seen.names, *seen.files}


def test_the_log_of_a_branch_that_is_named_like_a_sample_is_told(root: Path) -> None:
    git(root, "branch", "v1.sample")
    assert "logs/refs/heads/v1.sample" in ProgramGit(str(root), identity_at).seen().files


@pytest.mark.parametrize(
    "path", ["info/h.sample/pre-commit", "hooks/h.sample/pre-commit", "worktrees/x.sample/HEAD"]
)
def test_only_a_file_that_lies_with_the_hooks_is_a_sample(root: Path, path: str) -> None:
    asked, file = ProgramGit(str(root), identity_at), root / ".git" / path
    before = asked.stamps(0)
    file.parent.mkdir(parents=True)
    file.write_text("ref: refs/heads/main\n")
    after = asked.stamps(0)
    assert after.text != before.text
    if not path.startswith("worktrees"):
        assert path in asked.seen().files
    (root / ".git/hooks/x.sample").write_text("")
    assert "hooks/x.sample" not in asked.seen().files
