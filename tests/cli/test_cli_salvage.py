"""`salvage`: everything readable out of a store."""

import sqlite3
from contextlib import closing
from pathlib import Path

from tests.cli.shells import Shell, walk


def test_salvage_of_a_healthy_store_gets_everything_out(busy: Shell, tmp_path: Path) -> None:
    (done,) = busy.records("salvage", "--to", str(tmp_path / "out"))
    assert (done["failures"], done["notice"]) == ([], "")
    assert done["events"] == len(busy.records("log", "--events", "-n", "0"))
    (tree,) = (tmp_path / "out" / "trees").iterdir()
    assert walk(tree) == busy.tree()
    text = busy("salvage", "--to", str(tmp_path / "again")).text
    assert text.startswith(f"{done['events']} events, {done['contents']} contents, ")


def test_salvage_of_a_damaged_store_says_what_failed_and_exits_with_1(
    busy: Shell, tmp_path: Path
) -> None:
    with closing(sqlite3.connect(busy.database)) as raw:
        raw.execute("DELETE FROM blob_content WHERE blob = (SELECT min(blob) FROM blob_content)")
        raw.commit()
    ran = busy("salvage", "--to", str(tmp_path / "out"), code=1)
    assert "failures.txt" in ran.text
    assert (tmp_path / "out" / "failures.txt").read_text()


def test_salvage_of_a_locked_store_works(busy: Shell, tmp_path: Path) -> None:
    with closing(sqlite3.connect(busy.database, isolation_level=None)) as raw:
        raw.execute("BEGIN EXCLUSIVE")
        (done,) = busy.records("salvage", "--to", str(tmp_path / "out"))
    assert done["failures"] == []


def test_salvage_refuses_a_folder_that_is_not_empty(busy: Shell) -> None:
    refused = busy("salvage", "--to", str(busy.workspace), code=5)
    assert "not empty" in refused.errors
