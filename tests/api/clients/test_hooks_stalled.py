"""Hooks that end while they are answered: nobody knows from then on who changes what."""

import json
from pathlib import Path
from typing import Any

import pytest

from loom_audit import AuditedWorkspace, AuditStore
from loom_audit.api.agents.clients import Hooks
from loom_audit.errors import AuditError
from loom_audit.history.look.capture import scan
from loom_audit.model.records import Call
from tests.processes.hooked import HookedClaude, HookedGemini


class Dying:
    """Answers hooks; while `at` counts, the hook ends when it is asked for so often.

    Its client goes on at once, and so does a person.
    """

    def __init__(self, store: AuditStore, root: Path, client: str) -> None:
        self.hooks = Hooks(store)
        self.client = client
        self.root = root
        self.at: int | None = None

    def __call__(self, data: bytes) -> bytes:
        return self.hooks.answer(self.client, data, is_there=self._is_there)

    def _is_there(self) -> bool:
        if self.at is None:
            return True
        self.at -= 1
        if self.at == 0:
            self.goes_on()
        return self.at > 0

    def goes_on(self) -> None:
        (self.root / "made.txt").write_text("made")
        (self.root / "mine.txt").write_text("a person's")


@pytest.fixture
def dying(store: AuditStore, workspace: AuditedWorkspace, root: Path) -> Dying:
    assert workspace.root == str(root)
    return Dying(store, root, "claude-code")


@pytest.fixture
def claude(dying: Dying, root: Path, tmp_path: Path) -> HookedClaude:
    one = HookedClaude(dying, root, tmp_path / "s1.jsonl")
    one.hook("SessionStart", source="startup")
    return one


def call_of(workspace: AuditedWorkspace, id: str) -> Call:
    return workspace.timeline.projections.call("s1", id)


def check(workspace: AuditedWorkspace, root: Path, call: Call) -> None:
    """The call says no more than was seen, and a person's file stays."""
    assert call.seq is not None and call.status != "cancelled"
    assert call.coverage.level != "full"
    while True:
        try:
            workspace.carry_out(workspace.plan_undo())
        except AuditError:
            break
    assert (root / "mine.txt").read_text() == "a person's"
    assert workspace.verify().findings == ()


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("at", range(1, 6))
def test_a_hook_that_dies_while_it_is_answered_owns_nothing_that_came_since(
    dying: Dying,
    claude: HookedClaude,
    workspace: AuditedWorkspace,
    root: Path,
    moment: str,
    at: int,
) -> None:
    arguments = {"command": "make"}
    claude.asks("c1", "Bash", arguments)
    dying.at = at if moment == "before" else None
    claude.before("c1", "Bash", arguments)
    seen = moment == "before" and dying.at is not None and dying.at > 0
    dying.at = at if moment == "after" else None
    if moment == "after":
        (root / "made.txt").write_text("made")
    claude.after("c1", "Bash", arguments, {"stdout": "", "stderr": ""})
    if seen or (dying.at is not None and dying.at > 0):  # it was over when it would have died
        assert call_of(workspace, "c1").coverage.level == "full"
        return
    dying.at = None
    claude.bash("c2", "true")
    call = call_of(workspace, "c1")
    if moment == "after" and call.coverage.level == "full":  # the look was over by then
        assert call.paths == ("made.txt",)
        return
    check(workspace, root, call)


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_hook_that_dies_in_the_middle_of_its_look_owns_nothing_that_came_since(
    dying: Dying,
    claude: HookedClaude,
    workspace: AuditedWorkspace,
    root: Path,
    moment: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    arguments = {"command": "make"}
    claude.asks("c1", "Bash", arguments)

    def dies(*given: Any, **more: Any) -> Any:
        dying.at = 0
        dying.goes_on()
        return scan(*given, **more)

    if moment == "after":
        claude.before("c1", "Bash", arguments)
    with monkeypatch.context() as patch:
        patch.setattr("loom_audit.history.record.looks.scan", dies)
        if moment == "before":
            claude.before("c1", "Bash", arguments)
        else:
            claude.after("c1", "Bash", arguments, {"stdout": "", "stderr": ""})
    dying.at = None
    if moment == "before":
        claude.after("c1", "Bash", arguments, {"stdout": "", "stderr": ""})
    check(workspace, root, call_of(workspace, "c1"))


@pytest.mark.parametrize("moment", ["before", "after"])
def test_late_looks_of_gemini_own_nothing(
    store: AuditStore, workspace: AuditedWorkspace, root: Path, tmp_path: Path, moment: str
) -> None:
    assert workspace.root == str(root)
    dying = Dying(store, root, "gemini")
    gemini = HookedGemini(dying, root, tmp_path / "g1.json")
    gemini.hook("SessionStart", source="startup")
    dying.at = 0 if moment == "before" else None
    gemini.before("make")
    dying.goes_on()
    dying.at = 0 if moment == "after" else None
    gemini.after("make")
    dying.at = None
    gemini.writes(("t1", "make", "success"))
    gemini.hook("SessionEnd", reason="exit")
    [call] = workspace.timeline.calls()
    check(workspace, root, call)


ARGS = {"command": "make"}


@pytest.mark.parametrize("moment", ["before", "after"])
def test_late_looks_of_opencode_own_nothing(
    store: AuditStore, workspace: AuditedWorkspace, root: Path, moment: str
) -> None:
    assert workspace.root == str(root)
    dying = Dying(store, root, "opencode")

    def hook(name: str, output: Any, id: str = "c1") -> bytes:
        source = {"tool": "bash", "sessionID": "o1", "callID": id, "args": ARGS}
        given = {"hook_event_name": name, "session_id": "o1", "cwd": str(root)}
        return json.dumps({**given, "input": source, "output": output}).encode()

    dying.at = 0 if moment == "before" else None
    dying(hook("tool.execute.before", {"args": ARGS}))
    dying.goes_on()
    dying.at = 0 if moment == "after" else None
    dying(hook("tool.execute.after", {"title": "make", "output": "", "metadata": {"exit": 0}}))
    dying.at = None
    dying(hook("tool.execute.before", {"args": ARGS}, "c2"))
    call = workspace.timeline.projections.call("o1", "c1")
    check(workspace, root, call)
