"""What a killed process had begun to write is its own, whoever looks first."""

import functools
import subprocess
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from loom_audit import AuditedWorkspace, Session
from loom_audit.api.upkeep.drift import accept_drift
from loom_audit.errors import Conflict
from loom_audit.model.events import CallFinished, FilesChanged
from loom_audit.model.plans.planning import Note
from tests.processes.stopped import killed_after, roll_back

FILES = 8
WRITTEN = 3


@pytest.fixture
def changed(workspace: AuditedWorkspace, root: Path) -> AuditedWorkspace:
    """A workspace whose files a call changed, with a checkpoint before it."""
    for n in range(FILES):
        (root / f"f{n}").write_text(f"old {n}\n" * 100)
    accept_drift(workspace)
    workspace.checkpoint("start")
    with workspace.session("agent") as session:
        session.run(["sh", "-c", "for n in 0 1 2 3 4 5 6 7; do echo new $n > f$n; done"])
    return workspace


def outcomes(root: Path) -> dict[str, bool]:
    """Whether each file has been taken back."""
    return {f"f{n}": (root / f"f{n}").read_text().startswith("old") for n in range(FILES)}


def origins(workspace: AuditedWorkspace, after: int) -> dict[str, set[str]]:
    """Whose each path is by what went on record after an event."""
    found: dict[str, set[str]] = {}
    for event in workspace.log.read():
        if isinstance(event.fact, FilesChanged) and event.seq > after:
            for change in event.fact.changes:
                found.setdefault(change.path, set()).add(event.fact.origin)
    return found


@pytest.fixture
def stopped(changed: AuditedWorkspace, root: Path) -> AuditedWorkspace:
    killed_after(WRITTEN, root, roll_back("@start"))
    assert sum(outcomes(root).values()) == WRITTEN
    return changed


def test_what_it_wrote_is_not_drift_and_is_told_apart(
    stopped: AuditedWorkspace, root: Path
) -> None:
    status = stopped.status()
    assert status.drift == ()
    assert {one.path for one in status.begun} == {p for p, back in outcomes(root).items() if back}
    assert [call.tool for call in status.interrupted] == ["rollback"]


@pytest.mark.few(2)
@pytest.mark.parametrize("back", [True, False], ids=["written already", "not written yet"])
@pytest.mark.parametrize("end", ["continue", "abandon"])
def test_what_a_person_wrote_meanwhile_is_theirs_and_stays(
    stopped: AuditedWorkspace, root: Path, back: bool, end: str
) -> None:
    theirs = next(path for path, was in outcomes(root).items() if was == back)
    (root / theirs).write_text("by a person\n")
    status = stopped.status()
    assert [one.path for one in status.drift] == [theirs]
    assert theirs not in {one.path for one in status.begun}
    why = "it was changed since the rollback stopped"
    assert status.kept == (Note(theirs, why),)
    head, before = stopped.log.head(), outcomes(root)
    [done] = stopped.recover("continue" if end == "continue" else "abandon")
    assert (root / theirs).read_text() == "by a person\n"
    there = {path: back for path, back in outcomes(root).items() if path != theirs}
    assert origins(stopped, head)[theirs] >= {"outside"}
    if end == "continue":
        assert all(there.values()) and done.kept == status.kept
        assert done.call.status == "ok" and len(done.call.reverts) == 1
        assert (
            f"1 path kept: {theirs}: {why}"
            in stopped.timeline.call(done.call.seq or 0).result["output"]
        )
    else:
        assert there.items() <= before.items() and done.call.reverts == ()
    assert stopped.status().drift == () and stopped.verify().ok


def test_nothing_is_accepted_until_it_is_finished_or_left(
    stopped: AuditedWorkspace, root: Path
) -> None:
    (root / "mine").write_text("by a person\n")
    head = stopped.log.head()
    for paths in ((), ("mine",)):
        with pytest.raises(Conflict, match="interrupted rollback waits"):
            accept_drift(stopped, paths)
    (root / ".loomignore").write_text("f1\n")
    with pytest.raises(Conflict, match="interrupted rollback waits"):
        stopped.accept_scope()
    assert "mine" not in origins(stopped, head)
    stopped.recover("continue")
    assert accept_drift(stopped) == 2
    assert origins(stopped, head)["mine"] == {"outside"}
    assert all(outcomes(root).values())


def look_of_a_session(workspace: AuditedWorkspace, session: Session) -> None:
    session.run(["sh", "-c", "echo s > by-session"])


def look_of_a_tool(workspace: AuditedWorkspace, session: Session) -> None:
    anyio.run(functools.partial(session.call, "shell_execute", {"command": "echo t > by-tool"}))


def look_of_a_client(workspace: AuditedWorkspace, session: Session) -> None:
    with subprocess.Popen(["sleep", "1000"]) as client:
        foreign = workspace.start_foreign_session("client", id="s", pid=client.pid)
        foreign.begin_call("c1", "Bash", {"command": "x"})
        (Path(workspace.root) / "by-client").write_text("c\n")
        foreign.end_call("c1", "ok", "")
        client.kill()


@pytest.mark.few(2)
@pytest.mark.parametrize("end", ["continue", "abandon"])
@pytest.mark.parametrize("look", [look_of_a_session, look_of_a_tool, look_of_a_client])
def test_who_looks_meanwhile_takes_nothing_of_it_for_their_own(
    changed: AuditedWorkspace,
    root: Path,
    look: Callable[[AuditedWorkspace, Session], None],
    end: str,
) -> None:
    with changed.session("other") as session:
        head = changed.log.head()
        session.run(["true"])
        killed_after(WRITTEN, root, roll_back("@start"))
        assert sum(outcomes(root).values()) == WRITTEN
        look(changed, session)
        assert changed.status().drift == ()
    changed.recover("continue" if end == "continue" else "abandon")
    assert all(outcomes(root).values()) == (end == "continue")
    made = origins(changed, head)
    assert {path: made[path] for path in made if path.startswith("f")} == {
        path: {"undo"} for path, back in outcomes(root).items() if back
    }
    [by] = [path for path in made if path.startswith("by-")]
    assert made[by] == {"command"}
    assert changed.status().drift == () and changed.verify().ok
    rollbacks = [one for one in changed.timeline.calls() if one.tool == "rollback"]
    changed.carry_out(changed.plan_revert([rollbacks[0].seq or 0]))
    assert not any(outcomes(root).values())


def test_a_tool_killed_while_it_wrote_keeps_its_change_also_where_another_looks_first(
    changed: AuditedWorkspace, root: Path
) -> None:
    def write(workspace: AuditedWorkspace) -> None:
        arguments = {"path": "f0", "content": "by a tool\n"}
        with workspace.session("killed") as session:
            anyio.run(functools.partial(session.call, "write_file", arguments))

    with changed.session("other") as session:
        head = changed.log.head()
        killed_after(1, root, write)
        assert (root / "f0").read_text() == "by a tool\n"
        assert changed.status().drift == ()
        assert [one.path for one in changed.status().begun] == ["f0"]
        assert session.run(["true"]).files_changed == ()
    assert origins(changed, head) == {"f0": {"tool"}}
    changed.recover()
    ends = [one.fact for one in changed.log.read() if isinstance(one.fact, CallFinished)]
    assert "interrupted" in {one.status for one in ends}
    [call] = [one for one in changed.timeline.calls() if one.tool == "write_file"]
    changed.carry_out(changed.plan_revert([call.seq or 0]))
    assert (root / "f0").read_text() == "new 0\n"
