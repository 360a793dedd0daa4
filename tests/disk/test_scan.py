"""Stamps and the scan on a real disk: no change is missed, however soon it follows another."""

import os
import resource
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from loom_audit.disk.access.system import System, mounts_in_table, probe
from loom_audit.disk.looking import walk as stamps
from loom_audit.disk.workspace import DiskWorkspace
from loom_audit.errors import StorageFailed
from loom_audit.model.scope import Scope
from loom_audit.ports import Stamp, Stamps


@pytest.fixture(params=[probe(), System()], ids=["openat2", "portable"])
def calls(request: pytest.FixtureRequest) -> System:
    assert isinstance(request.param, System)
    return request.param


NOW = 1_800_000_000_123_456_789
SECOND = 1_000_000_000


@pytest.mark.parametrize(
    ("ctime", "fresh"),
    [
        (NOW, True),
        (NOW - 10_000_000, True),
        (NOW + SECOND, True),
        (NOW - 30_000_000, False),
        (NOW - 5 * SECOND, False),
        (NOW // SECOND * SECOND - SECOND, True),  # a clock that counts in seconds
        (NOW // SECOND * SECOND - 3 * SECOND, False),
        (0, False),
    ],
)
def test_a_change_is_fresh_while_the_next_could_have_its_ctime(ctime: int, fresh: bool) -> None:
    assert stamps.is_fresh(ctime, NOW) == fresh


def test_two_looks_at_a_fresh_file_differ_and_two_at_an_old_one_do_not(
    tmp_path: Path, calls: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = DiskWorkspace(str(tmp_path), calls=calls)
    (tmp_path / "f").write_bytes(b"x")

    def looks() -> list[Stamp | str | None]:
        return [
            workspace.stamp("f"),
            dict(workspace.list())["f"],
            dict(workspace.walk(Scope(), {}))["f"],
        ]

    fresh = [*looks(), *looks()]
    assert len(set(fresh)) == len(fresh)
    real = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: real() + 10 * SECOND)
    assert len({*looks(), *looks()}) == 1
    assert not set(looks()) & set(fresh)
    [settled] = {stamp for stamp in looks() if isinstance(stamp, Stamp)}
    seen = (tmp_path / "f").lstat()
    assert settled == (seen.st_mode, 1, seen.st_mtime_ns, seen.st_ctime_ns, seen.st_ino)


def test_a_stamp_that_could_be_racy_is_told_although_it_is_the_known_one(
    tmp_path: Path, calls: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = DiskWorkspace(str(tmp_path), calls=calls)
    (tmp_path / "f").write_bytes(b"x")
    written = (tmp_path / "f").lstat().st_ctime_ns
    known = Stamps()

    def differing(now: int) -> list[str]:
        monkeypatch.setattr(time, "time_ns", lambda: now)
        return [path for path, _ in workspace.differences(Scope(), known)]

    assert differing(written + 10 * SECOND) == ["f"]
    known["f"] = dict(workspace.walk(Scope(), {}))["f"]  # type: ignore[assignment]
    assert differing(written + 10 * SECOND) == []
    assert differing(written + SECOND) == []  # new, yet not racy
    assert differing(written + 1) == ["f"]
    assert differing(written - 10 * SECOND) == ["f"]  # the clock was set back


def test_a_known_file_is_hidden_where_the_store_is_now(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"x")
    known = Stamps()
    known["f"] = DiskWorkspace(str(tmp_path)).stamp("f") or Stamp(0, 0, 0, 0, 0)
    inside = DiskWorkspace(str(tmp_path), exclude=[str(tmp_path / "f")])
    assert [*inside.differences(Scope(), known)] == [("f", "store")]


def test_an_edit_in_the_same_tick_with_the_same_size_and_mtime_is_seen(
    tmp_path: Path, calls: System
) -> None:
    """What a racy entry is: stat cannot tell the two, so the scan must not rely on it."""
    workspace = DiskWorkspace(str(tmp_path), calls=calls)
    path = tmp_path / "f"
    for n in range(200):
        path.write_bytes(b"one")
        os.utime(path, ns=(1, 1))
        [(_, before)] = workspace.walk(Scope(), {})
        with path.open("r+b") as file:
            file.write(b"two")
        os.utime(path, ns=(1, 1))
        [(_, after)] = workspace.walk(Scope(), {})
        assert before != after, f"edit {n} was missed"


def test_a_forged_mtime_hides_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace = DiskWorkspace(str(tmp_path))
    path = tmp_path / "f"
    path.write_bytes(b"one")
    seen = path.stat()
    real = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: real() + 10 * SECOND)
    before = workspace.stamp("f")
    path.write_bytes(b"two")
    os.utime(path, ns=(seen.st_atime_ns, seen.st_mtime_ns))
    after = workspace.stamp("f")
    assert before is not None and after is not None
    assert (before.size, before.mtime_ns, before.ino) == (after.size, after.mtime_ns, after.ino)
    assert before != after


def test_a_folder_that_cannot_be_read_is_reported_with_all_it_holds(
    as_ordinary_user: Path, calls: System
) -> None:
    workspace = DiskWorkspace(str(as_ordinary_user), calls=calls)
    for name in ("closed", "unlisted", "open"):
        (as_ordinary_user / name).mkdir()
        (as_ordinary_user / name / "f").write_bytes(b"x")
    (as_ordinary_user / "closed").chmod(0o000)
    (as_ordinary_user / "unlisted").chmod(0o300)
    (as_ordinary_user / "open/f").chmod(0o000)
    found = dict(workspace.walk(Scope(), {}))
    assert found["closed"] == found["unlisted"] == "unreadable"
    assert set(found) == {"closed", "unlisted", "open", "open/f"}
    assert isinstance(found["open/f"], Stamp), "a stamp needs no permission to read the file"


@pytest.mark.few(0)
def test_a_tree_deeper_than_the_descriptor_limit_is_walked(tmp_path: Path, calls: System) -> None:
    depth = 1100
    here = os.open(tmp_path, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    workspace = DiskWorkspace(str(tmp_path), calls=calls)
    try:
        assert len(list(workspace.walk(Scope(), {}))) == depth
    finally:
        subprocess.run(["rm", "-rf", str(tmp_path / "d")], check=True)


def test_a_deep_tree_is_walked_with_few_descriptors_left(tmp_path: Path, calls: System) -> None:
    deep = tmp_path / "/".join("d" * 100)
    deep.mkdir(parents=True)
    (deep / "f").touch()
    workspace = DiskWorkspace(str(tmp_path), calls=calls)
    with descriptors_left(24):
        assert len(list(workspace.walk(Scope(), {}))) == 101


def test_a_folder_is_not_called_unreadable_when_there_are_no_descriptors_left(
    tmp_path: Path, calls: System
) -> None:
    (tmp_path / "d").mkdir()
    workspace = DiskWorkspace(str(tmp_path), calls=calls)
    walked = workspace.walk(Scope(), {})
    with descriptors_left(0), pytest.raises(StorageFailed, match="Too many open files"):
        list(walked)


@contextmanager
def descriptors_left(count: int) -> Iterator[None]:
    """So many more can be opened in the block, and no more."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(map(int, os.listdir("/proc/self/fd")))
    taken = [os.open("/", os.O_RDONLY)]
    try:
        while taken[-1] < highest:
            taken.append(os.dup(taken[0]))
        resource.setrlimit(resource.RLIMIT_NOFILE, (taken[-1] + 1 + count, limits[1]))
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        for descriptor in taken:
            os.close(descriptor)


def test_what_vanishes_during_the_walk_is_left_out(tmp_path: Path, calls: System) -> None:
    workspace = DiskWorkspace(str(tmp_path), calls=calls)
    for n in range(50):
        (tmp_path / f"d{n}").mkdir()
        (tmp_path / f"d{n}/f").write_bytes(b"x")
    seen = set()
    for path, _ in workspace.walk(Scope(), {}):
        seen.add(path)
        if len(seen) == 3:
            for n in range(50):
                folder = tmp_path / f"d{n}"
                (folder / "f").unlink()
                folder.rmdir()
                folder.symlink_to("/etc")
    assert not [path for path in seen if "passwd" in path]
    assert len(seen) <= 55


def test_names_that_are_not_utf_8_come_back_as_bytes(tmp_path: Path, calls: System) -> None:
    name = b"\xff\xfe caf\xe9"
    folder = tmp_path / os.fsdecode(name)
    folder.mkdir()
    (folder / os.fsdecode(name)).write_bytes(b"x")
    workspace = DiskWorkspace(str(tmp_path), calls=calls)
    paths = [path for path, _ in workspace.walk(Scope(), {})]
    assert [os.fsencode(path) for path in paths] == [name, name + b"/" + name]
    assert workspace.read(paths[1]) == b"x"
    assert workspace.resolve(paths[1]) == paths[1]


def test_the_mount_points_below_a_root_are_read_from_the_systems_table() -> None:
    table = (
        rb"36 35 98:0 / /mnt/w rw - ext4 /dev/sda rw" + b"\n"
        rb"37 36 98:0 /home/me /mnt/w/a\040b\134c\012d rw master:1 - ext4 /dev/sda rw" + b"\n"
        b"38 36 98:0 /x /mnt/w/\xff/deep rw - ext4 /dev/sda rw\n"
        b"39 35 98:0 / /mnt/wide rw - ext4 /dev/sda rw\n"
    )
    assert mounts_in_table(table, "/mnt/w") == {"a b\\c\nd", os.fsdecode(b"\xff/deep")}
    assert len(mounts_in_table(table, "/")) == 4


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a folder")
def test_a_folder_and_a_file_of_the_same_filesystem_mounted_inside_are_not_ours(
    tmp_path: Path, calls: System
) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter").touch()
    root = tmp_path / "root"
    (root / "folder").mkdir(parents=True)
    for path in (root / "folder" / "inner", root / "file"):
        path.touch()
    workspace = DiskWorkspace(str(root), calls=calls)
    known = Stamps()
    for name, stamp in workspace.walk(Scope(), {}):
        assert isinstance(stamp, Stamp)
        known[name] = stamp
    mounted = [("mine", root / "folder"), ("mine/letter", root / "file")]
    done = []
    try:
        for source, target in mounted:
            mount = ["mount", "--bind", str(tmp_path / source), str(target)]
            tried = subprocess.run(mount, capture_output=True, check=False)
            if tried.returncode:
                pytest.skip(f"cannot mount: {tried.stderr.decode()}")
            done.append(target)
        differing = dict(workspace.differences(Scope(), known))
        assert {path for path, seen in differing.items() if seen == "mount"} == {"folder", "file"}
        assert "folder/letter" not in differing
    finally:
        for target in done:
            subprocess.run(["umount", str(target)], check=True)
    assert {path for path, _ in workspace.walk(Scope(), {})} == {"folder", "folder/inner", "file"}
