"""What comes into scope, or goes, during a call that another process ends than began it."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from loom_audit import AuditedWorkspace, AuditStore, ForeignSession, open_store
from loom_audit.model.events import FilesChanged
from tests.oracles.trees import everything
from tests.processes.clients import client as client

Act = Callable[[], None]
Reported = Callable[[Act], AuditedWorkspace]


def start(store: AuditStore, root: Path, pid: int) -> tuple[AuditedWorkspace, ForeignSession]:
    workspace = store.attach(root)
    return workspace, workspace.start_foreign_session("client", id="s", pid=pid)


@pytest.fixture(params=["end", "session end", "client gone"])
def reported(
    request: pytest.FixtureRequest, root: Path, home: Path, client: subprocess.Popen[bytes]
) -> Reported:
    """Report a call that begins in one store and ends, or is closed, in another one."""

    def report(act: Act) -> AuditedWorkspace:
        with open_store() as store:
            start(store, root, client.pid)[1].begin_call("c1", "Bash", {"command": "mv"})
        act()
        with open_store() as store:
            workspace = store.attach(root)
            if request.param == "client gone":
                client.kill()
                client.wait()
                workspace.recover()
                return workspace
            session = start(store, root, client.pid)[1]
            if request.param == "end":
                session.end_call("c1", "ok", "")
            else:
                session.end()
            return workspace

    return report


def arrived(workspace: AuditedWorkspace) -> set[str]:
    """What is on record as arrived. The store is opened anew."""
    with open_store() as store:
        events = [*store.attach(workspace.root).log.read()]
    return {
        path
        for event in events
        if isinstance(event.fact, FilesChanged)
        for path in event.fact.arrived
    }


def test_what_was_made_before_the_call_and_moved_in_has_arrived(
    root: Path, tmp_path: Path, reported: Reported
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "thesis").write_text("a year's work\n")
    (root / "node_modules").mkdir()
    (root / "node_modules" / "pad.js").write_text("pad()\n")

    def act() -> None:
        (elsewhere / "thesis").rename(root / "thesis")
        (root / "node_modules" / "pad.js").rename(root / "pad.js")
        (root / "made").write_text("made\n")

    with open_store() as store:
        point = store.attach(root).log.head()
    assert arrived(reported(act)) == {"thesis", "pad.js"}
    before = everything(root)
    with open_store() as store:
        workspace = store.attach(root)
        workspace.carry_out(workspace.plan_rollback(point, outside=True))
    after = everything(root)
    assert before.keys() - after.keys() == {"made"}


@pytest.mark.parametrize("reported", ["end"], indirect=True)
def test_a_left_out_file_that_is_gone_after_the_call_is_told(
    root: Path, home: Path, reported: Reported
) -> None:
    (root / ".loomignore").write_text("*.log\n")
    (root / "x.log").write_text("log\n")
    with open_store() as store:
        store.attach(root, ignore="*.log\n")
    reported(lambda: (root / "x.log").unlink())
    with open_store() as store:
        [call] = store.attach(root).timeline.calls()
    assert "not on record: 1 file in the root" in call.coverage.reasons
