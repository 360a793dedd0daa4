"""A project on which the scripted model works, as those see it who check what the model did."""

import inspect
import os
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from msgspec import Struct

from tests.tools.tasks.model import Model, Stuck

PYTEST = ("pytest", "_pytest", "pluggy", "iniconfig", "packaging", "pygments", "py.py")


class Project(Struct, frozen=True):
    """A folder, and the Python that its tests run with."""

    root: Path
    python: Path

    def text(self, path: str) -> str:
        """A file's text, line ends as they are."""
        return (self.root / path).read_bytes().decode()

    def files(self) -> dict[str, bytes]:
        """The content of each file, but for what is git's and the environment's."""
        found = [path for path in self.root.rglob("*") if path.is_file()]
        inside = {str(path.relative_to(self.root)): path for path in found}
        return {
            name: path.read_bytes()
            for name, path in inside.items()
            if name.split("/")[0] not in (".git", ".venv") and "__pycache__" not in name
        }

    def git(self, *words: str) -> str:
        done = subprocess.run(["git", *words], cwd=self.root, capture_output=True, check=True)
        return os.fsdecode(done.stdout).strip()

    def run(self, *words: str) -> str:
        """What the project's Python prints, of a program that succeeds."""
        command = [str(self.python), "-B", *words]
        done = subprocess.run(command, cwd=self.root, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def test(self, *paths: str) -> None:
        """Run tests by pytest alone, which pass."""
        self.run("-m", "pytest", "-q", "-p", "no:cacheprovider", *paths)


class Task(Struct, frozen=True):
    """What a model does, and how it is told that it is done; the words are those of `do`."""

    do: Callable[[Model], None]
    done: Callable[[Project], None]


def work(model: Model, project: Project, tasks: Sequence[Task]) -> None:
    """Have the model do one task after the other. Stuck, with the name of the task."""
    for task in tasks:
        with pytest.raises((AssertionError, OSError)):
            task.done(project)  # nobody has done it yet
        model.begin(inspect.getdoc(task.do) or "")
        try:
            task.do(model)
        except Stuck as stuck:
            stuck.add_note(f"in the task {task.do.__name__}")
            raise
        task.done(project)


def lay_environment(folder: Path) -> Path:
    """Make an environment with pytest and nothing else; return its Python."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    [site] = folder.glob("lib/*/site-packages")
    for name in PYTEST:
        (site / name).symlink_to(Path(sysconfig.get_path("purelib")) / name)
    return folder / "bin/python"


def lay_repository(root: Path) -> None:
    """All that lies there, committed by somebody else."""
    for words in (
        "init --quiet --initial-branch=main",
        "add --all",
        "-c user.name=Old -c user.email=old@example.org commit --quiet --message=first",
    ):
        subprocess.run(["git", *words.split()], cwd=root, check=True)
