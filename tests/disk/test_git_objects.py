"""The mirror on disk: limits, crashes, and packs of the same name."""

import os
import shutil
import signal
import subprocess
import sys
import time
import zlib
from hashlib import sha1
from pathlib import Path

import pytest

from loom_audit.disk.machine.git_objects import DiskObjectMirror
from loom_audit.disk.machine.object_taking import MirrorLimits
from loom_audit.ports import MissingObjects
from loom_audit.sandbox.git.mirrored import ProgramMirroredGit
from tests.places.git_person import git

GIT = ProgramMirroredGit("/nonexistent")


def fast_import(root: Path, blobs: int, *, packed: bool = False) -> None:
    """A repository with so many different blobs, all loose or all in a pack."""
    git(root, "init", "-q")
    text = "".join(f"blob\ndata {len(str(n))}\n{n}\n" for n in range(blobs))
    subprocess.run(
        [
            "git",
            "-c",
            f"fastimport.unpackLimit={1 if packed else blobs + 1}",
            "fast-import",
            "--quiet",
        ],
        cwd=root,
        input=text,
        text=True,
        check=True,
    )


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "workspace"
    root.mkdir()
    fast_import(root, 300)
    return root


def objects(folder: Path) -> set[str]:
    done = subprocess.run(
        ["git", "cat-file", "--batch-check=%(objectname)", "--batch-all-objects"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    return {*done.stdout.split()}


def test_a_second_take_copies_nothing(root: Path, tmp_path: Path) -> None:
    mirror = DiskObjectMirror(str(root), tmp_path / "mirror")
    assert mirror.take(".git", GIT) == ()
    seen = {path: path.lstat().st_ino for path in (tmp_path / "mirror").rglob("*/*")}
    assert mirror.take(".git", GIT) == ()
    assert {path: path.lstat().st_ino for path in (tmp_path / "mirror").rglob("*/*")} == seen
    assert objects(tmp_path / "mirror/sha1") == objects(root)
    assert all(path.stat().st_nlink == 1 for path in (tmp_path / "mirror").rglob("*/*/*/*"))


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("limits", "said"),
    [
        (MirrorLimits(copied=2000), "the limit is 2 KiB"),
        (MirrorLimits(free=1 << 60), "of the disk must stay free"),
        (MirrorLimits(seconds=0.0), "the copying took 0 seconds"),
    ],
)
def test_what_is_over_a_limit_is_named_and_taken_when_there_is_room(
    root: Path, tmp_path: Path, limits: MirrorLimits, said: str
) -> None:
    less = DiskObjectMirror(str(root), tmp_path / "mirror", limits)
    [reason] = less.take(".git", GIT)
    assert reason.startswith("git: objects of ") and said in reason
    assert [*less.left_out()] == [reason]
    more = DiskObjectMirror(str(root), tmp_path / "mirror")
    assert more.take(".git", GIT) == ()
    assert objects(tmp_path / "mirror/sha1") == objects(root)


def test_a_planted_pack_does_not_keep_out_the_one_of_its_name(root: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    shutil.rmtree(root / ".git")
    fast_import(root, 300, packed=True)
    fast_import(other, 3, packed=True)
    mine, planted = root / ".git/objects/pack", other / ".git/objects/pack"
    [index], [foreign] = mine.glob("*.idx"), planted.glob("*.idx")
    kept = tmp_path / "kept"
    shutil.move(mine, kept)
    mine.mkdir()
    for end in (".idx", ".pack"):
        shutil.copy(foreign.with_suffix(end), mine / index.with_suffix(end).name)
    mirror = DiskObjectMirror(str(root), tmp_path / "mirror")
    assert mirror.take(".git", GIT) == ()
    shutil.rmtree(mine)
    shutil.move(kept, mine)
    assert mirror.take(".git", GIT) == ()
    assert objects(tmp_path / "mirror/sha1") == objects(root) | objects(other)


@pytest.mark.parametrize("format", ["sha1", "sha256"])
@pytest.mark.parametrize("name", ["my", "loose-" + "a" * 40, "pack-" + "a" * 40, "", "\x1b\udcff"])
def test_a_pack_is_kept_whatever_its_name_is(tmp_path: Path, name: str, format: str) -> None:
    root = tmp_path / "workspace"
    root.mkdir()
    git(root, "init", "-q", f"--object-format={format}")
    mirror = DiskObjectMirror(str(root), tmp_path / "mirror")
    place = root / ".git/objects/pack"
    expected: set[str] = set()
    for text in ("one", "another"):
        (root / "a").write_text(text)
        id = git(root, "hash-object", "-w", "a").strip()
        words = ["git", "pack-objects", "-q", ".git/objects/pack/made"]
        subprocess.run(words, cwd=root, input=id, text=True, check=True, capture_output=True)
        git(root, "prune-packed", "-q")
        for made in place.glob("made-*"):
            made.rename(place / f"{name}{made.suffix}")
        assert mirror.take(".git", GIT) == ()
        expected.add(id)
        assert objects(tmp_path / "mirror" / format) == expected
    (place / f"{'n' * 251}.idx").write_bytes(b"")
    assert mirror.take(".git", GIT) == ()
    (place / f"{name}.pack").chmod(0o600)
    (place / f"{name}.pack").write_bytes(bytes(100))
    [reason] = mirror.take(".git", GIT)
    assert "not what they are named" in reason and reason.isprintable()


@pytest.mark.deep
def test_a_pack_of_200_mb_is_kept_whole_with_little_memory(tmp_path: Path) -> None:
    root = tmp_path / "workspace"
    root.mkdir()
    git(root, "init", "-q")
    with (root / "large").open("wb") as file:
        for _ in range(200):
            file.write(os.urandom(1 << 20))
    id = git(root, "-c", "core.bigFileThreshold=1m", "hash-object", "-w", "large").strip()
    if not [*(root / ".git/objects/pack").glob("*.pack")]:
        words = ["git", "pack-objects", "-q", ".git/objects/pack/pack"]
        subprocess.run(words, cwd=root, input=id, text=True, check=True, capture_output=True)
        git(root, "prune-packed", "-q")
    words = [sys.executable, "-c", PROGRAM + MEMORY, str(root), str(tmp_path / "mirror")]
    used = subprocess.run(words, check=True, capture_output=True, text=True).stdout.split()[-1]
    assert int(used) < 200 << 10
    words = ["git", "cat-file", "blob", id]
    done = subprocess.run(words, cwd=tmp_path / "mirror/sha1", stdout=subprocess.PIPE, check=True)
    with (root / "large").open("rb") as file:
        assert done.stdout == file.read()


@pytest.mark.deep
def test_a_loose_object_that_inflates_without_end_is_given_up_in_time(
    root: Path, tmp_path: Path
) -> None:
    packing = zlib.compressobj(1)
    content = b"".join(packing.compress(bytes(1 << 20)) for _ in range(2_000)) + packing.flush()
    bomb = root / ".git/objects/00" / ("0" * 38)
    bomb.parent.mkdir(exist_ok=True)
    bomb.write_bytes(content)
    limits = MirrorLimits(seconds=0.5)
    reasons = DiskObjectMirror(str(root), tmp_path / "mirror", limits).take(".git", GIT)
    assert any("the copying took 0.5 seconds" in one for one in reasons)
    assert not (tmp_path / "mirror/sha1/objects/00" / bomb.name).exists()


def test_an_index_that_names_one_object_as_another_is_not_believed(
    root: Path, tmp_path: Path
) -> None:
    shutil.rmtree(root / ".git")
    fast_import(root, 2, packed=True)
    before = {id: git(root, "cat-file", "-p", id) for id in objects(root)}
    [index] = (root / ".git/objects/pack").glob("*.idx")
    content = bytearray(index.read_bytes())
    offsets = 8 + 1024 + 2 * (20 + 4)
    first, second = content[offsets : offsets + 4], content[offsets + 4 : offsets + 8]
    content[offsets : offsets + 8] = second + first
    content[-20:] = sha1(content[:-20]).digest()
    index.chmod(0o600)
    index.write_bytes(content)
    lied = {id: git(root, "cat-file", "-p", id) for id in objects(root)}
    assert sorted(lied.values()) == sorted(before.values()) and lied != before
    assert DiskObjectMirror(str(root), tmp_path / "mirror").take(".git", GIT) == ()
    kept = tmp_path / "mirror/sha1"
    assert {id: git(kept, "cat-file", "-p", id) for id in objects(kept)} == before


def test_what_was_noted_is_read_again_also_after_a_line_that_a_crash_cut_off(
    root: Path, tmp_path: Path
) -> None:
    mirror = DiskObjectMirror(str(root), tmp_path / "mirror")
    assert (mirror.whole(), mirror.missing()) == ((), MissingObjects())
    mirror.take(".git", GIT)
    mirror.note(["a" * 40], MissingObjects(7, ("c" * 40,)))
    with (tmp_path / "mirror/whole").open("a") as file:
        file.write("d" * 17)
    mirror.note(["b" * 64], MissingObjects())
    assert [*mirror.whole()] == ["a" * 40, "b" * 64]
    assert mirror.missing() == MissingObjects()


def test_what_was_noted_under_one_shallow_is_not_said_of_another(
    root: Path, tmp_path: Path
) -> None:
    mirror = DiskObjectMirror(str(root), tmp_path / "mirror")
    mirror.take(".git", GIT)
    one, other = (f"{digit * 40}\n".encode() for digit in "12")
    mirror.note(["a" * 40], MissingObjects(2, ("c" * 40, "d" * 40)), one)
    mirror.note(["b" * 40], MissingObjects(9, ("c" * 40,)))
    assert {*mirror.shallows()} == {b"", one}
    assert [*mirror.whole(one)] == ["a" * 40] and [*mirror.whole()] == ["b" * 40]
    assert (mirror.whole(other), mirror.missing(other)) == ((), MissingObjects())
    assert mirror.missing(one) == MissingObjects(2, ("c" * 40, "d" * 40))
    assert mirror.missing().count == 10
    mirror.note([], MissingObjects(), one)
    assert mirror.missing() == MissingObjects(9, ("c" * 40,))


PROGRAM = """
import sys
from pathlib import Path
from loom_audit.disk.machine.git_objects import DiskObjectMirror
from loom_audit.sandbox.git.mirrored import ProgramMirroredGit
print("begun", flush=True)
DiskObjectMirror(sys.argv[1], Path(sys.argv[2])).take(".git", ProgramMirroredGit("/nonexistent"))
"""


MEMORY = """
import resource
both = resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN
print(max(resource.getrusage(one).ru_maxrss for one in both))
"""


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kills", [8, pytest.param(200, marks=pytest.mark.deep)])
def test_a_take_that_is_killed_leaves_whole_objects_and_the_next_goes_on(
    root: Path, tmp_path: Path, kills: int
) -> None:
    for n in range(kills):
        shutil.rmtree(tmp_path / "mirror", ignore_errors=True)
        words = [sys.executable, "-c", PROGRAM, str(root), str(tmp_path / "mirror")]
        with subprocess.Popen(words, stdout=subprocess.PIPE) as running:
            running.stdout.readline()
            time.sleep(0.1 * n / kills)
            os.kill(running.pid, signal.SIGKILL)
        made = tmp_path / "mirror/sha1"
        if (made / "HEAD").exists():
            assert objects(made) <= objects(root)
            git(made, "fsck", "--full", "--strict")
        assert DiskObjectMirror(str(root), tmp_path / "mirror").take(".git", GIT) == ()
        assert objects(made) == objects(root)
        assert not (tmp_path / "mirror/incoming").exists()
