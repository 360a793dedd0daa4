"""Calls of which nobody saw for certain what they changed: all of it is kept unless chosen."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from loom_audit import open_store
from loom_audit.api.agents.clients import Hooks
from loom_audit.api.agents.reading import read_transcripts
from tests.cli.shells import Shell
from tests.processes.hooked import HookedClaude

COMMAND = {"command": "make"}


@pytest.fixture
def claude(
    audited: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[HookedClaude]:
    monkeypatch.setenv("LOOM_AUDIT_HOME", str(audited.home))
    with closing(open_store()) as store, closing(Hooks(store)) as hooks:

        def answer(data: bytes) -> bytes:
            return hooks.answer("claude-code", data)

        one = HookedClaude(answer, audited.workspace, tmp_path / "s1.jsonl")
        one.hook("SessionStart", source="startup")
        yield one


def begin(claude: HookedClaude, id: str) -> None:
    claude.asks(id, "Bash", COMMAND)
    claude.before(id, "Bash", COMMAND)


def late(claude: HookedClaude, audited: Shell) -> None:
    """A call whose end a look in another terminal found."""
    begin(claude, "c1")
    (audited.workspace / "made").write_text("made")
    claude.told("c1", {"stdout": ""})
    with closing(open_store()) as store:
        read_transcripts(store.workspace(audited.workspace))


def late_before_the_next(claude: HookedClaude, audited: Shell) -> None:
    begin(claude, "c1")
    (audited.workspace / "made").write_text("made")
    claude.told("c1", {"stdout": ""})
    begin(claude, "c2")
    claude.after("c2", "Bash", COMMAND, {"stdout": ""})


def shared(claude: HookedClaude, audited: Shell) -> None:
    """Two calls that overlap."""
    begin(claude, "c1")
    begin(claude, "c2")
    (audited.workspace / "made").write_text("made")
    claude.after("c1", "Bash", COMMAND, {"stdout": ""})
    claude.after("c2", "Bash", COMMAND, {"stdout": ""})


HOW = {"late": late, "late before the next call": late_before_the_next, "shared": shared}


@pytest.mark.few(1)
@pytest.mark.parametrize("how", HOW)
def test_a_revert_of_what_is_kept_takes_nothing_back_and_exits_with_5(
    claude: HookedClaude, audited: Shell, how: str
) -> None:
    HOW[how](claude, audited)
    number = str(audited.numbers()[0])
    events, disk = len(audited.records("log", "--events", "-n", "0")), audited.tree()
    for words in (("revert", number, "--dry-run"), ("revert", number), ("revert", number, "-y")):
        told = audited(*words, code=5)
        assert "made" in told.text and "=old" in told.errors
        (plan,) = audited.records(*words, code=5)
        assert plan["carried_out"] is False and plan["reverts"] == plan["changes"] == []
        assert [note["path"] for note in plan["kept"]] == ["made"]
    assert audited.tree() == disk
    assert len(audited.records("log", "--events", "-n", "0")) == events
    (left,) = audited.records("revert", number, "--choose", "made=current", code=7)
    assert not left["carried_out"]
    (done,) = audited.records("revert", number, "--choose", "made=old", code=7)
    assert done["carried_out"] and not (audited.workspace / "made").exists()
    audited("verify")
