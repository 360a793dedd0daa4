"""What every event log promises, and what only a store on disk can be asked."""

import json
import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from loom_audit.disk.machine.heads import DiskHeads
from loom_audit.errors import AuditUnavailable, Conflict, Corrupt
from loom_audit.history.ground.log_end import LogEnd
from loom_audit.history.ground.proven_log import ProvenLog
from loom_audit.model.backgrounds import BackgroundFinished, BackgroundStarted, WritableFolder
from loom_audit.model.conversation import MessageReceived, PromptSubmitted
from loom_audit.model.coverage import Coverage
from loom_audit.model.events import (
    ApprovalRequested,
    BaselineFinished,
    CallDecided,
    CallFinished,
    CallReported,
    CallRequested,
    ChangeIntended,
    ChangesAttributed,
    CheckpointMarked,
    ContentFound,
    CoverageLowered,
    Draft,
    Fact,
    FilesChanged,
    HookFailed,
    PathsUntracked,
    RulesChanged,
    ScopeAccepted,
    SessionEnded,
    SessionHeld,
    SessionReleased,
    SessionStarted,
    TreeHead,
    TreeListed,
    TreeRelisted,
    Untracked,
    WorkspaceAttached,
    WorkspaceForgotten,
)
from loom_audit.model.files import FileChange, Move
from loom_audit.model.git.record import GitChanged, GitIntended, GitName
from loom_audit.model.noted import HeadNoted
from loom_audit.model.stored.merkle import EMPTY_ROOT, Frontier, leaf_hash, root
from loom_audit.ports import BLOCK, EventFilter
from loom_audit.sql.events.event_rows import MAX_INLINE_PAYLOAD
from loom_audit.sql.ground.driver import connect
from loom_audit.sql.ground.packing import pack, pack_id, unpack, unpack_id
from tests.contracts.stores import (
    DIRECTORY,
    START,
    Opened,
    draft,
    logs_of,
    open_sqlite,
    started,
)


def note(text: str = "x", session: str = "s", id: str | None = None) -> Draft:
    return draft(SessionStarted("a", text), session, id=id)


def request(id: str, session: str = "s") -> Draft:
    return draft(CallRequested(id, "t", {}, "write"), session)


def finish(id: str, session: str = "s") -> Draft:
    return draft(CallFinished(id, "t", "write", "ok", None), session)


def path_of(opened: Opened) -> str:
    assert opened.database
    return opened.database.connections.path


# --- appending and reading ----------------------------------------------------------------


def test_a_new_log_is_empty(opened: Opened) -> None:
    assert opened.log.head() == 0
    assert list(opened.log.read()) == []
    assert opened.log.tree_head().root == EMPTY_ROOT
    assert opened.log.append([]) == []


