"""What is kept between the begin and the end of a foreign call."""

import os
from pathlib import Path

import pytest

from loom_audit.disk.machine.looks import DiskLooks
from loom_audit.ports import Looks


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "looks"


@pytest.fixture
def looks(folder: Path) -> Looks:
    return DiskLooks(folder)


ODD = "s\0" + os.fsdecode(b"\xff/../x") + "\n"


def test_what_is_kept_is_there_for_all_until_it_is_discarded(looks: Looks, folder: Path) -> None:
    seen = [{os.fsdecode(b"odd\xff"): 2**63}, ["a"]]
    looks.keep("one", seen)
    looks.keep(ODD, [])
    assert DiskLooks(folder).get("one") == seen and looks.get(ODD) == []
    looks.keep("one", [1])
    assert looks.get("one") == [1]
    looks.discard("one")
    looks.discard("one")
    assert looks.get("one") is None and looks.get(ODD) == []
    assert len([*folder.iterdir()]) == 1


def test_what_was_never_kept_or_is_torn_is_not_there(looks: Looks, folder: Path) -> None:
    assert looks.get("one") is None
    looks.discard("one")
    looks.keep("one", [1, 2, 3])
    [file] = folder.iterdir()
    for torn in (b"", b"[1, 2", b"\xff\xfe"):
        file.write_bytes(torn)
        assert looks.get("one") is None
