"""Small filesystems of their own, which tests fill up."""

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

Mount = Callable[[str, int], Path]
"""The empty filesystem of this name, of so many mebibytes."""


@contextmanager
def mounting(below: Path) -> Iterator[Mount]:
    """A function that mounts them below a folder, to the end of the block; skips where none can."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a tmpfs")
    mounted: list[Path] = []

    def make(name: str, mebibytes: int) -> Path:
        folder = below / name
        folder.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", f"size={mebibytes}m", "tmpfs", str(folder)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            pytest.skip(f"needs the right to mount a tmpfs: {done.stderr.strip()}")
        mounted.append(folder)
        return folder

    try:
        yield make
    finally:
        for folder in reversed(mounted):
            subprocess.run(["umount", "-l", str(folder)], check=True)


def fill_up(folder: Path, *, leave: int = 0) -> Path:
    """A file that takes all the room but some."""
    filler = folder / "filler"
    chunk = bytes(4096)
    with filler.open("ab", buffering=0) as file:
        try:
            while True:
                file.write(chunk)
        except OSError:
            pass
        file.truncate(max(0, file.tell() - leave))
    return filler
