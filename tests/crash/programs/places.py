"""A store and a workspace in which a call was made, brought back for each fault at a commit."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from loom_audit import AuditedWorkspace, open_store
from loom_audit.history.look.doers import UNKNOWN
from loom_audit.history.record.call_record import LOOKED_AT_LATE
from loom_audit.model.events import CallFinished, FilesChanged
from tests.crash.programs.faults import (
    Stem,
    check_finishes,
    check_fold,
    check_log,
    lines,
    wait_for,
    working_in,
)
from tests.oracles.changes import check_each_change_once
from tests.oracles.trees import tree_of

NATIVE = ("tool", "shell", "run", "recording", "undo", "function", "steps", "rollback")


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
    """One finish per request, each change once, nothing unrecorded, all verified.

    Each change is a call's, or was found after one that was interrupted and may have made it.
    """
    check_finishes(workspace)
    events = [*workspace.log.read()]
    check_each_change_once(events)
    ends = {one.seq: one.fact for one in events if isinstance(one.fact, CallFinished)}
    for event in events:
        found = event.fact
        if event.seq <= since or not isinstance(found, FilesChanged):
            continue
        if found.changes and not found.call_id:
            check_candidates(workspace, found, ends)
    assert workspace.status().drift == ()
    check_fold(workspace, tree_of(workspace.root))
    check_log(workspace, [])


def check_candidates(
    workspace: AuditedWorkspace, found: FilesChanged, ends: Mapping[int, CallFinished]
) -> None:
    """Nobody saw who made it: interrupted calls say so, and only a choice takes it back."""
    assert (found.origin, found.causes[-1:]) == ("outside", (UNKNOWN,)), f"{found} is nobody's"
    calls = [workspace.timeline.listed_call(int(one)) for one in found.causes if one != UNKNOWN]
    assert calls, f"{found} has no candidate"
    paths = {change.path for change in found.changes}
    for call in calls:
        ended = ends[call.seq or 0].status  # until a report came of how it did end
        assert (ended, call.coverage.level) == ("interrupted", "partial"), call
        assert LOOKED_AT_LATE in call.coverage.reasons and paths.isdisjoint(call.paths), call
        kept = workspace.plan_revert([call.seq or 0])
        assert paths.isdisjoint(change.path for change in kept.changes)
        chosen = workspace.plan_revert([call.seq or 0], choices=dict.fromkeys(paths, "old"))
        assert paths <= {change.path for change in chosen.changes}
