"""Names and contents an agent may choose to fool a reader never reach the terminal raw."""

import json
import os
from pathlib import Path

import pytest

from loom_audit.api.face import open_store
from loom_audit.history.ground.writer import Writer
from loom_audit.model.events import CheckpointMarked
from tests.cli.across.hostile import CORPUS, dangerous
from tests.cli.shells import Shell, new_shell

NAMES = [
    name.encode("utf-8", "surrogateescape")
    for text in CORPUS
    if (name := "h" + text.replace("/", "_").replace("\0", "_"))
]


@pytest.fixture(scope="module")
def poisoned(tmp_path_factory: pytest.TempPathFactory) -> Shell:
    """A workspace whose files, calls, arguments and sessions all carry hostile text."""
    shell = new_shell(tmp_path_factory.mktemp("poisoned"))
    shell("init")
    for n, name in enumerate(NAMES):
        path = os.path.join(os.fsencode(shell.workspace), name)
        with open(path, "wb") as file:
            file.write(f"{n}\n".encode() + "\n".join(CORPUS).encode("utf-8", "surrogateescape"))
    shell("run", "--title", "".join(CORPUS[:4]), "--", "true")
    shell("run", "--agent", CORPUS[1], "--", "echo", *CORPUS[:3])
    shell("call", "write_file", json.dumps({"path": "x\u202e.txt", "content": CORPUS[0] + "\n"}))
    shell("call", "read_file", json.dumps({"path": "nope\x1b[31m"}), code=4)
    with open_store(str(shell.home / "audit.db")) as store:
        # No command takes such a name; a store written by another program may hold one.
        writer = Writer(store.workspace(shell.workspace).attachment, session="", actor="person:ada")
        writer.record(CheckpointMarked("c\u202e\x1b[31m", 3, CORPUS[2]))
    with open(os.path.join(os.fsencode(shell.workspace), NAMES[0]), "ab") as file:
        file.write(b"\x1b[2J drift\n")
    return shell


def test_no_command_prints_recorded_text_raw(poisoned: Shell) -> None:
    hostile = os.fsdecode(NAMES[0])
    commands: list[tuple[str, ...]] = [
        ("log",),
        ("log", "--events", "-n", "0"),
        ("session",),
        ("status",),
        ("diff",),
        ("diff", "3", "head"),
        ("diff", "--name-only", "3", "head"),
        ("ls", "-r"),
        ("ls", "--at", "@c\u202e\x1b[31m"),
        ("history", hostile),
        ("blame", hostile),
        ("history", ".", "-n", "0"),
        ("checkpoint",),
        ("undo", "--dry-run"),
        ("rollback", "head~1", "--outside", "--dry-run"),
        ("workspaces",),
        ("scope",),
        ("doctor",),
    ]
    commands += [
        ("show", str(seq))
        for seq in range(1, len(poisoned.records("log", "--events", "-n", "0")) + 1)
    ]
    commands += [("session", record["id"]) for record in poisoned.records("session")]
    for arguments in commands:
        for extra in ((), ("--json",)):
            ran = poisoned(*arguments, *extra, code=None)
            assert ran.code in (0, 1), (arguments, ran.errors)
            assert not dangerous(ran.text, allowed="\n\t"), arguments
            assert not dangerous(ran.errors, allowed="\n\t"), arguments


def test_errors_about_hostile_arguments_are_clean(poisoned: Shell) -> None:
    for text in CORPUS[::3]:
        for arguments in (
            ("cat", text),
            ("log", "--session", text),
            ("rollback", "@" + text),
            ("revert", text),
            ("session", text),
            ("show", text),
            (text,),
            ("log", "--" + text),
            ("undo", "--choose", text),
            ("call", text, "{}"),
        ):
            ran = poisoned(*arguments, code=None)
            assert not dangerous(ran.errors + ran.text, allowed="\n\t"), arguments


def test_json_gives_back_the_exact_bytes_of_every_name(poisoned: Shell) -> None:
    found = {record["path"].encode("utf-8", "surrogateescape") for record in poisoned.records("ls")}
    assert set(NAMES) <= found


def test_cat_is_exact_into_a_pipe(poisoned: Shell) -> None:
    path = Path(os.fsdecode(os.path.join(os.fsencode(poisoned.workspace), NAMES[1])))
    assert poisoned("cat", str(path)).stdout == path.read_bytes()


PLACES = {
    "a line feed": "new\nline",
    "escapes": "\x1b[31mred\x1b[0m",
    "right to left": "a\u202egpj.exe",
    "not UTF-8": "caf\udce9\udcff",
    "long": "n" * 250,
    "an option": "--same",
    "blanks": "  x ",
}


@pytest.mark.parametrize("name", PLACES.values(), ids=PLACES)
def test_a_workspace_that_was_moved_to_any_name_is_recorded_and_shown_in_one_line(
    audited: Shell, name: str
) -> None:
    old = audited.workspace
    new = old.rename(old.with_name(name))
    told = audited("status", code=4, cwd=new).errors.splitlines()
    assert len(told) == 2 and "moved" in told[0]
    moved = audited("workspaces", "move", "--", str(old), str(new), cwd=new)
    for shown in (*told, *moved.text.splitlines(), *moved.errors.splitlines()):
        assert shown.isprintable(), ascii(shown)
    assert len(moved.text.splitlines()) == len(moved.errors.splitlines()) == 1
    assert "as the log says" in audited("status", cwd=new).text
    new.rename(old)
    audited("workspaces", "move", "--", str(new), str(old))
    assert "as the log says" in audited("status").text
