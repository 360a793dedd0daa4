"""verify and head: what they find, what they print, how they end."""

import random
import re
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from loom_audit.wiring.adapters import Adapters
from tests.cli.shells import Shell


@pytest.fixture
def recorded(audited: Shell) -> Shell:
    """A workspace with three calls on record, and heads kept of them."""
    audited.call("write_file", path="b.txt", content="one\n")
    audited.call("edit_file", path="b.txt", old_str="one", new_str="two")
    audited.call("delete_file", path="a.txt")
    return audited


def tamper(shell: Shell, *statements: str, values: Sequence[object] = ()) -> None:
    """What somebody with write access to the database file can do."""
    with closing(sqlite3.connect(shell.home / "audit.db")) as raw:
        guards = raw.execute(
            "SELECT name, sql FROM sqlite_master WHERE type = 'trigger'"
        ).fetchall()
        for name, _ in guards:
            raw.execute(f"DROP TRIGGER {name}")
        for statement in statements:
            raw.execute(statement, values)
        for _, sql in guards:
            raw.execute(sql)
        raw.commit()


def test_an_untouched_log_is_ok_and_anchored_by_the_heads_kept(recorded: Shell) -> None:
    found = recorded("verify")
    assert found.text.endswith("ok\n")
    (record,) = recorded.records("verify")
    assert (record["exit_code"], record["findings"], record["unanchored"]) == (0, [], 0)
    assert record["size"] == len(recorded.records("log", "--events", "-n", "0"))
    (head,) = recorded.records("head")
    assert (head["size"], head["root"]) == (record["size"], record["root"])


def test_it_is_said_who_signed_and_how_far(recorded: Shell) -> None:
    assert "signed     by nobody; isolation: same user\n" in recorded("verify").text
    (made,) = recorded.records("keys", "init")
    size = made["logs"][0]["size"]
    (record,) = recorded.records("verify")
    assert record["signed"] == [{"key": made["key"], "size": size}]
    assert record["isolation"] == "same user"
    recorded.call("write_file", path="c.txt", content="c")
    (new,) = recorded.records("keys", "rotate")
    recorded.call("write_file", path="d.txt", content="d")
    to = new["logs"][0]["size"]
    said = f"by {made['key']} to {to}, by {new['key']} to {to}; isolation: same user\n"
    assert f"signed     {said}" in recorded("verify").text
    assert "signed     by " in recorded("verify", "--quick").text


def test_a_signed_head_anchors_what_it_is_over(recorded: Shell) -> None:
    recorded("keys", "init")
    for file in (recorded.home / "heads").glob("*/*.heads"):
        file.unlink()
    (record,) = recorded.records("verify")
    assert (record["anchored"], record["findings"]) == (record["size"], [])
    tamper(recorded, "DELETE FROM event WHERE seq = (SELECT max(seq) FROM event)")
    (record,) = recorded.records("verify", "--quick", code=1)
    assert {"log.short", "log"} & {one["code"] for one in record["findings"]}
    assert record["signed"] == []


def test_every_change_of_a_signed_head_is_found(recorded: Shell) -> None:
    (made,) = recorded.records("keys", "init")
    [file] = (recorded.home / "heads").glob("*/*.signed")
    [last] = (recorded.home / "config" / "keys").glob("*/*.last")
    whole = file.read_bytes()
    chosen = random.Random(29)
    for n in range(25):
        at = chosen.randrange(len(whole.rstrip()))
        byte = bytes([whole[at] ^ 1 << chosen.randrange(8)])
        raw = whole[:at] + byte + whole[at + 1 :]
        file.write_bytes(raw)
        last.write_bytes(raw[:-1])
        found = recorded("verify", "--quick", "--json", code=None)
        (record,) = found.records
        assert found.code in (1, 3) and record["findings"], (n, raw)
        assert record["signed"] == [], (n, raw)
    file.write_bytes(whole)
    last.write_bytes(whole[:-1])
    assert recorded.records("verify", "--quick", code=None)[0]["signed"] == [
        {"key": made["key"], "size": made["logs"][0]["size"]}
    ]


def test_what_no_known_key_signed_is_told_and_compared(recorded: Shell) -> None:
    recorded("keys", "init")
    [ring] = (recorded.home / "config" / "keys").glob("*/ring.json")
    kept = ring.read_bytes()
    ring.unlink()
    (record,) = recorded.records("verify", code=3)
    [finding] = record["findings"]
    assert (finding["code"], record["signed"]) == ("signed.unknown", [])
    assert record["unanchored"] == 0
    ring.write_bytes(kept)
    ring.chmod(0o644)
    codes = {one["code"] for one in recorded.records("verify", code=3)[0]["findings"]}
    assert codes == {"keys.unreadable", "signed.unknown"}