def test_every_fact_comes_back_as_it_was_given(opened: Opened) -> None:
    file, link = opened.file(b"one"), FileChange("d", None, DIRECTORY)
    odd = "caf\udce9/\x01\U0001f600"
    facts: list[Fact] = [
        WorkspaceAttached(f"/tmp/{odd}", "*.log\n", 99),
        WorkspaceAttached(f"/tmp/{odd}", "", 99, "/tmp/before", "handle"),
        BaselineFinished(3, 4096),
        ScopeAccepted("*.tmp"),
        PathsUntracked((Untracked(odd, "unreadable"),)),
        TreeRelisted((FileChange(odd, None, file),), 2, False, (Untracked(odd, "unreadable"),)),
        SessionStarted("agent", "title", "parent"),
        CallRequested("c1", "write_file", {"path": odd, "n": [1, 2.5, None, True]}, "write"),
        ApprovalRequested("c1", "write_file", {"path": odd}, "overwrites", "r#1", odd, "ab", 2),
        CallDecided("c1", "write_file", "allowed", "person:p", "looks fine", {"path": "b"}),
        CallDecided("c1", "write_file", "denied", "person:p", lasting=True),
        ChangeIntended("c1", (FileChange(odd, None, file), link), (Move("a", "b"),), (1, 2)),
        FilesChanged((FileChange(odd, file, None),), "tool", "c1", (), (3,), ("c1", "c2")),
        CallFinished("c1", "write_file", "write", "error", {"error": {"message": "no"}}),
        CallRequested("c2", "Bash", None, "execute"),
        CallFinished("c2", "Bash", "execute", "unknown", None, inferred=True),
        CallReported("c2", "Bash", "ok", {"output": odd}, None, "unknown"),
        CallReported("c2", "Bash", "ok", {"output": odd}, replaces=14, inferred="unknown"),
        BackgroundStarted("c2", "bg1", (WritableFolder(odd, "id"),)),
        BackgroundFinished("c2", "bg1", "stopped", 143, 12, odd),
        BackgroundFinished("c2", "bg1", "interrupted"),
        HookFailed("codex", odd, 3),
        HeadNoted(12, "ab" * 32, 3, "cd" * 32, odd),
        ChangesAttributed(12, (odd,), 3, odd),
        RulesChanged((("write", "ask"),)),
        SessionHeld("person:p", odd),
        SessionReleased("person:p"),
        PromptSubmitted(odd, "p1"),
        MessageReceived("assistant", odd, "m1"),
        GitChanged(
            "id",
            (GitName("HEAD", None, odd), GitName("refs/heads/a", "ab", None, odd)),
            (FileChange("config", None, file),),
            "command",
            odd,
            "c2",
            (14, 0),
        ),
        GitIntended(
            "c2",
            "id",
            (GitName("HEAD", odd, None), GitName("refs/heads/a", None, "ab", odd)),
            (FileChange("MERGE_MSG", None, file),),
            "lock",
            odd,
        ),
        ContentFound(odd, file, "left later", "c1"),
        CoverageLowered((14,), Coverage("partial", ("late",))),
        TreeListed(5, "ab" * 32, True),
        CheckpointMarked("name", 5, "note"),
        SessionEnded("failed"),
        WorkspaceForgotten(f"/tmp/{odd}", odd, 5, 3, 4096),
    ]
    drafts = [
        Draft(fact, "s", "agent:a", occurred_at=START - timedelta(days=1), source="x", parent="p")
        for fact in facts
    ]
    appended = opened.log.append(drafts)
    assert [event.fact for event in appended] == facts
    assert list(opened.log.read()) == list(appended)
    assert [event.seq for event in appended] == list(range(1, len(facts) + 1))
    assert {event.at for event in appended} == {START}
    assert {event.log for event in appended} == {opened.log.id}


def test_long_texts_and_many_files_come_back_whole(opened: Opened) -> None:
    long = "".join(chr(32 + n % 90) for n in range(50_000))
    changes = tuple(
        FileChange(f"dir{n % 50}/file{n}", None, opened.file(str(n).encode())) for n in range(3000)
    )
    opened.log.append(
        [
            draft(CallRequested("c", "t", {"content": long, "again": long}, "write")),
            draft(FilesChanged(changes, "tool", "c")),
            draft(CallFinished("c", "t", "write", "ok", {"output": long * 10})),
        ]
    )
    facts = [event.fact for event in opened.log.read()]
    assert facts[0] == CallRequested("c", "t", {"content": long, "again": long}, "write")
    assert facts[1] == FilesChanged(changes, "tool", "c")
    assert isinstance(facts[2], CallFinished) and facts[2].result == {"output": long * 10}


def test_reading_takes_the_events_that_match(opened: Opened) -> None:
    opened.log.append([note(session="a"), request("c1", "a"), note(session="b")])
    opened.log.append([request("c1", "b"), finish("c1", "a"), note(session="")])

    def seqs(**wanted: Any) -> list[int]:
        return [event.seq for event in opened.log.read(EventFilter(**wanted))]

    assert seqs(after=2) == [3, 4, 5, 6]
    assert seqs(after=1, before=4) == [2, 3]
    assert seqs(before=3, newest_first=True) == [2, 1]
    assert seqs(limit=2, newest_first=True) == [6, 5]
    assert seqs(limit=0) == []
    assert seqs(kinds=("call.requested", "call.finished")) == [2, 4, 5]
    assert seqs(kinds=("call.requested",), newest_first=True, limit=1) == [4]
    assert seqs(session="a") == [1, 2, 5]
    assert seqs(session="") == [6]
    assert seqs(session="none") == []
    assert seqs(call_id="c1") == [2, 4, 5]
    assert seqs(call_id="c1", session="b") == [4]
    assert seqs(session="a", newest_first=True, limit=2) == [5, 2]


