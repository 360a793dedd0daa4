"""A look with a watch finds what a look at everything does, by what the kernel tells."""

import errno
import mmap
import os
import random
import shutil
import subprocess
import zlib
from collections.abc import Iterator, Set
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

from loom_audit.disk.looking import inotify, watch
from loom_audit.disk.workspace import DiskWorkspace
from loom_audit.model.scope import Scope
from loom_audit.ports import LeftOutFiles, Stamp, Stamps
from tests.given.upheaval import Upheaval, act_alone, made_folders
from tests.oracles.in_scope import Fact, everything_in_scope


class Looks:
    """Looks with a watch, and what was seen by them of every path that they told."""

    def __init__(self, root: Path, scope: Scope | None = None) -> None:
        self.root = root
        self.scope = scope or Scope()
        self.workspace = DiskWorkspace(str(root))
        self.watch = self.workspace.watch()
        self.known = Stamps()
        self.seen: dict[str, Fact] = {}
        self.left_out: LeftOutFiles = {}

    def look(self) -> list[str]:
        """The paths that differ from what was known, which is brought up to date."""
        self.left_out = {}
        found = [*self.workspace.differences(self.scope, self.known, self.left_out, self.watch)]
        there = everything_in_scope(self.root, self.scope)
        for path, stamp in found:
            if isinstance(stamp, Stamp):
                self.known[path] = stamp
                self.seen[path] = there[path]
            else:
                self.known.forget(path)
                self.seen.pop(path, None)
        return sorted(path for path, _ in found)

    def check(self, unseen: Set[int] = frozenset()) -> None:
        """What was seen is all that is there, and so are the counts of what is left out.

        Of the inodes that are `unseen` the contents may be others.
        """
        there = everything_in_scope(self.root, self.scope)
        for path, one in there.items():
            if one.inode in unseen and path in self.seen:
                self.seen[path] = one
        assert self.seen == there
        changed = {path for path, one in there.items() if self.seen[path].changed != one.changed}
        assert not [path for path in changed if self.seen[path].names != there[path].names]
        left_out: LeftOutFiles = {}
        for _ in self.workspace.differences(self.scope, self.known, left_out):
            pass
        assert self.left_out == left_out


@pytest.fixture
def looks(tmp_path: Path) -> Looks:
    root = tmp_path / "work"
    for name in ("a/b/c", "d"):
        (root / name).mkdir(parents=True)
        (root / name / "f").write_text(name)
    found = Looks(root)
    found.look()
    assert found.watch.why_whole == "nothing was watched before"
    assert found.look() is not None and not found.watch.why_whole
    return found


def look_at_random_operations(folder: Path, seed: int, looks_made: int, most: int) -> int:
    """Looks between random operations, each checked; how many operations there were."""
    root, outside = folder / f"work{seed}", folder / f"outside{seed}"
    for made in (root, outside):
        made.mkdir(exist_ok=True)
    chosen = random.Random(seed)
    ignore = "*.py\n" if seed % 3 == 0 else ""
    looks = Looks(root, Scope(ignore=ignore))
    left_out = (b"node_modules", *((b"e.py", b"f.py") if ignore else ()))
    upheaval = Upheaval(root, outside, chosen, left_out)
    looks.look()
    done = 0
    for _ in range(looks_made):
        done += sum(bool(upheaval.act()) for _ in range(chosen.choice((1, 1, 2, 5, most))))
        looks.look()
        assert not looks.watch.why_whole
        looks.check(upheaval.unseen())
    return done


@pytest.mark.few(1)
@pytest.mark.parametrize("seed", range(3))
def test_random_operations_are_seen_as_by_a_look_at_everything(tmp_path: Path, seed: int) -> None:
    assert look_at_random_operations(tmp_path, seed, 40, 20) > 100


@pytest.fixture
def overlay(tmp_path: Path) -> Iterator[Path]:
    """An overlay on a folder that random operations have filled."""
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("only root can mount an overlay")
    lower, upper, work, merged = (tmp_path / name for name in ("lower", "upper", "w", "merged"))
    made_folders(lower, upper, work, merged, lower / "work0", lower / "outside0")
    upheaval = Upheaval(lower / "work0", lower / "outside0", random.Random(7))
    for _ in range(80):
        upheaval.act()
    options = f"lowerdir={lower},upperdir={upper},workdir={work}"
    mount = ["mount", "-t", "overlay", "overlay", "-o", options, str(merged)]
    done = subprocess.run(mount, capture_output=True)
    if done.returncode:
        pytest.skip(f"cannot mount: {done.stderr.decode()}")
    try:
        yield merged
    finally:
        subprocess.run(["umount", "-l", str(merged)], check=True)


