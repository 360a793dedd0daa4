"""What of a removed `.git` is not on record, or broken: a plan says that it does not come back."""

from pathlib import Path

import pytest

from loom_audit import AuditStore
from loom_audit.model.plans.git_settings import beside_state
from tests.history.undo.test_git_taken_back import act, root
from tests.places.git_person import git

__all__ = ["root"]


@pytest.mark.parametrize(
    ("config", "found"),
    [
        ("[core]\n\tbare = false\n[annex]\n\tuuid = 1\n", ["contents of git annex"]),
        ('[Filter "lfs"]\nclean = x\n', ["contents of git lfs"]),
        ("[lfs]\n\trepositoryformatversion = 0", ["contents of git lfs"]),
        ('[rerere]\nenabled\n[submodule "a"]\n', ["rr-cache", "submodules"]),
        ("[core] # [annex]\n[alias]\nannex = x\n", []),
    ],
)
def test_what_lies_beside_the_state_is_told_by_the_settings(config: str, found: list[str]) -> None:
    told = beside_state(config.encode())
    assert len(told) == len(found)
    assert all(one in other for one, other in zip(found, told, strict=True))


def test_a_plan_says_what_does_not_come_back(store: AuditStore, root: Path) -> None:
    git(root, "config", "annex.uuid", "1")
    git(root, "config", "filter.lfs.clean", "git-lfs clean -- %f")
    (root / ".git" / "refs" / "heads" / "odd").write_text("garbage\n")
    workspace = store.attach(root)
    with workspace.session("tester") as session:
        act(session, "rm -rf .git")
        plan = workspace.plan_undo()
        said = " ".join(note.reason for note in plan.irreversible)
        assert "contents of git annex, contents of git lfs" in said
        assert "a ref that is broken does not come back: refs/heads/odd" in said
        workspace.carry_out(plan)
    assert not (root / ".git" / "refs" / "heads" / "odd").exists()
    assert git(root, "log", "-1", "--format=%s").strip() == "c2"
