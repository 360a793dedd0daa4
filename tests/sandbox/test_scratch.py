"""The temporary folder of a session, where it cannot be made."""

import errno
import os
from pathlib import Path

import pytest

from loom_audit.errors import StorageFailed
from loom_audit.sandbox.scratch import remove_tree, scratch_folder


def test_a_temporary_directory_that_is_gone_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "gone"))
    gone = pytest.raises(StorageFailed, match=r"gone.*No such file")
    with gone as caught, scratch_folder():
        pass
    assert "TMPDIR" in caught.value.hint


def test_where_folders_cannot_be_held_one_is_tried_and_none_is_left_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("fcntl.flock", refused)
    with pytest.raises(StorageFailed), scratch_folder():
        pass
    assert not [*tmp_path.iterdir()]


def test_directories_deeper_than_the_stack_and_any_path_are_deleted(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    here = os.open(folder, os.O_RDONLY)
    for _ in range(3_000):
        os.mkdir("inner", dir_fd=here)
        below = os.open("inner", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=here))
    os.close(here)
    remove_tree(str(folder))
    assert not folder.exists()


def test_closed_directories_are_deleted_and_links_are_not_followed(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").write_text("1")
    mode = kept.stat().st_mode
    folder = tmp_path / "folder"
    (folder / "shut" / "within").mkdir(parents=True)
    (folder / "shut" / "within" / "way").symlink_to(kept)
    (folder / "way").symlink_to(kept)
    os.mkfifo(folder / "pipe")
    for path in ("shut/within", "shut", "."):
        (folder / path).chmod(0)
    remove_tree(str(folder))
    assert not folder.exists()
    assert (kept / "file").read_text() == "1" and kept.stat().st_mode == mode