def test_random_operations_in_an_overlay_are_seen(overlay: Path) -> None:
    assert look_at_random_operations(overlay, 0, 40, 20) > 100


@pytest.mark.deep
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("part", range(50))
def test_very_many_random_operations_are_seen(
    tmp_path: Path, part: int, pytestconfig: pytest.Config
) -> None:
    first = zlib.crc32(f"{pytestconfig.getoption('--seed', default='')} {part}".encode())
    done = seed = 0
    while done < 20_000:
        done += look_at_random_operations(tmp_path, first + seed, 60, 100)
        shutil.rmtree(tmp_path / f"work{first + seed}")
        seed += 1


@pytest.mark.few(0)
def test_what_several_processes_do_at_once_is_seen_once_they_have_ended(tmp_path: Path) -> None:
    root, outside = tmp_path / "work", tmp_path / "outside"
    made_folders(root, outside)
    looks = Looks(root)
    looks.look()
    all_of_them = Upheaval(root, outside, random.Random(0))
    with ProcessPoolExecutor(4, mp_context=get_context("spawn")) as pool:
        for n in range(5):
            for by_name in pool.map(act_alone, [root] * 4, [outside] * 4, range(4 * n, 4 * n + 4)):
                all_of_them.by_name += by_name
            looks.look()
            assert not looks.watch.why_whole
            looks.check(all_of_them.unseen())


def test_what_is_not_touched_is_not_looked_at(
    looks: Looks, monkeypatch: pytest.MonkeyPatch
) -> None:
    (looks.root / "a/b/c/f").write_text("new")
    read: list[str] = []
    real = os.scandir

    def scandir(folder: int) -> Any:
        read.append(os.readlink(f"/proc/self/fd/{folder}"))
        return real(folder)

    monkeypatch.setattr(os, "scandir", scandir)
    for touched in ([str(looks.root / "a/b/c")], []):
        [*looks.workspace.differences(looks.scope, looks.known, None, looks.watch)]
        assert read == touched
        read.clear()


def test_a_folder_that_is_filled_while_it_is_looked_at_is_seen_in_the_end(looks: Looks) -> None:
    """Each folder is watched before it is read, so that what comes later is told."""
    ended = False

    def fill() -> None:
        for n in range(300):
            made = looks.root / "d" / f"new{n % 50}"
            shutil.rmtree(made, ignore_errors=True)
            (made / "deep").mkdir(parents=True)
            (made / "deep" / "f").write_text(str(n))

    with ThreadPoolExecutor(1) as pool:
        filling = pool.submit(fill)
        while not ended:
            ended = filling.done()
            for path, stamp in [
                *looks.workspace.differences(looks.scope, looks.known, None, looks.watch)
            ]:
                if isinstance(stamp, Stamp):
                    looks.known[path] = stamp
                else:
                    looks.known.forget(path)
    assert not looks.watch.why_whole
    assert {*looks.known} == everything_in_scope(looks.root, looks.scope).keys()


def test_more_than_the_kernel_keeps_means_a_look_at_everything(looks: Looks) -> None:
    most = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    for n in range(most + 1):
        os.utime(looks.root / ("a", "d")[n % 2], ns=(1, 1))
    (looks.root / "a/b/c/f").write_text("new")
    assert "a/b/c/f" in looks.look()
    assert looks.watch.why_whole == "more happened than the kernel keeps"
    (looks.root / "d/f").write_text("new")
    assert "d/f" in looks.look() and not looks.watch.why_whole


def test_a_look_that_did_not_end_means_a_look_at_everything(looks: Looks) -> None:
    (looks.root / "d/f").write_text("new")
    next(looks.workspace.differences(looks.scope, looks.known, None, looks.watch))
    assert "d/f" in looks.look()
    assert looks.watch.why_whole == "the last look did not end"


def test_what_was_touched_by_name_is_looked_at(looks: Looks) -> None:
    looks.known["a/b/c/f"] = looks.known.get("d/f")  # type: ignore[assignment]
    assert looks.look() == []
    looks.watch.touch("a/b/c/f")
    assert looks.look() == ["a/b/c/f"]


