"""Heads that are signed as the log grows, and handed over to a folder."""

import os
import shutil
from pathlib import Path

import pytest

from loom_audit.model.events import TreeHead
from loom_audit.model.signed.signed_heads import read_signed_head, sign_head
from tests.cli.shells import Shell


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "elsewhere"
    made.mkdir()
    return made


def test_the_head_is_signed_as_the_log_grows(audited: Shell) -> None:
    assert "keys init" in audited("heads", "send", code=4).errors
    (made,) = audited.records("keys", "init")
    audited.call("write_file", path="b.txt", content="b")
    (sent,) = audited.records("heads", "send")
    assert sent["key"] == made["key"] and sent["handed_over"] == []
    size = audited.records("head")[0]["size"]
    assert [one["size"] for one in sent["logs"]] == [size]
    assert audited.records("heads", "send")[0]["logs"] == sent["logs"], "signed once is enough"
    assert audited.records("verify")[0]["signed"] == [{"key": made["key"], "size": size}]
    assert f"to {size}  {audited.workspace}" in audited("heads", "send").text


def test_all_signed_heads_are_put_in_a_folder_once(audited: Shell, folder: Path) -> None:
    audited("keys", "init")
    (sent,) = audited.records("heads", "send", "--to", str(folder))
    [handed] = sent["handed_over"]
    assert (handed["new"], handed["foreign"]) == (1, [])
    audited.call("write_file", path="b.txt", content="b")
    audited("keys", "rotate")
    said = audited("heads", "send", "--to", str(folder)).text
    assert "1 new head in " in said
    assert "0 new heads in " in audited("heads", "send", "--to", str(folder)).text
    first, second = sorted(folder.iterdir())
    assert read_signed_head(first.read_bytes()).head.size < sent["logs"][0]["size"] + 8
    assert len(read_signed_head(second.read_bytes()).note.signatures) == 2
    assert {one.suffix for one in folder.iterdir()} == {".note"}


def test_no_folder_is_made_and_one_that_cannot_be_written_is_said(
    audited: Shell, folder: Path
) -> None:
    audited("keys", "init")
    nowhere = folder / "none"
    assert "there is no folder" in audited("heads", "send", "--to", str(nowhere), code=4).errors
    assert not nowhere.exists()


def test_a_log_that_went_back_and_another_one_are_told(
    audited: Shell, folder: Path, tmp_path: Path
) -> None:
    audited("keys", "init")
    shutil.copytree(audited.home, tmp_path / "copy")
    audited.call("write_file", path="b.txt", content="b")
    audited("heads", "send", "--to", str(folder))
    there = {one.name: one.read_bytes() for one in folder.iterdir()}
    # the whole home is put back: the key, what was signed, the heads
    shutil.rmtree(audited.home)
    shutil.copytree(tmp_path / "copy", audited.home)
    (sent,) = audited.records("heads", "send", "--to", str(folder), code=7)
    assert "the log went back" in sent["handed_over"][0]["foreign"][0]
    for name in "cdefgh":
        audited.call("write_file", path=name, content="c")
    (sent,) = audited.records("heads", "send", "--to", str(folder), code=7)
    assert "two logs of this name" in sent["handed_over"][0]["foreign"][0]
    assert there.items() <= {one.name: one.read_bytes() for one in folder.iterdir()}.items()


def test_a_file_that_was_changed_there_is_told_and_stays(audited: Shell, folder: Path) -> None:
    audited("keys", "init")
    audited("heads", "send", "--to", str(folder))
    [file] = folder.iterdir()
    whole = read_signed_head(file.read_bytes())
    other = sign_head(TreeHead(whole.head.log, whole.head.size, bytes(32)), [bytes(32)])
    for raw in (file.read_bytes()[:-1], other.note.to_bytes(), b""):
        file.write_bytes(raw)
        said = audited("heads", "send", "--to", str(folder), code=7).text
        assert "does not fit" in said and "is not as it was put there" in said
        assert file.read_bytes() == raw
    file.unlink()
    os.mkfifo(file)
    assert (
        "is not as it was put there" in audited("heads", "send", "--to", str(folder), code=7).text
    )
