"""An undo of `git worktree remove`, killed at each step: the worktree is gone, or it is back."""

from pathlib import Path
from typing import Any

import pytest

from loom_audit import open_store
from loom_audit.history.record.git import restoring
from loom_audit.sandbox.git import linked_builder
from loom_audit.sandbox.git.linked_builder import ProgramLinkedBuilding
from tests.crash.test_git_restores import root, run
from tests.crash.test_leftover_temporaries import killed
from tests.history.undo.test_git_taken_back import as_git_says, broken, differences
from tests.history.undo.test_git_worktree_back import begun, linked_as_git_says
from tests.places.git_person import git

__all__ = ["root"]

BEFORE: dict[str, tuple[Any, str]] = {
    "the intention": (restoring, "GitIntended"),
    "filling": (ProgramLinkedBuilding, "fill"),
    "the entry's index": (linked_builder, "put_index"),
    "the entry is at its place": (ProgramLinkedBuilding, "_placed"),
    "it is named": (linked_builder, "write_whole"),
    "the record of it": (restoring, "collect_restored"),
}


@pytest.mark.few(3)
@pytest.mark.parametrize("where", BEFORE)
@pytest.mark.parametrize("way", ["--continue", "--abandon"])
def test_a_killed_undo_of_a_removed_worktree_leaves_it_gone_or_back(
    root: Path, where: str, way: str
) -> None:
    git(root, "branch", "-f", "feat", "HEAD~1")
    before = begun(root)
    assert run(root, "init").returncode == 0
    main = as_git_says(root)
    assert run(root, "run", "--", "git", "worktree", "remove", "--force", "linked").returncode == 0

    def undo() -> None:
        with open_store() as store:
            workspace = store.workspace(root)
            workspace.carry_out(workspace.plan_undo())

    assert killed(undo, BEFORE[where], 1)
    recovered = run(root, "recover", way)
    assert recovered.returncode in (0, 5, 7), recovered.stderr
    is_back = (root / "linked" / ".git").exists()
    entries = root / ".git" / "worktrees"
    assert is_back == bool(entries.is_dir() and [*entries.iterdir()])
    assert not [one for one in root.rglob("*") if "loom-audit" in one.name]
    for _ in range(2):  # what it did of the files is taken back, and then the call
        if not (root / "linked" / ".git").exists():
            undone = run(root, "undo", "--yes")
            assert undone.returncode in (0, 7), undone.stdout + undone.stderr
    assert not differences(before, linked_as_git_says(root))
    assert not differences(main, as_git_says(root))
    assert broken(root) == ""
    assert run(root, "verify").returncode == 0
