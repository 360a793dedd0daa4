"""After a repack the mirror has each object once, and at no time less than before."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from loom_audit.disk.machine.git_objects import DiskObjectMirror
from loom_audit.disk.machine.redundant_packs import remove_redundant
from tests.disk.test_git_objects import GIT, fast_import, objects
from tests.places.git_person import as_ann, git


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository of 300 loose objects, of which `mirror` beside it has a pack of its own."""
    as_ann(monkeypatch)
    root = tmp_path / "workspace"
    root.mkdir()
    fast_import(root, 300)
    take(root)
    return root


def take(root: Path) -> None:
    assert DiskObjectMirror(str(root), root.parent / "mirror").take(".git", GIT) == ()


def packs(root: Path) -> set[str]:
    found = {*(root.parent / "mirror/sha1/objects/pack").iterdir()}
    assert {one.stem for one in found if one.suffix == ".idx"} == {one.stem for one in found}
    return {one.stem for one in found}


def stored(root: Path, text: str) -> str:
    """The id of a new blob."""
    (root / "file").write_text(text)
    return git(root, "hash-object", "-w", "file").strip()


def commit(root: Path, blobs: set[str]) -> None:
    """A commit that has these blobs."""
    lines = "".join(f"100644 blob {id}\t{id}\n" for id in sorted(blobs))
    words = ["git", "mktree"]
    made = subprocess.run(words, cwd=root, input=lines, text=True, capture_output=True, check=True)
    head = git(root, "commit-tree", "-m", "all", made.stdout.strip()).strip()
    git(root, "update-ref", "refs/heads/main", head)


def test_what_a_repack_put_into_one_pack_is_kept_once(root: Path) -> None:
    commit(root, objects(root))
    git(root, "repack", "-adq")
    for n in range(3):  # packs that a later one takes up, and loose objects beside them
        commit(root, {stored(root, f"{n}")})
        git(root, "repack", "-dq")
        git(root, "tag", f"t{n}", "main")
        take(root)
    before = objects(root)
    assert len(packs(root)) == 4
    git(root, "gc", "-q", "--prune=now")
    take(root)
    assert objects(root.parent / "mirror/sha1") >= before
    [pack] = packs(root)
    [theirs] = (root / ".git/objects/pack").glob("*.pack")
    kept = root.parent / "mirror/sha1/objects/pack" / f"{pack}.pack"
    assert kept.read_bytes() == theirs.read_bytes() and kept.stat().st_nlink == 1
    counted = json.loads((root.parent / "mirror/taken.json").read_bytes())[1]
    mirrored = (root.parent / "mirror/sha1/objects").glob("*/*")
    assert counted == sum(one.stat().st_size for one in mirrored)


def test_a_pack_stays_that_has_one_object_which_no_newer_one_has(root: Path) -> None:
    before, mine = objects(root), packs(root)
    commit(root, {*sorted(before)[1:]})
    git(root, "gc", "-q", "--prune=now")
    assert sorted(before)[0] not in objects(root)
    take(root)
    assert objects(root.parent / "mirror/sha1") == before | objects(root)
    assert mine < packs(root)


def test_a_pack_stays_that_the_repository_still_has(root: Path) -> None:
    commit(root, objects(root))
    git(root, "repack", "-adq")
    take(root)
    git(root, "tag", "t", "main")
    commit(root, {stored(root, "more")})
    for _ in range(2):  # the second time the folder of packs is looked at again
        git(root, "repack", "-aq")
        take(root)
        assert len(packs(root)) == 2
        mirrored = {path.stat().st_ino for path in (root.parent / "mirror").rglob("*.pack")}
    assert {path.stat().st_ino for path in (root.parent / "mirror").rglob("*.pack")} == mirrored


def test_a_pack_stays_where_the_newer_one_is_not_whole_any_more(root: Path) -> None:
    folder = root.parent / "mirror/sha1/objects/pack"
    shutil.copytree(folder, root.parent / "older")
    commit(root, objects(root))
    git(root, "gc", "-q", "--prune=now")
    take(root)
    [newer] = folder.glob("*.pack")
    for path in (root.parent / "older").iterdir():
        shutil.copy(path, folder)
        os.utime(folder / path.name, (0, 0))
    content = newer.read_bytes()
    newer.chmod(0o600)
    newer.write_bytes(content[:-30] + bytes([content[-30] ^ 1]) + content[-29:])
    assert remove_redundant(folder, set(), long_ids=False) == 0
    assert len(packs(root)) == 2
    newer.write_bytes(content)
    assert remove_redundant(folder, set(), long_ids=False) > 0
    assert packs(root) == {newer.stem}


def test_an_object_that_is_in_a_pack_is_not_copied_again_where_it_is_loose_too(
    root: Path,
) -> None:
    commit(root, objects(root))
    git(root, "repack", "-aq")
    take(root)
    seen = {*(root.parent / "mirror/sha1/objects").glob("*/*")}
    assert len(seen) == 4  # the commit and its tree were loose, too, and the pack was new
    for path in (root / ".git/objects").glob("??"):
        os.utime(path)
    take(root)
    assert {*(root.parent / "mirror/sha1/objects").glob("*/*")} == seen


PROGRAM = """
import os, signal, sys
from pathlib import Path
from loom_audit.disk.machine.git_objects import DiskObjectMirror
from loom_audit.sandbox.git.mirrored import ProgramMirroredGit
left = int(sys.argv[3])

def count(event, _):
    global left
    if event in ("os.remove", "os.rename", "os.mkdir", "os.rmdir"):
        left -= 1
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)

mirror, git = DiskObjectMirror(sys.argv[1], Path(sys.argv[2])), ProgramMirroredGit("/nonexistent")
sys.addaudithook(count)
mirror.take(".git", git)
"""


@pytest.mark.few(0)
def test_a_take_after_a_repack_that_is_killed_at_any_step_loses_no_object(root: Path) -> None:
    mirror = root.parent / "mirror"
    before = objects(root)
    commit(root, before)
    git(root, "gc", "-q", "--prune=now")
    shutil.copytree(mirror, root.parent / "first")
    steps = 0
    while True:
        shutil.rmtree(mirror)
        shutil.copytree(root.parent / "first", mirror)
        words = [sys.executable, "-c", PROGRAM, str(root), str(mirror), str(steps)]
        code = subprocess.run(words, capture_output=True).returncode
        git(mirror / "sha1", "fsck", "--full", "--strict")
        assert objects(mirror / "sha1") >= before, steps
        if code == 0:
            break
        assert code == -signal.SIGKILL
        take(root)
        assert objects(mirror / "sha1") == objects(root)
        assert len(packs(root)) == 1, steps
        steps += 1
    assert steps > 5
