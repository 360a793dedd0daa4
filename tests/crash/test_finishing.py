"""Undos that are killed, then changed by a person, then finished, with kills while that is done.

The oracle knows plain trees only: what was there when the person had acted, and what was there
before the calls that are taken back.
"""

import os
import random
import re
import shutil
import signal
import subprocess
import traceback
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

import pytest

from loom_audit import AuditedWorkspace, open_store
from loom_audit.history.record.drift import record_drift
from loom_audit.history.record.recovery import RecoveredCall
from loom_audit.model.plans.planning import Note
from tests.crash.programs.faults import check_finishes, check_fold, check_log
from tests.crash.test_closed_folders import die_at
from tests.oracles.changes import check_each_change_once
from tests.oracles.trees import Entry, tree_of

Tree = dict[bytes, Entry]
BEGIN = """
mkdir -p d/e keep
for n in 1 2 3; do echo old $n > f$n; echo old $n > d/g$n; echo in $n > d/e/h$n; done
echo linked > l1; ln l1 l2; ln -s f1 s; echo k > keep/k
"""
CHANGES = (
    "echo new > f1; rm f2; chmod 755 f3; echo made > n1",
    "mv d/g1 moved; echo more >> d/g2; echo more > l1",
    "mkdir -p new/deep; echo x > new/deep/x; echo y > new/y; mv d/e new/e",
    "rm s; mkdir s; echo in > s/in; rm -r keep; echo file > keep",
)
"""Each of them a call."""


class Place:
    """A store and a workspace, brought back as they were when something was kept."""

    def __init__(self, folder: Path) -> None:
        self.home, self.root, self.kept = folder / "home", folder / "w", folder / "kept"

    def keep(self) -> None:
        shutil.rmtree(self.kept, ignore_errors=True)
        self.kept.mkdir()
        self._copy((self.home, self.root), self.kept)

    def bring_back(self) -> None:
        for part in (self.home, self.root):
            shutil.rmtree(part)
        self._copy((self.kept / self.home.name, self.kept / self.root.name), self.home.parent)

    def _copy(self, parts: tuple[Path, ...], folder: Path) -> None:
        subprocess.run(["cp", "-a", *parts, folder], check=True)

    def killed_at(self, nth: int, act: str) -> bool:
        """Roll back or finish, and be killed at this step; False where there are fewer."""
        pid = os.fork()
        if not pid:
            try:
                die_at(nth, signal.SIGKILL)
                with open_store() as store:
                    workspace = store.workspace(self.root)
                    if act == "finish":
                        workspace.recover("continue")
                    else:
                        workspace.carry_out(workspace.plan_rollback("@start"))
            except BaseException:  # noqa: BLE001 - it must not go on as the test
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        assert status in (0, -signal.SIGKILL)
        return status != 0


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    found = Place(tmp_path)
    monkeypatch.setenv("LOOM_AUDIT_HOME", str(found.home))
    found.root.mkdir()
    sh(found.root, BEGIN)
    with open_store() as store:
        workspace = store.attach(found.root)
        workspace.checkpoint("start")
        for command in CHANGES:
            with workspace.session("agent") as session:
                session.run(["sh", "-e", "-c", command])
    (found.home / "audit.db.ballast").unlink(missing_ok=True)
    return found


def sh(root: Path, command: str) -> None:
    subprocess.run(["sh", "-e", "-c", command], cwd=root, check=True)


def act_as_person(root: Path, chosen: random.Random) -> None:
    """Write, delete, make or move something, anywhere."""
    places = [
        root,
        *(path for path in sorted(root.rglob("*")) if ".loom-audit-tmp-" not in str(path)),
    ]
    gone = ["f2", "s", "keep", "keep/k", "d/e", "d/e/h1", "new/y", "moved", "d/g1", "n1"]
    path = chosen.choice([*places[1:], *(root / name for name in gone)])
    what = chosen.choice(("write", "delete", "folder", "link", "inside", "rename", "fifo", "mode"))
    with suppress(OSError):
        if path.is_fifo() and what == "write":
            what = "delete"  # whoever opens it waits for one who reads
        if what == "delete" or (what in ("folder", "link", "fifo") and chosen.random() < 0.7):
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        if what == "write":
            path.write_text(f"mine {chosen.random()}\n")
        elif what == "folder":
            path.mkdir()
            (path / "mine").write_text("mine\n")
        elif what == "link":
            path.symlink_to("keep")
        elif what == "inside":
            (path / "mine").write_text("mine\n")
        elif what == "rename":
            path.rename(root / "renamed")
        elif what == "fifo":
            os.mkfifo(path)
        elif what == "mode" and path.is_file() and not path.is_symlink():
            path.chmod(0o600)


def seen(root: Path) -> Tree:
    return {path: entry for path, entry in tree_of(root).items() if b".loom-audit-tmp-" not in path}


def check_finished(
    workspace: AuditedWorkspace, done: RecoveredCall, there: Tree, old: Tree
) -> None:
    """What is kept is as the person left it, all else as it was before the calls."""
    now, asked = tree_of(workspace.root), {path for path, _ in done.outcomes}
    stays = {note.path for note in done.kept if not note.reason.startswith("it was to become")}
    for path in now.keys() | there.keys() | old.keys():
        name = os.fsdecode(path)
        if name in stays or name not in asked:
            assert now.get(path) == there.get(path), (name, stays)
        else:
            assert now.get(path) == old.get(path), (name, stays)
    theirs = {path for path, outcome in done.outcomes if outcome == "unknown"}
    assert theirs <= stays
    for note in done.kept:
        if note.path in stays - theirs:
            check_reason(note, stays, now)


