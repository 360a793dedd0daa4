"""Workspaces to try the command line on."""

import random
from pathlib import Path

import pytest

from tests.cli.shells import Shell, new_shell
from tests.places.made_store import lay_store


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    """A workspace with two files, not yet under audit."""
    return new_shell(tmp_path)


@pytest.fixture
def audited(shell: Shell) -> Shell:
    """The same, under audit."""
    lay_store(shell.home)
    shell("init")
    return shell


@pytest.fixture
def real(shell: Shell) -> Shell:
    """A workspace under audit where every command is a process of its own."""
    lay_store(shell.home)
    shell("init")
    shell.real = True
    return shell


@pytest.fixture
def busy(audited: Shell) -> Shell:
    """A workspace with some history: edits, a binary file, a symlink, a deletion, a large file."""
    (audited.workspace / "link").symlink_to("a.txt")
    content = random.Random(1).randbytes
    (audited.workspace / "data.bin").write_bytes(content(3000))
    (audited.workspace / "large.bin").write_bytes(content(700_000))
    audited.sh("chmod 750 src")
    audited.call("edit_file", path="a.txt", old_str="two", new_str="2")
    audited.call("edit_file", path="a.txt", old_str="three", new_str="3")
    audited.call("delete_file", path="src/app.py")
    return audited