def test_reading_goes_on_past_one_batch(opened: Opened) -> None:
    opened.log.append([note(session="a" if n % 7 else "b") for n in range(950)])
    assert [e.seq for e in opened.log.read()] == list(range(1, 951))
    assert [e.seq for e in opened.log.read(EventFilter(newest_first=True))][-1] == 1
    few = EventFilter(session="b", limit=100)
    assert [e.seq for e in opened.log.read(few)] == list(range(1, 951, 7))[:100]


def test_the_merkle_root_is_that_over_the_leaves(opened: Opened) -> None:
    hashes: list[bytes] = []
    for size in (1, 1, 1, 57, 195, 1, 1, 43, 211, 1, 1, 700):
        hashes += [e.leaf_hash for e in opened.log.append([note(str(n)) for n in range(size)])]
        assert opened.log.tree_head() == TreeHead(opened.log.id, len(hashes), root(hashes))


def test_blocks_are_given_by_a_head_of_the_log_and_by_no_other(opened: Opened) -> None:
    opened.log.append([note(f"{n}") for n in range(2 * BLOCK + 5)])
    head = opened.log.tree_head()
    hashes = [event.leaf_hash for event in opened.log.read()]
    blocks = [root(hashes[n * BLOCK : (n + 1) * BLOCK]) for n in range(2)]
    assert [*opened.log.blocks(0, 2, head)] == blocks
    assert [*opened.log.blocks(1, 2, head)] == blocks[1:]
    opened.log.append([note(f"more {n}") for n in range(BLOCK)])
    assert [*opened.log.blocks(0, 2, head)] == blocks
    with pytest.raises(Corrupt):
        opened.log.blocks(1, 2, replace(head, root=bytes(32)))


def test_the_seqs_around_a_time_differ_where_clocks_went_back(
    opened: Opened, tmp_path: Path
) -> None:
    proven = ProvenLog(
        opened.log,
        DiskHeads(tmp_path / "none", opened.log.id),
        LogEnd(opened.log, opened.projections),
    )
    assert proven.around(START) == (0, 0)
    for minutes in (0, 1, 5, 3, 6):
        opened.clock.at = START + timedelta(minutes=minutes)
        opened.log.append([note()])

    def around(minutes: float) -> tuple[int, int]:
        return proven.around(START + timedelta(minutes=minutes))

    assert around(-1) == (0, 0)
    assert around(0) == (1, 1)
    assert around(4) == (2, 4)  # event 3 is later, although event 4 is earlier again
    assert around(5) == (4, 4)
    assert around(60) == (5, 5)


# --- what is refused ----------------------------------------------------------------------


def test_a_draft_on_record_is_returned_instead_of_stored_again(opened: Opened) -> None:
    first = opened.log.append([note("one", id="k1"), note("two", id="0" * 32)])
    again = opened.log.append([note("one", id="k1"), note("two", id="0" * 32)])
    assert again == first
    assert opened.log.append([note("other words", id="0" * 32)]) == [first[1]]
    assert opened.log.head() == 2


def test_an_id_that_the_log_made_is_known_too(opened: Opened) -> None:
    [made] = opened.log.append([note()])
    assert opened.log.append([note(id=made.id)]) == [made]


def test_known_and_new_drafts_are_not_mixed(opened: Opened) -> None:
    opened.log.append([note(id="k1")])
    for drafts in ([note(id="k1"), note(id="k2")], [note(), note(id="k1")]):
        with pytest.raises(Conflict):
            opened.log.append(drafts)
    with pytest.raises(Conflict):
        opened.log.append([note(id="k3"), note(id="k3")])
    assert opened.log.head() == 1


def test_one_id_in_two_sessions_is_two_calls(opened: Opened) -> None:
    opened.log.append([request("same", "")])
    opened.log.append([request("same", "new")])
    with pytest.raises(Conflict):
        opened.log.append([finish("same", "other")])
    for session in ("new", ""):
        opened.log.append([finish("same", session)])
    assert [call.session for call in opened.projections.calls()] == ["new", ""]


