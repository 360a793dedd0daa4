"""What a hook finds of a held session."""

import stat
from hashlib import sha256
from pathlib import Path

import pytest

from loom_audit.disk.machine.held import DiskHeldSessions
from loom_audit.errors import AuditError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "home" / "held"


@pytest.fixture
def held(folder: Path) -> DiskHeldSessions:
    folder.parent.mkdir()
    return DiskHeldSessions(folder)


@pytest.mark.parametrize("session", ["s", "é\udcff", "../../escape", "x" * 200])
def test_a_file_is_found_by_the_hash_of_the_id_and_holds_the_reason(
    held: DiskHeldSessions, folder: Path, session: str
) -> None:
    assert held.get(session) is None
    held.keep(session, "held: stöp")
    [file] = folder.iterdir()
    assert file.name == sha256(session.encode("utf-8", "surrogatepass")).hexdigest()
    assert file.read_bytes() == "held: stöp".encode() and held.get(session) == "held: stöp"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    held.discard(session)
    assert [*folder.iterdir()] == [] and held.get(session) is None


def test_a_later_reason_replaces_the_earlier_and_the_same_one_is_not_written_again(
    held: DiskHeldSessions, folder: Path
) -> None:
    held.keep("s", "one")
    before = next(folder.iterdir()).stat().st_ino
    held.keep("s", "one")
    assert next(folder.iterdir()).stat().st_ino == before
    held.keep("s", "two")
    assert held.get("s") == "two"


def test_nothing_is_discarded_twice_and_without_a_folder(held: DiskHeldSessions) -> None:
    held.discard("s")
    held.keep("s", "why")
    held.discard("s")
    held.discard("s")


def test_a_file_that_cannot_be_read_is_an_error_of_ours(
    held: DiskHeldSessions, folder: Path
) -> None:
    folder.mkdir()
    (folder / sha256(b"s").hexdigest()).mkdir()
    with pytest.raises(AuditError):
        held.get("s")
