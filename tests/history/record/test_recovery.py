"""Calls whose end could not be recorded when it came, and those of a dead process."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from loom_audit import AuditedWorkspace, ToolResult
from loom_audit.errors import AuditUnavailable
from loom_audit.history.ground.questions import Questions
from loom_audit.history.ground.writer import Writer
from loom_audit.history.record.call import OpenCall
from loom_audit.model.events import ApprovalRequested, CallFinished, Draft, FilesChanged
from tests.oracles.trees import tree_of

Call = Callable[..., ToolResult]


@contextmanager
def ends_cannot_be_recorded(workspace: AuditedWorkspace) -> Iterator[None]:
    """Every append that holds the finish of a call fails."""
    kind = type(workspace.attachment.stored.log)
    real = kind.append

    def append(self: Any, drafts: Sequence[Draft], **options: Any) -> Any:
        if any(isinstance(draft.fact, CallFinished) for draft in drafts):
            raise AuditUnavailable("the log cannot be written")
        return real(self, drafts, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kind, "append", append)
        yield


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("write_file", {"path": "a.txt", "content": "changed"}),
        ("shell_execute", {"command": "echo changed > a.txt; rm -r src"}),
    ],
)
def test_a_call_whose_end_could_not_be_recorded_has_its_own_changes_and_one_finish(
    workspace: AuditedWorkspace, root: Path, call: Call, tool: str, arguments: dict[str, str]
) -> None:
    before = tree_of(root)
    with ends_cannot_be_recorded(workspace):
        call(tool, fails="AUDIT_UNAVAILABLE", **arguments)
    kept = workspace.leftovers()
    assert len(kept) == (tool == "write_file"), "what was displaced, until this is on record"
    after = {path: entry for path, entry in tree_of(root).items() if path.decode() not in kept}
    assert after != before
    call("shell_execute", command="true")
    facts = [event.fact for event in workspace.timeline.events()]
    changes = [f for f in facts if isinstance(f, FilesChanged) and f.origin != "baseline"]
    (owner,) = {f.call_id for f in changes}
    (finish,) = [f for f in facts if isinstance(f, CallFinished) and f.call_id == owner]
    assert (finish.tool, finish.status) == (tool, "interrupted")
    assert tree_of(root) == after
    workspace.carry_out(workspace.plan_undo())
    assert tree_of(root) == before


def test_a_call_whose_end_could_not_be_recorded_is_closed_when_the_session_ends(
    workspace: AuditedWorkspace, root: Path
) -> None:
    arguments = {"path": "a.txt", "content": "changed"}
    with workspace.session("tester") as session:
        with ends_cannot_be_recorded(workspace):
            assert not anyio.run(lambda: session.call("write_file", arguments)).success
        assert len(workspace.timeline.open_calls()) == 1
    assert workspace.timeline.open_calls() == []


def test_a_call_that_waits_in_a_dead_process_is_closed_and_nothing_is_its_doing(
    workspace: AuditedWorkspace, root: Path
) -> None:
    """The session of this recorder holds no lock, as that of a dead process."""
    writer = Writer(workspace.attachment, session="gone", actor="agent:gone")
    call = OpenCall(writer, "shell_execute", {"command": "rm a.txt"}, "execute", call_id="c1")
    question = ApprovalRequested("c1", "shell_execute", {"command": "rm a.txt"}, "rule 1")
    asked = call.ask(question)
    (root / "a.txt").write_text("by a person\n")
    (waiting,) = Questions(workspace.attachment).pending()
    assert waiting.seq == asked.seq and not waiting.alive
    (closed,) = workspace.recover()
    assert closed.call.status == "interrupted" and closed.call.coverage.level == "full"
    assert "before it had an answer" in closed.call.error
    assert Questions(workspace.attachment).pending() == []
    assert [change.path for change in workspace.status().drift] == ["a.txt"]
    assert workspace.verify().findings == ()


def test_a_torn_write_costs_no_history(workspace: AuditedWorkspace, home: Path, call: Call) -> None:
    call("write_file", path="n", content="1")
    head = workspace.log.head()
    with (home / "audit.db-wal").open("ab") as wal:
        wal.write(b"torn" * 100)
    from loom_audit import open_store

    with open_store() as again:
        assert again.workspace(workspace.id).log.head() == head
