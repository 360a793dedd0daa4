"""A store and a workspace in which a call was made, brought back for each fault at a commit."""

import shutil
from pathlib import Path
from typing import Any

from loom_audit import AuditedWorkspace, open_store
from loom_audit.model.events import FilesChanged
from tests.changes import check_each_change_once
from tests.crash.faults import (
    Stem,
    check_finishes,
    check_fold,
    check_log,
    lines,
    wait_for,
    working_in,
)
from tests.trees import tree_of

NATIVE = ("tool", "shell", "run", "recording", "function", "steps", "undo", "rollback")


class Place:
    """A store and a workspace in which a call was made, brought back for each kill."""

    def __init__(self, folder: Path, stem: Stem) -> None:
        self._stem = stem
        self._kept = folder / "kept"
        self._report = folder / "report"
        self.home, self.root = folder / "home", folder / "root"
        self.root.mkdir()
        (self.root / "old.txt").write_text("old\n")
        with open_store() as store:
            workspace = store.attach(self.root)
            workspace.checkpoint("start")
            with workspace.session("earlier") as session:
                session.run(["sh", "-c", "echo more >> old.txt; mkdir d; echo x > d/x; echo y > y"])
        (self.home / "audit.db.ballast").unlink(missing_ok=True)
        for part in (self.home, self.root):
            shutil.copytree(part, self._kept / part.name)

    def keep(self) -> None:
        """Let it be brought back as it is now."""
        shutil.rmtree(self._kept)
        for part in (self.home, self.root):
            shutil.copytree(part, self._kept / part.name)

    def bring_back(self) -> None:
        for part in (self.home, self.root):
            shutil.rmtree(part)
            shutil.copytree(self._kept / part.name, part)

    def run(self, way: str, **order: Any) -> bool:
        """Whether the child was killed, or interrupted by the signal; else it ended well."""
        self._report.unlink(missing_ok=True)
        paths = {"home": str(self.home), "root": str(self.root), "report": str(self._report)}
        self._stem.begin(scenario="way", way=way, **paths, **order)
        status = self._stem.end()
        said = lines(self._report)
        told = bool(said) and said[-1].get("error") == "KeyboardInterrupt"
        assert status in (0, -9) or (told and "signal" in order), said
        wait_for("the end of the commands", lambda: not working_in(self.root))
        return status == -9 or told


def check_whole(workspace: AuditedWorkspace, *, since: int = 0) -> None:
    """One finish per request, each change once and a call's, nothing unrecorded, all verified."""
    check_finishes(workspace)
    events = [*workspace.log.read()]
    check_each_change_once(events)
    for event in events:
        if isinstance(event.fact, FilesChanged) and event.fact.changes:
            assert event.seq <= since or event.fact.call_id, f"{event.fact.changes} are nobody's"
    assert workspace.status().drift == ()
    check_fold(workspace, tree_of(workspace.root))
    check_log(workspace, [])
