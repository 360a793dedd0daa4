"""When clients were last heard: on the first page of a workspace, and by `doctor`."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from loom_audit import AuditedWorkspace, AuditStore
from loom_audit.api.agents.clients import Hooks
from loom_audit.api.agents.heard import heard_clients
from loom_audit.api.upkeep.checks.check import Check
from loom_audit.api.upkeep.doctor import check_all
from tests.api.clients.test_hooks import claude as claude
from tests.api.clients.test_hooks import client_of
from tests.api.clients.test_hooks import root as root
from tests.api.clients.test_hooks import workspace as workspace
from tests.processes.clients import client as client
from tests.processes.hooked import HookedClaude
from tests.web.conftest import asking


@pytest.fixture(autouse=True)
def nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A person who has no client, and no settings of one."""
    monkeypatch.setenv("HOME", str(tmp_path))
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in ("sleep", "true"):
        (programs / name).symlink_to(shutil.which(name) or name)
    monkeypatch.setenv("PATH", str(programs))
    return tmp_path


def told_of(store: AuditStore) -> dict[str, Check]:
    checks = check_all(store.adapters.settings)
    return {one.name: one for one in checks if one.name.startswith("client ")}


def connect(store: AuditStore, root: Path) -> Path:
    """Write the settings that `connect claude-code` writes, and what they run."""
    launcher = store.adapters.settings.home / "hooks" / "hook_client.py"
    launcher.parent.mkdir(exist_ok=True)
    launcher.write_text("")
    hook = {"type": "command", "command": f"python3 {launcher} claude-code"}
    file = root / ".claude" / "settings.local.json"
    file.parent.mkdir()
    file.write_text(json.dumps({"hooks": {"PreToolUse": [{"hooks": [hook]}]}}))
    return launcher


def test_a_client_was_heard_when_its_last_hook_came(
    claude: HookedClaude, workspace: AuditedWorkspace, store: AuditStore, root: Path
) -> None:
    assert heard_clients(workspace) == {}
    claude.hook("SessionStart", source="startup")
    first = heard_clients(workspace)["claude-code"]
    claude.writes("c1", root / "b.txt", "b\n")
    heard = heard_clients(workspace)["claude-code"]
    assert heard > first
    found = told_of(store)["client claude-code"]
    assert found.verdict == "ok"
    assert found.text == f"not connected, heard 0 minutes ago in {root}"
    with asking(store) as visitor:
        page = visitor.get(f"/w/{workspace.id}/").text
    assert "Last heard by its hooks" in page and f"{heard:%H:%M:%S}" in page


def test_a_session_that_goes_on_counts_though_another_began_later(
    hooks: Hooks,
    workspace: AuditedWorkspace,
    root: Path,
    tmp_path: Path,
    client: "subprocess.Popen[bytes]",
) -> None:
    old = client_of(hooks, root, tmp_path, client)
    old.hook("SessionStart", source="startup")
    new = client_of(hooks, root, tmp_path, client, "s2")
    new.hook("SessionStart", source="startup")
    new.hook("SessionEnd", reason="other")
    before = heard_clients(workspace)["claude-code"]
    old.writes("c1", root / "b.txt", "b\n")
    assert heard_clients(workspace)["claude-code"] > before


def test_a_run_under_a_clients_name_is_not_its_hook(workspace: AuditedWorkspace) -> None:
    with workspace.session("codex") as session:
        session.run(["true"])
    assert heard_clients(workspace) == {}


def test_doctor_names_who_is_connected_and_was_never_heard(
    workspace: AuditedWorkspace, store: AuditStore, root: Path
) -> None:
    assert told_of(store) == {}
    launcher = connect(store, root)
    (found,) = told_of(store).values()
    assert found.verdict == "warning" and "claude" in found.hint
    assert found.text == f"connected for {root} (nothing heard yet)"
    launcher.unlink()
    (found,) = told_of(store).values()
    assert found.verdict == "problem" and "loom-audit connect claude-code" in found.hint


def test_doctor_names_a_client_that_is_here_and_not_connected(
    workspace: AuditedWorkspace, store: AuditStore, nobody: Path
) -> None:
    program = nobody / "programs" / "gemini"
    program.write_text("")
    program.chmod(0o755)
    found = told_of(store)
    assert found.keys() == {"client gemini"}
    assert found["client gemini"].text == "not connected, never heard"
