"""What a client tells late of a path whose change is on record already: a fact of its own."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import loom_audit
from loom_audit import AuditedWorkspace, AuditStore
from loom_audit.api.agents.clients import Hooks
from loom_audit.errors import Conflict, NotFound
from loom_audit.model.events import ChangesAttributed, Draft, FilesChanged
from loom_audit.model.files import FileChange, FileState
from loom_audit.model.records import Call
from loom_audit.ports import EventFilter
from tests.cli.shells import Shell
from tests.given.ticks import tick
from tests.processes.hooked import HookedClaude
from tests.web.conftest import asking

ALONE = Path(loom_audit.__file__).parent / "verify_alone.py"


@pytest.fixture
def claude(hooks: Hooks, workspace: AuditedWorkspace, root: Path, tmp_path: Path) -> HookedClaude:
    assert workspace.root == str(root)
    one = HookedClaude(lambda data: hooks.answer("claude-code", data), root, tmp_path / "s1.jsonl")
    one.hook("SessionStart", source="startup")
    return one


def look_of_another(hooks: Hooks, root: Path, tmp_path: Path) -> None:
    """A call of another session begins, and what is there then goes on record."""
    data = tmp_path / "s2.jsonl"
    other = HookedClaude(lambda data: hooks.answer("claude-code", data), root, data, "s2")
    other.hook("SessionStart", source="startup")
    other.bash("o1", "true")
    other.hook("SessionEnd", reason="other")


def tells_write(claude: HookedClaude, id: str, name: str, content: str) -> None:
    response = {"type": "create", "filePath": str(claude.root / name), "content": content}
    claude.told(id, {**response, "originalFile": None, "structuredPatch": []})


def asks_write(claude: HookedClaude, id: str, name: str, content: str) -> None:
    claude.asks(id, "Write", {"file_path": str(claude.root / name), "content": content})
    tick(claude.root)


def call_of(workspace: AuditedWorkspace, id: str) -> Call:
    return workspace.timeline.projections.call("s1", id)


def attributed(workspace: AuditedWorkspace) -> list[ChangesAttributed]:
    found = workspace.timeline.events(EventFilter(kinds=(ChangesAttributed.kind,)))
    return [event.fact for event in found if isinstance(event.fact, ChangesAttributed)]


def write_found_outside(
    hooks: Hooks, claude: HookedClaude, workspace: AuditedWorkspace, tmp_path: Path
) -> int:
    """A call without a hook writes, and a look finds it before anybody tells of the call."""
    asks_write(claude, "c1", "told.txt", "told")
    (claude.root / "told.txt").write_text("told")
    look_of_another(hooks, claude.root, tmp_path)
    [change] = workspace.timeline.history("told.txt")
    assert (change.origin, change.causes) == ("outside", ())
    return change.seq


def test_a_write_that_was_found_from_outside_may_have_been_the_call_s_that_told_it_later(
    hooks: Hooks, claude: HookedClaude, workspace: AuditedWorkspace, root: Path, tmp_path: Path
) -> None:
    event = write_found_outside(hooks, claude, workspace, tmp_path)
    tree = workspace.timeline.tree()
    tells_write(claude, "c1", "told.txt", "told")
    hooks.settle()
    call = call_of(workspace, "c1")
    grounds = "the client told that it left this content"
    assert attributed(workspace) == [
        ChangesAttributed(event, ("told.txt",), call.requested, grounds)
    ]
    assert len(workspace.timeline.history("told.txt")) == 1, "not a second time"
    assert workspace.timeline.tree() == tree
    assert (call.status, call.coverage.level, call.changed) == ("ok", "none", 0)
    assert call.seq is not None
    assert workspace.timeline.call(call.seq).told_later == tuple(attributed(workspace))
    assert workspace.timeline.call(call.seq).changes == ()
    assert workspace.verify().findings == ()
    assert workspace.rebuild() == workspace.log.head()
    assert workspace.verify().findings == ()


def test_it_is_taken_back_with_the_call_only_where_somebody_chooses_it(
    hooks: Hooks, claude: HookedClaude, workspace: AuditedWorkspace, root: Path, tmp_path: Path
) -> None:
    write_found_outside(hooks, claude, workspace, tmp_path)
    tells_write(claude, "c1", "told.txt", "told")
    hooks.settle()
    number = call_of(workspace, "c1").seq
    assert number is not None
    plan = workspace.plan_revert([number])
    assert plan.changes == ()
    [note] = plan.kept
    assert (note.path, note.calls) == ("told.txt", (number,))
    assert "from outside" in note.reason
    with pytest.raises(Conflict):
        workspace.carry_out(plan)
    assert (root / "told.txt").read_text() == "told"
    chosen = workspace.plan_revert([number], choices={"told.txt": "old"})
    assert [change.path for change in chosen.changes] == ["told.txt"]
    workspace.carry_out(chosen)
    assert not (root / "told.txt").exists()
    assert call_of(workspace, "c1").undone_by is not None
    assert workspace.verify().findings == ()


def test_what_is_told_again_is_on_record_once(
    store: AuditStore,
    hooks: Hooks,
    claude: HookedClaude,
    workspace: AuditedWorkspace,
    root: Path,
    tmp_path: Path,
) -> None:
    write_found_outside(hooks, claude, workspace, tmp_path)
    tells_write(claude, "c1", "told.txt", "told")
    hooks.settle()
    head = workspace.log.head()
    tells_write(claude, "c1", "told.txt", "told")
    hooks.settle()
    arguments = {"file_path": str(root / "told.txt"), "content": "told"}
    response = {"type": "create", "filePath": str(root / "told.txt"), "content": "told"}
    again = HookedClaude(
        lambda data: Hooks(store).answer("claude-code", data), root, claude.transcript
    )
    again.after("c1", "Write", arguments, {**response, "originalFile": None})
    again.hook("Stop", stop_hook_active=False)
    assert len(attributed(workspace)) == 1
    assert not [
        event
        for event in workspace.timeline.events(EventFilter(after=head))
        if isinstance(event.fact, FilesChanged)
    ]


def test_a_hook_that_comes_after_the_end_of_its_call_tells_it_as_well(
    hooks: Hooks, claude: HookedClaude, workspace: AuditedWorkspace, root: Path, tmp_path: Path
) -> None:
    write_found_outside(hooks, claude, workspace, tmp_path)
    claude.told("c1", "", "no more is told here", error=False)
    look_of_another(hooks, root, tmp_path)
    tells = {"file_path": str(root / "told.txt"), "content": "told"}
    (root / "told.txt").write_text("changed again")  # no time says anything of what was found
    look_of_another(hooks, root, tmp_path)
    hooks.settle()
    assert call_of(workspace, "c1").seq is not None and attributed(workspace) == []
    response = {"type": "create", "filePath": str(root / "told.txt"), "content": "told"}
    claude.after("c1", "Write", tells, {**response, "originalFile": None})
    newest, found = workspace.timeline.history("told.txt")
    assert [fact.event for fact in attributed(workspace)] == [found.seq] != [newest.seq]


def test_told_content_that_is_not_what_was_found_adds_nothing(
    hooks: Hooks, claude: HookedClaude, workspace: AuditedWorkspace, tmp_path: Path
) -> None:
    write_found_outside(hooks, claude, workspace, tmp_path)
    tells_write(claude, "c1", "told.txt", "something else")
    hooks.settle()
    assert call_of(workspace, "c1").seq is not None and attributed(workspace) == []


def test_what_was_on_record_before_the_call_began_is_not_its_own(
    hooks: Hooks, claude: HookedClaude, workspace: AuditedWorkspace, root: Path, tmp_path: Path
) -> None:
    (root / "told.txt").write_text("told")
    look_of_another(hooks, root, tmp_path)
    tick(root)
    asks_write(claude, "c1", "told.txt", "told")
    tells_write(claude, "c1", "told.txt", "told")
    hooks.settle()
    assert call_of(workspace, "c1").seq is not None and attributed(workspace) == []


@pytest.mark.parametrize("during", [True, False])
def test_a_path_without_its_content_needs_a_time_that_fits(
    hooks: Hooks,
    claude: HookedClaude,
    workspace: AuditedWorkspace,
    root: Path,
    tmp_path: Path,
    during: bool,
) -> None:
    edits: dict[str, Any] = {"file_path": str(root / "a.txt"), "old_string": "1"}
    claude.asks("c1", "Edit", {**edits, "new_string": "2"})
    tick(root)
    if during:
        (root / "a.txt").write_text("two\n")
        tick(root)
    claude.told("c1", {"filePath": str(root / "a.txt")})
    if not during:
        tick(root)
        (root / "a.txt").write_text("two\n")
    # the transcript was not read yet
    look_of_another(hooks, root, tmp_path)
    hooks.settle()
    told = [(fact.paths, fact.grounds) for fact in attributed(workspace)]
    grounds = "the client told that it changed this path, which changed while it ran"
    assert told == ([(("a.txt",), grounds)] if during else [])
    level = call_of(workspace, "c1").coverage.level
    assert level == "none"


def test_an_undo_of_everything_leaves_it_where_it_is(
    hooks: Hooks, claude: HookedClaude, workspace: AuditedWorkspace, root: Path, tmp_path: Path
) -> None:
    write_found_outside(hooks, claude, workspace, tmp_path)
    tells_write(claude, "c1", "told.txt", "told")
    hooks.settle()
    assert attributed(workspace)
    with pytest.raises(NotFound):
        workspace.plan_undo()
    shell = Shell(root, Path(os.environ["LOOM_AUDIT_HOME"]))
    shell("undo", "-y", code=4)
    assert (root / "told.txt").read_text() == "told"
    number = str(call_of(workspace, "c1").seq)
    shell("revert", number, "-y", code=5)
    assert (root / "told.txt").read_text() == "told"
    shell("revert", number, "-y", "--choose", "told.txt=old", code=7)  # its coverage is none
    assert not (root / "told.txt").exists()


def shared_write(
    claude: HookedClaude, workspace: AuditedWorkspace, does: Callable[[], object]
) -> list[int]:
    """Two calls run at the same time, in one of which it happens; their numbers."""
    foreign = workspace.start_foreign_session("client", id="f", pid=os.getpid())
    foreign.begin_call("a", "Bash", {"command": "make"})
    foreign.begin_call("b", "Bash", {"command": "make"})
    does()
    foreign.end_call("b")
    foreign.end_call("a")
    found = (workspace.timeline.projections.call("f", id).seq for id in ("a", "b"))
    return [number for number in found if number is not None]


def test_what_is_on_record_as_shared_gets_one_more_candidate(
    hooks: Hooks, claude: HookedClaude, workspace: AuditedWorkspace, root: Path
) -> None:
    asks_write(claude, "c1", "told.txt", "told")
    both = shared_write(claude, workspace, lambda: (root / "told.txt").write_text("told"))
    before = workspace.plan_revert(both)
    assert [change.path for change in before.changes] == ["told.txt"]
    coverage = [workspace.timeline.call(number).call.coverage for number in both]
    tells_write(claude, "c1", "told.txt", "told")
    hooks.settle()
    assert [fact.paths for fact in attributed(workspace)] == [("told.txt",)]
    assert [workspace.timeline.call(number).call.coverage for number in both] == coverage
    number = call_of(workspace, "c1").seq
    assert number is not None
    for some in ([number], both):
        plan = workspace.plan_revert(some)
        assert plan.changes == ()
        assert [(note.path, "as shared" in note.reason) for note in plan.kept] == [
            ("told.txt", True)
        ]
        chosen = workspace.plan_revert(some, choices={"told.txt": "old"})
        assert [change.path for change in chosen.changes] == ["told.txt"]
    assert workspace.verify().findings == ()


def test_what_is_on_record_as_a_call_s_own_is_nobody_else_s(
    hooks: Hooks, claude: HookedClaude, workspace: AuditedWorkspace, root: Path
) -> None:
    asks_write(claude, "c1", "told.txt", "told")
    foreign = workspace.start_foreign_session("client", id="f", pid=os.getpid())
    foreign.begin_call("a", "Bash", {"command": "make"})
    (root / "told.txt").write_text("told")
    foreign.end_call("a")
    tells_write(claude, "c1", "told.txt", "told")
    hooks.settle()
    assert call_of(workspace, "c1").seq is not None and attributed(workspace) == []


def test_ordinary_calls_add_nothing(
    hooks: Hooks, claude: HookedClaude, workspace: AuditedWorkspace, root: Path
) -> None:
    claude.writes("c1", root / "one.txt", "1")
    claude.writes("c2", root / "one.txt", "2")
    claude.writes("c3", root / "one.txt", "2")
    hooks.settle()
    claude.hook("Stop", stop_hook_active=False)
    assert attributed(workspace) == []


def test_the_command_the_events_and_the_page_name_it(
    store: AuditStore,
    hooks: Hooks,
    claude: HookedClaude,
    workspace: AuditedWorkspace,
    root: Path,
    tmp_path: Path,
) -> None:
    event = write_found_outside(hooks, claude, workspace, tmp_path)
    tells_write(claude, "c1", "told.txt", "told")
    hooks.settle()
    call = call_of(workspace, "c1")
    line = f"may have been: told.txt of event {event}, as the client told"
    shell = Shell(root, Path(os.environ["LOOM_AUDIT_HOME"]))
    assert line in shell("show", str(call.seq)).text
    assert line in shell("log", "--events").text
    with asking(store) as visitor:
        page = visitor.get(f"/w/{workspace.id}/c/{call.seq}").text
    assert "May have been" in page and f"of event {event}, as the client told" in page


def test_the_verifier_that_knows_the_format_alone_accepts_it(
    hooks: Hooks, claude: HookedClaude, workspace: AuditedWorkspace, tmp_path: Path
) -> None:
    write_found_outside(hooks, claude, workspace, tmp_path)
    tells_write(claude, "c1", "told.txt", "told")
    hooks.settle()
    assert attributed(workspace)
    database = Path(os.environ["LOOM_AUDIT_HOME"]) / "audit.db"
    alone = [sys.executable, "-I", str(ALONE), str(database)]
    assert subprocess.run(alone, capture_output=True).returncode == 0


def test_an_undo_says_what_it_passes_over_and_how_to_choose_it(
    store: AuditStore,
    hooks: Hooks,
    claude: HookedClaude,
    workspace: AuditedWorkspace,
    root: Path,
    tmp_path: Path,
) -> None:
    claude.writes("c0", root / "own.txt", "own")
    write_found_outside(hooks, claude, workspace, tmp_path)
    tells_write(claude, "c1", "told.txt", "told")
    hooks.settle()
    number = call_of(workspace, "c1").seq
    choice = f"loom-audit revert {number} --choose PATH=old"
    shell = Shell(root, Path(os.environ["LOOM_AUDIT_HOME"]))
    [planned] = shell.records("undo", "--dry-run")
    assert [(one["path"], one["calls"]) for one in planned["passed_over"]] == [
        ("told.txt", [number])
    ]
    shown = shell("undo", "-y")
    assert "passed over, of later calls:" in shown.text and "  told.txt: " in shown.text
    assert choice in shown.errors
    assert not (root / "own.txt").exists() and (root / "told.txt").exists()
    nothing = shell("undo", "-y", code=4).errors
    assert "nothing to undo" in nothing and choice in nothing
    with asking(store) as visitor:
        refused = visitor.get(f"/w/{workspace.id}/plan?verb=undo").text
        assert f'href="/w/{workspace.id}/c/{number}"' in refused
        page = visitor.get(f"/w/{workspace.id}/c/{number}").text
    assert "Choose what to take back" in page
    shell("revert", str(number), "-y", "--choose", "told.txt=old", code=7)
    assert not (root / "told.txt").exists()
    assert choice not in shell("undo", "--session", "s1", "-y", code=4).errors


def test_what_was_found_late_and_may_be_a_call_s_is_named_by_an_undo(
    workspace: AuditedWorkspace, root: Path
) -> None:
    foreign = workspace.start_foreign_session("client", id="f", pid=os.getpid())
    foreign.begin_call("a", "Bash", {"command": "make"})
    foreign.end_call("a")
    call = workspace.timeline.projections.call("f", "a")
    change = FileChange("late.txt", None, FileState("directory", None, 0o755, 0))
    fact = FilesChanged((change,), "outside", causes=(call.requested,))
    (root / "late.txt").mkdir(0o755)
    workspace.log.append([Draft(fact, "", "outside")])
    with pytest.raises(NotFound) as nothing:
        workspace.plan_undo()
    assert nothing.value.details == {"calls": [call.seq], "paths": ["late.txt"]}
    shown = workspace.timeline.call(call.seq or 0)
    assert shown.to_choose == ("late.txt",)
    plan = workspace.plan_revert([call.seq or 0], choices={"late.txt": "old"})
    workspace.carry_out(plan)
    assert not (root / "late.txt").exists()
    assert workspace.plan_undo().passed_over == ()
