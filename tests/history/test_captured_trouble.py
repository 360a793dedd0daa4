"""Commands whose workspace cannot be looked at as usual afterwards: coverage says so."""

from pathlib import Path

import pytest

from loom_audit import AuditedWorkspace, Session


def test_folders_that_vanish_by_the_thousand_during_the_look_are_gone(
    workspace: AuditedWorkspace, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from loom_audit.disk import walk

    folders = [root / "many" / f"{n:05}" for n in range(2000)]
    for folder in folders:
        folder.mkdir(parents=True)
    listed = walk._scan_folder

    def then_deleted(look: walk.Scan, folder: str, descriptor: int):  # type: ignore[no-untyped-def]
        found = listed(look, folder, descriptor)
        if folder == "many" and (root / "made").exists():
            while folders:
                folders.pop().rmdir()
        return found

    with workspace.session("tester") as session:
        monkeypatch.setattr(walk, "_scan_folder", then_deleted)
        with session.recording("make"):
            (root / "made").touch()
    (call,) = workspace.timeline.calls()
    assert (call.status, call.coverage.level) == ("ok", "full")
    assert set(workspace.timeline.tree()) == {"a.txt", "src", "src/main.py", "made", "many"}


@pytest.mark.parametrize("error", [RuntimeError("a bug"), KeyboardInterrupt()])
def test_coverage_is_not_full_when_the_look_afterwards_fails_however_it_fails(
    session: Session, root: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    def fails(*_: object) -> None:
        raise error

    with pytest.raises(type(error)), session.recording("make"):
        (root / "made").touch()
        monkeypatch.setattr(type(session.workspace.attachment.workspace), "differences", fails)
    (call,) = session.workspace.timeline.calls()
    assert (call.status, call.coverage.level) == ("error", "none")
    assert call.coverage.reasons[0].startswith("not seen: ")
