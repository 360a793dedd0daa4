"""What goes on record applies to the tree: what somebody did around a path is recorded whole."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

import pytest

from loom_audit import AuditedWorkspace, Session, ToolResult, open_store
from loom_audit.errors import Corrupt
from loom_audit.history.ground.writer import Writer
from loom_audit.history.look import batches
from loom_audit.history.record.call import OpenCall
from loom_audit.model.events import FilesChanged, PathsUntracked, ScopeAccepted
from loom_audit.model.files import FileState, parents
from loom_audit.ports import EventFilter
from tests.integrity.test_verified_reads import again, forge
from tests.oracles.trees import tree_of
from tests.processes.ordinary_user import ordinary_session

Call = Callable[..., ToolResult]


def impossible(workspace: AuditedWorkspace) -> list[tuple[int, str]]:
    """The paths of events that do not apply, by an oracle of its own: plain dictionaries."""
    tree: dict[str, FileState] = {}
    gone: set[str] = set()
    wrong: list[tuple[int, str]] = []
    for event in workspace.log.read():
        fact = event.fact
        left: tuple[str, ...] = ()
        if isinstance(fact, PathsUntracked):
            left = tuple(one.path for one in fact.paths)
        elif isinstance(fact, ScopeAccepted):
            left = fact.untracked
        elif isinstance(fact, FilesChanged):
            for change in fact.changes:
                unknown = {change.path, *parents(change.path)} & gone
                if tree.get(change.path) != change.before and not unknown:
                    wrong.append((event.seq, change.path))
                if change.after is None:
                    tree.pop(change.path, None)
                else:
                    tree[change.path] = change.after
            gone -= {change.path for change in fact.changes}
            opaque = {path for path, state in tree.items() if state.kind == "opaque"}
            tree = {path: s for path, s in tree.items() if not opaque & {*parents(path)}}
        gone |= {*left}
        tree = {path: s for path, s in tree.items() if not {*left} & {path, *parents(path)}}
        for path in tree:
            above = path.rpartition("/")[0]
            if above and (above not in tree or tree[above].kind != "directory"):
                wrong.append((event.seq, path))
    return wrong


def assert_whole(workspace: AuditedWorkspace, root: Path, tmp_path: Path) -> None:
    """Nothing impossible is on record; every point replays, the last as it is on disk."""
    assert impossible(workspace) == []
    assert workspace.verify().findings == ()
    found = again(workspace)
    first = found.timeline.first_listing() or 0
    for at in range(first, workspace.log.head() + 1):
        found.replay(at, tmp_path / "replayed" / str(at))
    assert tree_of(tmp_path / "replayed" / str(workspace.log.head())) == tree_of(root)


@pytest.fixture
def folder(root: Path, workspace: AuditedWorkspace, session: Session) -> Path:
    """A recorded folder `d` with `x/a`, `x/b/c`, and the files `f` and `y/z` beside."""
    with session.recording("make"):
        for path in ("d/x/a", "d/x/b/c", "d/f", "d/y/z"):
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(path)
    return root / "d"


def remove_x(d: Path) -> None:
    shutil.rmtree(d / "x")


def remove_d(d: Path) -> None:
    shutil.rmtree(d)


def x_is_a_file(d: Path) -> None:
    remove_x(d)
    (d / "x").write_text("a person's")


def x_is_a_link(d: Path) -> None:
    remove_x(d)
    (d / "x").symlink_to("f")


def f_is_a_folder(d: Path) -> None:
    (d / "f").unlink()
    (d / "f").mkdir()
    (d / "f" / "new").write_text("new")


def d_is_a_file(d: Path) -> None:
    remove_d(d)
    d.write_text("a person's")


def x_was_moved(d: Path) -> None:
    (d / "x").rename(d / "moved")


VARIANTS: dict[str, tuple[Callable[[Path], object], str, dict[str, Any], str | None]] = {
    "write where a folder was": (remove_x, "write_file", {"path": "d/x", "content": "1"}, None),
    "write below where it was": (remove_x, "write_file", {"path": "d/x/a", "content": "1"}, None),
    "write deep below": (remove_d, "write_file", {"path": "d/x/b/c", "content": "1"}, None),
    "write new below": (remove_d, "write_file", {"path": "d/x/new/n", "content": "1"}, None),
    "write where the outer was": (remove_d, "write_file", {"path": "d", "content": "1"}, None),
    "write where a file is now": (x_is_a_file, "write_file", {"path": "d/x", "content": "1"}, None),
    "write below what is a file now": (
        x_is_a_file,
        "write_file",
        {"path": "d/x/a", "content": "1"},
        "NOT_A_DIRECTORY",
    ),
    "write through what is a link now": (
        x_is_a_link,
        "write_file",
        {"path": "d/x", "content": "1"},
        None,
    ),
    "delete what is a file now": (x_is_a_file, "delete_file", {"path": "d/x"}, None),
    "delete what is a link now": (x_is_a_link, "delete_file", {"path": "d/x"}, None),
    "write below what is a folder now": (
        f_is_a_folder,
        "write_file",
        {"path": "d/f/other", "content": "1"},
        None,
    ),
    "write where d is a file": (d_is_a_file, "write_file", {"path": "d", "content": "1"}, None),
    "move to where a folder was": (
        remove_x,
        "move_file",
        {"from": "d/f", "to": "d/x"},
        None,
    ),
    "delete what has lost something": (
        lambda d: (d / "x" / "a").unlink(),
        "delete_file",
        {"path": "d/x", "recursive": True},
        None,
    ),
    "move what has lost something": (
        lambda d: shutil.rmtree(d / "x" / "b"),
        "move_file",
        {"from": "d/x", "to": "e"},
        None,
    ),
    "delete what is in a new folder": (
        lambda d: (d / "x").rename(d / "new"),
        "delete_file",
        {"path": "d/new/b/c"},
        None,
    ),
    "write where it was moved from": (
        x_was_moved,
        "write_file",
        {"path": "d/x", "content": "1"},
        None,
    ),
}


@pytest.mark.few(5)
@pytest.mark.parametrize("variant", VARIANTS)
def test_what_a_person_did_at_above_and_below_a_path_is_recorded_whole(
    variant: str,
    folder: Path,
    root: Path,
    workspace: AuditedWorkspace,
    call: Call,
    session: Session,
    tmp_path: Path,
) -> None:
    upheave, tool, arguments, fails = VARIANTS[variant]
    upheave(folder)
    call(tool, fails=fails, **arguments)
    with session.recording("a look"):
        pass
    assert_whole(workspace, root, tmp_path)


def test_a_folder_that_goes_out_of_scope_takes_its_inside_with_it(
    root: Path, folder: Path, workspace: AuditedWorkspace, session: Session, tmp_path: Path
) -> None:
    (root / "keep.log").write_text("log")
    with session.recording("a look"):
        (root / ".loomignore").write_text("/d/x\n*.log\n")
    before = workspace.log.head()
    workspace.accept_scope()
    tree = again(workspace).timeline.tree()
    assert "d/x/a" not in tree and "keep.log" not in tree and tree["d/x"].kind == "opaque"
    assert tree == workspace.timeline.projections.tree()
    [accepted] = workspace.log.read(EventFilter(after=before, kinds=(ScopeAccepted.kind,)))
    assert isinstance(accepted.fact, ScopeAccepted)
    assert "keep.log" in accepted.fact.untracked
    assert impossible(workspace) == []
    again(workspace).replay("head", tmp_path / "replayed")
    assert not (tmp_path / "replayed" / "keep.log").exists()
    # what comes into scope again is recorded anew, and no plan takes it for created
    (root / ".loomignore").write_text("")
    workspace.accept_scope()
    assert_whole(workspace, root, tmp_path)
    plan = workspace.plan_rollback(before, outside=True)
    assert not {change.path for change in plan.changes if change.after is None}


def test_what_cannot_be_read_leaves_the_tree_until_it_can(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    files = dict.fromkeys(("a.txt", "d/x/a", "d/x/b/c", "d/f"), "one")
    with ordinary_session(files, monkeypatch) as session:
        workspace, root = session.workspace, Path(session.workspace.root)
        (root / "d/x").chmod(0)
        with session.recording("a look"):
            pass
        tree = again(workspace).timeline.tree()
        assert tree.keys() == {"a.txt", "d", "d/f", "d/x"}, "of a closed folder the inside is not"
        assert tree["d/x"].mode == 0
        assert again(workspace).timeline.verified.untracked() == {"d/x/a", "d/x/b"}
        assert workspace.timeline.projections.untracked() == {"d/x/a", "d/x/b"}
        assert workspace.timeline.projections.tree() == tree
        (root / "d/x").chmod(0o755)
        with session.recording("another"):
            (root / "d/x/a").write_text("two")
        assert workspace.timeline.projections.tree() == again(workspace).timeline.tree()
        assert impossible(workspace) == []
        assert workspace.verify().findings == ()
        assert {*map(os.fsdecode, tree_of(root))} == workspace.timeline.tree().keys()


# --- forged tables are not laundered --------------------------------------------------------

FORGERIES = {
    "another content": (
        "UPDATE file_change SET new_blob = (SELECT new_blob FROM file_change f JOIN path p "
        "ON p.number = f.path WHERE p.path = CAST('src/main.py' AS BLOB) LIMIT 1) "
        "WHERE path = (SELECT number FROM path WHERE path = CAST('a.txt' AS BLOB))",
        "UPDATE tree_entry SET blob = (SELECT t.blob FROM tree_entry t JOIN path p "
        "ON p.number = t.path WHERE p.path = CAST('src/main.py' AS BLOB)) "
        "WHERE path = (SELECT number FROM path WHERE path = CAST('a.txt' AS BLOB))",
    ),
    "no changes": ("DELETE FROM file_change", "DELETE FROM tree_entry"),
    "no tree": ("DELETE FROM tree_entry",),
    "another mode": ("UPDATE tree_entry SET mode = mode - 4",),
}


@pytest.mark.parametrize("how", FORGERIES)
@pytest.mark.parametrize("indexed", [True, False], ids=["with index", "without index"])
def test_a_forged_table_gets_no_forged_event_into_the_log(
    how: str, indexed: bool, root: Path, workspace: AuditedWorkspace, home: Path
) -> None:
    forge(workspace, *FORGERIES[how])
    if not indexed:
        for file in (home / "index").iterdir():
            file.unlink()
    head = workspace.log.head()
    with closing(open_store()) as store:
        found = store.workspace(root)
        with pytest.raises(Corrupt), found.session("evil") as session, session.recording("run"):
            (root / "a.txt").write_text("BAD\n")
        with pytest.raises(Corrupt):
            found.checkpoint("evil")
        assert found.log.head() == head
        found.rebuild()
        before = found.timeline.state("a.txt")
        assert before is not None and found.timeline.content(before) == b"one\ntwo\nthree\n"
    with closing(open_store()) as store:  # recording goes on
        found = store.workspace(root)
        with found.session("good") as session, session.recording("run"):
            (root / "b.txt").write_text("good\n")
        assert impossible(found) == []


def test_a_log_that_was_cut_off_takes_nothing_more(
    root: Path, workspace: AuditedWorkspace, home: Path
) -> None:
    with workspace.session("before") as session, session.recording("run"):
        (root / "new").write_text("1")
    head = workspace.log.head()
    forge(workspace, f"DELETE FROM event WHERE seq > {head - 2}")
    for _ in ("with the heads that were kept", "by the tables that follow the log"):
        with closing(open_store()) as store, pytest.raises(Corrupt, match="its end is gone"):
            OpenCall(
                Writer(store.workspace(root).attachment, "", "agent:a"),
                "write_file",
                {},
                "write",
                call_id="one",
            ).announce()
        with closing(open_store()) as store, pytest.raises(Corrupt, match="its end is gone"):
            store.workspace(root).checkpoint("no more than that")
        assert workspace.log.head() == head - 2
        for file in workspace.adapters.settings.heads.glob("*.heads"):
            file.unlink()


def test_two_writers_raise_no_alarm(root: Path, workspace: AuditedWorkspace) -> None:
    """Each appends behind the other's back, and keeps up with what the other appends."""
    with closing(open_store()) as store:
        other = store.workspace(root)
        with workspace.session("one") as one, other.session("two") as two:
            for n in range(6):
                for session in (one, two):
                    with session.recording("run"):
                        (root / "a.txt").write_text(f"{session.id} {n}")
    assert impossible(workspace) == []
    assert workspace.verify().findings == ()


