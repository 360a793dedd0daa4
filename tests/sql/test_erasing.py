"""Erasing one log of a store: what others name stays readable, whatever leans on what."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from loom_audit.disk.machine.locks import DiskLock
from loom_audit.history.check.verification import verify
from loom_audit.model.events import (
    OUTSIDE,
    BaselineFinished,
    Draft,
    FilesChanged,
    WorkspaceAttached,
    WorkspaceForgotten,
)
from loom_audit.model.files import BlobId, FileChange, FileState
from loom_audit.sql.contents import blobs as contents
from loom_audit.sql.erasing.forgetting import Forgetting
from loom_audit.sql.evidence.evidence import open_evidence
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
