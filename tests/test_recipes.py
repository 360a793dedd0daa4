"""The recipes of CONTRIBUTING.md are carried out, each in a copy of the repository.

A recipe is a section "Add a …". The paragraph before a block names the file that the block is
about. A block is the whole of a new file; or a ```diff that edits a file: lines with `+` are put
in, those with `-` go, the others are there already, `@@` separates places. The commands of a ```sh
block are run in the copy and must succeed, the recipe's own tests with them.
"""

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
COPIED = (
    "loom_audit",
    "templates",
    "static",
    "tests",
    "benchmarks",
    "docs",
    "pyproject.toml",
    "alembic.ini",
    "CONTRIBUTING.md",
)
NOT_COPIED = shutil.ignore_patterns("itsdangerous", "iniconfig", "tomli", "vendor", "*.png")
NAMES = [
    "tool",
    "page",
    "command",
    "flag of a rollback",
    "client",
    "event kind",
    "table that follows the log",
    "column",
]

_BLOCK = re.compile(r"([^\n]+\n)*\n```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Step:
    """One block of a recipe: commands, or what a file becomes."""

    language: str
    path: str
    body: str


def recipe(name: str) -> list[Step]:
    """The steps of the section "Add a NAME" or "Add an NAME", in order."""
    section = re.split(rf"^### Add an? {name}$", TEXT, flags=re.MULTILINE)[1]
    section = re.split(r"^##", section, flags=re.MULTILINE)[0]
    steps = []
    for block in _BLOCK.finditer(section):
        before, language, body = section[: block.start(2) - 3], block[2], block[3]
        paragraph = " ".join(before.rstrip().rpartition("\n\n")[2].split())
        path = re.search(r"(new file )?`([\w./-]+/[\w.-]+)`:$", paragraph)
        assert language == "sh" or path, paragraph
        assert language == "sh" or (path and bool(path[1]) == (language != "diff")), paragraph
        steps.append(Step(language, path[2] if path else "", body))
    assert steps and len(steps) == section.count("\n```") / 2
    return steps


def edited(text: str, diff: str) -> str:
    """The text after a diff without line numbers; each of its places must be there once."""
    for place in re.split(r"^@@.*\n", diff, flags=re.MULTILINE):
        lines = [line or " " for line in place.splitlines()]
        if not lines:
            continue
        assert {line[0] for line in lines} <= set(" +-"), place
        before = [line[1:] for line in lines if line[0] != "+"]
        after = [line[1:] for line in lines if line[0] != "-"]
        old, size = text.splitlines(), len(before)
        found = [n for n in range(len(old)) if old[n : n + size] == before]
        assert len(found) == 1, f"not there once, but {len(found)} times:\n{place}"
        text = "".join(f"{line}\n" for line in (*old[: found[0]], *after, *old[found[0] + size :]))
    return text


@dataclass(frozen=True)
class House:
    """A copy of the repository."""

    root: Path

    def follow(self, steps: list[Step]) -> None:
        for step in steps:
            path = self.root / step.path
            if step.language == "sh":
                for line in step.body.splitlines():
                    self.run(line)
            elif step.language == "diff":
                path.write_text(edited(path.read_text("utf-8"), step.body), "utf-8")
            else:
                assert not path.exists(), step.path
                path.parent.mkdir(exist_ok=True)
                path.write_text(step.body, "utf-8")

    def run(self, command: str) -> None:
        """Run a command as somebody does who has activated the environment."""
        programs = Path(sys.executable).parent
        done = subprocess.run(
            ["sh", "-c", command],
            cwd=self.root,
            env={
                **{k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")},
                "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
                "PYTHONPATH": str(self.root),
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=250,
        )
        assert done.returncode == 0, f"$ {command}\n{done.stdout}"


@pytest.fixture
def house(tmp_path: Path) -> House:
    root = tmp_path / "loom-audit"
    root.mkdir()
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, root / name, ignore=NOT_COPIED)
        else:
            shutil.copy2(ROOT / name, root / name)
    return House(root)


def test_every_recipe_is_carried_out_here() -> None:
    assert re.findall(r"^### Add an? (.+)$", TEXT, re.MULTILINE) == NAMES


@pytest.mark.deep
@pytest.mark.parametrize("name", NAMES)
def test_a_recipe_works(name: str, house: House) -> None:
    house.follow(recipe(name))


def all_steps() -> list[Step]:
    """The steps of all recipes that write files."""
    return [step for name in NAMES for step in recipe(name) if step.language != "sh"]


def test_what_the_recipes_add_keeps_to_the_rules(house: House) -> None:
    house.follow(all_steps())
    house.run("ruff check . && ruff format --check . && lint-imports --no-cache")
    house.run("python -m pytest -q tests/test_shape.py")


@pytest.mark.deep
def test_what_the_recipes_add_has_types(house: House) -> None:
    if (ROOT / ".mypy_cache").is_dir():
        # else mypy would read the modules that no recipe changes once more
        shutil.copytree(ROOT / ".mypy_cache", house.root / ".mypy_cache")
    house.follow(all_steps())
    house.run("mypy")


def test_a_place_that_is_not_there_or_twice_is_noticed() -> None:
    assert edited("a\nb\nc\n", " a\n+x\n b\n@@\n-c\n") == "a\nx\nb\n"
    for diff in (" d\n+x\n", " a\n"):
        with pytest.raises(AssertionError):
            edited("a\na\n", diff)
