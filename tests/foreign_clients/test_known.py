"""All that is known of a client stands in its reader, which one list names."""

import ast
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

import loom_audit
from loom_audit.api.agents.launcher import write_launcher
from loom_audit.clients.known import CLIENTS
from loom_audit.clients.programs import NAMED, PROGRAMS
from loom_audit.clients.reports import Client, Hook, Verdict
from loom_audit.config import read_settings

PACKAGE = Path(loom_audit.__file__).parent
READERS = PACKAGE / "clients"
GUIDE = PACKAGE.parent / "docs" / "clients" / "README.md"


def readers() -> Iterator[Client]:
    """The clients of all modules that read one."""
    for file in sorted(READERS.glob("*.py")):
        module = import_module(f"loom_audit.clients.{file.stem}")
        if (client := getattr(module, "CLIENT", None)) is not None:
            yield client


def test_every_reader_is_listed() -> None:
    assert {client.name for client in readers()} == CLIENTS.keys() == PROGRAMS.keys()
    assert all(client.name == name for name, client in CLIENTS.items())
    assert all(name in NAMED for name in CLIENTS)


def test_no_other_module_names_a_client() -> None:
    names = {
        name
        for client in CLIENTS.values()
        for name in (client.name, client.title, PROGRAMS[client.name])
    }
    found = [
        f"{file.relative_to(PACKAGE)}:{node.lineno} {node.value}"
        for file in PACKAGE.rglob("*.py")
        if file.parent != READERS
        for node in ast.walk(ast.parse(file.read_text("utf-8")))
        if isinstance(node, ast.Constant) and node.value in names
    ]
    assert found == []


@pytest.mark.parametrize("client", CLIENTS)
def test_the_guide_says_how_a_client_is_connected(client: str) -> None:
    assert f"`loom-audit connect {client}`" in GUIDE.read_text("utf-8")


@pytest.mark.parametrize("client", CLIENTS)
def test_the_hook_client_denies_a_call_as_the_client_is_answered(
    client: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOOM_AUDIT_HOME", str(tmp_path))
    write_launcher(read_settings())
    known = CLIENTS[client]
    events = [name for name, moment in known.moments.items() if moment == "before"]
    assert events, "without one no call can be denied"
    program = (tmp_path / "hooks" / "hook_client.py").read_text("utf-8")
    for event in events:
        denied = known.answer(Hook(event, "before", "s"), Verdict("deny", "REASON"))
        assert f"({client.encode()!r}, {event.encode()!r}): {denied!r}" in program
