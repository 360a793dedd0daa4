"""Folders that are not recorded, and `.git`, moved or deleted by a command: nothing of it is lost.

An undo could not bring them back, and would delete what they have become.
"""

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import anyio
import pytest

from loom_audit import AuditedWorkspace, AuditStore, Session, open_store
from loom_audit.disk.workspace import DiskWorkspace
from loom_audit.errors import Conflict
from loom_audit.history import capture
from loom_audit.model.planning import Choice, Plan
from tests.trees import Entry, tree_of

OTHERS: tuple[Choice, ...] = ("old", "merge")
OBJECTS = {"HEAD": "ref: refs/heads/main\n", "config": "[core]\n", "objects/ab/cdef": "blob"}
PACKAGES = {"bin/python": "#!/bin/sh\n", "lib/site.py": "import sys\n"}


def make(folder: Path, files: dict[str, str]) -> None:
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)


def everything(root: Path) -> dict[bytes, Entry]:
    """Every byte below the root, also of what is never recorded."""
    return tree_of(root, skip=())


@pytest.fixture
def root(root: Path) -> Path:
    """With a repository, and packages that are not recorded, at the top and further down."""
    make(root / ".git", OBJECTS)
    make(root / "venv", PACKAGES)
    make(root / "pkg", {"main.js": "main()\n", "node_modules/left/pad.js": "pad()\n"})
    return root


@pytest.fixture
def run(session: Session, workspace: AuditedWorkspace, root: Path) -> Callable[[str], int]:
    """Record a shell command in the session; its call's number."""

    def run(command: str) -> int:
        with session.recording("command"):
            subprocess.run(["sh", "-c", command], cwd=root, check=True)
        return workspace.timeline.calls()[0].seq or 0

    return run


Run = Callable[[str], int]


def coverage(workspace: AuditedWorkspace) -> tuple[str, tuple[str, ...]]:
    newest = workspace.timeline.calls()[0]
    return newest.coverage.level, newest.coverage.reasons


def refused(workspace: AuditedWorkspace, root: Path, plan: Plan) -> list[str]:
    """The paths for which a plan is blocked; it is not carried out and changes nothing."""
    before = everything(root)
    assert plan.blocked
    assert all(" is not on record: " in note.reason and note.calls for note in plan.blocked)
    with pytest.raises(Conflict, match="is not on record"):
        workspace.carry_out(plan)
    assert everything(root) == before
    return [note.path for note in plan.blocked]


def chosen(plan: Plan, choice: Choice) -> dict[str, Choice]:
    return {note.path: choice for note in plan.blocked}


def below(folder: str, files: dict[str, str]) -> set[str]:
    """The folder with the files in it and the folders they need."""
    paths = {f"{folder}/{path}" for path in files}
    return {folder, *paths, *(p.rpartition("/")[0] for p in paths), *_above(paths)} - {""}


def _above(paths: set[str]) -> Iterator[str]:
    for path in paths:
        parts = path.split("/")
        yield from ("/".join(parts[:n]) for n in range(1, len(parts)))


MOVES = pytest.mark.parametrize(
    ("command", "lost", "became"),
    [
        ("mv .git git-backup", ".git", below("git-backup", OBJECTS)),
        ("mv venv env", "venv", below("env", PACKAGES)),
        ("mv pkg lib", "pkg/node_modules", {"lib", "lib/main.js"}),
        ("cp -r .git copy && rm -r .git", ".git", below("copy", OBJECTS)),
    ],
)


@MOVES
def test_what_a_left_out_folder_became_is_not_deleted_by_undo_revert_or_rollback(
    workspace: AuditedWorkspace, root: Path, run: Run, command: str, lost: str, became: set[str]
) -> None:
    before = workspace.log.head()
    number = run(command)
    level, reasons = coverage(workspace)
    assert (level, reasons[0]) == ("partial", f"{lost} is not on record: vanished")
    for plan in (
        workspace.plan_undo(),
        workspace.plan_revert([number]),
        workspace.plan_revert([f"session:{workspace.timeline.calls()[0].session}"]),
        workspace.plan_rollback(before),
        workspace.plan_rollback(before, outside=True),
    ):
        assert set(refused(workspace, root, plan)) == became
        assert {note.calls for note in plan.blocked} == {(number,)}
        assert {note.reason for note in plan.blocked} == {
            f"{lost} is not on record: vanished; what appeared then or later is not deleted"
        }


