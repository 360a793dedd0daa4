"""Clients that report their calls at the same time, some of them killed."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from loom_audit import open_store
from loom_audit.history.look.doers import UNKNOWN
from loom_audit.model.events import FilesChanged
from loom_audit.ports import CallFilter
from tests.crash.programs.crowd import CALLS, killed
from tests.crash.programs.faults import ROOT, check_finishes, check_fold, check_log
from tests.oracles.trees import tree_of

pytestmark = pytest.mark.timeout(300)


@pytest.mark.parametrize("count", [5, pytest.param(20, marks=pytest.mark.deep)])
def test_sessions_at_once_lose_nothing_and_share_only_what_they_may_have_changed(
    tmp_path: Path, count: int
) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (root / "shared").touch()
    with open_store() as store:
        store.attach(root)
    done = subprocess.run(
        [sys.executable, "-m", "tests.crash.programs.crowd", str(root), str(count)],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    with open_store() as store:
        workspace = store.workspace(root)
        gone = {f"c{n}-last" for n in range(count) if killed(n)}
        left = {call.call_id for call in workspace.timeline.open_calls()}
        closed = {one.call.call_id for one in workspace.recover()}
        assert left == closed <= gone
        check_finishes(workspace)
        check_log(workspace, [])
        check_fold(workspace, tree_of(root))
        assert workspace.status().drift == ()
        owners: dict[str, set[str]] = {}
        state: dict[str, Any] = {}
        requests = {
            call.requested: call for call in workspace.timeline.calls(CallFilter(limit=None))
        }
        for event in workspace.log.read():
            if not isinstance(event.fact, FilesChanged) or event.fact.origin == "baseline":
                continue
            for change in event.fact.changes:
                assert change.before == state.get(change.path, change.before), "on record twice"
                state[change.path] = change.after
                among = {requests[int(one)].call_id for one in event.fact.causes if one != UNKNOWN}
                if event.fact.origin == "outside":  # nobody saw the end of a client that was killed
                    assert among and among <= gone, f"{change.path} is nobody's"
                    continue
                assert event.fact.call_id, f"{change.path} is nobody's"
                if event.fact.call_id not in among:  # its own, also where others may have done it
                    among = {event.fact.call_id}
                owners.setdefault(change.path, set()).update(among)
        for n in range(count):
            for k in range(CALLS):
                mine = f"c{n}-{k}"
                assert mine in owners[f"{n}-{k}"]
                if k % 2 == 0:  # it said that it changes this file
                    assert owners[f"{n}-{k}"] == {mine}
        statuses = {
            call.call_id: call.status for call in workspace.timeline.calls(CallFilter(limit=None))
        }
        for n in range(count):
            assert statuses[f"c{n}-last"] == ("interrupted" if killed(n) else "ok")
        ended = {session.id: session.status for session in workspace.timeline.sessions(limit=100)}
        assert {ended[f"s{n}"] for n in range(count) if not killed(n)} == {"completed"}
        assert {ended[f"s{n}"] for n in range(count) if killed(n)} == {"interrupted"}
