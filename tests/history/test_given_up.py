"""A call whose end could not be recorded when it came is closed at the next chance."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from loom_audit import AuditedWorkspace, ToolResult
from loom_audit.errors import AuditUnavailable
from loom_audit.model.events import CallFinished, Draft, FilesChanged
from tests.trees import tree_of

Call = Callable[..., ToolResult]


@contextmanager
def ends_cannot_be_recorded(workspace: AuditedWorkspace) -> Iterator[None]:
    """Every append that holds the finish of a call fails."""
    kind = type(workspace.attachment.log)
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
def test_its_changes_are_its_own_and_it_has_one_finish(
    workspace: AuditedWorkspace, root: Path, call: Call, tool: str, arguments: dict[str, str]
) -> None:
    before = tree_of(root)
    with ends_cannot_be_recorded(workspace):
        call(tool, fails="AUDIT_UNAVAILABLE", **arguments)
    after = tree_of(root)
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


def test_it_is_closed_when_the_session_ends(workspace: AuditedWorkspace, root: Path) -> None:
    arguments = {"path": "a.txt", "content": "changed"}
    with workspace.session("tester") as session:
        with ends_cannot_be_recorded(workspace):
            assert not anyio.run(lambda: session.call("write_file", arguments)).success
        assert len(workspace.timeline.open_calls()) == 1
    assert workspace.timeline.open_calls() == []
