"""Looks that come late, after a person and other calls: what nobody saw is not a call's own."""

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from loom_audit import AuditedWorkspace, AuditStore
from loom_audit.api.agents.clients import Hooks
from loom_audit.api.agents.reading import read_transcripts
from loom_audit.errors import AuditError, Conflict
from loom_audit.model.records import Call
from tests.given.ticks import tick
from tests.processes.hooked import HookedClaude, HookedCodex


class Process:
    """Who answers hooks: it can be killed, and is then gone without a word."""

    def __init__(self, store: AuditStore, client: str = "claude-code") -> None:
        self.hooks = Hooks(store)
        self.client = client
        self.waits = True

    def __call__(self, data: bytes) -> bytes:
        return self.hooks.answer(self.client, data, is_there=lambda: self.waits)


@pytest.fixture
def process(store: AuditStore) -> Process:
    return Process(store)


@pytest.fixture
def claude(
    process: Process, workspace: AuditedWorkspace, root: Path, tmp_path: Path
) -> HookedClaude:
    assert workspace.root == str(root)
    one = HookedClaude(process, root, tmp_path / "s1.jsonl")
    one.hook("SessionStart", source="startup")
    return one


def unhooked(claude: HookedClaude, id: str, command: str, does: Callable[[], object]) -> None:
    """A call of which only the transcript tells."""
    claude.asks(id, "Bash", {"command": command})
    tick(claude.root)
    does()
    tick(claude.root)
    claude.told(id, {"stdout": "", "stderr": ""})


def call_of(workspace: AuditedWorkspace, id: str, session: str = "s1") -> Call:
    return workspace.timeline.projections.call(session, id)


def whose(workspace: AuditedWorkspace, path: str) -> tuple[str, str | None, set[str]]:
    """The origin of the newest change of a path, its call, and all that may have done it."""
    one = workspace.timeline.history(path)[0]
    causes = {
        workspace.timeline.projections.call_at(cause).call_id if cause else "?"
        for cause in one.causes
    }
    return one.origin, one.call_id, causes


def undo_all(workspace: AuditedWorkspace) -> None:
    """Everything that undo takes back when nobody chooses."""
    while True:
        try:
            workspace.carry_out(workspace.plan_undo())
        except AuditError:
            return


def test_what_was_done_while_nobody_looked_is_nobody_s_unless_the_call_that_named_it_was_seen(
    claude: HookedClaude, workspace: AuditedWorkspace, root: Path
) -> None:
    (root / "sub").mkdir()
    (root / "sub/old.txt").write_text("old")
    claude.bash("c1", "echo 1 > one.txt", lambda: (root / "one.txt").write_text("1"))
    arguments = {"command": "make; echo 2 > named.txt"}
    claude.asks("c2", "Bash", arguments)
    claude.before("c2", "Bash", arguments)  # the last that this process hears
    tick(root)
    (root / "two.txt").write_text("2")
    (root / "named.txt").write_text("2")
    tick(root)
    claude.told("c2", {"stdout": ""})
    unhooked(claude, "c3", "rm sub/old.txt", (root / "sub/old.txt").unlink)
    unhooked(claude, "c4", "echo 4 > four.txt", lambda: (root / "four.txt").write_text("4"))
    unhooked(claude, "c5", "make", lambda: (root / "five.txt").write_text("5"))
    tick(root)
    (root / "mine.txt").write_text("a person's")
    (root / "one.txt").write_text("a person's, too")
    read_transcripts(workspace)
    assert whose(workspace, "named.txt") == ("command", "c2", set())
    # of these calls it is only told that they ran: whoever tells can name what he likes
    assert whose(workspace, "sub/old.txt") == ("outside", None, {"c3", "?"})
    assert whose(workspace, "four.txt") == ("outside", None, {"c4", "?"})
    assert whose(workspace, "two.txt")[0] == whose(workspace, "five.txt")[0] == "outside"
    assert whose(workspace, "two.txt")[2] == {"c2", "?"}
    assert whose(workspace, "five.txt")[2] == {"c5", "?"}
    assert whose(workspace, "mine.txt")[0] == whose(workspace, "one.txt")[0] == "outside"
    call = call_of(workspace, "c2")
    assert (call.status, call.coverage.level) == ("ok", "partial")
    assert "looked at late" in call.coverage.reasons and call.paths == ("named.txt",)
    assert call_of(workspace, "c4").coverage.reasons == ("no hook",)
    undo_all(workspace)
    assert (root / "mine.txt").read_text() == "a person's"
    assert (root / "one.txt").read_text() == "a person's, too"
    assert {"two.txt", "four.txt", "five.txt"} < {*os.listdir(root)}
    assert not (root / "named.txt").exists() and not (root / "sub/old.txt").exists()
    assert workspace.verify().findings == ()


