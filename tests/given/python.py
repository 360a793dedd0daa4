"""The Python that runs the tests, which has pytest, as the one that a project's commands find."""

import sys
from pathlib import Path


def lay_python(folder: Path) -> str:
    """Make a folder with `python3` in it, which no environment seems to own; return its path."""
    folder.mkdir()
    program = folder / "python3"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    program.chmod(0o755)
    return str(folder)
