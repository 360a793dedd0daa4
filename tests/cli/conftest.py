"""Workspaces to try the command line on."""

from pathlib import Path

import pytest

from tests.cli.shells import Shell, new_shell


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    """A workspace with two files, not yet under audit."""
    return new_shell(tmp_path)


@pytest.fixture
def audited(shell: Shell) -> Shell:
    """The same, under audit."""
    shell("init")
    return shell


@pytest.fixture
def real(shell: Shell) -> Shell:
    """A workspace under audit where every command is a process of its own."""
    shell("init")
    shell.real = True
    return shell
