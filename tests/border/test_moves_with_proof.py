"""Moves that a command made: on record when it is the same file, not when it is an equal one."""

import subprocess
from pathlib import Path

import pytest

from loom_audit import AuditedWorkspace, Session
from loom_audit.model.events import FilesChanged
from loom_audit.model.files import Move
from loom_audit.ports import EventFilter


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
