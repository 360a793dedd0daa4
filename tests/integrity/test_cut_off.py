"""A log that has lost its end: what is read from it is CORRUPT, and lists say it first."""

import asyncio
import json
import shutil
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from loom_audit import AuditedWorkspace, Corrupt, open_store
from loom_audit.api.agents.importing import import_file
from loom_audit.api.upkeep.drift import accept_drift
from loom_audit.errors import AuditError
from loom_audit.model.coverage import Coverage
from loom_audit.model.events import CallReported, CoverageLowered, Draft
from loom_audit.sql.ground.driver import driver
from tests.api.clients.test_importing import CLAUDE
from tests.cli.shells import Shell
from tests.integrity.test_tamper import unguarded
from tests.integrity.test_verified_reads import again, forge
from tests.integrity.test_verified_reads import workspace as workspace

READERS: dict[str, Callable[[AuditedWorkspace, int], object]] = {
    "a point by its number": lambda w, seq: w.timeline.point(seq),
    "the head": lambda w, seq: w.timeline.point("head"),
    "a point some calls back": lambda w, seq: w.timeline.point("head~1"),
    "a checkpoint": lambda w, seq: w.timeline.point("@written"),
    "a session": lambda w, seq: w.timeline.point(f"session:{w.timeline.sessions()[-1].id}"),
    "a time": lambda w, seq: w.timeline.meanings("2020-01-01T00:00:00Z"),
    "a call": lambda w, seq: w.timeline.call(seq),
    "the tree": lambda w, seq: w.timeline.tree(),
    "an earlier tree": lambda w, seq: w.timeline.tree(seq),
    "a state": lambda w, seq: w.timeline.state("a.txt", seq),
    "a difference": lambda w, seq: w.timeline.diff(seq - 1, seq),
    "an undo": lambda w, seq: w.plan_undo(),
    "a redo": lambda w, seq: w.plan_redo(),
    "a revert": lambda w, seq: w.plan_revert([seq]),
    "a rollback": lambda w, seq: w.plan_rollback(seq),
    "the status": lambda w, seq: w.status(),
    "the root to be kept": lambda w, seq: w.head(),
}

COMMANDS = (
    *("show {seq}", "cat a.txt", "cat a.txt --at {seq}", "ls", "ls --at {seq}", "diff", "status"),
    *("diff {seq} head", "undo --dry-run", "revert {seq} --dry-run", "rollback {seq} --dry-run"),
    *("diff --call {seq}", "replay {seq} --to elsewhere", "head", "show {seq} --json"),
)
LISTS = (
    *("log", "log --events", "history a.txt", "session", "checkpoint", "approvals"),
    *("workspaces", "status", "log --path a.txt"),
)
PAGES = ("", "calls", "history/a.txt", "needs", "verify")


@pytest.fixture
def called(workspace: AuditedWorkspace) -> int:
    """The number of the first call; the last one was taken back, and a checkpoint marked."""
    found = workspace.timeline.calls()[-1]
    assert found.seq is not None
    workspace.carry_out(workspace.plan_undo())
    workspace.checkpoint("written")
    return found.seq


def cut_off(workspace: AuditedWorkspace, count: int, *, heads: bool = False) -> int:
    """Delete the last events with all that is theirs; how many were there.

    What the tables tell stays, and what was kept elsewhere only with `heads`.
    """
    size = workspace.log.head()
    with closing(driver().connect(str(workspace.adapters.settings.file))) as raw:
        raw.execute("PRAGMA foreign_keys = OFF")
        for table in ("event", "payload"):
            unguarded(raw).execute(f"DELETE FROM {table} WHERE seq > ?", (size - count,))
        raw.commit()
    if not heads:
        forget_heads(workspace)
    return size


def forget_heads(workspace: AuditedWorkspace) -> None:
    for file in workspace.adapters.settings.heads.glob("*.heads"):
        file.unlink()


def assert_said(workspace: AuditedWorkspace, seq: int) -> None:
    """All that is read of the log is refused, and nothing more goes into it."""
    for name, ask in READERS.items():
        with pytest.raises(Corrupt, match="its end is gone"):
            ask(again(workspace), seq)
            pytest.fail(f"{name} was served")
    error = again(workspace).why_cut_off()
    assert isinstance(error, Corrupt)
    assert str(again(workspace).why_stopped()) == str(error)
    head = workspace.log.head()
    with pytest.raises(Corrupt, match="its end is gone"):
        again(workspace).checkpoint("more")
    assert workspace.log.head() == head
    assert not again(workspace).verify().ok


