"""What became of files after a point, looked up file by file."""

import asyncio
from pathlib import Path

import pytest

from loom_audit.api.face import open_store
from loom_audit.api.lines import lines_of
from loom_audit.api.review.later_changes import LaterChanges


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
        lines, start = lines_of(workspace), workspace.timeline.session(session.id).started
        found = LaterChanges(workspace, lines.net(lines.between(start - 1, first.seq)))
        assert found.get("a") == (again, last) and found.get("b") is None
        [c, *_] = workspace.timeline.history("c")
        assert dict(found) == {"a": (again, last), "c": (c, c)} and len(found) == 2
        assert found.get("no such") is None
