"""The temporary folder of a session, where it cannot be made."""

import errno
import os
from pathlib import Path

import pytest

from loom_audit.errors import StorageFailed
from loom_audit.sandbox import scratch


def test_a_temporary_directory_that_is_gone_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(scratch.tempfile, "tempdir", str(tmp_path / "gone"))
    gone = pytest.raises(StorageFailed, match=r"gone.*No such file")
    with gone as caught, scratch.scratch_folder():
        pass
    assert "TMPDIR" in caught.value.hint


def test_where_folders_cannot_be_held_one_is_tried_and_none_is_left_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def refused(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(scratch.tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(scratch.fcntl, "flock", refused)
    with pytest.raises(StorageFailed), scratch.scratch_folder():
        pass
    assert not [*tmp_path.iterdir()]