@pytest.mark.few(2)
@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_of_a_log_without_its_last_events_nothing_is_served(
    workspace: AuditedWorkspace, called: int, count: int
) -> None:
    for ask in READERS.values():
        ask(again(workspace), called)
    cut_off(workspace, count)
    assert_said(workspace, called)


def ended(workspace: AuditedWorkspace) -> None:
    with workspace.session("more"):
        pass


def marked(workspace: AuditedWorkspace) -> None:
    workspace.checkpoint("more")


def lowered(workspace: AuditedWorkspace) -> None:
    number = workspace.timeline.calls()[0].seq or 0
    fact = CoverageLowered((number,), Coverage("partial", ("found later",)))
    workspace.log.append([Draft(fact, "", "outside")])


def reported(workspace: AuditedWorkspace) -> None:
    call = workspace.timeline.calls()[0]
    fact = CallReported(call.call_id, call.tool, "error", None)
    workspace.log.append([Draft(fact, call.session, call.actor)])


def found_outside(workspace: AuditedWorkspace) -> None:
    (Path(workspace.root) / "b.txt").write_text("by hand\n")
    accept_drift(workspace)


def taken_back(workspace: AuditedWorkspace) -> None:
    workspace.carry_out(workspace.plan_undo())


LAST = (ended, marked, lowered, reported, found_outside, taken_back)


@pytest.mark.few(2)
@pytest.mark.parametrize("record", LAST)
def test_whatever_its_last_event_was_its_loss_is_said(
    workspace: AuditedWorkspace, called: int, record: Callable[[AuditedWorkspace], None]
) -> None:
    record(workspace)
    cut_off(workspace, 1)
    assert_said(workspace, called)


def test_the_status_of_a_folder_in_which_nothing_differs_is_not_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOOM_AUDIT_HOME", str(tmp_path / "home"))
    (tmp_path / "work").mkdir()
    with closing(open_store()) as store:
        found = store.attach(tmp_path / "work")
        found.checkpoint("last")
        cut_off(found, 1)
        with pytest.raises(Corrupt, match="its end is gone"):
            again(found).status()


NEWEST_SET = "FROM change_set WHERE seq = (SELECT max(seq) FROM change_set)"
SET = "at, session, actor, origin, requested, call, causes"

AHEAD = {
    "changes": f"INSERT INTO change_set SELECT log, 900, {SET} {NEWEST_SET}",
    "files": "UPDATE file_change SET seq = 900 WHERE seq = (SELECT max(seq) FROM file_change)",
    "calls": "UPDATE call SET finished = 900 WHERE finished = (SELECT max(finished) FROM call)",
    "sessions": "UPDATE session SET last = 900",
    "checkpoints": "UPDATE checkpoint SET seq = 900",
    "what took back": "INSERT INTO revert VALUES (1, 900, 5)",
    "half a number": "UPDATE checkpoint SET seq = 900.5",
    "a number behind a text": f"INSERT INTO change_set SELECT log, '900x', {SET} {NEWEST_SET} "
    f"UNION ALL SELECT log, 900, {SET} {NEWEST_SET}",
}


@pytest.mark.few(2)
@pytest.mark.parametrize("table", AHEAD)
def test_one_table_that_tells_of_more_is_enough(
    workspace: AuditedWorkspace, called: int, table: str
) -> None:
    forge(workspace, AHEAD[table])
    assert_said(workspace, called)
    workspace.rebuild()
    assert again(workspace).why_stopped() is None
    for ask in READERS.values():
        ask(again(workspace), called)


def test_once_the_tables_are_made_anew_only_a_head_tells_of_it(
    workspace: AuditedWorkspace, called: int, tmp_path: Path
) -> None:
    workspace.adapters.keep_head(workspace.head())
    size = cut_off(workspace, 3, heads=True)
    workspace.rebuild()
    assert not again(workspace).verify().ok
    shell = Shell(Path(workspace.root), workspace.adapters.settings.home)
    for command in ("log", "history a.txt", f"show {called}", "cat a.txt", "status", "workspaces"):
        said = shell(*command.split(), code=None).errors
        assert f"was known to have {size}" in said, command
    forget_heads(workspace)
    assert again(workspace).why_stopped() is None
    assert again(workspace).timeline.call(called).call.seq == called


