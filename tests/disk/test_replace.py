"""Replacing files on a real disk: atomic, exact, and kind to whoever else writes there."""

import errno
import hashlib
import io
import os
import random
import shutil
import stat
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from loom_audit.disk.access import system
from loom_audit.disk.access.system import System, probe
from loom_audit.disk.workspace import DiskWorkspace
from loom_audit.errors import Conflict, PermissionDenied, StorageFailed
from loom_audit.model.files import BlobId, FileChange, FileState
from loom_audit.model.scope import TEMPORARY
from loom_audit.ports import Displaced, Replacement


@pytest.fixture(params=[probe(), System()], ids=["exchange", "link"])
def calls(request: pytest.FixtureRequest) -> System:
    assert isinstance(request.param, System)
    return request.param


@pytest.fixture
def workspace(tmp_path: Path, calls: System) -> DiskWorkspace:
    return DiskWorkspace(str(tmp_path), calls=calls)


def of(content: bytes, mode: int = 0o644) -> FileState:
    return FileState("file", BlobId(hashlib.sha256(content).hexdigest()), mode, len(content))


def write(
    workspace: DiskWorkspace,
    path: str,
    content: bytes,
    mode: int = 0o644,
    before: FileState | None = None,
) -> Displaced:
    change = FileChange(path, before, of(content, mode))
    return workspace.replace(change, io.BytesIO(content))


def test_a_reader_sees_one_version_or_the_other_and_never_none(
    workspace: DiskWorkspace, tmp_path: Path
) -> None:
    versions = [bytes([65 + n]) * (n * 20_000 + 1) for n in range(6)]
    write(workspace, "f", versions[0]).discard()
    wrong: list[str] = []
    reads, done = 0, threading.Event()

    def read() -> None:
        nonlocal reads
        while not done.is_set():
            try:
                content = (tmp_path / "f").read_bytes()
            except OSError as error:
                wrong.append(repr(error))
                return
            if content not in versions:
                wrong.append(f"{len(content)} bytes")
            reads += 1

    reader = threading.Thread(target=read)
    reader.start()
    try:
        for n in range(60):
            displaced = write(workspace, "f", versions[n % 6])
            displaced.put_back() if n % 4 == 0 else displaced.discard()
    finally:
        done.set()
        reader.join()
    assert not wrong
    assert reads > 20


def test_an_edit_made_in_between_is_never_lost(tmp_path: Path) -> None:
    """Another program renames its version over the file at any moment of our replace."""
    if not probe().renameat2:
        pytest.skip("without renameat2 an edit between link and rename is lost, as documented")
    workspace = DiskWorkspace(str(tmp_path))
    chance = random.Random(5)
    both_ways: set[bool] = set()
    for n in range(2000):
        if n >= 80 and both_ways == {True, False}:
            break
        first, ours, theirs = (f"{who} {n}".encode() for who in ("first", "ours", "theirs"))
        (tmp_path / "f").write_bytes(first)
        (tmp_path / "new").write_bytes(theirs)
        started = threading.Event()
        pause = chance.random() * 0.002 * (1 + n / 100)

        def other(pause: float = pause, started: threading.Event = started) -> None:
            started.wait()
            threading.Event().wait(pause)
            (tmp_path / "new").rename(tmp_path / "f")

        program = threading.Thread(target=other)
        program.start()
        started.set()
        displaced = write(workspace, "f", ours)
        program.join()
        assert displaced.state is not None
        found = displaced.open().read()
        there = (tmp_path / "f").read_bytes()
        assert (found, there) in {(first, theirs), (theirs, ours)}
        both_ways.add(there == ours)
        if found == theirs:
            displaced.put_back()
            assert (tmp_path / "f").read_bytes() == theirs
        else:
            with pytest.raises(Conflict):
                displaced.put_back()
            displaced.discard()
        assert workspace.leftovers() == []
    assert both_ways == {True, False}, "the race was never met"


def test_a_path_that_comes_and_goes_ends_in_a_replacement(tmp_path: Path, calls: System) -> None:
    workspace = DiskWorkspace(str(tmp_path), calls=calls)
    done = threading.Event()

    def other() -> None:
        while not done.is_set():
            (tmp_path / "f").write_bytes(b"theirs")
            (tmp_path / "f").unlink(missing_ok=True)

    program = threading.Thread(target=other)
    program.start()
    try:
        for _ in range(40):
            try:
                write(workspace, "f", b"ours").discard()
            except Conflict:
                continue
    finally:
        done.set()
        program.join()
    assert workspace.leftovers() == []


