"""Git as a person runs it in the tests: Ann, without settings of this machine."""

import os
import subprocess
from pathlib import Path

import pytest


def as_ann(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every commit of a test be Ann's, whatever this machine's settings say."""
    for who in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{who}_NAME", "ann")
        monkeypatch.setenv(f"GIT_{who}_EMAIL", "ann@example.org")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)


def git(root: Path, *words: str) -> str:
    """What git says in a folder; CalledProcessError where it fails."""
    done = subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=True)
    return done.stdout


def planted_git(folder: Path, script: str, **values: object) -> Path:
    """A folder with a program `git` that is this script, in which `{git}` is the real one."""
    real = subprocess.run(["sh", "-c", "command -v git"], capture_output=True, text=True)
    folder.mkdir()
    (folder / "git").write_text(script.format(git=real.stdout.strip(), **values))
    (folder / "git").chmod(0o755)
    return folder
