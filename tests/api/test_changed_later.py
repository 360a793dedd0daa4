"""What became of files after a point, looked up file by file."""

import asyncio
from pathlib import Path

import pytest

from loom_audit.api.face import open_store
from loom_audit.api.review.later_changes import changed_later


def test_later_changes_are_told_of_the_files_that_were_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOOM_AUDIT_HOME", str(tmp_path / "home"))
    (tmp_path / "work").mkdir()
    with open_store() as store:
        workspace = store.attach(tmp_path / "work")
        with workspace.session("test") as session:
            for path in ("a", "b", "c", "a", "a", "c"):
                text = {"path": path, "content": f"{workspace.log.head()}"}
                assert asyncio.run(session.call("write_file", text)).success
        first, *_ = reversed(workspace.timeline.history("c"))
        last, again, _ = workspace.timeline.history("a")
        found = changed_later(workspace, ["a", "b", "no such"], first.seq)
        assert found.get("a") == (again, last) and found.get("b") is None
        assert found.get("c") is None, "nobody asked for it"
        assert dict(found) == {"a": (again, last)} and len(found) == 1
