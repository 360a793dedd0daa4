"""Erasing one log of a store: what others name stays readable, whatever leans on what."""

import os
import random
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

import pytest

from loom_audit.disk.machine.locks import DiskLock
from loom_audit.errors import AuditUnavailable, Corrupt
from loom_audit.history.check.verification import verify
from loom_audit.model.actors import OUTSIDE
from loom_audit.model.events import (
    BaselineFinished,
    CallRequested,
    Draft,
    FilesChanged,
    WorkspaceAttached,
    WorkspaceForgotten,
)
from loom_audit.model.files import BlobId, FileChange, FileState
from loom_audit.sql.contents import blobs as contents
from loom_audit.sql.erasing import lines
from loom_audit.sql.erasing.forgetting import Forgetting
from loom_audit.sql.evidence.evidence import open_evidence
from loom_audit.sql.ground.connection import Connection
from loom_audit.sql.store.database import Database, open_database
from loom_audit.verify_alone import main as verify_alone

LOGS = 3


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    made = open_database(str(tmp_path / "audit.db"), lock=DiskLock(tmp_path / "locks"))
    yield made
    made.close()


def record(
    database: Database, choose: random.Random
) -> tuple[list[str], dict[str, dict[str, bytes]]]:
    """Three logs that write versions of few files, each perhaps that of another; by log what it
    names, by the content's id.
    """
    ids = [database.create_log() for _ in range(LOGS)]
    named: dict[str, dict[str, bytes]] = {id: {} for id in ids}
    trees: dict[str, dict[str, FileState]] = {id: {} for id in ids}
    for number, id in enumerate(ids):
        start = WorkspaceAttached(f"/w{number}", "", 1 << 30), BaselineFinished(0, 0)
        database.event_log(id).append([Draft(fact, "", OUTSIDE) for fact in start])
    texts = {path: [choose.randbytes(300 + 900 * n)] for n, path in enumerate("abc")}
    for _ in range(120):
        id, path = choose.choice(ids), choose.choice("abc")
        if choose.random() < 0.6:
            old = choose.choice(texts[path][-3:])
            at = choose.randrange(len(old))
            size = choose.choice([3, 40, 2000])
            texts[path].append(old[:at] + choose.randbytes(size) + old[at + 2 :])
        content = choose.choice(texts[path][-4:])
        before = trees[id].get(path)
        blob = database.blobs.put(content, similar_to=before.blob if before else None)
        after = FileState("file", blob, 0o644, len(content))
        if after == before:
            continue
        fact = FilesChanged((FileChange(path, before, after),), "outside")
        database.event_log(id).append([Draft(fact, "", OUTSIDE)])
        trees[id][path] = after
        named[id][blob] = content
    return ids, named


