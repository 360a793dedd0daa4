"""Workspaces to try the command line on."""

from pathlib import Path

import pytest

from tests.cli.shells import Shell, new_shell
from tests.made_store import lay_store


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
