"""The history of a real project as calls: five releases of itsdangerous, applied one by one."""

import base64
import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from loom_audit import AuditedWorkspace, AuditStore, Session
from loom_audit.ports import CallFilter
from loom_audit.tools.calls.settings import ToolSettings
from tests.oracles.trees import Entry, differences, tree_of
from tests.tapes.releases import unpack_releases

Snapshot = dict[bytes, Entry]


@pytest.fixture(scope="module")
def releases(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Each release unpacked, oldest first."""
    return unpack_releases("itsdangerous", tmp_path_factory.mktemp("releases"))


def apply_with_tools(session: Session, root: Path, release: Path) -> None:
    """Bring the workspace to the release by file tools, one call a path."""
    now, wanted = tree_of(root), tree_of(release)

    def call(tool: str, **arguments: object) -> None:
        result = anyio.run(lambda: session.call(tool, arguments))
        assert result.success, result.error

    for path in sorted(now.keys() - wanted.keys(), reverse=True):
        call("delete_file", path=os.fsdecode(path), recursive=True)
    for path, (kind, _, content) in sorted(wanted.items()):
        if now.get(path) == wanted[path] or kind == "directory":
            continue
        name = os.fsdecode(path)
        old = now.get(path)
        if (
            old
            and old[0] == "file"
            and old[2] != content
            and content.isascii()
            and len(old[2]) < 20_000
        ):
            call(
                "edit_file",
                path=name,
                edits=[{"old_str": old[2].decode(), "new_str": content.decode()}],
            ) if old[2].isascii() and old[2] else call(
                "write_file", path=name, content=content.decode()
            )
        else:
            coded = base64.b64encode(content).decode()
            call("write_file", path=name, content=coded, encoding="base64")
    modes = [
        f"chmod {mode:o} '{os.fsdecode(path)}'"
        for path, (kind, mode, _) in wanted.items()
        if kind != "symlink"
    ]
    script = root.parent / "modes.sh"
    script.write_text("\n".join(modes))
    call("shell_execute", command=f"sh {script}; find . -type d -empty -delete")


def apply_with_shell(session: Session, root: Path, release: Path) -> None:
    """The same by one command that replaces everything."""
    command = f"rm -rf ./* ./.[!.]*; cp -a --no-preserve=ownership '{release}'/. ."
    result = anyio.run(lambda: session.call("shell_execute", {"command": command}))
    assert result.success, result.error


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("first", "fewest"), [(2, 20), pytest.param(0, 50, marks=pytest.mark.deep)], ids=["few", "all"]
)
def test_a_projects_releases_are_replayed_undone_and_rolled_back_exactly(
    store: AuditStore, tmp_path: Path, releases: list[Path], first: int, fewest: int
) -> None:
    releases = releases[first:]
    root = tmp_path / "project"
    shutil.copytree(releases[0], root, symlinks=True)
    root.chmod(0o755)
    workspace = store.attach(root)
    points: list[tuple[int, Snapshot]] = [(workspace.log.head(), tree_of(root))]
    with workspace.session("tape") as session:
        session.settings = ToolSettings(readable=(str(releases[0].parent), str(tmp_path)))
        for n, release in enumerate(releases[1:]):
            (apply_with_shell if n % 2 else apply_with_tools)(session, root, release)
            assert tree_of(root) == tree_of(release), differences(tree_of(root), tree_of(release))
            points.append((workspace.log.head(), tree_of(release)))

        for n, (point, wanted) in enumerate(points):
            assert recorded(workspace, point) == {
                path: (kind, mode, content) for path, (kind, mode, content) in wanted.items()
            }
            workspace.replay(point, tmp_path / f"replayed-{n}")
            assert tree_of(tmp_path / f"replayed-{n}") == wanted

        end = tree_of(root)
        calls = [c for c in workspace.timeline.calls(CallFilter(limit=None)) if c.changed]
        assert len(calls) > fewest
        every_call_can_be_undone_and_redone(workspace, root, calls_count=len(calls))
        assert tree_of(root) == end

    for point, wanted in [*reversed(points), *points]:
        plan = workspace.plan_rollback(point)
        if not plan.is_empty:
            workspace.carry_out(plan)
        assert tree_of(root) == wanted, differences(tree_of(root), wanted)


def every_call_can_be_undone_and_redone(
    workspace: AuditedWorkspace, root: Path, *, calls_count: int
) -> None:
    """Walk all the way back one call at a time, then all the way forward again."""
    seen = [tree_of(root)]
    take(workspace.plan_undo, workspace, times=1)
    for _ in range(calls_count - 1):
        seen.append(tree_of(root))
        take(workspace.plan_undo, workspace, times=1)
    for wanted in reversed(seen):
        take(workspace.plan_redo, workspace, times=1)
        now = tree_of(root)
        assert now == wanted, differences(now, wanted)


def take(plan: Callable[[], object], workspace: AuditedWorkspace, *, times: int) -> None:
    for _ in range(times):
        workspace.carry_out(plan())  # type: ignore[arg-type]


def recorded(workspace: AuditedWorkspace, point: int) -> Snapshot:
    """The log's tree of a point in the form of the independent look."""
    tree: Snapshot = {}
    for path, state in workspace.timeline.tree(point).items():
        content = b"" if state.kind == "directory" else workspace.timeline.content(state)
        mode = 0 if state.kind == "symlink" else stat.S_IMODE(state.mode)
        tree[os.fsencode(path)] = (state.kind, mode, content)
    return tree