def test_the_displaced_inode_is_the_very_one_that_was_there(
    workspace: DiskWorkspace, tmp_path: Path
) -> None:
    (tmp_path / "f").write_bytes(b"old")
    before = (tmp_path / "f").stat()
    displaced = write(workspace, "f", b"new", 0o600)
    assert (tmp_path / "f").stat().st_ino != before.st_ino
    displaced.put_back()
    after = (tmp_path / "f").stat()
    assert (after.st_ino, after.st_mtime_ns, after.st_mode) == (
        before.st_ino,
        before.st_mtime_ns,
        before.st_mode,
    )


def test_no_time_of_a_neighbour_or_a_folder_above_changes(
    workspace: DiskWorkspace, tmp_path: Path
) -> None:
    (tmp_path / "d/e").mkdir(parents=True)
    for name in ("d/e/f", "d/e/neighbour", "d/other"):
        (tmp_path / name).write_bytes(b"x")
    untouched = [tmp_path / "d", tmp_path / "d/e/neighbour", tmp_path / "d/other", tmp_path]
    for path in untouched:
        os.utime(path, ns=(1, 1))
    workspace.folds_case()
    write(workspace, "d/e/f", b"new").discard()
    change = FileChange("d/e/f", None, of(b"newer"))
    workspace.replace_all([Replacement(change, lambda: io.BytesIO(b"newer"))])[0].put_back()
    assert [path.stat().st_mtime_ns for path in untouched] == [1] * 4


def test_asking_for_case_folding_leaves_no_trace(tmp_path: Path) -> None:
    os.utime(tmp_path, ns=(1, 1))
    workspace = DiskWorkspace(str(tmp_path))
    assert workspace.folds_case() == (tmp_path.parent / tmp_path.name.swapcase()).exists()
    assert tmp_path.stat().st_mtime_ns == 1
    assert os.listdir(tmp_path) == []


def test_a_hard_link_is_broken_and_counted(workspace: DiskWorkspace, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"old")
    os.link(tmp_path / "f", tmp_path / "g")
    displaced = write(workspace, "f", b"new", before=of(b"old"))
    assert displaced.links == 2
    displaced.discard()
    assert (tmp_path / "g").read_bytes() == b"old"
    os.link(tmp_path / "f", tmp_path / "h")
    (tmp_path / "f").chmod(0o644)
    displaced = write(workspace, "f", b"new", 0o600, before=of(b"new"))
    assert displaced.links == 2
    assert stat.S_IMODE((tmp_path / "h").stat().st_mode) == 0o644, "the other name keeps its mode"


