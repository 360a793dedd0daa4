"""Where approvals.toml is found, and that nothing starts with a bad one."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import anyio
import pytest
from msgspec.structs import replace

from loom_audit.api.face import AuditedWorkspace, open_store
from loom_audit.api.ground.connections import Connections
from loom_audit.api.ground.gates import default_gate
from loom_audit.api.registry import builtin_registry
from loom_audit.errors import AuditError, InvalidArguments
from loom_audit.tools.calls.gate import AllowAll


def write_rules(home: Path, text: str) -> None:
    folder = home / "config"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "approvals.toml").write_text(text)


@pytest.fixture
def own(home: Path, tmp_path: Path) -> Iterator[tuple[AuditedWorkspace, Path]]:
    """A workspace in a store of its own, and its rules' home."""
    root = tmp_path / "own"
    root.mkdir()
    (root / "a.txt").write_text("a")
    with open_store() as store:
        yield store.attach(root), home


DENY = '[[rule]]\ntool = "write_*"\naction = "deny"\nreason = "not here"\n'


def test_sessions_and_registries_follow_the_file_of_rules_when_there_is_one(
    own: tuple[AuditedWorkspace, Path],
) -> None:
    workspace, home = own
    arguments = {"path": "a.txt", "content": "b"}
    with workspace.session("free") as session:
        assert anyio.run(session.call, "write_file", arguments).success
    write_rules(home, DENY)
    with workspace.session("bound") as session:
        result = anyio.run(session.call, "write_file", arguments)
    assert result.error.details["by"] == "policy:approvals.toml#1"
    with closing(Connections()) as connections:
        registry = builtin_registry(connections)
        result = anyio.run(registry.execute, "write_file", arguments, workspace.root)
    assert result.error.code == "APPROVAL_DENIED" and "not here" in result.output
    with workspace.session("given", gate=AllowAll()) as session:
        assert anyio.run(session.call, "write_file", arguments).success


@pytest.mark.parametrize(
    "text",
    ["[[rule]", '[[rule]]\naction = "yes"\n', "[[rule]]\ncolour = 1\n", "other = 1\n"],
)
def test_a_file_that_is_not_valid_lets_nothing_start(
    own: tuple[AuditedWorkspace, Path], text: str
) -> None:
    workspace, home = own
    arguments = {"path": "a.txt", "content": "b"}
    with workspace.session("before") as session:
        assert anyio.run(session.call, "write_file", arguments).success
    write_rules(home, text)
    with pytest.raises(InvalidArguments, match=r"approvals\.toml"):
        workspace.session("any")
    result = anyio.run(builtin_registry().execute, "write_file", arguments, workspace.root)
    assert result.error.code == "INVALID_ARGUMENTS"
    workspace.carry_out(workspace.plan_undo())  # a person takes back all the same
    assert (Path(workspace.root) / "a.txt").read_text() == "a"


def test_rules_behind_a_link_that_leads_nowhere_let_nothing_start(
    own: tuple[AuditedWorkspace, Path], tmp_path: Path
) -> None:
    workspace, home = own
    write_rules(home, DENY)
    file = home / "config" / "approvals.toml"
    file.rename(tmp_path / "elsewhere.toml")
    file.symlink_to(tmp_path / "gone.toml")
    with pytest.raises(AuditError, match="cannot be read"):
        workspace.session("any")


def test_rules_that_lie_in_the_workspace_are_refused(
    own: tuple[AuditedWorkspace, Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    workspace, _ = own
    inside = tmp_path / "own" / "config"
    settings = replace(workspace.adapters.settings, configuration=inside)
    inside.mkdir()
    (inside / "approvals.toml").write_text("")
    with pytest.raises(InvalidArguments, match="lies in the workspace"):
        default_gate(settings, root=workspace.root)
