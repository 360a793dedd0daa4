"""However events are cut into commits, the tables that follow them are the same."""

from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from loom_audit.model.conversation import MessageReceived, PromptSubmitted
from loom_audit.model.coverage import Coverage
from loom_audit.model.events import (
    BaselineFinished,
    CallFinished,
    CallReported,
    CallRequested,
    CheckpointMarked,
    CoverageLowered,
    Draft,
    FilesChanged,
    ScopeAccepted,
    SessionEnded,
    SessionStarted,
    WorkspaceAttached,
)
from loom_audit.model.files import BlobId, FileChange, FileState
from loom_audit.sql.projections import fold, keyframes
from loom_audit.sql.projections.subjects import PROJECTIONS
from loom_audit.sql.store.places import MARKS
from loom_audit.sql.tables import TABLES
from tests.contracts.stores import DIRECTORY, SetClock, draft, open_sqlite
from tests.contracts.test_projections import rebuild, rows_of
from tests.given.examples import examples

SIZES = (1, 2, 7, 1000)
PATHS = ("a", "b", "d/a", "caf\udce9")
KINDS = (
    *["request", "change"] * 3,
    *["finish"] * 2,
    "start",
    "end",
    "attach",
    "scope",
    "baseline",
    "mark",
    "lower",
    "report",
    "ask",
    "say",
)


def drafts_of(chance: Random, count: int) -> Iterator[Draft]:
    """A log in which each call is requested once and finished at most once, after it."""
    waiting: list[tuple[str, str]] = []
    requested: set[tuple[str, str]] = set()
    ended: list[tuple[str, int]] = []
    for n in range(count):
        session, actor = chance.choice(["", "s", "t"]), f"agent:{n % 3}"
        match chance.choice(KINDS):
            case "request":
                # the same id in two sessions are two calls
                call = session, f"c{chance.randrange(8)}"
                if call not in requested:
                    requested.add(call)
                    waiting.append(call)
                    fact = CallRequested(call[1], "t", {"path": f"p{n}"}, "write")
                    yield draft(fact, session, actor)
            case "finish" if waiting:
                session, id = waiting.pop(chance.randrange(len(waiting)))
                status: Any = chance.choice(["ok", "ok", "error"])
                coverage = chance.choice([Coverage(), Coverage("partial", ("why",))])
                reverts = tuple(range(1, chance.randrange(1, 4)))
                finish = CallFinished(id, "t", "write", status, {"error": "e"}, coverage)
                ended.append((id, n + 1))
                yield draft(replace(finish, reverts=reverts), session, actor)
            case "change":
                own = chance.choice([*waiting, None])
                causes: tuple[int | str, ...] = tuple(
                    {f"c{chance.randrange(8)}": None for _ in range(n % 3)}
                )
                if chance.randrange(2):
                    causes = tuple({chance.randint(1, n + 1): None for _ in range(n % 3)})
                session, call_id = own or (session, None)
                changes = tuple(_change(chance) for _ in range(chance.randint(1, 3)))
                yield draft(FilesChanged(changes, "tool", call_id, causes=causes), session, actor)
            case "start":
                yield draft(SessionStarted(f"agent {n}", f"title {n}"), session, actor)
            case "end":
                yield draft(SessionEnded(chance.choice(["failed", "completed"])), session, actor)
            case "attach":
                yield draft(WorkspaceAttached(f"/w{n}", f"*.{n}", n + 1), "")
            case "scope":
                yield draft(ScopeAccepted(f"*.scope{n}"), "")
            case "baseline":
                yield draft(BaselineFinished(n, n), "")
            case "lower":
                coverage = Coverage("partial", (f"why {n}",))
                yield draft(CoverageLowered((n // 2, n - 1), coverage), session, actor)
            case "report" if ended:
                id, number = chance.choice(ended)
                told: Any = chance.choice(["ok", "error", "denied"])
                report = CallReported(id, "t", told, {"error": "e"}, number, "interrupted")
                yield draft(report, session, actor)
            case "ask":
                yield draft(PromptSubmitted(f"do {n}"), session, actor)
            case "say":
                yield draft(MessageReceived("assistant", f"done {n}"), session, actor)
            case "mark":
                yield draft(CheckpointMarked(f"m{n % 3}", n, f"note {n}"), session, actor)


def _change(chance: Random) -> FileChange:
    return FileChange(chance.choice(PATHS), _state(chance), _state(chance))


def _state(chance: Random) -> FileState | None:
    n = chance.randint(1, 4)
    file = FileState("file", BlobId(f"{n:064x}"), 0o644, n * 100)
    return chance.choice([None, DIRECTORY, file, file])


@pytest.mark.drawn
def test_the_tables_are_the_same_however_events_are_cut_into_commits(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keyframes, "KEYFRAME_EVENTS", 8)

    @examples(6, 25)
    @given(st.integers(0))
    def check(seed: int) -> None:
        chance = Random(seed)
        opened = open_sqlite(tmp_path_factory.mktemp("store"), SetClock())
        assert opened.database
        for one in drafts_of(chance, chance.randint(5, 60)):
            opened.clock.pass_time(chance.randint(-5, 5))
            opened.log.append([one])
        expected = rows_of(opened)
        for size in SIZES:
            monkeypatch.setattr(fold, "REBUILT_AT_ONCE", size)
            rebuild(opened)
            assert rows_of(opened) == expected, f"{size} events at a time"
        opened.database.close()

    check()


def test_every_table_is_one_of_the_log_or_of_one_subject() -> None:
    kept = {"log", "event", "tree_node", "dictionary", "payload", "blob", "blob_content"}
    kept |= {"path", "searched", *MARKS}
    assert len(set(PROJECTIONS)) == len(PROJECTIONS)
    assert {table.name for table in TABLES} == kept | set(PROJECTIONS)