@MOVES
def test_only_the_choice_to_keep_what_is_there_passes(
    workspace: AuditedWorkspace, root: Path, run: Run, command: str, lost: str, became: set[str]
) -> None:
    before = workspace.log.head()
    number = run(f"{command}; echo changed > a.txt")
    there = everything(root)
    for choice in OTHERS:
        choices = chosen(workspace.plan_undo(), choice)
        assert set(refused(workspace, root, workspace.plan_undo(choices=choices))) == became
        plan = workspace.plan_rollback(before, choices=choices)
        assert set(refused(workspace, root, plan)) == became
    choices = chosen(workspace.plan_undo(), "current")
    workspace.carry_out(workspace.plan_revert([number], choices=choices))
    now = everything(root)
    assert now.pop(b"a.txt")[2] == b"one\ntwo\nthree\n"
    assert now.pop(b"pkg")[0] == "directory"  # one of the moves took it away, which comes back
    assert now == {path: entry for path, entry in there.items() if path in now}
    assert there.keys() - now.keys() <= {b"a.txt", b"pkg"}
    workspace.carry_out(workspace.plan_undo())
    assert everything(root) == there


def test_choosing_one_path_leaves_the_others_blocked(
    workspace: AuditedWorkspace, root: Path, run: Run
) -> None:
    run("mv .git git-backup")
    plan = workspace.plan_undo(choices={"git-backup/HEAD": "current"})
    left = below("git-backup", OBJECTS) - {"git-backup/HEAD", "git-backup"}
    assert set(refused(workspace, root, plan)) == left


def test_put_back_by_hand_the_folder_does_not_stop_an_undo(
    workspace: AuditedWorkspace, root: Path, run: Run
) -> None:
    before = everything(root)
    run("mv .git git-backup; echo changed > a.txt")
    (root / "git-backup").rename(root / ".git")
    workspace.carry_out(workspace.plan_undo())
    assert everything(root) == before


def test_a_folder_that_only_appeared_stays_and_the_rest_is_undone(
    workspace: AuditedWorkspace, root: Path, run: Run
) -> None:
    before = everything(root)
    run("mkdir -p sub/.git && echo x > sub/.git/HEAD && echo new > new && echo changed > a.txt")
    assert coverage(workspace) == ("partial", ("sub/.git is not on record: appeared",))
    plan = workspace.plan_undo()
    assert not plan.blocked
    assert any("sub/.git is not on record: appeared" in note.reason for note in plan.irreversible)
    workspace.carry_out(plan)
    added = {path for path in everything(root) if path not in before}
    assert added == {b"sub", b"sub/.git", b"sub/.git/HEAD"}
    assert {path: everything(root)[path] for path in before} == before
    workspace.carry_out(workspace.plan_redo())
    assert (root / "new").read_text() == "new\n"


def test_git_init_by_git_itself_only_appeared(
    store: AuditStore, tmp_path: Path, root: Path
) -> None:
    fresh = tmp_path / "fresh"
    make(fresh, {"a.txt": "a\n"})
    workspace = store.attach(fresh)
    with workspace.session("tester") as session, session.recording("init"):
        subprocess.run(["git", "init", "--quiet", str(fresh)], check=True)
        (fresh / "a.txt").write_text("b\n")
    assert coverage(workspace) == ("partial", (".git is not on record: appeared",))
    inside = tree_of(fresh / ".git")
    workspace.carry_out(workspace.plan_undo())
    assert (fresh / "a.txt").read_text() == "a\n"
    assert tree_of(fresh / ".git") == inside


def test_a_deleted_repository_is_said_to_be_gone_and_what_was_deleted_beside_it_comes_back(
    workspace: AuditedWorkspace, root: Path, run: Run
) -> None:
    run("rm -rf .git a.txt")
    assert coverage(workspace) == ("partial", (".git is not on record: vanished",))
    plan = workspace.plan_undo()
    assert not plan.blocked
    assert any(".git is not on record: vanished" in note.reason for note in plan.irreversible)
    workspace.carry_out(plan)
    assert (root / "a.txt").exists()
    there = everything(root)
    workspace.carry_out(workspace.plan_redo())
    assert not (root / "a.txt").exists()
    workspace.carry_out(workspace.plan_undo())
    assert everything(root) == there


def test_a_folder_that_another_took_the_place_of_counts_as_gone(
    workspace: AuditedWorkspace, root: Path, run: Run
) -> None:
    run("mv venv env; mkdir venv")
    assert coverage(workspace) == ("partial", ("venv is not on record: replaced",))
    assert set(refused(workspace, root, workspace.plan_undo())) == below("env", PACKAGES)


