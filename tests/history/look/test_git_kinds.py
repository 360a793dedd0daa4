"""Repositories of unusual kinds: what is on record of them is what git says."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from loom_audit import AuditedWorkspace, ToolResult
from tests.history.look.test_git_nested import repository
from tests.history.look.test_git_tape import as_git_says, git, on_record
from tests.places.git_person import as_ann

KINDS = {
    "unborn": "git init -q -b main .",
    "shallow": "git clone -q --depth=1 file://$PWD/../upstream .",
    "partial": "git clone -q --filter=blob:none --no-checkout file://$PWD/../upstream .",
    "alternates": "git clone -q --shared ../upstream .",
    "cyclic": "git clone -q ../upstream . && echo ref: refs/heads/b > .git/refs/heads/a"
    " && echo ref: refs/heads/a > .git/refs/heads/b",
    "sparse": "git clone -q ../upstream . && mkdir -p d/e && echo x > d/e/f && git add d"
    " && git commit -qm d && git sparse-checkout set --cone --sparse-index none",
    "pruned": "git clone -q ../upstream . && git commit -q --allow-empty -m gone"
    " && id=$(git rev-parse HEAD) && git reset -q --hard HEAD~1 && git update-ref -d ORIG_HEAD"
    " && rm -f .git/objects/$(echo $id | cut -c1-2)/$(echo $id | cut -c3-)",
    "detached": "git clone -q ../upstream . && git checkout -q --detach",
}


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> Path:
    as_ann(monkeypatch)
    repository(tmp_path / "upstream")
    git(tmp_path / "upstream", "config", "uploadpack.allowFilter", "true")
    root = tmp_path / "workspace"
    root.mkdir()
    subprocess.run(["sh", "-c", KINDS[kind]], cwd=root, check=True, capture_output=True)
    return root


def test_what_is_on_record_is_what_git_says(
    workspace: AuditedWorkspace, root: Path, call: Callable[..., ToolResult], kind: str
) -> None:
    for command in ("true", "git tag new", "git symbolic-ref HEAD refs/heads/elsewhere"):
        call("shell_execute", command=f"{command}; true")
        state = on_record(workspace)
        names = {
            k: v for k, v in state.names.items() if k in ("HEAD", "stashes") or k[:5] == "refs/"
        }
        assert names == as_git_says(root), command
        entries = workspace.timeline.content(state.files["index entries"]).decode()
        assert entries == git(root, "ls-files", "-s", "-v", "-z"), command
    said = {one for made in workspace.timeline.calls() for one in made.coverage.reasons}
    unkept = {one for one in said if "objects" in one or " object " in one}
    assert bool(unkept) == (kind in ("alternates", "partial")), unkept