def test_a_call_is_finished_once_and_only_after_its_request(opened: Opened) -> None:
    with pytest.raises(Conflict):
        opened.log.append([finish("c")])
    opened.log.append([request("c")])
    with pytest.raises(Conflict):
        opened.log.append([request("c")])
    with pytest.raises(Conflict):
        opened.log.append([finish("c", session="another")])
    opened.log.append([finish("c")])
    for drafts in ([finish("c")], [request("c")], [request("d"), finish("d"), finish("d")]):
        with pytest.raises(Conflict):
            opened.log.append(drafts)
    assert opened.log.head() == 2
    opened.log.append([request("c", "another"), finish("c", "another")])
    opened.log.append([request("c", ""), finish("c", "")])
    with pytest.raises(Conflict):
        opened.log.append([finish("c", "")])


def test_a_refused_batch_leaves_nothing_behind(opened: Opened) -> None:
    opened.log.append([note()])
    head = opened.log.tree_head()
    content = opened.blobs.put(b"waits for its event")
    with pytest.raises(Conflict):
        opened.log.append([note(), request("c"), finish("never requested")])
    assert opened.log.tree_head() == head
    assert opened.projections.open_calls() == []
    assert opened.blobs.pending_bytes() > 0
    opened.log.append([request("c")])
    assert opened.blobs.pending_bytes() == 0
    assert opened.blobs.get(content) == b"waits for its event"


# --- who appends at the same time ---------------------------------------------------------


def test_threads_that_append_together_get_a_gapless_order(opened: Opened) -> None:
    seen: list[int] = []

    def append(name: str) -> None:
        for n in range(15):
            blob = opened.blobs.put(f"{name} {n}".encode())
            change = FileChange(name, None, opened.file(f"{name} {n}".encode()))
            assert change.after and change.after.blob == blob
            events = opened.log.append(
                [note(f"{name} {n}"), draft(FilesChanged((change,), "tool"))]
            )
            seen.extend(event.seq for event in events)

    threads = [threading.Thread(target=append, args=(f"t{n}",)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(seen) == list(range(1, 181))
    events = list(opened.log.read())
    assert opened.log.tree_head().root == root(event.leaf_hash for event in events)
    for name in (f"t{n}" for n in range(6)):
        titles = [e.fact.title for e in events if isinstance(e.fact, SessionStarted)]
        assert [t for t in titles if t.startswith(name + " ")] == [f"{name} {n}" for n in range(15)]


WRITER = """
import json, sys
from pathlib import Path
from tests.contracts.stores import open_sqlite, draft
from loom_audit.model.events import FilesChanged, SessionStarted
from loom_audit.model.files import FileChange
from loom_audit.sql.ground.clock import SystemClock

folder, name, log, count = sys.argv[1:]
opened = open_sqlite(Path(folder), SystemClock(), log)
for n in range(int(count)):
    change = FileChange(name, None, opened.file(f"{name} {n}".encode() * 100))
    drafts = [draft(SessionStarted(name, str(n)), name), draft(FilesChanged((change,), "tool"))]
    seqs = [event.seq for event in opened.log.append(drafts)]
    print(json.dumps([n, seqs]), flush=True)
"""


def writers(folder: Path, log: str, names: list[str], count: int) -> list[subprocess.Popen[str]]:
    return [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(folder), name, log, str(count)],
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[2],
        )
        for name in names
    ]


def test_processes_that_append_together_get_a_gapless_order(stored: Opened, tmp_path: Path) -> None:
    names = [f"p{n}" for n in range(4)]
    seen: list[int] = []
    processes = writers(tmp_path, stored.log.id, names, 12)
    for n in range(12):  # and we append to the same log meanwhile
        seen += [event.seq for event in stored.log.append([note(f"own {n}", "own")])]
    for process in processes:
        output, _ = process.communicate(timeout=120)
        assert process.returncode == 0
        seen += [seq for line in output.splitlines() for seq in json.loads(line)[1]]
    events = list(stored.log.read())
    assert sorted(seen) == [event.seq for event in events] == list(range(1, 4 * 24 + 13))
    assert stored.log.tree_head().root == root(event.leaf_hash for event in events)
    for name in names:
        content = stored.projections.tree()[name].blob
        assert content and stored.blobs.get(content) == f"{name} 11".encode() * 100
    stored.log.append([note("the last")])


