"""Statements with named parameters, and conditions that are put together when they are asked."""

import sqlite3
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_audit.sql.ground.conditions import MANY, Where, chunks, in_values
from loom_audit.sql.ground.connection import Connection
from loom_audit.sql.ground.statements import prepare, translate


def test_parameters_stand_where_a_driver_wants_them() -> None:
    sql = "SELECT a FROM t WHERE x = :one AND y > :two OR z = :one"
    assert translate(sql, "sqlite") == (
        "SELECT a FROM t WHERE x = ? AND y > ? OR z = ?",
        ("one", "two", "one"),
    )
    assert translate(sql, "postgresql") == (
        "SELECT a FROM t WHERE x = %(one)s AND y > %(two)s OR z = %(one)s",
        ("one", "two", "one"),
    )


@pytest.mark.parametrize(
    "text",
    [
        "':no'",
        "'it''s :no'",
        '":no"',
        '"a"":no"',
        "-- :no\n",
        "/* :no\n :no */",
        "x::int",
        "'--' || ':no'",
        "''",
        "'/*' || 1 /* ':no */",
    ],
)
def test_a_colon_in_a_literal_a_name_a_comment_or_a_cast_is_not_a_parameter(text: str) -> None:
    for dialect, mark in (("sqlite", "?"), ("postgresql", "%(a)s")):
        sql = f"SELECT :a, {text}, :a"
        assert translate(sql, dialect) == (f"SELECT {mark}, {text}, {mark}", ("a", "a"))  # type: ignore[arg-type]


def test_percent_signs_stay_single_where_they_mean_nothing() -> None:
    sql = "SELECT 5 % 2, x LIKE 'a%' -- 100%\n, :a"
    assert translate(sql, "sqlite")[0] == sql.replace(":a", "?")
    assert translate(sql, "postgresql")[0] == "SELECT 5 %% 2, x LIKE 'a%%' -- 100%%\n, %(a)s"


@pytest.fixture
def connection() -> Connection:
    raw = sqlite3.connect(":memory:", isolation_level=None)
    raw.execute("CREATE TABLE t (n INTEGER, word TEXT)")
    return Connection(raw)


@given(st.lists(st.text("ab':\"% ", max_size=6), min_size=1, max_size=4))
def test_any_quoted_text_comes_back_as_it_was(texts: list[str]) -> None:
    quoted = ", ".join("'" + text.replace("'", "''") + "', :v" for text in texts)
    raw = sqlite3.connect(":memory:")
    row = prepare(f"SELECT {quoted}").first(Connection(raw), v=7)
    raw.close()
    assert row == tuple(part for text in texts for part in (text, 7))


def test_statements_insert_and_find(connection: Connection) -> None:
    prepare("INSERT INTO t (n, word) VALUES (:n, :word)").insert(
        connection, [{"word": f"w{n}", "n": n} for n in range(5)]
    )
    assert prepare("SELECT n, word FROM t WHERE n >= :low ORDER BY n").rows(connection, low=3) == [
        (3, "w3"),
        (4, "w4"),
    ]
    assert prepare("SELECT max(n) FROM t").value(connection) == 4
    assert prepare("SELECT n FROM t WHERE n = :n").first(connection, n=9) is None
    assert prepare("SELECT n FROM t WHERE n = :n").value(connection, n=9) is None


def test_a_missing_value_is_an_error(connection: Connection) -> None:
    with pytest.raises(KeyError, match="low"):
        prepare("SELECT n FROM t WHERE n >= :low AND n < :high").rows(connection, high=3)


def test_the_same_text_is_prepared_once() -> None:
    assert prepare("SELECT :a") is prepare("SELECT" + " :a")


def test_conditions_must_all_hold(connection: Connection) -> None:
    rows: list[dict[str, Any]] = [
        {"n": n, "word": "even" if n % 2 == 0 else "odd"} for n in range(10)
    ]
    prepare("INSERT INTO t (n, word) VALUES (:n, :word)").insert(connection, rows)

    def found(where: Where) -> list[int]:
        sql = f"SELECT n FROM t WHERE {where} ORDER BY n"
        return [row[0] for row in prepare(sql).rows(connection, **where.values)]

    everything = Where()
    assert found(everything) == list(range(10))
    odd = everything.also("word = :word", word="odd").also("n > :low OR n = :none", low=2, none=-1)
    assert found(odd) == [3, 5, 7, 9]
    assert found(odd.among("n", "wanted", [2, 3, 9, 11])) == [3, 9]
    assert found(odd.among("n", "wanted", [])) == []
    assert found(everything) == list(range(10))


def test_one_parameter_cannot_have_two_values() -> None:
    where = Where().also("a = :x", x=1)
    assert where.also("b = :x", x=1).values == {"x": 1}
    with pytest.raises(ValueError, match=":x"):
        where.also("b = :x", x=2)


@given(st.lists(st.integers(0, 2_000), max_size=2_000))
def test_a_list_of_any_length_is_found_in_parts(numbers: list[int]) -> None:
    raw = sqlite3.connect(":memory:")
    raw.setlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER, 999)
    raw.execute("CREATE TABLE t (n INTEGER)")
    raw.executemany("INSERT INTO t VALUES (?)", [(n,) for n in range(1_000)])
    found = []
    for some in chunks(numbers):
        listed, values = in_values("n", some)
        found += prepare(f"SELECT n FROM t WHERE n IN ({listed})").rows(Connection(raw), **values)
    raw.close()
    assert {n for (n,) in found} == {n for n in numbers if n < 1_000}


def test_few_statements_serve_lists_of_all_lengths() -> None:
    assert len({in_values("n", range(length))[0] for length in range(MANY + 1)}) == 11
    with pytest.raises(ValueError, match="chunks"):
        in_values("n", range(MANY + 1))
