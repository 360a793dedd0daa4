"""An agent's own `undo` that ends between two files: what is on record, and what comes next."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from loom_audit import AuditedWorkspace, AuditStore, Session, ToolResult
from loom_audit.disk.writing import exchange
from loom_audit.errors import AuditUnavailable
from loom_audit.model.events import CallFinished
from loom_audit.model.records import Call
from tests.oracles.trees import tree_of
from tests.places.small_disks import fill_up, mounting
from tests.processes.stopped import killed_after

WRITE = "echo new > a.txt; echo new > src/main.py"
SIZE = 600_000


def do(session: Session, tool: str, **arguments: Any) -> ToolResult:
    return anyio.run(lambda: session.call(tool, arguments))


@contextmanager
def somebody_writes(path: Path, after: Path) -> Iterator[None]:
    """Somebody writes a file, once, when another one has just been put in place."""
    put, was = exchange._renamed_at_once, after.read_bytes()
    patch = pytest.MonkeyPatch()

    def watched(*asked: Any) -> bool:
        done = put(*asked)
        if after.read_bytes() != was:
            patch.undo()
            path.write_bytes(b"mine\n")
        return done

    patch.setattr(exchange, "_renamed_at_once", watched)
    try:
        yield
    finally:
        patch.undo()


def half(workspace: AuditedWorkspace, status: str, changed: int = 1) -> Call:
    """The undo that was left half done, which took back no call as a whole."""
    found, written = [call for call in workspace.timeline.calls() if call.changed][:2]
    assert (found.tool, found.status, found.changed) == ("undo", status, changed)
    assert written.tool == "bash" and written.undone_by is None
    assert not workspace.timeline.taken_back_by_agents([written])
    return found


def plain_undo(workspace: AuditedWorkspace) -> int:
    """The number of the call that a person's `undo` without a word more takes back."""
    return workspace.carry_out(workspace.plan_undo(), actor="person:ann").plan.calls[0]


def goes_back_in_two_steps(workspace: AuditedWorkspace, left: Call, trees: list[Any]) -> None:
    """A person's `undo` takes back what the half one did, and the next one the agent's call."""
    root = Path(workspace.root)
    [written] = [call for call in workspace.timeline.calls() if call.tool == "bash" and call.paths]
    for tree, number in zip(trees, (left.seq, written.seq), strict=True):
        assert plain_undo(workspace) == number
        assert tree_of(root) == tree
    assert workspace.status().drift == () and workspace.verify().findings == ()


def test_one_that_meets_somebody_between_two_files_says_how_far_it_came_and_how_to_go_back(
    workspace: AuditedWorkspace, session: Session, root: Path
) -> None:
    do(session, "bash", command=WRITE)
    with somebody_writes(root / "src/main.py", after=root / "a.txt"):
        refused = do(session, "undo")
    assert refused.error is not None and refused.error.code == "CONFLICT"
    assert refused.files_changed == ["a.txt"] == refused.error.details["changed"]
    assert "1 of 2 paths are changed already; `undo` once more takes that back" in refused.output
    assert (root / "a.txt").read_bytes() == b"one\ntwo\nthree\n"
    assert (root / "src/main.py").read_bytes() == b"mine\n"
    left = half(workspace, "error")
    [newest, _] = workspace.timeline.history("src/main.py", limit=2)
    assert (newest.actor, newest.origin) == ("outside", "outside")
    # the agent takes back what it did there, and the call itself not: somebody touched a file of it
    assert do(session, "undo").files_changed == ["a.txt"]
    assert (root / "a.txt").read_bytes() == b"new\n"
    by = next(one for one in workspace.timeline.calls() if one.seq == left.seq).undone_by
    assert by == workspace.timeline.calls()[0].seq
    assert do(session, "undo").error is not None
    assert (root / "src/main.py").read_bytes() == b"mine\n"
    assert workspace.status().drift == () and workspace.verify().findings == ()


def test_what_somebody_wrote_meanwhile_is_kept_by_a_persons_undo(
    workspace: AuditedWorkspace, session: Session, root: Path
) -> None:
    do(session, "bash", command=WRITE)
    with somebody_writes(root / "src/main.py", after=root / "a.txt"):
        do(session, "undo")
    left = half(workspace, "error")
    assert plain_undo(workspace) == left.seq
    plan = workspace.plan_undo()
    assert [note.path for note in (*plan.kept, *plan.blocked)] == ["src/main.py"]
    assert (root / "src/main.py").read_bytes() == b"mine\n"


def test_one_that_is_killed_between_two_files_is_closed_and_then_taken_back_as_any_call(
    workspace: AuditedWorkspace, root: Path
) -> None:
    before = tree_of(root)

    def act(own: AuditedWorkspace) -> None:
        with own.session("killed") as session:
            assert do(session, "bash", command=WRITE).success
            do(session, "undo")

    killed_after(1, root, act)
    [recovered] = workspace.recover()
    assert not recovered.waiting and recovered.call.tool == "undo"
    left = half(workspace, "interrupted")
    whole = before | {b"a.txt": (*before[b"a.txt"][:2], b"new\n")}
    whole |= {b"src/main.py": (*before[b"src/main.py"][:2], b"new\n")}
    assert tree_of(root) not in (before, whole)
    goes_back_in_two_steps(workspace, left, [whole, before])


def test_one_that_finds_no_room_for_the_second_file_says_so_and_is_taken_back_as_any_call(
    store: AuditStore, tmp_path: Path
) -> None:
    with mounting(tmp_path) as mount:
        root = mount("small", 2)
        for name in "ab":
            (root / name).write_bytes(os.urandom(SIZE))
        workspace = store.attach(root)
        before = tree_of(root)
        with workspace.session("tester") as session:
            do(session, "bash", command="rm a b")
            filler = fill_up(root, leave=SIZE + 100_000)
            refused = do(session, "undo")
            assert refused.error is not None and refused.error.code == "IO"
            assert refused.files_changed == ["a"] and "1 of 2 paths" in refused.output
            left = half(workspace, "error")
            filler.unlink()
        goes_back_in_two_steps(workspace, left, [{}, before])


def test_one_whose_end_cannot_be_recorded_is_closed_by_the_next_call_and_took_nothing_back(
    workspace: AuditedWorkspace, session: Session, root: Path
) -> None:
    kind = type(workspace.attachment.stored.log)
    append = kind.append

    def full(self: Any, drafts: Any, **options: Any) -> Any:
        if any(isinstance(draft.fact, CallFinished) for draft in drafts):
            raise AuditUnavailable("the disk is full")
        return append(self, drafts, **options)

    before = tree_of(root)
    do(session, "bash", command=WRITE)
    whole = tree_of(root)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kind, "append", full)
        refused = do(session, "undo")
    assert refused.error is not None and refused.error.code == "AUDIT_UNAVAILABLE"
    assert refused.files_changed == ["a.txt", "src/main.py"] and tree_of(root) == before
    assert do(session, "bash", command="true").success
    left = half(workspace, "interrupted", changed=2)
    goes_back_in_two_steps(workspace, left, [whole, before])