def test_what_was_acknowledged_is_there_after_the_process_was_killed(
    stored: Opened, tmp_path: Path
) -> None:
    acknowledged: list[tuple[str, int, list[int]]] = []
    for round in range(3):
        name = f"k{round}"
        [process] = writers(tmp_path, stored.log.id, [name], 10_000)
        assert process.stdout
        for _ in range(5 + round):
            n, seqs = json.loads(process.stdout.readline())
            acknowledged.append((name, n, seqs))
        process.send_signal(signal.SIGKILL)
        rest, _ = process.communicate()
        for line in rest.splitlines():
            if line.endswith("]"):
                n, seqs = json.loads(line)
                acknowledged.append((name, n, seqs))
    events = {event.seq: event for event in stored.log.read()}
    assert list(events) == list(range(1, len(events) + 1))
    for name, n, seqs in acknowledged:
        fact, change = events[seqs[0]].fact, events[seqs[1]].fact
        assert isinstance(fact, SessionStarted) and (fact.agent, fact.title) == (name, str(n))
        assert isinstance(change, FilesChanged) and change.changes[0].after
        assert change.changes[0].after.blob
        assert stored.blobs.get(change.changes[0].after.blob) == f"{name} {n}".encode() * 100
    stored.log.append([note("goes on")])


# --- on disk ------------------------------------------------------------------------------


def test_a_store_opened_again_goes_on_where_it_was(tmp_path: Path) -> None:
    first = open_sqlite(tmp_path)
    events = [*first.log.append([note(str(n)) for n in range(300)])]
    head = first.log.tree_head()
    assert first.database
    first.database.close()
    again = open_sqlite(tmp_path)
    assert again.log.tree_head() == head
    events += again.log.append([note("more")])
    assert list(again.log.read()) == events
    assert again.log.tree_head().root == root(event.leaf_hash for event in events)
    assert again.database
    again.database.close()


def test_two_logs_of_a_store_do_not_mix(stored: Opened, tmp_path: Path) -> None:
    assert stored.database
    other = open_sqlite(tmp_path, id=stored.database.create_log())
    stored.log.append([request("c"), note()])
    other.log.append([request("c"), finish("c")])
    stored.log.append([finish("c")])
    assert [e.seq for e in stored.log.read()] == [1, 2, 3]
    assert [e.seq for e in other.log.read()] == [1, 2]
    assert [c.seq for c in other.projections.calls()] == [2]
    assert len(set(logs_of(stored.database))) == 2
    assert other.database
    other.database.close()


@pytest.mark.parametrize("table", ["event", "tree_node", "log"])
def test_what_is_on_record_cannot_be_changed_by_sql(stored: Opened, table: str) -> None:
    stored.log.append([note(str(n)) for n in range(300)])
    raw = connect(path_of(stored), "rw")
    before = raw.execute(f"SELECT * FROM {table}").fetchall()
    assert before
    column = {"event": "leaf", "tree_node": "hash", "log": "id"}[table]
    statements = [
        f"UPDATE {table} SET {column} = x'00'",
        f"DELETE FROM {table}",
        f"INSERT OR REPLACE INTO {table} SELECT * FROM {table}",
        f"REPLACE INTO {table} SELECT * FROM {table} LIMIT 1",
    ]
    if table == "event":
        statements.append(
            "INSERT OR REPLACE INTO event SELECT log, seq + 1000, id, kind, leaf, leaf_hash "
            "FROM event LIMIT 1"
        )
    for statement in statements:
        with pytest.raises(Exception, match="append-only"):
            raw.execute(statement)
    assert raw.execute(f"SELECT * FROM {table}").fetchall() == before
    raw.close()


