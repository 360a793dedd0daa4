"""Repositories of unusual kinds: what is on record of them is what git says."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from loom_audit import AuditedWorkspace, ToolResult
from tests.history.look.test_git_nested import repository
from tests.history.look.test_git_tape import as_git_says, check_mirror, git, on_record, play_on
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
    "long ids": "git init -q -b main --object-format=sha256 . && git commit -q --allow-empty -m c",
    "split index": "git clone -q ../upstream . && git update-index --split-index",
    "project": "git init -q -b main . && ("
    " for n in $(seq 500); do printf 'commit refs/heads/main\\ncommitter a <a@example.org>'"
    "' %d +0000\\ndata 1\\nc\\nM 644 inline f%d\\ndata 3\\n%03d\\n' $n $((n % 9)) $n;"
    " test $((n % 50)) = 0 && printf 'reset refs/tags/v%d\\nfrom refs/heads/main\\n\\n' $n;"
    " true; done) | git fast-import --quiet && git reset -q --hard && git gc -q",
}
NOT_WHOLE = ("alternates", "partial", "pruned", "shallow")
"""Their histories end, or objects of theirs are elsewhere."""


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


@pytest.mark.few(3)
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
    said = reasons(workspace)
    unkept = {one for one in said if "objects" in one or " object " in one}
    assert bool(unkept) == (kind in ("alternates", "partial")), unkept


@pytest.mark.few(3)
@pytest.mark.parametrize(
    "steps",
    [pytest.param(3), pytest.param(100, marks=[pytest.mark.deep, pytest.mark.timeout(3600)])],
)
def test_after_each_step_of_a_tape_over_it_the_record_is_what_git_says(
    workspace: AuditedWorkspace,
    root: Path,
    call: Callable[..., ToolResult],
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    steps: int,
) -> None:
    monkeypatch.setenv("GIT_EDITOR", "true")
    play_on(workspace, root, 28, steps, lambda one: call("shell_execute", command=one))
    if kind not in NOT_WHOLE:
        check_mirror(workspace)
    assert workspace.verify().findings == ()


def reasons(workspace: AuditedWorkspace) -> set[str]:
    """Why coverage is less than full."""
    return {one for made in workspace.timeline.calls() for one in made.coverage.reasons}
