"""A large content lies in a file of its own; one that was put in its place is never served."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from loom_audit.api.face import AuditedWorkspace, open_store
from loom_audit.errors import Corrupt
from loom_audit.sql.contents.encodings import compress
from tests.cli.shells import Shell
from tests.web.conftest import asking

BEFORE, AFTER, FORGED = (random.Random(n).randbytes(700_000).hex().encode() for n in range(3))


@pytest.fixture
def forged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[AuditedWorkspace]:
    """A workspace with one file, written over by a call; what it was is not what lies there."""
    monkeypatch.setenv("LOOM_AUDIT_HOME", str(tmp_path / "home"))
    root = tmp_path / "work"
    root.mkdir()
    (root / "large.txt").write_bytes(BEFORE)
    with open_store() as store:
        found = store.attach(root)
        with found.session("test") as session, session.recording("build"):
            (root / "large.txt").write_bytes(AFTER)
        state = found.timeline.state("large.txt", 3)
        assert state and state.blob and found.timeline.content(state) == BEFORE
    [file] = (tmp_path / "home" / "blobs").rglob(f"*{state.blob[2:]}*")
    encoding, stored = compress(FORGED)
    assert encoding == "zstd" and len(FORGED) == len(BEFORE)
    file.chmod(0o600)
    file.write_bytes(stored)
    with open_store() as store:
        yield store.workspace(found.id)


def test_no_command_prints_it(forged: AuditedWorkspace, tmp_path: Path) -> None:
    shell = Shell(tmp_path / "work", tmp_path / "home")
    for line in ("cat large.txt --at 3", "cat large.txt --at 3 --raw", "diff 3 head --raw"):
        ran = shell(*line.split(), code=6)
        assert ran.stdout == b""


def test_no_page_shows_it_and_no_download_has_it(forged: AuditedWorkspace) -> None:
    url = f"/w/{forged.id}"
    with asking(open_store(), raises=False) as client:
        page = client.get(f"{url}/at/3/large.txt")
        download = client.get(f"{url}/raw/3/large.txt")
    assert "<code>CORRUPT</code>" in page.text
    assert FORGED[:100] not in page.content and BEFORE[:100] not in page.content
    assert download.status_code == 500 and FORGED[:100] not in download.content


def test_no_undo_writes_it(forged: AuditedWorkspace) -> None:
    with pytest.raises(Corrupt):
        forged.carry_out(forged.plan_undo())
    assert (Path(forged.root) / "large.txt").read_bytes() == AFTER
    assert [path.name for path in Path(forged.root).iterdir()] == ["large.txt"]


def test_no_replay_writes_it(forged: AuditedWorkspace, tmp_path: Path) -> None:
    with pytest.raises(Corrupt):
        forged.replay(3, tmp_path / "again")
    assert not [*(tmp_path / "again").glob("large.txt")]
