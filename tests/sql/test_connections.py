"""The connections of one process: readers are used again, a writer in doubt is not."""

import os
from contextlib import ExitStack
from typing import Any

import pytest

from loom_audit.errors import AuditUnavailable, NotFound, StorageFailed
from loom_audit.sql.ground.connection import Connection
from loom_audit.sql.ground.driver import driver
from loom_audit.sql.ground.statements import prepare
from loom_audit.sql.store.database import Database
from tests.sql.conftest import record

_LOGS = prepare("SELECT count(*) FROM log")
_FAILS = prepare("SELECT abs(:n)")  # of the least number: an error while the statement runs
_LEAST = -(2**63)


def is_closed(raw: Any) -> bool:
    try:
        raw.execute("SELECT 1")
    except driver().ProgrammingError:
        return True
    return False


def test_a_block_sees_one_state_and_a_single_look_the_newest(database: Database) -> None:
    with database.connections.reading() as connection:
        assert _LOGS.value(connection) == 0
        database.create_log()
        assert _LOGS.value(connection) == 0
        assert database.connections.rows(_LOGS) == [(1,)]
    with database.connections.reading() as connection:
        assert _LOGS.value(connection) == 1


def test_as_many_blocks_read_at_once_as_want_to_and_a_few_connections_stay(
    database: Database,
) -> None:
    used: list[Connection] = []
    for _ in range(2):
        with ExitStack() as blocks:
            entered = [blocks.enter_context(database.connections.reading()) for _ in range(20)]
            assert len({id(one.raw) for one in entered}) == 20
            used += entered
    kept = {id(one.raw) for one in used if not is_closed(one.raw)}
    assert 0 < len(kept) <= 4
    assert len({id(one.raw) for one in used}) == 40 - len(kept)


def test_a_block_that_outlives_the_close_leaves_nothing_open(database: Database) -> None:
    record(database)
    with database.connections.reading() as connection:
        database.connections.close()
        assert _LOGS.value(connection) == 1
    assert is_closed(connection.raw)
    with pytest.raises(AuditUnavailable, match="closed"):
        database.connections.rows(_LOGS)


def test_a_reader_whose_statement_failed_is_closed(database: Database) -> None:
    with pytest.raises(StorageFailed), database.connections.reading() as connection:
        _FAILS.rows(connection, n=_LEAST)
    assert is_closed(connection.raw)
    with pytest.raises(NotFound), database.connections.reading() as connection:
        _FAILS.rows(connection, n=2**70)
    assert not is_closed(connection.raw)


def test_a_writer_whose_look_failed_is_closed_when_the_store_is_locked_next(
    database: Database,
) -> None:
    record(database)
    with database.connections.writing() as connection:
        before = connection.raw
    generation = database.connections.generation
    with pytest.raises(StorageFailed):
        database.connections.rows(_FAILS, n=_LEAST)
    assert database.connections.rows(_LOGS) == [(1,)]
    # closing it may copy the write-ahead log, which needs the lock
    assert not is_closed(before)
    with database.connections.writing() as connection:
        assert connection.raw is not before and is_closed(before)
    assert database.connections.generation == generation + 1


def test_a_transaction_that_fails_leaves_nothing(database: Database) -> None:
    add = prepare("INSERT INTO log (id) VALUES (:id)")
    with pytest.raises(ZeroDivisionError), database.connections.writing() as connection:
        add.run(connection, id="a")
        raise ZeroDivisionError
    with pytest.raises(AuditUnavailable), database.connections.writing() as connection:
        add.run(connection, id="b")
        add.run(connection, id="b")
    assert database.connections.rows(_LOGS) == [(0,)]
    with database.connections.writing() as connection:
        add.run(connection, id="c")
    assert database.connections.rows(_LOGS) == [(1,)]


def test_a_forked_child_has_connections_of_its_own(database: Database) -> None:
    record(database)
    with database.connections.reading() as connection:
        parents = connection.raw
    child = os.fork()
    if not child:
        status = 1
        try:
            with database.connections.reading() as connection:
                own = connection.raw is not parents and _LOGS.value(connection) == 1
            database.create_log()
            status = 0 if own else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert database.connections.rows(_LOGS) == [(2,)]
    with database.connections.reading() as connection:
        assert connection.raw is parents
