"""Which file a path is: what proves it, and what does not."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from loom_audit.disk.access import identity
from loom_audit.disk.access.identity import identity_at


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[int]:
    descriptor = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    yield descriptor
    os.close(descriptor)


def test_a_file_of_the_same_inode_is_another_one(tmp_path: Path, folder: int) -> None:
    seen, inodes = set(), set()
    for _ in range(10):
        (tmp_path / "d").mkdir()
        inodes.add((tmp_path / "d").stat().st_ino)
        seen.add(identity_at(folder, b"d"))
        (tmp_path / "d").rmdir()
    assert len(inodes) < 10, "this filesystem gives no inode again, so nothing is tried here"
    assert len(seen) == 10 and "" not in seen


@pytest.mark.parametrize("handles", [True, False])
def test_a_renamed_file_is_the_same_by_name_and_when_opened(
    tmp_path: Path, folder: int, handles: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(identity, "_HAS_HANDLES", handles)
    monkeypatch.setattr(identity, "TICK", -(10**9))
    (tmp_path / "a").touch()
    before = identity_at(folder, b"a")
    (tmp_path / "a").write_text("longer")
    (tmp_path / "a").rename(tmp_path / "b")
    with (tmp_path / "b").open() as opened:
        assert identity_at(folder, b"b") == identity_at(opened.fileno()) == before != ""


def test_a_birth_within_the_last_tick_proves_nothing(
    tmp_path: Path, folder: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(identity, "_HAS_HANDLES", False)
    monkeypatch.setattr(identity, "TICK", 3600 * 10**9)
    (tmp_path / "f").touch()
    assert identity_at(folder, b"f") == ""


def test_without_handle_and_birth_there_is_no_proof(
    tmp_path: Path, folder: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "f").touch()
    assert identity_at(folder, b"f")
    monkeypatch.setattr(identity, "_HAS_HANDLES", False)
    monkeypatch.setattr(identity, "_HAS_STATX", False)
    assert identity_at(folder, b"f") == ""


def test_after_a_reboot_nothing_is_the_same(
    tmp_path: Path, folder: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "f").touch()
    before = identity_at(folder, b"f")
    monkeypatch.setattr(identity, "_boot_id", lambda: "another boot")
    identity._epoch.cache_clear()
    after = identity_at(folder, b"f")
    identity._epoch.cache_clear()
    assert before[:12] != after[:12] and before[12:] == after[12:]


def test_a_symlink_is_itself_and_not_what_it_points_to(tmp_path: Path, folder: int) -> None:
    (tmp_path / "f").touch()
    (tmp_path / "l").symlink_to("f")
    assert identity_at(folder, b"l") != identity_at(folder, b"f")
    assert identity_at(folder, b"absent") == ""