def failing(name: str, number: int, monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """Let a call fail, and count how often it was asked for."""
    asked = 0

    def fail(*_: Any, **__: Any) -> None:
        nonlocal asked
        asked += 1
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(system if name == "renameat2" else os, name, fail)
    return lambda: asked


@pytest.mark.parametrize("broken", [["renameat2"], ["renameat2", "link"]])
def test_filesystems_without_the_flags_or_without_links_work_too(
    tmp_path: Path, broken: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if not probe().renameat2:
        pytest.skip("this kernel has no renameat2")
    (tmp_path / "f").write_bytes(b"old")
    workspace = DiskWorkspace(str(tmp_path))
    asked = [
        failing(name, errno.EINVAL if name == "renameat2" else errno.EPERM, monkeypatch)
        for name in broken
    ]
    displaced = write(workspace, "f", b"new")
    assert (tmp_path / "f").read_bytes() == b"new"
    displaced.put_back()
    assert (tmp_path / "f").read_bytes() == b"old"
    write(workspace, "g", b"made").put_back()
    workspace.replace(FileChange("f", of(b"old"), None), None).put_back()
    folder = FileState("directory", None, 0o700, 0)
    workspace.replace(FileChange("f", of(b"old"), folder), None).put_back()
    assert os.listdir(tmp_path) == ["f"]
    assert (tmp_path / "f").read_bytes() == b"old"
    assert all(count() for count in asked)


def test_a_full_disk_changes_nothing(small_disk: Path, calls: System) -> None:
    workspace = DiskWorkspace(str(small_disk), calls=calls)
    (small_disk / "d").mkdir()
    (small_disk / "f").write_bytes(b"old")
    (small_disk / "d/g").write_bytes(b"old")
    big = b"x" * 200_000
    with pytest.raises(StorageFailed, match="full"):
        write(workspace, "f", b"x" * 400_000)
    steps = [
        Replacement(FileChange("f", of(b"old"), of(big)), lambda: io.BytesIO(big)),
        Replacement(FileChange("d/g", of(b"old"), None)),
        Replacement(FileChange("h", None, of(big)), lambda: io.BytesIO(big)),
    ]
    with pytest.raises(StorageFailed, match="full") as caught:
        workspace.replace_all(steps)
    assert caught.value.details["path"] == "h"
    assert caught.value.details["done"] == 0
    assert (small_disk / "f").read_bytes() == (small_disk / "d/g").read_bytes() == b"old"
    assert workspace.leftovers() == []
    assert shutil.disk_usage(small_disk).free > 200_000
    write(workspace, "f", big).discard()


def test_another_filesystem_inside_is_not_recorded(small_disk: Path) -> None:
    from loom_audit.model.scope import Scope

    (small_disk / "x").write_bytes(b"x")
    workspace = DiskWorkspace(str(small_disk.parent))
    assert dict(workspace.walk(Scope(), {})) == {"small": "mount"}
    assert dict(workspace.walk(Scope(), {"small": 1, "small/x": 1})) == {"small": "mount"}


def test_what_may_not_be_written_is_denied_and_left(as_ordinary_user: Path, calls: System) -> None:
    workspace = DiskWorkspace(str(as_ordinary_user), calls=calls)
    folder = as_ordinary_user / "closed"
    folder.mkdir()
    (folder / "f").write_bytes(b"old")
    folder.chmod(0o555)
    for change in (
        FileChange("closed/f", None, of(b"new")),
        FileChange("closed/g", None, of(b"new")),
        FileChange("closed/f", None, None),
    ):
        with pytest.raises(PermissionDenied):
            workspace.replace(change, io.BytesIO(b"new"))
    assert os.listdir(folder) == ["f"]
    assert stat.S_IMODE(folder.stat().st_mode) == 0o555


def test_files_without_any_permission_are_replaced_and_put_back(
    as_ordinary_user: Path, calls: System
) -> None:
    workspace = DiskWorkspace(str(as_ordinary_user), calls=calls)
    path = as_ordinary_user / "f"
    path.write_bytes(b"old")
    path.chmod(0o000)
    before = path.stat()
    displaced = write(workspace, "f", b"new", 0o400)
    assert displaced.state == of(b"old", 0o000)
    assert displaced.open().read() == b"old"
    assert stat.S_IMODE(path.stat().st_mode) == 0o400
    displaced.put_back()
    assert (path.stat().st_mode, path.stat().st_ino) == (before.st_mode, before.st_ino)
    write(workspace, "f", b"old", 0o640, before=of(b"old", 0o000)).put_back()
    assert stat.S_IMODE(path.stat().st_mode) == 0
    write(workspace, "f", b"old", 0o640, before=of(b"old", 0o000)).discard()
    assert (path.stat().st_ino, stat.S_IMODE(path.stat().st_mode)) == (before.st_ino, 0o640)


@pytest.mark.parametrize("mode", [0o000, 0o200, 0o300, 0o600, 0o4755])
def test_modes_are_exact_for_an_ordinary_user(as_ordinary_user: Path, mode: int) -> None:
    workspace = DiskWorkspace(str(as_ordinary_user))
    folder = FileState("directory", None, mode, 0)
    write(workspace, "f", b"x", mode).discard()
    displaced = workspace.replace(FileChange("d", None, folder), None)
    for name in ("f", "d"):
        assert stat.S_IMODE((as_ordinary_user / name).stat().st_mode) == mode
    displaced.put_back()
    assert os.listdir(as_ordinary_user) == ["f"]


def test_a_folder_that_can_be_entered_and_not_listed_is_written_in(
    as_ordinary_user: Path, calls: System
) -> None:
    workspace = DiskWorkspace(str(as_ordinary_user), calls=calls)
    (as_ordinary_user / "d").mkdir()
    (as_ordinary_user / "d").chmod(0o300)
    write(workspace, "d/f", b"x").discard()
    assert workspace.read("d/f") == b"x"
    assert stat.S_IMODE((as_ordinary_user / "d").stat().st_mode) == 0o300


def test_a_crash_between_exchange_and_discard_leaves_the_old_content_to_be_found(
    workspace: DiskWorkspace, tmp_path: Path
) -> None:
    (tmp_path / "f").write_bytes(b"old")
    write(workspace, "f", b"new")
    again = DiskWorkspace(str(tmp_path))
    [left] = again.leftovers()
    assert left.startswith(TEMPORARY)
    assert again.read(left) == b"old"
    (tmp_path / left).unlink()
    assert os.listdir(tmp_path) == ["f"]