def test_our_own_connection_refuses_to_drop_the_guards(stored: Opened) -> None:
    assert stored.database
    for statement in (
        "DROP TRIGGER event_no_update",
        "DROP TABLE event",
        "ALTER TABLE event ADD COLUMN more",
        "ATTACH ':memory:' AS other",
        "DELETE FROM event",
    ):
        with (
            pytest.raises(AuditUnavailable, match="not authorized"),
            stored.database.connections.writing() as connection,
        ):
            connection.execute(statement)


def forge(opened: Opened, statement: str, *values: Any) -> None:
    """Change the file as somebody would who knows SQL: the guards dropped first."""
    raw = connect(path_of(opened), "rw")
    for name in ("event_no_update", "event_no_delete"):
        raw.execute(f"DROP TRIGGER {name}")
    raw.execute(statement, values)
    raw.close()


def test_a_leaf_that_was_edited_is_named_when_it_is_read(stored: Opened) -> None:
    events = stored.log.append([note(str(n)) for n in range(5)])
    forge(stored, "UPDATE event SET leaf = ? WHERE seq = 3", pack(b'{"v":"1.0"}'))
    with pytest.raises(Corrupt) as caught:
        list(stored.log.read())
    assert caught.value.details["seq"] == 3
    assert list(stored.log.read(EventFilter(after=3))) == list(events[3:])


def test_nothing_is_appended_behind_an_end_that_does_not_verify(tmp_path: Path) -> None:
    opened = open_sqlite(tmp_path)
    opened.log.append([note(str(n)) for n in range(5)])
    forge(opened, "UPDATE event SET leaf = ? WHERE seq = 5", pack(b'{"v":"1.0"}'))
    assert opened.database
    opened.database.close()
    again = open_sqlite(tmp_path)
    with pytest.raises(AuditUnavailable, match="cannot be trusted"):
        again.log.append([note()])
    assert again.log.head() == 5
    assert again.database
    again.database.close()


def test_a_missing_event_below_the_end_stops_a_new_process(tmp_path: Path) -> None:
    opened = open_sqlite(tmp_path)
    opened.log.append([note(str(n)) for n in range(5)])
    forge(opened, "DELETE FROM event WHERE seq = 3")
    assert opened.database
    opened.database.close()
    again = open_sqlite(tmp_path)
    with pytest.raises(AuditUnavailable, match="cannot be trusted"):
        again.log.append([note()])
    assert again.database
    again.database.close()


@pytest.mark.parametrize("table", ["event", "payload", "tree_node"])
def test_a_trigger_that_drops_rows_does_not_acknowledge_the_event(
    stored: Opened, table: str
) -> None:
    raw = connect(path_of(stored), "rw")
    raw.execute(f"CREATE TRIGGER q BEFORE INSERT ON {table} BEGIN SELECT RAISE(IGNORE); END")
    told = 0
    with pytest.raises(AuditUnavailable, match="drops"):
        for n in range(300):
            stored.log.append([note(f"{n}")])
            told += 1
    raw.execute("DROP TRIGGER q")
    raw.close()
    assert [event.seq for event in stored.log.read()] == [*range(1, told + 1)]
    stored.log.append([note("after")])
    assert stored.log.head() == told + 1


def test_a_database_that_fails_in_a_transaction_is_opened_afresh(stored: Opened) -> None:
    assert stored.database
    stored.log.append([note("one")])
    generation = stored.database.connections.generation
    raw = connect(path_of(stored), "rw")
    raw.execute("CREATE TRIGGER fails BEFORE INSERT ON event BEGIN SELECT RAISE(FAIL, 'no'); END")
    blob = stored.blobs.put(b"kept while it fails")
    with pytest.raises(AuditUnavailable):
        stored.log.append([note("two")])
    raw.execute("DROP TRIGGER fails")
    raw.close()
    assert stored.log.head() == 1
    stored.log.append([note("three")])
    assert stored.database.connections.generation > generation
    assert [e.seq for e in stored.log.read()] == [1, 2]
    assert stored.blobs.get(blob) == b"kept while it fails"


def limit_size(opened: Opened, more: int) -> None:
    """Let the database grow by so many pages only, as a full disk would."""
    assert opened.database
    with opened.database.connections.writing() as connection:
        [(now,)] = connection.execute("PRAGMA page_count")
        connection.execute(f"PRAGMA max_page_count = {int(now or 0) + more}")


