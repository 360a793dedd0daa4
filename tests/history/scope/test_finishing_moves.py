"""An undo that renames a left-out folder back is killed, and somebody changes that meanwhile."""

import os
import shutil
import signal
import traceback
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from loom_audit import AuditedWorkspace, open_store
from tests.crash.test_closed_folders import die_at
from tests.given.cases import some
from tests.history.scope.conftest import Run
from tests.history.scope.test_folders import PACKAGES, make
from tests.oracles.trees import tree_of


def a_folder_of_theirs(root: Path) -> None:
    make(root / "venv", {"mine": "mine\n"})


def a_file_of_theirs(root: Path) -> None:
    if not (root / "venv").exists():
        (root / "venv").write_text("mine\n")


def gone(root: Path) -> None:
    shutil.rmtree(root / "env", ignore_errors=True)


def another_one(root: Path) -> None:
    if (root / "env").exists():
        shutil.rmtree(root / "env")
        make(root / "env", {"mine": "mine\n"})


def an_edit_inside(root: Path) -> None:
    for name in ("env", "venv"):
        if (root / name).exists():
            (root / name / "lib" / "site.py").write_text("mine\n")


def a_new_file_inside(root: Path) -> None:
    for name in ("env", "venv"):
        if (root / name).exists():
            (root / name / "mine").write_text("mine\n")


def without_the_folder_above(root: Path) -> None:
    (root / "a.txt").unlink(missing_ok=True)


ACTS = (
    a_folder_of_theirs,
    a_file_of_theirs,
    gone,
    another_one,
    an_edit_inside,
    a_new_file_inside,
    without_the_folder_above,
)


def killed_at(root: Path, nth: int) -> bool:
    """Undo and be killed at this step; False where there are fewer."""
    pid = os.fork()
    if not pid:
        try:
            die_at(nth, signal.SIGKILL)
            with open_store() as store:
                workspace = store.workspace(root)
                workspace.carry_out(workspace.plan_undo())
        except BaseException:  # noqa: BLE001 - it must not go on as the test
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) != 0


def files(root: Path) -> dict[str, bytes]:
    """What is in each file and symlink, by path, without what a kill left of ours."""
    found = {os.fsdecode(path): entry for path, entry in tree_of(root).items()}
    return {
        path: content
        for path, (kind, _, content) in found.items()
        if kind != "directory" and ".loom-audit-tmp-" not in path
    }


def inside(found: Mapping[str, bytes]) -> Counter[tuple[str, bytes]]:
    """The files of the two folders, however these are called."""
    folders = {"env": "", "venv": ""}
    return Counter(
        (path.partition("/")[2], content)
        for path, content in found.items()
        if path.partition("/")[0] in folders
    )


@pytest.mark.parametrize("act", some(ACTS, 1))
def test_nothing_of_a_left_out_folder_is_lost_and_the_rest_is_done(
    workspace: AuditedWorkspace, root: Path, run: Run, act: Callable[[Path], None]
) -> None:
    make(root / "venv", PACKAGES)
    kinds = set[bool]()
    for nth in range(1, 60):
        for name in ("venv", "env"):
            path = root / name
            path.unlink() if path.is_file() else shutil.rmtree(path, ignore_errors=True)
        make(root / "venv", PACKAGES)
        (root / "a.txt").write_text("old\n")
        (root / "made").unlink(missing_ok=True)
        run("true")
        run("mv venv env; echo 2 > a.txt; echo new > made")
        if not killed_at(root, nth):
            break
        act(root)
        there = files(root)
        try:
            for done in workspace.recover("continue"):
                kept = {note.path for note in done.kept}
                kinds.add(bool(kept & {"env", "venv"}))
                now = files(root)
                assert inside(now) == inside(there)
                if done.outcomes:
                    assert "made" not in now and now.get("a.txt") in (b"old\n", None)
                    assert kept or "env/bin/python" not in now
                    assert {path: now.get(path) for path in kept & there.keys()} == {
                        path: there[path] for path in kept & there.keys()
                    }
            assert workspace.verify().ok
        except BaseException as error:
            error.add_note(f"killed at step {nth}")
            raise
    assert nth > 4 and (act not in (a_folder_of_theirs, another_one) or kinds == {True, False})
