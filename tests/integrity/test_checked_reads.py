"""What is read from a log is what was recorded, or CORRUPT with the number of the event."""

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import rfc8785

from loom_audit.errors import Corrupt
from loom_audit.model.events import Event, FilesChanged
from loom_audit.model.stored.codec import intention_of
from loom_audit.ports import EventFilter
from tests.integrity.conftest import Recorded, record
from tests.integrity.test_tamper import connect, leaf_of, put_leaf, unguarded


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    return record(tmp_path_factory.mktemp("small") / "audit.db", 60)


def read(store: Recorded) -> Iterator[tuple[int, Event | Corrupt]]:
    """Every event by its seq, or the error that reading it raised."""
    with closing(store.open()) as database:
        log = database.event_log(store.log)
        for seq in range(1, log.head() + 1):
            try:
                yield seq, next(iter(log.read(EventFilter.only(seq))))
            except Corrupt as error:
                yield seq, error


FORGED = {
    "arguments": "UPDATE payload SET content = x'007b7d' WHERE role = 'args' AND seq = :seq",
    "result": "UPDATE payload SET content = x'007b7d' WHERE role = 'result' AND seq = :seq",
    "salt": "UPDATE payload SET salt = zeroblob(16) WHERE role = 'args' AND seq = :seq",
    "salt that is a text": "UPDATE payload SET salt = 'x' WHERE role = 'args' AND seq = :seq",
    "missing arguments": "DELETE FROM payload WHERE role = 'args' AND seq = :seq",
    "manifest": "UPDATE payload SET content = x'007b226368616e676573223a5b5d7d' "
    "WHERE role = 'manifest' AND seq = :seq",
    "missing manifest": "DELETE FROM payload WHERE role = 'manifest' AND seq = :seq",
    "keys": "UPDATE payload SET content = CAST(zeroblob(length(content)) AS BLOB) "
    "WHERE role = 'keys' AND seq = :seq",
    "missing keys": "DELETE FROM payload WHERE role = 'keys' AND seq = :seq",
}


@pytest.mark.parametrize("sql", FORGED.values(), ids=FORGED)
def test_a_payload_that_is_not_the_one_on_record_is_corrupt(
    small: Recorded, tmp_path: Path, sql: str
) -> None:
    genuine = dict(read(small))
    role = sql.split("role = '")[1].split("'")[0]
    forged = small.copy(tmp_path / "forged")
    with connect(forged) as raw, unguarded(raw):
        [(seq,)] = raw.execute(
            "SELECT max(seq) FROM payload WHERE role = ? AND content IS NOT NULL", (role,)
        )
        assert raw.execute(sql, {"seq": seq}).rowcount == 1
    wrong = {}
    for number, found in read(forged):
        if isinstance(found, Corrupt):
            wrong[number] = found
        else:
            assert found == genuine[number]
    assert seq in wrong
    assert str(wrong[seq]).startswith(f"Event {seq} is damaged")
    named = {
        number
        for number, event in genuine.items()
        if isinstance(event, Event)
        and isinstance(event.fact, FilesChanged)
        and event.fact.intention == seq
    }
    assert set(wrong) == {seq} | named


@pytest.mark.parametrize("field", ["leaf", "leaf_hash"])
def test_a_leaf_that_was_read_before_and_is_another_now_is_corrupt(
    small: Recorded, tmp_path: Path, field: str
) -> None:
    forged = small.copy(tmp_path / "forged")
    with closing(forged.open()) as database:
        log = database.event_log(forged.log)
        assert [event.seq for event in log.picked([9, 10])] == [9, 10]
        with connect(forged) as raw, unguarded(raw):
            raw.execute(
                f"UPDATE event SET {field} = "
                f"(SELECT {field} FROM event WHERE seq = 9) WHERE seq = 10"
            )
        assert [event.seq for event in log.picked([9])] == [9]
        for read_again in (log.picked, lambda seqs: [*log.stretch(8, 10, lambda _: True)]):
            with pytest.raises(Corrupt, match="Event 10 is damaged"):
                read_again([10])


def test_a_payload_that_is_not_on_record_is_not_read(small: Recorded, tmp_path: Path) -> None:
    genuine = dict(read(small))
    forged = small.copy(tmp_path / "forged")
    seq = next(
        seq
        for seq, event in genuine.items()
        if isinstance(event, Event) and event.kind == "call.finished"
    )
    with connect(forged) as raw:
        fact = b"\x00" + b'{"actor":"person:somebody"}'
        raw.execute(
            "INSERT INTO payload VALUES (1, ?, 'fact', 0, zeroblob(16), ?, NULL)", (seq, fact)
        )
    assert dict(read(forged)) == genuine


@pytest.mark.parametrize("which", ["of another call", "not an intention", "not there"])
def test_an_event_that_names_no_intention_of_its_call_is_corrupt(
    small: Recorded, tmp_path: Path, which: str
) -> None:
    forged = small.copy(tmp_path / "forged")
    with connect(forged) as raw:
        unguarded(raw)
        rows = raw.execute("SELECT seq FROM event WHERE kind = 'files.changed'").fetchall()
        naming = [(seq, leaf) for (seq,) in rows if intention_of(leaf := leaf_of(raw, seq))]
        (_, other), (seq, leaf) = naming[-2:]
        envelope = json.loads(leaf)
        own = envelope["intention"]
        envelope["intention"] = {
            "of another call": intention_of(other),
            "not an intention": own - 1,
            "not there": 9999,
        }[which]
        put_leaf(raw, seq, rfc8785.dumps(envelope))
    assert [number for number, found in read(forged) if isinstance(found, Corrupt)] == [seq]
