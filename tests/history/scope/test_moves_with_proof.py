"""Moves that a command made: on record when it is the same file, not when it is an equal one."""

import subprocess
from pathlib import Path

import pytest

from loom_audit import AuditedWorkspace, Session
from loom_audit.model.events import FilesChanged
from loom_audit.model.files import Move
from loom_audit.ports import EventFilter
from tests.oracles.trees import everything


def moves_of(
    session: Session, workspace: AuditedWorkspace, root: Path, command: str
) -> tuple[Move, ...]:
    """The moves on record after a shell command in the session."""
    head = workspace.log.head()
    with session.recording("command"):
        subprocess.run(["sh", "-c", command], cwd=root, check=True)
    kinds = (FilesChanged.kind,)
    found = workspace.log.read(EventFilter(after=head, kinds=kinds))
    return tuple(m for e in found if isinstance(e.fact, FilesChanged) for m in e.fact.moves)


@pytest.mark.parametrize(
    ("command", "moves"),
    [
        ("mv a.txt b.txt", [Move("a.txt", "b.txt")]),
        ("mv a.txt b.txt; echo changed > b.txt", [Move("a.txt", "b.txt")]),
        ("mv a.txt b.txt; chmod 600 b.txt", [Move("a.txt", "b.txt")]),
        ("mv src lib", [Move("src/main.py", "lib/main.py")]),
        ("mv a.txt src/main.py", [Move("a.txt", "src/main.py")]),
        ("mv a.txt a.txt~; echo new > a.txt", [Move("a.txt", "a.txt~")]),
        (
            "mv a.txt t; mv src/main.py a.txt; mv t src/main.py",
            [Move("src/main.py", "a.txt"), Move("a.txt", "src/main.py")],
        ),
        ("cp a.txt b.txt; rm a.txt", []),
        ("rm a.txt; printf 'one\\ntwo\\nthree\\n' > b.txt", []),
        ("ln a.txt b.txt; rm a.txt", [Move("a.txt", "b.txt")]),
        ("ln a.txt b.txt", []),
    ],
)
def test_a_command_moves_what_it_renames_and_not_what_it_copies(
    session: Session,
    workspace: AuditedWorkspace,
    root: Path,
    command: str,
    moves: list[Move],
) -> None:
    assert moves_of(session, workspace, root, command) == tuple(moves)


def test_a_file_that_is_given_the_inode_of_a_deleted_one_was_not_moved(
    session: Session, workspace: AuditedWorkspace, root: Path
) -> None:
    reused = 0
    for n in range(20):
        old, new = root / f"old{n}", root / f"new{n}"
        old.write_text("same")
        moves_of(session, workspace, root, "true")
        inode = old.stat().st_ino
        assert moves_of(session, workspace, root, f"rm old{n}; printf same > new{n}") == ()
        reused += new.stat().st_ino == inode
    assert reused, "this filesystem gives no inode again, so nothing is tried here"


@pytest.mark.few(2)
@pytest.mark.parametrize("most", [1, 6000])
@pytest.mark.parametrize(
    "command",
    [
        "mv src lib",
        "mv src lib; for n in 1 2 3; do echo changed > lib/$n; done",
        "mv src/1 a; mv src/2 b; rm src/3; mv src/4 src/5",
    ],
)
def test_what_was_moved_is_on_record_however_many_parts_a_scan_has(
    session: Session,
    workspace: AuditedWorkspace,
    root: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    most: int,
) -> None:
    for n in range(8):
        (root / "src" / str(n)).write_text(f"content {n}\n")
    moves_of(session, workspace, root, "true")
    before = everything(root)
    inodes = {path: (root / path).lstat().st_ino for path in before}
    monkeypatch.setattr("loom_audit.history.look.batches.BATCH_BYTES", most)
    moves = moves_of(session, workspace, root, command)
    now = {path: (root / path).lstat().st_ino for path in everything(root)}
    by_inode = {inode: path for path, inode in now.items() if (root / path).is_file()}
    assert {(move.source, move.target) for move in moves} == {
        (path, by_inode[inode])
        for path, inode in inodes.items()
        if by_inode.get(inode, path) != path
    }
    assert workspace.timeline.calls()[0].coverage.reasons == ()
    assert workspace.status().drift == ()
    workspace.carry_out(workspace.plan_undo())
    assert everything(root) == before
    assert workspace.status().drift == ()


@pytest.mark.parametrize(
    ("command", "targets"),
    [
        ("mv a.txt t; mv b.txt a.txt; mv t b.txt", ["a.txt", "b.txt"]),
        ("mv a.txt old.txt; echo new > a.txt", ["old.txt"]),
    ],
)
def test_a_file_moved_from_where_another_is_now_is_told_where_a_scan_records_them_apart(
    session: Session,
    workspace: AuditedWorkspace,
    root: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    targets: list[str],
) -> None:
    (root / "b.txt").write_text("other\n")
    moves_of(session, workspace, root, "true")
    before = everything(root)
    monkeypatch.setattr("loom_audit.history.look.batches.BATCH_BYTES", 1)
    assert moves_of(session, workspace, root, command) == ()
    told = workspace.timeline.calls()[0].coverage.reasons
    assert sorted(told) == [f"a move that is not on record: {path}" for path in targets]
    workspace.carry_out(workspace.plan_undo())
    assert everything(root) == before
