"""What completes our commands in a shell."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from loom_audit.cli.application import COMMANDS
from tests.cli.shells import ROOT, Shell

NAMES = """
import sys
from loom_audit.cli import main
try:
    main([])
except SystemExit:
    pass
print(*sys.modules, file=sys.stderr)
"""


def asked(shell: str, words: str, last: int, *program: str) -> subprocess.CompletedProcess[str]:
    """What is printed when this shell asks what the word with the number `last` may become."""
    at = words.split(" ")[last] if shell == "fish" else str(last)
    asks = {"_LOOM_AUDIT_COMPLETE": f"{shell}_complete", "COMP_WORDS": words, "COMP_CWORD": at}
    return subprocess.run(
        [sys.executable, *(program or ("-m", "loom_audit"))],
        env={**os.environ, **asks, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_command_is_completed_in_each_shell(shell: str) -> None:
    told = asked(shell, "loom-audit rollb", 1).stdout
    assert "rollback" in told and "replay" not in told


def test_an_option_is_completed_for_its_command() -> None:
    assert "--search" in asked("bash", "loom-audit log --se", 2).stdout


def test_completing_the_names_of_commands_loads_none_of_them() -> None:
    ran = asked("zsh", "loom-audit ", 1, "-c", NAMES)
    assert all(f"{name}\n{summary}\n" in ran.stdout for name, _, summary in COMMANDS)
    loaded = {each.removeprefix("loom_audit.cli.") for each in ran.stderr.split()}
    assert "application" in loaded and not loaded & {name for name, _, _ in COMMANDS}


def test_bash_completes_once_it_has_read_the_script(shell: Shell, tmp_path: Path) -> None:
    if (bash := shutil.which("bash")) is None:
        pytest.skip("there is no bash on this machine")
    program = tmp_path / "loom-audit"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m loom_audit "$@"\n')
    program.chmod(0o755)
    asks = "COMP_WORDS=(loom-audit verif); COMP_CWORD=1; _loom_audit_completion loom-audit"
    script = shell("completion", "bash").text
    told = subprocess.run(
        [bash, "-c", f'{script}\n{asks}\necho "${{COMPREPLY[@]}}"'],
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert (told.stdout, told.stderr) == ("verify\n", "")


def test_a_shell_that_is_not_known_is_refused(shell: Shell) -> None:
    assert "bash, zsh, fish" in shell("completion", "tcsh", code=2).errors
