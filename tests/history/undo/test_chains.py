"""Chains of undos, redos and reverts, of which each takes back what others took back."""

from pathlib import Path

from loom_audit import AuditedWorkspace

LINES = tuple(f"{word}\n\n\n\n" for word in ("one", "two", "three", "four"))


def write(workspace: AuditedWorkspace, root: Path, n: int, session: str = "writer") -> int:
    """One call marks the line with this number; its number."""
    with workspace.session(session) as writer, writer.recording("work"):
        text = (root / "a").read_text()
        (root / "a").write_text(text.replace(LINES[n], f"{LINES[n].strip()}: marked\n\n\n\n"))
    return workspace.timeline.calls()[0].seq or 0


def marked(root: Path) -> list[str]:
    return [line.split(":")[0] for line in (root / "a").read_text().split() if ":" in line]


def revert(workspace: AuditedWorkspace, *calls: int | str) -> int:
    done = workspace.carry_out(workspace.plan_revert(calls)).call
    assert done.seq
    return done.seq


def test_a_redo_leaves_taken_back_what_a_later_revert_took_back_too(
    workspace: AuditedWorkspace, root: Path
) -> None:
    (root / "a").write_text("".join(LINES))
    workspace.status()
    first = write(workspace, root, 0)
    taken = revert(workspace, first)
    revert(workspace, taken)
    workspace.carry_out(workspace.plan_undo())
    workspace.carry_out(workspace.plan_undo())
    assert marked(root) == ["one"]
    revert(workspace, first)
    for _ in range(2):
        workspace.carry_out(workspace.plan_redo())
        assert not marked(root)
        assert workspace.timeline.call(first).call.undone_by


def test_a_session_is_taken_back_where_a_revert_took_back_a_rollback_and_one_of_its_calls(
    workspace: AuditedWorkspace, root: Path
) -> None:
    (root / "a").write_text("".join(LINES))
    workspace.status()
    before = (root / "a").read_text()
    point = workspace.log.head()
    calls = [write(workspace, root, n) for n in range(3)]
    rollback = workspace.carry_out(workspace.plan_rollback(point)).call.seq
    assert rollback and (root / "a").read_text() == before
    calls.append(write(workspace, root, 3))
    revert(workspace, rollback, calls[0])
    assert marked(root) == ["two", "three", "four"]
    revert(workspace, *calls)
    assert (root / "a").read_text() == before
    assert all(workspace.timeline.call(number).call.undone_by for number in calls)