def test_events_after_the_last_head_kept_are_unanchored(recorded: Shell) -> None:
    recorded("checkpoint", "later")
    (record,) = recorded.records("verify", code=3)
    assert (record["findings"], record["unanchored"]) == ([], 1)
    text = recorded("verify", code=3).text
    assert "unanchored: nothing was found altered; if the " in text
    assert "incomplete" not in text
    assert "not vouched for" in text
    assert " 0 " not in text.split("root")[0], "what is not there is not counted"


def test_a_head_printed_earlier_vouches_for_its_events(recorded: Shell, tmp_path: Path) -> None:
    recorded("checkpoint", "later")
    heads = tmp_path / "heads.txt"
    heads.write_text(recorded("head").text)
    assert recorded("verify", "--against", str(heads)).text.endswith("ok\n")
    assert recorded("verify", "--against", "-", stdin=heads.read_bytes())


def test_an_altered_event_is_tampered_and_named(recorded: Shell) -> None:
    tamper(recorded, "UPDATE event SET leaf_hash = zeroblob(32) WHERE seq = 5")
    (record,) = recorded.records("verify", code=1)
    assert 5 in {finding["seq"] for finding in record["findings"]}
    assert "event 5: " in recorded("verify", "--quick", code=1).text


def test_a_log_cut_off_at_its_end_is_found_by_the_heads_kept(recorded: Shell) -> None:
    tamper(
        recorded,
        "DELETE FROM event WHERE seq > 6",
        "DELETE FROM payload WHERE seq > 6",
    )
    assert recorded("verify", code=1)


def test_verify_reads_a_sample_when_asked(recorded: Shell) -> None:
    (record,) = recorded.records("verify", "--sample", "3")
    assert record["checked"]["sampled"] == 3


def test_a_log_started_over_is_found_by_a_head_of_the_one_before(
    recorded: Shell, tmp_path: Path
) -> None:
    heads = tmp_path / "heads.txt"
    heads.write_text(recorded("head").text)
    old = recorded.home.rename(tmp_path / "old")
    recorded("init")
    recorded.call("write_file", path="c.txt", content="new\n")
    (record,) = recorded.records("verify", "--against", str(heads), code=1)
    (finding,) = record["findings"]
    assert heads.read_text().split()[2] in finding["message"] and old.exists()
    assert "TAMPERED" in recorded("verify", "--against", str(heads), code=1).text


HIDDEN = {
    "emptied": ("DELETE FROM event", "DELETE FROM payload", "DELETE FROM workspace"),
    "unlisted": ("DELETE FROM workspace",),
    "filed elsewhere": ("UPDATE workspace SET root = CAST('/elsewhere' AS BLOB)",),
}


