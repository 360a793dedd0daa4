"""What a kill leaves under temporary names is gone after recovery, and nothing in it is lost."""

import os
import shutil
import signal
import subprocess
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any, Literal

import anyio
import pytest

from loom_audit import AuditedWorkspace, open_store
from loom_audit.disk.writing import bulk, replace, reservation, reversal
from loom_audit.history.record import carrying_out
from loom_audit.history.record.carrying_out import Step
from loom_audit.model.events import ChangeIntended, ContentFound
from loom_audit.model.files import BlobId
from loom_audit.model.scope import TEMPORARY
from tests.crash.programs.faults import check_finishes, check_fold, check_log
from tests.given.cases import some
from tests.oracles.trees import differences, names_together, tree_of

FILES = 200
PLACES: dict[str, tuple[Any, str]] = {
    "making the temporaries": (reservation.DiskReservation, "_make"),
    "writing": (bulk, "stage"),
    "exchanging": (bulk, "put_staged"),
    "discarding": (reversal.PathReversal, "discard_unchanged"),
}


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A workspace in which a command changed, made, linked and deleted files."""
    monkeypatch.setenv("LOOM_AUDIT_HOME", str(tmp_path / "home"))
    root = tmp_path / "root"
    (root / "d" / "e").mkdir(parents=True)
    for n in range(FILES):
        (root / "d" / "e" / f"{n}.txt").write_text(f"before {n}\n" * 50)
    with open_store() as store:
        workspace = store.attach(root)
        workspace.checkpoint("start")
        with workspace.session("earlier") as session, session.recording("work"):
            for n in range(FILES - 3):
                (root / "d" / "e" / f"{n}.txt").write_text(f"after {n}\n" * 70)
            (root / "d" / "e" / f"{FILES - 1}.txt").unlink()
            (root / "d" / "made").symlink_to("e/1.txt")
            (root / "new").mkdir()
            (root / "new" / "file").write_text("new\n")
    return root


def killed(work: Callable[[], object], place: tuple[Any, str], nth: int) -> bool:
    """Do the work in a process that is killed at the nth use of a function; whether it was."""
    pid = os.fork()
    if pid == 0:
        owner, name = place
        whole, uses = getattr(owner, name), 0

        def counted(*given: Any, **named: Any) -> Any:
            nonlocal uses
            uses += 1
            if uses == nth:
                os.kill(os.getpid(), signal.SIGKILL)
            return whole(*given, **named)

        setattr(owner, name, counted)
        try:
            work()
            os._exit(0)
        finally:
            os._exit(1)
    status = os.waitpid(pid, 0)[1]
    assert status == 0 or os.WIFSIGNALED(status), "the work failed"
    return os.WIFSIGNALED(status)


def roll_back(root: Path) -> None:
    with open_store() as store:
        workspace = store.workspace(root)
        workspace.carry_out(workspace.plan_rollback("@start"))


def write(root: Path) -> None:
    with open_store() as store, store.workspace(root).session("writer") as session:
        arguments = {"path": "d/e/1.txt", "content": "written\n"}
        assert anyio.run(session.call, "write_file", arguments).success


def temporaries_in(root: Path) -> list[str]:
    return [
        name
        for _, folders, files in os.walk(root)
        for name in (*folders, *files)
        if name.startswith(TEMPORARY)
    ]


def found(workspace: AuditedWorkspace) -> list[ContentFound]:
    facts = (event.fact for event in workspace.log.read())
    return [fact for fact in facts if isinstance(fact, ContentFound)]


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("where", "nth"),
    some([(where, nth) for where in PLACES for nth in (1, FILES // 2, FILES - 3)], 2),
)
def test_nothing_stays_after_a_kill_in_a_rollback_of_200_files(
    root: Path, where: str, nth: int
) -> None:
    later = tree_of(root)
    assert killed(lambda: roll_back(root), PLACES[where], nth)
    left = temporaries_in(root)
    with open_store() as store:
        workspace = store.workspace(root)
        assert [one.waiting for one in workspace.recover()] == [True]
        assert temporaries_in(root) == []
        assert len(left) >= (nth if where != "discarding" else FILES - nth) - 6
        (closed,) = workspace.recover("continue" if nth == 1 else "abandon")
        if where == "making the temporaries":
            assert (closed.call.status, tree_of(root)) == ("interrupted", later)
        assert temporaries_in(root) == []
        for one in found(workspace):
            assert one.path.rpartition("/")[2] in left
            assert one.state.blob and one.state.blob in workspace.blobs
        check_finishes(workspace)
        check_fold(workspace, tree_of(root))
        plan = workspace.plan_rollback("@start", outside=True)
        if not plan.is_empty:  # one that was continued has nothing left to take back
            workspace.carry_out(plan)
        with workspace.session("next"):
            assert workspace.recover() == []
        check_log(workspace, [])
    start = {f"d/e/{n}.txt".encode(): f"before {n}\n".encode() * 50 for n in range(FILES)}
    assert {path: entry[2] for path, entry in tree_of(root).items() if entry[2]} == start


OWNERS: dict[str, Any] = {"identity_at": reservation, "look_for_results": Step}
OWNERS |= dict.fromkeys(("discard", "discard_unchanged"), reversal.PathReversal)


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "name",
    ["identity_at", "stage", "put_staged", "look_for_results", "discard_unchanged", "discard"],
)
def test_nothing_stays_after_a_kill_in_a_write(root: Path, name: str) -> None:
    before = tree_of(root)
    assert killed(lambda: write(root), (OWNERS.get(name, replace), name), 1)
    assert len(temporaries_in(root)) == 1
    with open_store() as store:
        workspace = store.workspace(root)
        with workspace.session("next"):
            assert temporaries_in(root) == []
        assert len(found(workspace)) == (name in ("identity_at", "stage"))
        check_finishes(workspace)
        check_fold(workspace, tree_of(root))
        assert set(differences(before, tree_of(root))) <= {b"d/e/1.txt"}
        check_log(workspace, [])


def append_when(monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
    """A line comes into the file that is displaced from the path, once it was looked at."""
    descriptor, look = os.open(path, os.O_WRONLY | os.O_APPEND), Step.look_for_results

    def write_then(*given: Any) -> None:
        look(*given)
        os.write(descriptor, b"late\n")
        os.close(descriptor)

    monkeypatch.setattr(Step, "look_for_results", write_then)


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("work", "name"),
    some(
        [*product((write, roll_back), ("discard_unchanged", "_record_late_content", "discard"))], 2
    ),
)
def test_what_a_late_writer_left_is_on_record_once_after_a_kill(
    root: Path, monkeypatch: pytest.MonkeyPatch, work: Callable[[Path], object], name: str
) -> None:
    path = "d/e/1.txt"
    was = (root / path).read_bytes()
    owner: Any = carrying_out if name == "_record_late_content" else reversal.PathReversal
    with monkeypatch.context() as patched:
        append_when(patched, root / path)
        assert killed(lambda: work(root), (owner, name), 1)
    with open_store() as store:
        workspace = store.workspace(root)
        workspace.recover()
        assert temporaries_in(root) == []
        facts = [fact for fact in found(workspace) if fact.state.size == len(was) + 5]
        assert [workspace.blobs.get(one.state.blob or BlobId("")) for one in facts] == [
            was + b"late\n"
        ]
        assert facts == found(workspace)
        workspace.recover("continue")
        assert workspace.status().drift == ()
        check_finishes(workspace)
        check_fold(workspace, tree_of(root))
        check_log(workspace, [])


def test_an_undo_killed_while_it_deletes_what_it_displaced_is_done(root: Path) -> None:
    assert killed(lambda: roll_back(root), (reversal.PathReversal, "discard_unchanged"), 7)
    with open_store() as store:
        workspace = store.workspace(root)
        now = workspace.timeline.tree()
        (closed,) = workspace.recover("continue")
        assert closed.call.status == "ok" and not closed.waiting
        assert workspace.timeline.tree() == now and temporaries_in(root) == []
        assert found(workspace) == []


def test_an_intention_names_its_temporaries_by_what_they_are(root: Path) -> None:
    was = os.stat(root / "d/e/1.txt").st_ino
    assert killed(lambda: write(root), (reversal.PathReversal, "discard_unchanged"), 1)
    with open_store() as store:
        workspace = store.workspace(root)
        (intended,) = [
            event.fact
            for event in workspace.log.read()
            if isinstance(event.fact, ChangeIntended) and event.fact.changes[0].path == "d/e/1.txt"
        ]
        (name,) = temporaries_in(root)
        assert os.stat(root / "d/e" / name).st_ino == was, "what was displaced is kept there"
        assert {(one.path, one.name) for one in intended.temporaries} == {("d/e/1.txt", name)}
        known = workspace.attachment.on_disk.workspace.identity
        assert {one.identity for one in intended.temporaries} == {
            known("d/e/1.txt"),
            known(f"d/e/{name}"),
        }


def test_what_nobody_named_is_on_record_before_it_goes(root: Path) -> None:
    assert killed(lambda: write(root), (replace, "put_staged"), 1)
    (staged,) = temporaries_in(root)
    (root / "d/e" / staged).write_text("somebody wrote into it\n")
    (root / "d" / f"{TEMPORARY}mine").write_text("a name that a person chose\n")
    (root / f"{TEMPORARY}folder").mkdir()
    (root / f"{TEMPORARY}full").mkdir()
    (root / f"{TEMPORARY}full" / "file").write_text("not ours\n")
    with open_store() as store:
        workspace = store.workspace(root)
        workspace.recover()
        assert temporaries_in(root) == [f"{TEMPORARY}full"], "nothing is recorded inside"
        texts = {
            one.path: workspace.blobs.get(one.state.blob)
            for one in found(workspace)
            if one.state.blob
        }
        assert texts == {
            f"d/e/{staged}": b"somebody wrote into it\n",
            f"d/{TEMPORARY}mine": b"a name that a person chose\n",
        }
        assert workspace.verify().findings == ()


@pytest.fixture
def linked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A workspace in which a command wrote through some hard links, broke some and made some."""
    monkeypatch.setenv("LOOM_AUDIT_HOME", str(tmp_path / "home"))
    root = tmp_path / "root"
    (root / "d").mkdir(parents=True)
    for n in range(4):
        (root / f"{n}.txt").write_text(f"before {n}\n")
        os.link(root / f"{n}.txt", root / "d" / f"{n}.txt")
    with open_store() as store:
        workspace = store.attach(root)
        workspace.checkpoint("start")
        with workspace.session("earlier") as session, session.recording("work"):
            (root / "0.txt").write_text("through one name\n")
            (root / "1.txt").unlink()
            (root / "d" / "2.txt").unlink()
            (root / "d" / "2.txt").write_text("apart\n")
            os.link(root / "3.txt", root / "d" / "more.txt")
    return root


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("name", "decision"),
    some(
        [
            *product(
                ("_reserve", "_stage_link", "take_path", "discard_unchanged"),
                ("continue", "abandon"),
            )
        ],
        2,
    ),
)
def test_hard_links_are_whole_again_after_a_kill_in_their_rollback(
    linked: Path, name: str, decision: Literal["continue", "abandon"]
) -> None:
    start = {f"{folder}{n}.txt": f"before {n}\n" for n in range(4) for folder in ("", "d/")}
    owners = {"_reserve": reservation.DiskReservation, "discard_unchanged": reversal.PathReversal}
    owner: Any = owners.get(name, replace)
    kept = linked.with_name("kept")
    kept.mkdir()
    for part in ("root", "home"):
        subprocess.run(["cp", "-a", str(linked.with_name(part)), str(kept / part)], check=True)
    for nth in range(1, 12):
        for part in ("root", "home"):
            shutil.rmtree(linked.with_name(part))
            subprocess.run(["cp", "-a", str(kept / part), str(linked.with_name(part))], check=True)
        if not killed(lambda: roll_back(linked), (owner, name), nth):
            assert nth > 2
            break
        with open_store() as store:
            workspace = store.workspace(linked)
            workspace.recover()
            assert temporaries_in(linked) == []
            workspace.recover(decision)
            check_finishes(workspace)
            assert workspace.status().drift == ()
            plan = workspace.plan_rollback("@start", outside=True)
            if not plan.is_empty:
                workspace.carry_out(plan)
            assert {
                str(p.relative_to(linked)): p.read_text() for p in linked.rglob("*.txt")
            } == start
            pairs = {frozenset({f"{n}.txt", f"d/{n}.txt"}) for n in range(4)}
            assert names_together(linked) == pairs, nth
            assert workspace.status().drift == () and temporaries_in(linked) == []
            check_log(workspace, [])
    else:
        raise AssertionError("it does not end")