def test_the_repository_of_a_worktree_which_is_a_file_counts_too(
    workspace: AuditedWorkspace, root: Path, run: Run
) -> None:
    (root / "tree").mkdir()
    (root / "tree" / ".git").write_text("gitdir: elsewhere\n")
    with workspace.session("other") as session, session.recording("look"):
        pass
    assert coverage(workspace) == ("full", ())
    run("mv tree/.git tree/git-file")
    assert coverage(workspace) == ("partial", ("tree/.git is not on record: vanished",))
    assert refused(workspace, root, workspace.plan_undo()) == ["tree/git-file"]
    run("mv tree/git-file tree/.git")
    assert coverage(workspace) == ("partial", ("tree/.git is not on record: appeared",))


def test_a_file_in_the_place_of_the_folder_is_left_alone(
    workspace: AuditedWorkspace, root: Path, run: Run
) -> None:
    before = workspace.log.head()
    run("rm -r venv && echo 'not a folder' > venv")
    assert coverage(workspace) == ("partial", ("venv is not on record: vanished",))
    plan = workspace.plan_undo(choices={"venv": "old"})
    assert refused(workspace, root, plan) == ["venv"]
    assert plan.blocked[0].reason.endswith("; nothing in it can be taken back")
    assert refused(workspace, root, workspace.plan_rollback(before)) == ["venv"]