def test_an_undo_keeps_what_a_look_before_the_next_call_found_unless_it_is_chosen(
    claude: HookedClaude, workspace: AuditedWorkspace, root: Path
) -> None:
    start = workspace.log.head()
    arguments = {"command": "make"}
    claude.asks("c1", "Bash", arguments)
    claude.before("c1", "Bash", arguments)
    (root / "made.txt").write_text("made")
    claude.told("c1", {"stdout": ""})
    claude.asks("c2", "Bash", arguments)
    claude.before("c2", "Bash", arguments)  # which finds that the first one has ended
    origin, call_id, causes = whose(workspace, "made.txt")
    assert (origin, call_id, causes) == ("command", "c1", {"c1", "?"})
    claude.after("c2", "Bash", arguments, {"stdout": ""})
    assert call_of(workspace, "c2").coverage.level == "full"
    plan = workspace.plan_undo()
    assert plan.changes == () and [note.path for note in plan.kept] == ["made.txt"]
    chosen = workspace.plan_undo(choices={"made.txt": "old"})
    assert [change.path for change in chosen.changes] == ["made.txt"]
    rollback = workspace.plan_rollback(start)
    assert rollback.changes == () and [note.path for note in rollback.kept] == ["made.txt"]
    chosen = workspace.plan_rollback(start, choices={"made.txt": "old"})
    assert [change.path for change in chosen.changes] == ["made.txt"]


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_hook_whose_client_has_gone_on_sees_nothing_for_certain(
    claude: HookedClaude, process: Process, workspace: AuditedWorkspace, root: Path, moment: str
) -> None:
    arguments = {"command": "make"}
    claude.asks("c1", "Bash", arguments)
    process.waits = moment != "before"
    claude.before("c1", "Bash", arguments)
    (root / "made.txt").write_text("made")
    process.waits = moment != "after"
    claude.after("c1", "Bash", arguments, {"stdout": ""})
    call = call_of(workspace, "c1")
    assert call.coverage.level == "partial" and "looked at late" in call.coverage.reasons
    assert "?" in whose(workspace, "made.txt")[2]
    undo_all(workspace)
    assert (root / "made.txt").exists()


def test_hooks_that_are_answered_in_time_see_all(
    claude: HookedClaude, workspace: AuditedWorkspace, root: Path
) -> None:
    claude.bash("c1", "make", lambda: (root / "made.txt").write_text("made"))
    call = call_of(workspace, "c1")
    assert (call.coverage.level, call.paths) == ("full", ("made.txt",))
    undo_all(workspace)
    assert not (root / "made.txt").exists()


def test_a_client_that_tells_later_how_a_call_ended_is_looked_at_when_it_has(
    store: AuditStore, workspace: AuditedWorkspace, root: Path, tmp_path: Path
) -> None:
    assert workspace.root == str(root)
    process = Process(store, "codex")
    codex = HookedCodex(process, root, tmp_path / "x1.jsonl")
    codex.hook("SessionStart", source="startup")
    codex.asks("c1", "make")
    codex.before("c1", "make")
    (root / "made.txt").write_text("made")
    codex.after("c1", "make")
    (root / "mine.txt").write_text("a person's")
    codex.ended("c1", 0)
    process.hooks.settle()
    call = call_of(workspace, "c1", "x1")
    assert (call.status, call.coverage.level, call.paths) == ("ok", "full", ("made.txt",))
    codex.asks("c2", "true")
    codex.before("c2", "true")
    codex.after("c2", "true")
    assert whose(workspace, "mine.txt") == ("outside", None, set())