def test_a_full_disk_refuses_new_calls_but_not_a_running_ones_outcome(stored: Opened) -> None:
    assert stored.database
    ballast = Path(path_of(stored) + ".ballast")
    assert ballast.stat().st_size == 16 * 1024 * 1024
    stored.log.append([request("running")])
    limit_size(stored, 2)
    big = "".join(f"{n:07x}" for n in range(40_000))
    with pytest.raises(AuditUnavailable) as caught:
        stored.log.append([draft(CallRequested("new", "t", {"content": big}, "write"))])
    assert caught.value.details["cause"] == "full"
    assert ballast.exists()
    limit_size(stored, 2)  # it went with the connection that failed
    outcome = draft(CallFinished("running", "t", "write", "ok", {"output": big}))
    stored.log.append([outcome])
    assert not ballast.exists()
    assert stored.projections.open_calls() == []
    assert [e.kind for e in stored.log.read()] == ["call.requested", "call.finished"]


def test_an_open_survives_a_fork_of_the_process(stored: Opened) -> None:
    stored.log.append([note("parent")])
    child = os.fork()
    if child == 0:
        status = 1
        try:
            stored.log.append([note("child")])
            status = 0
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    stored.log.append([note("parent again")])
    titles = [e.fact.title for e in stored.log.read() if isinstance(e.fact, SessionStarted)]
    assert titles == ["parent", "child", "parent again"]


# --- rows ---------------------------------------------------------------------------------


@given(st.binary(max_size=2000))
def test_packing_gives_back_the_same_bytes(data: bytes) -> None:
    packed = pack(data)
    assert unpack(packed, MAX_INLINE_PAYLOAD) == data
    assert len(packed) <= len(data) + 1
    if data:
        with pytest.raises(Corrupt):
            unpack(packed, len(data) - 1)


@given(st.binary(min_size=1, max_size=60))
def test_unpacking_anything_else_is_corrupt_or_bytes(stored_bytes: bytes) -> None:
    with suppress(Corrupt):
        assert len(unpack(stored_bytes, 1000)) <= 1000


IDS = st.one_of(
    st.uuids().map(lambda uuid: uuid.hex),
    st.uuids().map(str),
    st.text(max_size=40),
    st.binary(min_size=16, max_size=16).map(lambda raw: raw.decode("latin-1")),
    st.integers(14, 17).map(lambda size: "x" * size),
)


@given(IDS, IDS)
def test_ids_are_told_apart_in_their_columns(one: str, other: str) -> None:
    assert unpack_id(pack_id(one)) == one
    assert (pack_id(one) == pack_id(other)) == (one == other)


def test_leaves_are_stored_as_they_were_hashed(stored: Opened) -> None:
    events = stored.log.append([note(str(n)) for n in range(3)])
    raw = connect(path_of(stored), "ro")
    rows = raw.execute("SELECT leaf, leaf_hash, kind FROM event ORDER BY seq").fetchall()
    raw.close()
    frontier = Frontier()
    for (leaf, hashed, kind), event in zip(rows, events, strict=True):
        assert leaf_hash(unpack(leaf, 1 << 16)) == hashed == event.leaf_hash
        assert json.loads(unpack(leaf, 1 << 16))["seq"] == event.seq
        assert kind == event.kind
        frontier.append(hashed)
    assert frontier.root() == stored.log.tree_head().root


def test_a_session_is_started_by_name(opened: Opened) -> None:
    opened.log.append([started("one")])
    assert opened.projections.session("one").title == "about one"


def test_the_newest_event_of_some_kinds_is_told_with_the_head(opened: Opened) -> None:
    kinds = (SessionStarted.kind, SessionEnded.kind)
    assert opened.log.newest(kinds, 0) == (0, 0)
    opened.log.append([note(), request("c1"), note("y"), finish("c1")])
    found = [opened.log.newest(kinds, after) for after in range(5)]
    assert found == [(4, 3), (4, 3), (4, 3), (4, 0), (4, 0)]
    assert opened.log.newest((CallFinished.kind,), 0) == (4, 4)
