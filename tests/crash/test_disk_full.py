"""A full disk under the store, and one under the workspace."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from loom_audit import AuditedWorkspace, AuditError, Session, ToolResult, open_store
from loom_audit.sql.store.ballast import BALLAST_BYTES
from loom_audit.tools.calls.settings import ToolSettings
from tests.crash.programs.faults import check_finishes, check_fold, check_log
from tests.oracles.trees import tree_of
from tests.places.small_disks import Mount, fill_up, mounting


@pytest.fixture
def mount(tmp_path: Path) -> Iterator[Mount]:
    """Small file systems of their own."""
    with mounting(tmp_path) as mount:
        yield mount


def call(session: Session, tool: str, **arguments: Any) -> ToolResult:
    return anyio.run(lambda: session.call(tool, arguments))


def code(result: ToolResult) -> str:
    return result.error.code if result.error else "ok"


def whole(workspace: AuditedWorkspace) -> None:
    """Log and disk are one, and everything is verified."""
    assert workspace.status().drift == ()
    check_fold(workspace, tree_of(workspace.root))
    check_finishes(workspace)
    check_log(workspace, [])
    assert workspace.attachment.on_disk.workspace.leftovers() == []


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    root.mkdir()
    (root / "a.txt").write_text("first\n")
    return root


@pytest.mark.few(0)
def test_no_commit_of_a_scan_is_larger_than_what_the_ballast_frees(home: Path, root: Path) -> None:
    content = random.Random(1).randbytes
    for n in range(240):
        (root / f"{n}.bin").write_bytes(content(100_000))
    with open_store() as store:
        workspace = store.attach(root)
        wal = home / "audit.db-wal"
        assert 0 < wal.stat().st_size < BALLAST_BYTES
        with workspace.session("writer") as session:
            text = "for f in *.bin; do head -c 100000 /dev/urandom > $f; done"
            assert len(call(session, "shell_execute", command=text).files_changed) == 240
        assert wal.stat().st_size < BALLAST_BYTES
        whole(workspace)


def test_nothing_runs_while_the_stores_disk_is_full_and_all_works_again_after(
    mount: Mount, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = mount("home", 400)
    monkeypatch.setenv("LOOM_AUDIT_HOME", str(home))
    with open_store() as store:
        workspace = store.attach(root)
        with workspace.session("filler") as session:
            assert call(session, "write_file", path="a.txt", content="second\n").success
            filler = fill_up(home)
            before = tree_of(root)
            big = random.Random(1).randbytes(60_000).hex()
            answers = [
                call(session, "write_file", path="a.txt", content=big),
                call(session, "write_file", path="new.txt", content=big),
                call(session, "shell_execute", command=f"echo x > shell.txt; : {big[:50000]}"),
                call(session, "delete_file", path="a.txt"),
            ]
            refused = [answer for answer in answers if code(answer) == "AUDIT_UNAVAILABLE"]
            assert len(refused) == len(answers), [code(answer) for answer in answers]
            assert all("room" in str(a.error) or "full" in str(a.error) for a in refused)
            assert tree_of(root) == before
            filler.unlink()
            assert call(session, "write_file", path="a.txt", content="third\n").success
        workspace.carry_out(workspace.plan_undo())
        assert (root / "a.txt").read_text() == "second\n"
        whole(workspace)


def test_the_outcome_of_a_running_command_still_fits_on_a_full_disk(
    mount: Mount, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = mount("home", 400)
    monkeypatch.setenv("LOOM_AUDIT_HOME", str(home))
    ballast = home / "audit.db.ballast"
    with open_store() as store:
        workspace = store.attach(root)
        with workspace.session("filler") as session:
            session.settings = ToolSettings(confinement="off")  # it fills the store's disk
            assert ballast.stat().st_size == 16 << 20
            fill = f"cat /dev/zero > {home}/filler 2>/dev/null"
            text = f"{fill}; head -c 50000 /dev/urandom | od > big.txt; rm a.txt"
            result = call(session, "shell_execute", command=text)
            assert result.success, result.error
            assert result.files_changed == ["a.txt", "big.txt"]
            assert not ballast.exists()
            fill_up(home)
            refused = call(session, "write_file", path="big.txt", content="x" * 50_000)
            assert code(refused) == "AUDIT_UNAVAILABLE", "there is no ballast any more"
            (home / "filler").unlink()
        whole(workspace)
    with open_store() as store:
        assert ballast.stat().st_size == 16 << 20, "it is laid again"
        workspace = store.workspace(root)
        workspace.carry_out(workspace.plan_undo())
        assert (root / "a.txt").read_text() == "first\n"
        whole(workspace)


def test_a_full_workspace_changes_nothing_and_says_so(
    mount: Mount, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = mount("root", 8)
    (root / "a.txt").write_text("first\n")
    for n in range(20):
        (root / f"{n}.txt").write_bytes(b"%d\n" % n * 2000)
    with open_store() as store:
        workspace = store.attach(root)
        with workspace.session("filler") as session:
            spoiled = call(
                session, "shell_execute", command="for f in [0-9].txt; do echo x > $f; done"
            )
            assert spoiled.success
            filler = root / "filler"
            made = call(session, "shell_execute", command="cat /dev/zero > filler 2>/dev/null")
            assert "filler" in made.files_changed
            before = tree_of(root)
            answers = [
                call(session, "write_file", path="a.txt", content="x" * 100_000),
                call(session, "write_file", path="deep/er/new.txt", content="x" * 100_000),
                call(session, "edit_file", path="a.txt", old_str="first", new_str="x" * 50_000),
            ]
            assert {code(answer) for answer in answers} == {"IO"}, answers
            assert all("full" in str(answer.error) for answer in answers)
            after = tree_of(root)
            after = {path: entry for path, entry in after.items() if not path.startswith(b"deep")}
            assert after == before
            with pytest.raises(AuditError) as full:
                plan = workspace.plan_revert([workspace.timeline.calls()[-1].seq or 0])
                workspace.carry_out(plan)
            assert full.value.code == "IO"
            whole(workspace)
            filler.unlink()
            call(session, "shell_execute", command="true")
            assert call(session, "write_file", path="a.txt", content="y" * 100_000).success
        plan = workspace.plan_rollback(3, outside=True)
        workspace.carry_out(plan)
        assert (root / "5.txt").read_bytes() == b"5\n" * 2000
        whole(workspace)


def test_a_content_without_room_is_named_after_a_command_and_stops_one_before_it(
    mount: Mount, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = mount("home", 400)
    monkeypatch.setenv("LOOM_AUDIT_HOME", str(home))
    with open_store() as store:
        workspace = store.attach(root)
        with workspace.session("filler") as session:
            session.settings = ToolSettings(confinement="off")  # it fills the store's disk
            fill = f"cat /dev/zero > {home}/filler 2>/dev/null"
            text = f"{fill}; head -c 600000 /dev/urandom > huge; echo x > a.txt"
            result = call(session, "shell_execute", command=text)
            assert result.files_changed == ["a.txt"]
            listed = workspace.timeline.calls()[0]
            assert listed.coverage.level == "partial"
            assert "huge" in listed.coverage.reasons[0], listed.coverage
            fill_up(home)
            refused = call(session, "shell_execute", command="rm huge")
            assert code(refused) == "AUDIT_UNAVAILABLE"
            assert (root / "huge").exists(), "what could not be kept must not be deleted"
            (home / "filler").unlink()
            assert call(session, "shell_execute", command="rm huge").files_changed == ["huge"]
        workspace.carry_out(workspace.plan_undo())
        assert (root / "huge").stat().st_size == 600_000
        whole(workspace)