def check_reason(note: Note, stays: Collection[str], now: Tree) -> None:
    """That a path is kept which nobody changed follows from what is on disk."""
    if found := re.fullmatch("it holds (.*), which stays", note.reason):
        assert os.fsencode(found[1]) in now
    elif found := re.fullmatch("(.*) is not a folder any more", note.reason):
        assert now.get(os.fsencode(found[1]), ("absent",))[0] != "directory"
    else:
        found = re.fullmatch("(?:a hard link of|it is moved with) (.*), which stays", note.reason)
        assert found and found[1] in stays, note


def check_whole(workspace: AuditedWorkspace) -> None:
    assert workspace.recover() == [] and workspace.leftovers() == []
    with workspace.attachment.exclusive():
        record_drift(workspace.attachment)
    check_finishes(workspace)
    check_each_change_once(workspace.log.read())
    status = workspace.status()
    assert status.drift == () and status.begun == () and status.kept == ()
    fifos = {path for path, entry in tree_of(workspace.root).items() if entry[0] == "other"}
    check_fold(workspace, {p: e for p, e in tree_of(workspace.root).items() if p not in fifos})
    check_log(workspace, [])


def finish_and_check(place: Place, there: Tree, old: Tree) -> tuple[Tree, tuple[int, ...]]:
    """Finish what was interrupted; what is there then, and what counts as taken back."""
    with open_store() as store:
        workspace = store.workspace(place.root)
        for done in workspace.recover("continue"):
            check_finished(workspace, done, there, old)
        check_whole(workspace)
        check_outside(workspace, there, old)
        newest = workspace.timeline.calls()[0]
        return tree_of(place.root), newest.reverts if newest.tool == "rollback" else ()


def check_outside(workspace: AuditedWorkspace, there: Tree, old: Tree) -> None:
    """What the person left is on record as from outside, and their contents can be read."""
    for path, (kind, _, content) in there.items():
        if kind == "file" and content.startswith(b"mine") and old.get(path) != there[path]:
            change, *_ = workspace.timeline.history(os.fsdecode(path))
            assert change.origin == "outside", path


def stopped_at(place: Place, nth: int, chosen: random.Random) -> bool:
    """Kill a rollback at this step and act as a person; False where it has fewer steps."""
    place.bring_back()
    if not place.killed_at(nth, "roll back"):
        return False
    for _ in range(chosen.choice((1, 1, 2, 3))):
        act_as_person(place.root, chosen)
    return True


def finish_after_each(place: Place, chosen: random.Random, every: int) -> int:
    """How many rollbacks, killed at one step after the other, were finished."""
    old = start_of(place)
    place.keep()
    for nth in range(every, 400, every):
        if not stopped_at(place, nth, chosen):
            return nth // every - 1
        there = seen(place.root)
        try:
            finish_and_check(place, there, old)
        except BaseException as error:
            error.add_note(f"killed at step {nth}")
            raise
    raise AssertionError("it does not end")


def kill_while_finishing(place: Place, chosen: random.Random, nth: int, every: int) -> int:
    """How many kills a finishing was brought through, each with another one after it."""
    old = start_of(place)
    place.keep()
    assert stopped_at(place, nth, chosen)
    there = seen(place.root)
    place.keep()
    wanted = finish_and_check(place, there, old)
    for step in range(every, 400, every):
        place.bring_back()
        if not place.killed_at(step, "finish"):
            return step // every - 1
        if chosen.random() < 0.5:  # somebody looks first
            with open_store() as store, store.workspace(place.root).attachment.exclusive():
                record_drift(store.workspace(place.root).attachment)
        place.killed_at(chosen.randrange(1, 12), "finish")
        try:
            assert finish_and_check(place, there, old) == wanted
        except BaseException as error:
            error.add_note(f"killed at step {nth}, then while it was finished at {step}")
            raise
    raise AssertionError("it does not end")


def start_of(place: Place) -> Tree:
    """What the rollback brings back, by a rollback that nobody interrupts."""
    place.keep()
    with open_store() as store:
        workspace = store.workspace(place.root)
        workspace.carry_out(workspace.plan_rollback("@start"))
    old = tree_of(place.root)
    place.bring_back()
    return old


@pytest.mark.few(0)
def test_what_a_person_changes_after_a_kill_at_a_sampled_step_stays(
    place: Place, seed: str
) -> None:
    assert finish_after_each(place, random.Random(seed), 16) > 1


@pytest.mark.few(0)
def test_a_finishing_that_is_killed_at_a_sampled_step_ends_as_one_that_is_not(
    place: Place, seed: str
) -> None:
    assert kill_while_finishing(place, random.Random(seed), 14, 12) > 0


@pytest.mark.deep
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("n", range(12))
def test_what_a_person_changes_after_a_kill_at_any_step_stays(
    place: Place, seed: str, n: int
) -> None:
    assert finish_after_each(place, random.Random(f"{seed} {n}"), 1) > 30


@pytest.mark.deep
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("n", range(12))
def test_a_finishing_that_is_killed_at_any_step_ends_as_one_that_is_not(
    place: Place, seed: str, n: int
) -> None:
    kill_while_finishing(place, random.Random(f"{seed} {n}"), 4 + 3 * n, 1)
