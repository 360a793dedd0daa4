"""The help texts, and the reference made from them."""

import re
import subprocess
import sys
from keyword import iskeyword
from pathlib import Path

import click
import pytest

from docs.reference import commands, written
from loom_audit.cli.application import COMMANDS as TABLE
from loom_audit.cli.application import app
from tests.cli.shells import Shell

ROOT = Path(__file__).parents[2]
COMMANDS = list(commands())


@pytest.mark.parametrize(("name", "text"), [(name, text) for _, name, text in COMMANDS])
def test_every_command_says_what_it_does_shows_an_example_and_its_exit_codes(
    name: str, text: str
) -> None:
    usage, sentence = text.split("\n\n")[:2]
    assert usage.startswith(f"Usage: loom-audit {name}")
    assert re.fullmatch(r"[A-Z].*\.", sentence.strip().replace("\n", " "))
    assert f"loom-audit {name}" in text.split("Example", 1)[1]
    assert re.search(r"Exit codes:\n +0  ", text)
    for option in ("--store", "--workspace", "--json"):
        assert option in text


def test_the_list_of_commands_says_how_the_help_of_each_begins() -> None:
    context = click.Context(app)
    for name, _, summary in TABLE:
        command = app.get_command(context, name)
        assert command is not None and command.help is not None
        assert command.help.split("\n\n")[0].replace("\n", " ") == summary
    assert {name for name, _, _ in TABLE} == {name.split()[0] for _, name, _ in COMMANDS}


def test_every_command_lies_in_the_module_of_its_name() -> None:
    modules = {path.stem: path for path in (ROOT / "loom_audit" / "cli").glob("*.py")}
    names = {f"{name}_" if iskeyword(name) else name for name, _, _ in TABLE}
    assert names == set(modules) - {"__init__", "application"}
    others = "|".join(names)
    for name in names:  # what two of them need lies in cli/shared/
        assert not re.search(rf"loom_audit\.cli\.({others})\b", modules[name].read_text("utf-8"))


def test_no_first_sentence_is_cut_in_the_list_of_commands() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "loom_audit", "--help"],
        cwd=ROOT,
        env={"COLUMNS": "80", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "..." not in done.stdout.split("Options:")[1]


def test_the_reference_is_what_the_help_says() -> None:
    text = (ROOT / "docs" / "cli.md").read_text("utf-8")
    assert text == written("cli.md"), "bring it up to date: make reference"


def test_help_imports_no_database_and_no_server() -> None:
    code = (
        "import sys\n"
        "from loom_audit.cli import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "heavy = {'sqlalchemy', 'sqlmodel', 'fastapi', 'pydantic', 'rich', 'uvicorn', 'alembic'}\n"
        "print('loaded:', sorted(heavy & set(sys.modules)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "loaded: []"


@pytest.mark.parametrize(
    ("words", "meant"),
    [("stauts", "'status'"), ("rolback 3", "'rollback'"), ("db pth", "'path'"), ("zzzzz", "")],
)
def test_for_a_command_that_is_spelled_wrong_the_nearest_is_named(
    shell: Shell, words: str, meant: str
) -> None:
    refused = shell(*words.split(), code=2)
    assert "No such command" in refused.errors
    assert meant in refused.errors and ("Did you mean" in refused.errors) == bool(meant)
