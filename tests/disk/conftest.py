"""What tests of the disk share: an ordinary user, and a small filesystem of their own."""

import os
import shutil
import subprocess
from collections.abc import Generator
from pathlib import Path

import pytest

from tests.places.on_disk import tmp_path_factory as tmp_path_factory
from tests.processes.ordinary_user import ordinary_user


@pytest.fixture
def as_ordinary_user() -> Generator[Path, None, None]:
    """A directory of an ordinary user, as whom the test runs, whoever started it."""
    with ordinary_user() as folder:
        yield folder


@pytest.fixture
def small_disk(tmp_path: Path) -> Generator[Path, None, None]:
    """An empty filesystem of 256 KiB."""
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("only root can mount a small filesystem")
    folder = tmp_path / "small"
    folder.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(folder)], capture_output=True
    )
    if done.returncode:
        pytest.skip(f"cannot mount: {done.stderr.decode()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)
