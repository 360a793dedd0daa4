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