def test_a_command_of_a_shell_is_refused_too(
    root: Path, workspace: AuditedWorkspace, home: Path
) -> None:
    forge(workspace, *FORGERIES["another content"])
    head = workspace.log.head()
    done = subprocess.run(
        [sys.executable, "-m", "loom_audit", "run", "--", "sh", "-c", "echo BAD > a.txt"],
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0 and "have another tree" in done.stderr
    assert workspace.log.head() == head and (root / "a.txt").read_text() != "BAD\n"


# --- in parts -------------------------------------------------------------------------------


def upheave(root: Path, chance: Random) -> None:
    """A few steps of somebody who makes folders of files, files of folders, and moves them."""
    for _ in range(chance.randint(3, 12)):
        if not any(root.iterdir()):
            (root / "one").write_text("one")
        found = sorted(root.rglob("*"))
        path = chance.choice(found)
        step = chance.choice(["file", "folder", "remove", "move", "move", "many", "link"])
        try:
            if step in ("file", "folder", "remove", "link"):
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path)
                else:
                    path.unlink()
            if step == "file":
                path.write_text(f"file {chance.random()}")
            elif step == "link":
                path.symlink_to("nowhere")
            elif step == "folder":
                (path / "in").mkdir(parents=True)
                (path / "in" / "it").write_text(f"in {chance.random()}")
            elif step == "move":
                path.rename(chance.choice(found).parent / f"moved-{chance.randrange(3)}")
            elif step == "many":
                for n in range(4):
                    (path.parent / f"more-{n}").write_text(f"{n} {chance.random()}")
        except (OSError, shutil.Error):
            continue  # into itself, or onto a folder that is not empty


@pytest.mark.few(1)
@pytest.mark.parametrize("part", [1, 2, 5])
def test_what_changes_in_parts_applies_part_by_part(
    part: int,
    folder: Path,
    root: Path,
    workspace: AuditedWorkspace,
    session: Session,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    seed: str,
) -> None:
    monkeypatch.setattr(batches, "BATCH_BYTES", part * batches.ROW_BYTES)
    chance = Random(f"{seed} {part}")
    for n in range(12):
        upheave(root, chance)
        with session.recording(f"look {n}"):
            if n % 2:
                upheave(root, chance)
        assert workspace.status().drift == ()
        assert workspace.timeline.projections.tree() == workspace.timeline.tree()
    assert impossible(workspace) == []
    assert workspace.verify().findings == ()
    again(workspace).replay("head", tmp_path / "replayed")
    assert tree_of(tmp_path / "replayed") == tree_of(root)
