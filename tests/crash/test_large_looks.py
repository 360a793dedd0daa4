"""A look that finds more than one commit takes, on a full disk and killed between two commits."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from loom_audit import AuditedWorkspace, AuditUnavailable, open_store
from loom_audit.history.look import batches
from loom_audit.history.look.batches import Batch
from loom_audit.history.look.capture import scan
from loom_audit.model.events import FilesChanged
from tests.crash.programs.faults import check_finishes, check_fold, check_log
from tests.oracles.trees import tree_of
from tests.places.small_disks import Mount, fill_up, mounting

PLACES = 40
COMMITTED = 3
"""How many batches go on record before the process is killed."""

sizes = pytest.mark.parametrize(
    "files", [400, pytest.param(200_000, marks=[pytest.mark.deep, pytest.mark.timeout(3600)])]
)


@pytest.fixture
def mount(tmp_path: Path) -> Iterator[Mount]:
    with mounting(tmp_path) as mount:
        yield mount


@pytest.fixture
def root(files: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    if files < 1_000:
        monkeypatch.setattr(batches, "BATCH_BYTES", files // 10 * batches.ROW_BYTES)
    root = tmp_path / "root"
    for n in range(PLACES):
        (root / str(n)).mkdir(parents=True)
    write(root, files, "old")
    return root


def write(root: Path, files: int, text: str) -> None:
    for n in range(files):
        (root / str(n % PLACES) / f"{n}.txt").write_text(f"{text} {n}\n")


def parts(workspace: AuditedWorkspace, after: int) -> list[set[str]]:
    """By event the paths whose change is on record."""
    facts = (event.fact for event in workspace.log.read() if event.seq > after)
    return [{c.path for c in one.changes} for one in facts if isinstance(one, FilesChanged)]


def assert_all_is_recorded_once(workspace: AuditedWorkspace, files: int, after: int) -> None:
    """Each change is in one event, with its content, and nothing is lost or invented."""
    found = parts(workspace, after)
    paths = [path for part in found for path in part]
    assert len(paths) == len({*paths}) == files
    assert len(found) >= 10, "it was recorded batch by batch"
    assert workspace.status().drift == ()
    check_fold(workspace, tree_of(workspace.root))
    check_finishes(workspace)
    check_log(workspace, [])


@pytest.mark.few(1)
@sizes
def test_what_a_command_changed_is_on_record_once_the_full_disk_has_room_again(
    mount: Mount, root: Path, files: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = mount("home", 400)
    monkeypatch.setenv("LOOM_AUDIT_HOME", str(home))
    with open_store() as store:
        workspace = store.attach(root)
        after = workspace.log.head()
        (home / "audit.db.ballast").unlink()
        fillers: list[Path] = []
        with (
            pytest.raises(AuditUnavailable),
            workspace.session("writer") as session,
            session.recording("write"),
        ):
            write(root, files, "new")
            fillers.append(fill_up(home, leave=files * 300))
        [filler] = fillers
        begun = parts(workspace, after)
        assert sum(map(len, begun)) < files, "not all of it had room"
        filler.unlink()
    with open_store() as store:
        workspace = store.workspace(root)
        workspace.recover()
        assert_all_is_recorded_once(workspace, files, after)


@sizes
def test_a_look_that_is_killed_between_two_batches_is_made_to_its_end_by_recovery(
    home: Path, root: Path, files: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_store() as store:
        after = store.attach(root).log.head()

    def dies(*given: Any, **more: Any) -> Iterator[Batch]:
        for n, batch in enumerate(scan(*given, **more)):
            if n == COMMITTED:
                os.kill(os.getpid(), signal.SIGKILL)
            yield batch

    pid = os.fork()
    if not pid:
        try:
            with (
                open_store() as store,
                store.workspace(root).session("writer") as session,
                session.recording("write"),
            ):
                write(root, files, "new")
                monkeypatch.setattr("loom_audit.history.record.looks.scan", dies)
        finally:
            os._exit(1)
    assert os.WTERMSIG(os.waitpid(pid, 0)[1]) == signal.SIGKILL
    with open_store() as store:
        workspace = store.workspace(root)
        begun = parts(workspace, after)
        assert len(begun) == COMMITTED and 0 < sum(map(len, begun)) < files
        workspace.recover()
        assert_all_is_recorded_once(workspace, files, after)
        [call] = workspace.timeline.calls()
        assert call.status == "interrupted"