@pytest.mark.parametrize("statements", HIDDEN.values(), ids=HIDDEN)
def test_a_log_that_another_one_took_the_place_of_is_found_by_the_new_one(
    recorded: Shell, statements: Sequence[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (old,) = recorded.records("head")
    tamper(recorded, "PRAGMA foreign_keys = OFF", *statements)
    if "DELETE FROM event" not in statements:
        assert old["log"] in recorded("init", code=6).errors
    with monkeypatch.context() as patch:  # as 0.2.0 and before began another log
        patch.setattr(Adapters, "_refuse_unnamed", lambda *_: None)
        patch.setattr(Adapters, "moved_to", lambda *_: None)
        recorded("init")
    recorded.call("write_file", path="c.txt", content="new\n")
    (record,) = recorded.records("verify", code=1)
    assert record["log"] != old["log"]
    assert record["unanchored"] == 0
    assert any(old["log"] in finding["message"] for finding in record["findings"])


def test_another_workspace_of_the_store_is_not_a_finding(recorded: Shell, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    recorded("init", cwd=tmp_path / "other")
    assert recorded("verify").text.endswith("ok\n")


def test_every_head_of_the_file_is_compared_and_not_the_newest_alone(
    recorded: Shell, tmp_path: Path
) -> None:
    heads = tmp_path / "heads.txt"
    (head,) = recorded.records("head")
    forged = f"loom-audit-head v1 {head['log']} {head['size'] - 2} {'0' * 64}\n"
    heads.write_text(forged + recorded("head").text)
    (record,) = recorded.records("verify", "--against", str(heads), code=1)
    assert [finding["code"] for finding in record["findings"]] == ["head.root"]


@pytest.mark.parametrize("size", ["\N{SUPERSCRIPT TWO}", "9" * 5000, "-1", "1.0"])
def test_a_line_whose_size_is_not_a_number_is_not_a_head(
    recorded: Shell, tmp_path: Path, size: str
) -> None:
    (tmp_path / "heads.txt").write_text(f"loom-audit-head v1 x {size} {'0' * 64}\n")
    refused = recorded("verify", "--against", str(tmp_path / "heads.txt"), code=4)
    assert "holds no tree head" in refused.errors


def test_a_head_of_this_log_is_taken_from_among_those_of_others(
    recorded: Shell, tmp_path: Path
) -> None:
    other = "loom-audit-head v1 other 9999 " + "0" * 64 + "\n"
    (tmp_path / "heads.txt").write_text(other + recorded("head").text + other)
    assert recorded("verify", "--against", str(tmp_path / "heads.txt")).text.endswith("ok\n")


def test_a_file_without_heads_cannot_be_compared_with(recorded: Shell, tmp_path: Path) -> None:
    (tmp_path / "none.txt").write_text("loom-audit-head v1 other 3 " + "0" * 63 + "\n")
    refused = recorded("verify", "--against", str(tmp_path / "none.txt"), code=4)
    assert "hint: " in refused.errors
    assert recorded("verify", "--against", str(tmp_path / "absent.txt"), code=4).errors


def test_a_check_that_leaves_something_out_says_so(recorded: Shell) -> None:
    assert "unchecked" not in recorded("verify").text
    quick = recorded("verify", "--quick").text
    assert "unchecked  contents and what is derived from events\n" in quick
    assert "but for the sample" in recorded("verify", "--sample", "3").text


def test_verify_of_a_store_that_cannot_be_opened_leads_to_salvage(audited: Shell) -> None:
    audited.database.write_bytes(b"no database " * 1000)
    refused = audited("verify", code=None)
    assert refused.code != 0 and "salvage" in refused.errors
    assert "loom-audit verify" not in refused.errors


def kept_heads(recorded: Shell) -> Path:
    """The file in which the heads of the log are kept."""
    (file,) = recorded.home.glob("heads/*/*.heads")
    return file


def test_heads_that_are_given_are_compared_beside_those_that_are_kept(
    recorded: Shell, tmp_path: Path
) -> None:
    heads = tmp_path / "heads.txt"
    (head,) = recorded.records("head")
    heads.write_text(recorded("head").text)
    file = kept_heads(recorded)
    forged = f"loom-audit-head v1 {head['log']} {head['size'] - 2} {'0' * 64}\n"
    file.write_text(forged + file.read_text())
    for words in ((), ("--against", str(heads))):
        (record,) = recorded.records("verify", *words, code=1)
        assert [finding["code"] for finding in record["findings"]] == ["head.root"]


def test_a_log_that_is_gone_is_missed_also_when_heads_are_given(
    recorded: Shell, tmp_path: Path
) -> None:
    heads = tmp_path / "heads.txt"
    heads.write_text(recorded("head").text)
    file = kept_heads(recorded)
    file.with_name("gone.heads").write_text(f"loom-audit-head v1 gone 3 {'0' * 64}\n")
    (record,) = recorded.records("verify", "--against", str(heads), code=1)
    assert ["gone" in finding["message"] for finding in record["findings"]] == [True]


DAMAGES: dict[str, Callable[[str], str]] = {
    "a letter of its name": lambda line: line.replace("loom-audit-head", "loom-audit-heaf"),
    "its size": lambda line: re.sub(r" (\d+) ", " x ", line),
    "a digit of its root": lambda line: line[:-1] + "g",
    "a root that is too long": lambda line: line + "00",
    "a word more": lambda line: line + " 1",
    "not text": lambda line: "\udcff\udcfe" + line[2:],
    "another version": lambda line: line.replace(" v1 ", " v7 "),
    "something else": lambda line: "# kept by me",
    "cut off at its beginning": lambda line: line[9:],
}


@pytest.mark.few(3)
@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_line_among_the_heads_that_are_kept_is_said(
    recorded: Shell, damage: Callable[[str], str]
) -> None:
    file = kept_heads(recorded)
    first, *more = file.read_text().splitlines()
    assert more
    text = "\n".join([damage(first), *more, ""])
    file.write_bytes(text.encode("utf-8", "surrogateescape"))
    (record,) = recorded.records("verify", code=3)
    (finding,) = record["findings"]
    assert (finding["code"], finding["grade"]) == ("head.damaged", "incomplete")
    assert "line 1 " in finding["message"] and str(file) in finding["message"]


@pytest.mark.few(2)
@pytest.mark.parametrize("left", [1, 9, 19, 30, 37, 40, 99])
def test_a_line_that_a_power_cut_left_half_written_is_not_damage(
    recorded: Shell, left: int
) -> None:
    file = kept_heads(recorded)
    whole = file.read_text().splitlines()[0]
    file.write_text(file.read_text() + whole[:left])
    recorded.call("write_file", path="more.txt", content="more\n")
    assert recorded("verify").text.endswith("ok\n")
    file.write_bytes(file.read_bytes() + b"\0" * 90)
    assert recorded("verify").text.endswith("ok\n")