@pytest.mark.few(2)
@pytest.mark.parametrize("seed", range(6))
def test_what_other_logs_name_is_read_as_before(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    if seed % 2:  # so that some of what is encoded anew becomes a file
        monkeypatch.setattr("loom_audit.sql.erasing.lines.INLINE_BYTES", 1500)
        monkeypatch.setattr(contents, "INLINE_BYTES", 1500)
    ids, named = record(database, random.Random(seed))
    for gone in ids[:2]:
        forgetting = Forgetting(database, gone)
        others = {blob for id in ids if id != gone for blob in named[id]}
        only = named[gone].keys() - others
        assert forgetting.amount().contents == len(only)
        fact = WorkspaceForgotten("/w", "", 0, 0, 0)
        database.event_log(gone).append([Draft(fact, "", "person:p")])
        while forgetting.erase_some() is not None:
            pass
        forgetting.erase_rows()
        assert forgetting.write_anew()
        forgetting.finish()
        assert forgetting.is_finished
        named[gone] = {}
        fresh = open_database(str(tmp_path / "audit.db"), lock=DiskLock(tmp_path / "locks"))
        assert not any(BlobId(blob) in fresh.blobs for blob in only)
        for id in ids:
            for blob, content in named[id].items():
                assert fresh.blobs.get(BlobId(blob)) == content
            evidence = open_evidence(fresh, id)
            codes = {one.code for one in verify(evidence).findings}
            assert codes <= {"log.forgotten"}
            evidence.close()
        fresh.close()
        assert verify_alone([str(tmp_path / "audit.db")]) == 0
    files = [path for path in (tmp_path / "blobs").rglob("*") if path.is_file()]
    assert all(path.parent.name + path.name in named[ids[2]] for path in files)


def begin(database: Database, number: int) -> str:
    """The id of a new log."""
    id = database.create_log()
    start = WorkspaceAttached(f"/w{number}", "", 1 << 30), BaselineFinished(0, 0)
    database.event_log(id).append([Draft(fact, "", OUTSIDE) for fact in start])
    return id


def make(database: Database, id: str, path: str, content: bytes) -> BlobId:
    """Let a log name a content as that of a new file."""
    blob = database.blobs.put(content)
    change = FileChange(path, None, FileState("file", blob, 0o644, len(content)))
    database.event_log(id).append([Draft(FilesChanged((change,), "outside"), "", OUTSIDE)])
    return blob


def forget(database: Database, id: str) -> Forgetting:
    """Put on record that a log is forgotten; what erases it."""
    fact = WorkspaceForgotten("/w", "", 0, 0, 0)
    database.event_log(id).append([Draft(fact, "", "person:p")])
    return Forgetting(database, id)


def erase(forgetting: Forgetting) -> None:
    while forgetting.erase_some() is not None:
        pass
    forgetting.erase_rows()


def files(place: Path) -> list[Path]:
    return [path for path in (place / "blobs").rglob("*") if path.is_file()]


def test_a_large_content_goes_though_who_erased_it_was_killed_before_its_file_went(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone, stays = begin(database, 0), begin(database, 1)
    make(database, gone, "huge", random.Random(1).randbytes(700_000))
    kept = make(database, stays, "huge", random.Random(2).randbytes(700_000))
    forgetting = forget(database, gone)

    class Killed(BaseException):
        pass

    def killed(path: str) -> None:
        raise Killed

    with monkeypatch.context() as patched, pytest.raises(Killed):
        patched.setattr(os, "unlink", killed)
        erase(forgetting)
    erase(again := Forgetting(database, gone))
    again.finish()
    assert again.is_finished
    assert [path.parent.name + path.name for path in files(tmp_path)] == [kept]


def test_what_a_result_of_another_log_names_since_it_was_asked_stays(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Trap: results are recorded without the lock of a workspace."""
    gone, other = begin(database, 0), begin(database, 1)
    text = "a file of one, and what a command in the other has printed\n" * 200
    blob = make(database, gone, "notes", text.encode())
    forgetting = forget(database, gone)
    told = [CallRequested("c", "write_file", {"content": text}, "write")]
    found = lines.lines_of

    def then_named(connection: Connection, gone: Collection[int]) -> Sequence[lines.ContentLine]:
        seen = found(connection, gone)
        while told:
            database.event_log(other).append([Draft(told.pop(), "s", "agent:a")])
        return seen

    monkeypatch.setattr(lines, "lines_of", then_named)
    erase(forgetting)
    assert not told and database.blobs.get(blob) == text.encode()
    assert verify(open_evidence(database, other)).findings == ()


def test_what_a_writer_left_that_was_killed_goes_too(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    def killed(*_: object) -> None:
        raise Killed

    gone = begin(database, 0)
    make(database, gone, "huge", random.Random(1).randbytes(700_000))
    with monkeypatch.context() as patched, pytest.raises(Killed):
        patched.setattr(os, "fsync", killed)
        patched.setattr(os, "unlink", killed)
        make(database, gone, "larger", random.Random(2).randbytes(700_000))
    assert len(files(tmp_path)) == 2
    erase(forget(database, gone))
    assert not files(tmp_path)


def test_what_may_only_be_read_is_not_erased_in_a_copy(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Trap: the copy is of the database, and the files of large contents are those of the store."""
    gone = begin(database, 0)
    make(database, gone, "huge", random.Random(1).randbytes(700_000))
    forget(database, gone)
    monkeypatch.setattr("loom_audit.sql.store.database._may_write", lambda path: False)
    copy = open_database(str(tmp_path / "audit.db"), lock=DiskLock(tmp_path / "locks"))
    with pytest.raises(AuditUnavailable, match="reading only"):
        erase(Forgetting(copy, gone))
    copy.close()
    assert files(tmp_path)


def test_where_an_event_of_another_log_is_missing_nothing_is_erased(database: Database) -> None:
    """Nobody knows any more which contents it has named."""
    gone, other = begin(database, 0), begin(database, 1)
    for id in (gone, other):
        make(database, id, "shared", b"shared" * 100)
        make(database, id, id, id.encode() * 100)
    with database.connections.writing() as connection:
        connection.raw.set_authorizer(None)
        connection.execute("DROP TRIGGER event_no_delete")
        connection.execute("DELETE FROM event WHERE log = 2 AND seq = 3")
    forgetting = forget(database, gone)
    with pytest.raises(Corrupt, match=f"what log {other} names cannot be read"):
        forgetting.erase_some()