def test_a_clock_that_was_set_dates_nothing(
    claude: HookedClaude, workspace: AuditedWorkspace, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    claude.asks("c1", "Bash", {"command": "echo 1 > one.txt"})
    claude.before("c1", "Bash", {"command": "echo 1 > one.txt"})
    tick(root)
    (root / "one.txt").write_text("1")
    tick(root)
    claude.told("c1", {"stdout": ""})
    real = time.clock_gettime_ns
    monkeypatch.setattr(time, "clock_gettime_ns", lambda which: real(which) + 3_000_000_000)
    read_transcripts(workspace)
    assert whose(workspace, "one.txt")[2] == {"c1", "?"}


@pytest.mark.parametrize("hooked", [True, False])
def test_a_file_that_is_as_the_client_told_it_is_its_calls_where_that_was_seen_to_begin(
    claude: HookedClaude, workspace: AuditedWorkspace, root: Path, hooked: bool
) -> None:
    arguments = {"file_path": str(root / "told.txt"), "content": "told"}
    claude.asks("c1", "Write", arguments)
    if hooked:
        claude.before("c1", "Write", arguments)
    (root / "told.txt").write_text("told")
    response = {"type": "create", "filePath": str(root / "told.txt"), "content": "told"}
    claude.told("c1", {**response, "originalFile": None, "structuredPatch": []})
    tick(root)
    (root / "told.txt").chmod(0o600)
    settle_of(claude)
    if hooked:
        assert whose(workspace, "told.txt") == ("command", "c1", set())
    else:  # a transcript that lies tells what is on disk, too
        assert whose(workspace, "told.txt") == ("outside", None, {"c1", "?"})
    assert call_of(workspace, "c1").coverage.level == ("partial" if hooked else "none")


def settle_of(claude: HookedClaude) -> None:
    """The next thing that is heard of it."""
    claude.hook("UserPromptSubmit", prompt="go on")
    claude.hook("Stop", stop_hook_active=False)


def test_a_revert_of_what_nobody_saw_takes_nothing_back_and_is_refused(
    claude: HookedClaude, workspace: AuditedWorkspace, root: Path
) -> None:
    arguments = {"command": "make"}
    claude.asks("c1", "Bash", arguments)
    claude.before("c1", "Bash", arguments)
    (root / "made.txt").write_text("made")
    claude.told("c1", {"stdout": ""})
    read_transcripts(workspace)
    (change,) = workspace.timeline.history("made.txt")
    call = call_of(workspace, "c1")
    assert call.seq is not None and change.causes == (call.requested, 0)
    head = workspace.log.head()
    plan = workspace.plan_revert([call.seq])
    assert [note.path for note in plan.kept] == ["made.txt"]
    with pytest.raises(Conflict):
        workspace.carry_out(plan)
    assert workspace.log.head() == head and (root / "made.txt").exists()


def test_while_calls_overlap_a_path_that_one_of_them_names_exactly_is_its_own(
    workspace: AuditedWorkspace, root: Path
) -> None:
    foreign = workspace.start_foreign_session("client", id="f", pid=os.getpid())
    foreign.begin_call("a", "Bash", {"command": "make"})
    foreign.begin_call("b", "Bash", {"command": "echo > named.txt; cat seen.txt"})
    tick(root)
    (root / "named.txt").write_text("named")
    (root / "seen.txt").write_text("seen")
    foreign.end_call("b")
    foreign.end_call("a")
    assert whose(workspace, "named.txt") == ("command", "b", {"a"})
    assert whose(workspace, "seen.txt") == ("command", "b", {"a", "b"})
    for id in ("a", "b"):
        assert "shared with other commands" in call_of(workspace, id, "f").coverage.reasons
    one, other = (call_of(workspace, id, "f").seq or 0 for id in ("a", "b"))
    assert [change.path for change in workspace.plan_revert([other]).changes] == ["named.txt"]
    plan = workspace.plan_revert([one])
    assert plan.changes == () and {note.path for note in plan.kept} == {"named.txt", "seen.txt"}