def test_other_rules_mean_a_look_at_everything(looks: Looks) -> None:
    looks.scope = Scope(ignore="d/\n")
    assert "d" in looks.look()
    assert looks.watch.why_whole == "the rules of the scope are others"


def test_too_many_folders_are_not_watched_again(
    looks: Looks, monkeypatch: pytest.MonkeyPatch
) -> None:
    def add(queue: int, folder: int) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(inotify, "add", add)
    (looks.root / "d/new").mkdir()
    assert "d/new" in looks.look()
    monkeypatch.undo()
    looks.look()
    assert looks.watch.why_whole == looks.watch.flaw
    assert "max_user_watches" in looks.watch.flaw


def test_a_filesystem_of_which_not_all_is_told_is_not_watched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "TRUSTED", frozenset())
    looks = Looks(tmp_path)
    looks.look()
    assert looks.watch.flaw.startswith("not all changes pass this kernel on a filesystem of type")


def test_a_process_that_was_forked_does_not_take_events_away(looks: Looks) -> None:
    (looks.root / "d/f").write_text("new")

    child = os.fork()
    if not child:
        seen = "d/f" in looks.look()
        os._exit(not (seen and looks.watch.why_whole == "this process has watched nothing yet"))
    assert os.waitpid(child, 0)[1] == 0
    assert "d/f" in looks.look() and not looks.watch.why_whole


def test_a_filesystem_that_is_mounted_inside_means_a_look_at_everything(looks: Looks) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can mount")
    there = looks.root / "d"
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", str(there)], check=True)
    try:
        assert {"d", "d/f"} <= {*looks.look()}
        assert looks.watch.why_whole == "other folders are mounted or left out"
    finally:
        subprocess.run(["umount", str(there)], check=True)
    assert {"d", "d/f"} <= {*looks.look()} and looks.watch.why_whole


def test_a_watch_that_is_lost_means_a_look_at_everything(looks: Looks) -> None:
    inotify.remove(looks.watch._queue, looks.watch.folders["d"])
    looks.look()
    assert looks.watch.why_whole == "the kernel stopped watching a folder"


def test_a_folder_that_is_closed_and_opened_again_is_seen(as_ordinary_user: Path) -> None:
    looks = Looks(as_ordinary_user)
    (looks.root / "d/e").mkdir(parents=True)
    (looks.root / "d/e/f").write_text("x")
    looks.look()
    for _ in range(2):
        (looks.root / "d").chmod(0)
        found = dict(looks.workspace.differences(looks.scope, looks.known, None, looks.watch))
        assert found == {"d": "unreadable"}
        for path in ("d", "d/e", "d/e/f"):
            looks.known[path] = Stamp(0, 0, 0, 0, 1)
        again = dict(looks.workspace.differences(looks.scope, looks.known, None, looks.watch))
        assert again.pop("d") == "unreadable" and not any(again.values())
        assert not looks.watch.why_whole
        (looks.root / "d").chmod(0o755)
        assert looks.look() == ["d", "d/e", "d/e/f"]


def test_a_file_that_this_process_has_mapped_is_always_looked_at(looks: Looks) -> None:
    with (looks.root / "d/f").open("r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
        assert "d/f" in looks.look()
        mapped[0:1] = b"X"
        assert looks.look() == ["d/f"] and not looks.watch.why_whole
        mapped[0:1] = b"Y"
        mapped.close()
        assert looks.look() == ["d/f"] and not looks.watch.why_whole
        assert looks.look() == []


def test_a_second_name_of_a_file_is_looked_at_with_the_first(looks: Looks) -> None:
    (looks.root / "a/f").hardlink_to(looks.root / "d/f")
    assert looks.look() == ["a/f", "d/f"] and not looks.watch.why_whole
    (looks.root / "a/f").unlink()
    assert looks.look() == ["a/f", "d/f"] and not looks.watch.why_whole


def test_what_a_deleted_name_has_open_is_seen_by_the_name_that_is_left(looks: Looks) -> None:
    (looks.root / "a/f").hardlink_to(looks.root / "d/f")
    looks.look()
    with (looks.root / "a/f").open("ab") as file:
        (looks.root / "a/f").unlink()
        looks.look()
        file.write(b"more")
        file.flush()
        assert looks.look() == ["d/f"] and not looks.watch.why_whole