def test_each_command_says_it(workspace: AuditedWorkspace, called: int) -> None:
    shell = Shell(Path(workspace.root), workspace.adapters.settings.home)
    cut_off(workspace, 1)
    for command in COMMANDS:
        ran = shell(*command.format(seq=called).split(), code=None)
        assert ran.code == 6 and not ran.text, (command, ran.text)
        assert "its end is gone" in ran.errors and "hint" in ran.errors, command
    for command in LISTS:
        ran = shell(*command.split(), code=None)
        assert "its end is gone" in ran.errors.splitlines()[0 if command != "workspaces" else 1]
        assert ran.errors.count("NOTHING IS RECORDED") == 1, command
    for command in ("log", "history a.txt", "session", "status", "workspaces"):
        ran = shell(*command.split(), "--json", code=None)
        first = json.loads(ran.errors.splitlines()[0])["warning"]
        assert first["code"] == "CORRUPT" and "its end is gone" in first["message"], command
    said = shell("doctor", code=None).text.splitlines()[0]
    assert said.startswith("problem") and "its end is gone" in said


def test_nothing_is_said_of_a_log_to_which_others_add(
    workspace: AuditedWorkspace, called: int
) -> None:
    errors: list[AuditError] = []
    done = threading.Event()

    def add() -> None:
        try:
            with closing(open_store(workspace.adapters.settings.url)) as store:
                other = store.workspace(workspace.id)
                with other.session("other") as session:
                    for n in range(25):
                        arguments = {"path": "b.txt", "content": f"{n}\n"}
                        assert asyncio.run(session.call("write_file", arguments)).success
                        other.checkpoint(f"{n}")
        except AuditError as error:
            errors.append(error)
        finally:
            done.set()

    with closing(open_store(workspace.adapters.settings.url)) as store:
        kept = store.workspace(workspace.id)
        thread = threading.Thread(target=add)
        thread.start()
        rounds = 0
        while not done.is_set() or not rounds:
            for found in (kept, store.workspace(workspace.id)):
                assert found.why_cut_off() is None
                found.timeline.call(called)
                found.timeline.state("b.txt", found.timeline.point("head"))
                found.timeline.tree()
                found.plan_rollback(called)
            rounds += 1
        thread.join()
    assert errors == [] and rounds


def test_nothing_is_said_while_the_tables_are_made_anew(
    workspace: AuditedWorkspace, called: int
) -> None:
    done = threading.Event()

    def rebuild() -> None:
        with closing(open_store(workspace.adapters.settings.url)) as store:
            for _ in range(20):
                store.workspace(workspace.id).rebuild()
        done.set()

    thread = threading.Thread(target=rebuild)
    thread.start()
    while not done.is_set():
        found = again(workspace)
        assert found.why_cut_off() is None
        found.timeline.call(called)
        found.timeline.tree()
    thread.join()


def test_a_copy_that_may_not_be_written_says_it_too(
    workspace: AuditedWorkspace, called: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut_off(workspace, 1)
    home = tmp_path / "copied"
    shutil.copytree(workspace.adapters.settings.home, home)
    # what may be written is asked of the system, which lets root write everywhere
    monkeypatch.setattr("loom_audit.sql.store.database._may_write", lambda path: False)
    monkeypatch.setenv("LOOM_AUDIT_HOME", str(home))
    with closing(open_store()) as store:
        assert store.notice
        found = store.workspace(workspace.id)
        for ask in READERS.values():
            with pytest.raises(Corrupt, match="its end is gone"):
                ask(found, called)
        assert found.why_cut_off() is not None
        assert [*store.why_cut_off(store.workspaces())] == [workspace.id]


def test_an_imported_log_without_its_end_is_not_added_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOOM_AUDIT_HOME", str(tmp_path / "home"))
    lines = CLAUDE.read_text().splitlines(keepends=True)
    part = tmp_path / "part.jsonl"
    with closing(open_store()) as store:
        part.write_text("".join(lines[: len(lines) // 2]))
        done = import_file(store, part)
        found = store.workspace(done.workspace)
        number = found.timeline.calls()[-1].seq or 0
        cut_off(found, 2)
        head = found.log.head()
    part.write_text("".join(lines))
    with closing(open_store()) as store:
        with pytest.raises(Corrupt, match="its end is gone"):
            import_file(store, part)
        found = store.workspace(done.workspace)
        assert found.log.head() == head
        for ask in (found.timeline.call, found.timeline.tree, found.timeline.point):
            with pytest.raises(Corrupt, match="its end is gone"):
                ask(number)
        assert found.why_stopped() is not None
