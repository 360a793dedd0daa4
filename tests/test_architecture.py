"""What docs/architecture.md and CONTRIBUTING.md say of the code is there."""

import ast
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "loom_audit"
ARCHITECTURE = ROOT / "docs" / "architecture.md"
DOCUMENTS = (ARCHITECTURE, ROOT / "CONTRIBUTING.md")
PICTURES = re.findall(r"^```text\n(.*?)^```$", ARCHITECTURE.read_text("utf-8"), re.M | re.S)
PICTURE, HISTORY, SQL, TOOLS, API = PICTURES


def exists(path: str) -> bool:
    return (PACKAGE / path).exists() or (ROOT / path).exists()


def layers(container: str) -> list[str]:
    """The floors of a package, from its import contract; those of modules to come are left out."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    contracts = project["tool"]["importlinter"]["contracts"]
    (found,) = [c for c in contracts if c["type"] == "layers" and c["containers"] == [container]]
    floors = [re.sub(r"\(\w+\)", "", floor) for floor in found["layers"]]
    return [name for floor in floors for name in re.findall(r"\w+", floor) if name != "__main__"]


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_every_path_that_a_document_names_exists(path: Path) -> None:
    text = path.read_text("utf-8")
    named = set(re.findall(r"`([\w.-]+(?:/[\w.-]*)+|\w+\.(?:py|toml|md))`", text))
    made = set(re.findall(r"\bnew\s+file\s+`([^`]+)`", text))  # by a recipe
    assert len(named) > 10 and made <= named
    assert sorted(name for name in named - made if not exists(name)) == []


@pytest.mark.parametrize("room", ["history/undo", "model/plans"])
def test_the_map_of_a_room_names_each_of_its_modules_once(room: str) -> None:
    _, table = ARCHITECTURE.read_text("utf-8").split(f"| module of `{room}/` |")
    named = re.findall(r"`(?:[\w/]+/)?(\w+/?)`", table.split("\n\n")[0])
    modules = {path.stem for path in (PACKAGE / room).glob("*.py")} - {"__init__"}
    rooms = {f"{path.parent.name}/" for path in (PACKAGE / room).glob("*/__init__.py")}
    assert sorted(named) == sorted(modules | rooms)


def test_what_is_said_to_come_is_not_there_yet() -> None:
    coming = re.findall(r"\*([\w./]+(?:\.py|/))\*", ARCHITECTURE.read_text("utf-8"))
    assert len(coming) > 5
    assert [name for name in coming if exists(name)] == []


def test_the_picture_shows_every_room_in_the_order_of_the_imports() -> None:
    shown = re.findall(r"(\w+)(?:/|\.py)", PICTURE)
    rooms = {
        path.stem
        for path in PACKAGE.iterdir()
        if path.suffix == ".py" or (path / "__init__.py").exists()
    }
    assert {*shown} == rooms - {"__init__", "__main__", "migrations"}
    assert shown == layers("loom_audit")


def test_the_rooms_of_history_are_shown_in_the_order_of_the_imports() -> None:
    assert [line.split()[0] for line in HISTORY.splitlines()] == layers("loom_audit.history")


def test_the_rooms_of_sql_are_shown_in_the_order_of_the_imports() -> None:
    assert [line.split()[0] for line in SQL.splitlines()] == layers("loom_audit.sql")


def test_the_rooms_of_the_tools_are_shown_in_the_order_of_the_imports() -> None:
    shown = [line.split()[0] for line in TOOLS.splitlines()]
    assert shown == layers("loom_audit.tools")
    families = {path.parent.name for path in (PACKAGE / "tools" / "bundled").glob("*/__init__.py")}
    assert {*re.findall(r"\w+", TOOLS.splitlines()[0].partition(":")[2])} == families


def test_the_rooms_of_the_api_are_shown_in_the_order_of_the_imports() -> None:
    assert [line.split()[0] for line in API.splitlines()] == layers("loom_audit.api")


def test_ten_features_to_come_have_a_room() -> None:
    section = ARCHITECTURE.read_text("utf-8").split("## Where the next things go")[1]
    rows = [line for line in section.splitlines() if line.startswith("| ")][1:]
    assert len(rows) >= 10
    assert all(re.search(r"`[\w./]+`|\*[\w./]+\*", row.split(" | ")[1]) for row in rows)


def modules_that_make(name: str) -> set[str]:
    """The modules with a call of this name; the model's are left out, where stored facts are read.

    A class of another name that stands for it would not be found: none is imported so.
    """
    found = set()
    for path in PACKAGE.rglob("*.py"):
        text = path.read_text("utf-8")
        for node in ast.walk(ast.parse(text)) if name in text else ():
            if isinstance(node, ast.alias):
                assert not (node.name == name and node.asname), path
            called = node.func if isinstance(node, ast.Call) else None
            if name in (getattr(called, "id", ""), getattr(called, "attr", "")):
                found.add(path.relative_to(PACKAGE).as_posix())
    return {path for path in found if not path.startswith("model/")}


def test_calls_are_finished_in_one_module() -> None:
    assert modules_that_make("CallRequested") == {
        "history/record/call.py",
        "history/told/reported.py",
    }
    # what a transcript tells has ended long since, and stands in a log that has no lifecycle
    finish = {"history/record/call.py", "history/told/importing.py"}
    assert modules_that_make("CallFinished") == finish