@pytest.mark.parametrize(
    "name", ["__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".hypothesis"]
)
def test_caches_that_tools_make_again_do_not_count(
    workspace: AuditedWorkspace, root: Path, run: Run, name: str
) -> None:
    for command in (f"mkdir {name} src/{name}", f"rm -r {name}; mkdir {name}", f"rm -r {name}"):
        run(f"{command}; echo more >> made")
        assert coverage(workspace) == ("full", ())
    workspace.carry_out(workspace.plan_undo())
    workspace.carry_out(workspace.plan_undo())
    workspace.carry_out(workspace.plan_undo())
    assert not (root / "made").exists()


def test_a_command_that_changes_what_is_inside_left_out_folders_has_full_coverage(
    workspace: AuditedWorkspace, root: Path, run: Run
) -> None:
    for command in ("true", "echo x > .git/x; rm -r venv/bin; mkdir venv/node_modules .git/venv"):
        run(command)
        assert coverage(workspace) == ("full", ())


# --- rollback --------------------------------------------------------------------------------


def later(workspace: AuditedWorkspace, *writes: tuple[str, str]) -> None:
    """Another session's calls."""
    with workspace.session("other") as session:
        for path, text in writes:
            arguments = {"path": path, "content": text}
            assert anyio.run(session.call, "write_file", arguments).success


def test_a_rollback_across_it_deletes_nothing_that_appeared_since_whoever_made_it(
    workspace: AuditedWorkspace, root: Path, run: Run
) -> None:
    later(workspace, ("first", "first\n"))
    before = workspace.log.head()
    later(workspace, ("before", "before\n"))
    after = workspace.log.head()
    run("rm -r venv")
    later(workspace, ("since", "since\n"), ("a.txt", "changed\n"), ("first", "changed\n"))
    (root / "by hand").write_text("by hand\n")
    plan = workspace.plan_rollback(before)
    assert refused(workspace, root, plan) == ["since"]
    assert set(refused(workspace, root, workspace.plan_rollback(before, outside=True))) == {
        "since",
        "by hand",
    }
    there = everything(root)
    workspace.carry_out(workspace.plan_rollback(after, paths=["a.txt", "before"]))
    assert (root / "a.txt").read_text() == "one\ntwo\nthree\n"
    workspace.carry_out(workspace.plan_rollback(before, choices=chosen(plan, "current")))
    now = everything(root)
    assert b"before" not in now
    assert now[b"first"][2] == b"first\n"
    kept = there.keys() - {b"before", b"first", b"a.txt"}
    assert {path: now[path] for path in kept} == {path: there[path] for path in kept}


def test_a_later_call_is_undone_as_ever(workspace: AuditedWorkspace, root: Path, run: Run) -> None:
    run("mv .git git-backup")
    there = everything(root)
    number = run("echo since > since")
    workspace.carry_out(workspace.plan_undo())
    assert everything(root) == there
    workspace.carry_out(workspace.plan_redo())
    workspace.carry_out(workspace.plan_revert([number]))
    assert everything(root) == there
    later(workspace, ("since", "since\n"))
    workspace.carry_out(workspace.plan_rollback("head~1"))
    assert everything(root) == there


def test_a_call_that_was_open_at_the_point_counts(
    workspace: AuditedWorkspace, session: Session, root: Path
) -> None:
    with session.recording("move"):
        later(workspace, ("meanwhile", "meanwhile\n"))
        point = workspace.log.head()
        (root / ".git").rename(root / "git-backup")
    plan = workspace.plan_rollback(point)
    assert set(refused(workspace, root, plan)) == below("git-backup", OBJECTS)


def test_of_several_such_calls_the_last_before_a_path_appeared_is_named(
    workspace: AuditedWorkspace, root: Path, run: Run
) -> None:
    before = workspace.log.head()
    one = run("rm -r venv; echo 1 > one")
    two = run("mv .git git-backup")
    notes = {note.path: note.calls for note in workspace.plan_rollback(before).blocked}
    assert notes["one"] == (one,)
    assert notes["git-backup/HEAD"] == (two,)
    assert {note.calls for note in workspace.plan_revert([one]).blocked} == {(one,)}


# --- how it is said --------------------------------------------------------------------------


def test_ten_are_named_the_vanished_first_and_unprintable_names_are_escaped(
    workspace: AuditedWorkspace, root: Path, run: Run
) -> None:
    for n in range(4):
        (root / f"z{n}" / "node_modules").mkdir(parents=True)
    run("rmdir z*/node_modules; for n in 0 1 2 3 4 5 6 7 8; do mkdir -p a$n/node_modules; done")
    level, reasons = coverage(workspace)
    assert level == "partial"
    assert reasons == (
        *(f"z{n}/node_modules is not on record: vanished" for n in range(4)),
        *(f"a{n}/node_modules is not on record: appeared" for n in range(6)),
        "and 3 more are not on record",
    )
    run("mkdir -p \"$(printf 'odd\\n\\033[31m\\377')\"/venv")
    assert coverage(workspace)[1] == (r"odd\n\x1b[31m\xff/venv is not on record: appeared",)


def test_a_scope_accepted_meanwhile_makes_nothing_come_or_go(
    workspace: AuditedWorkspace, session: Session, root: Path
) -> None:
    make(root, {"out/x": "x\n", "in/x": "x\n", "in/venv/x": "x\n"})
    (root / ".loomignore").write_text("out/\n")
    workspace.accept_scope()
    with session.recording("look"):
        (root / ".loomignore").write_text("in/\n")
        workspace.accept_scope()
    assert coverage(workspace) == ("full", ())


def test_what_was_in_a_folder_that_could_not_be_read_has_not_appeared(
    workspace: AuditedWorkspace,
    session: Session,
    root: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A folder mounted over stands for one that cannot be read, which root can always read."""
    with monkeypatch.context() as patched:
        patched.setattr("loom_audit.disk.workspace.mounts_below", lambda _: ["pkg"])
        with session.recording("look"):
            patched.undo()
    assert not any("node_modules" in reason for reason in coverage(workspace)[1])


def test_what_is_in_a_folder_that_cannot_be_read_any_more_has_vanished(
    workspace: AuditedWorkspace,
    session: Session,
    root: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as patched, session.recording("look"):
        patched.setattr("loom_audit.disk.workspace.mounts_below", lambda _: ["pkg"])
    assert "pkg/node_modules is not on record: vanished" in coverage(workspace)[1]


@pytest.mark.parametrize("limit", ["CHUNK_PATHS", "CHUNK_BYTES"])
def test_a_scan_that_hands_on_its_parts_keeps_the_listing(
    workspace: AuditedWorkspace,
    root: Path,
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
    limit: str,
) -> None:
    monkeypatch.setattr(capture, limit, 1)
    (root / "by hand").write_text("by hand\n")
    (root / "by hand too").write_text("by hand too\n")
    run("mv .git git-backup")
    assert coverage(workspace) == ("partial", (".git is not on record: vanished",))
    assert set(refused(workspace, root, workspace.plan_undo())) == below("git-backup", OBJECTS)


def test_two_commands_at_a_time_both_say_so(
    workspace: AuditedWorkspace, session: Session, root: Path
) -> None:
    with (
        open_store() as store,
        store.workspace(root).session("other") as other,
        other.recording("look"),
        session.recording("move"),
    ):
        (root / ".git").rename(root / "git-backup")
    calls = workspace.timeline.calls()
    assert {call.tool for call in calls} == {"look", "move"}
    for call in calls:
        assert ".git is not on record: vanished" in call.coverage.reasons
        assert not workspace.plan_revert([call.seq or 0]).changes
    plan = workspace.plan_revert([call.seq or 0 for call in calls])
    assert set(refused(workspace, root, plan)) == below("git-backup", OBJECTS)


def test_the_listing_costs_the_scan_no_further_look(
    workspace: AuditedWorkspace, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: object) -> None:
        raise AssertionError("a left-out folder is looked at")

    monkeypatch.setattr(DiskWorkspace, "stamp", never)
    monkeypatch.setattr(DiskWorkspace, "list", never)
    capture.scan(workspace.attachment, never)
