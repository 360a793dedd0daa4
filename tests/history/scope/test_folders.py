"""Left-out folders and `.git`, moved, deleted or replaced by a command, and taken back."""

import subprocess
from pathlib import Path

import pytest

from loom_audit import AuditedWorkspace
from loom_audit.errors import Conflict
from loom_audit.model.plans.planning import Choice, Plan
from tests.history.scope.conftest import Run
from tests.oracles.trees import Entry, tree_of

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


def coverage(workspace: AuditedWorkspace) -> tuple[str, tuple[str, ...]]:
    newest = workspace.timeline.calls()[0]
    return newest.coverage.level, newest.coverage.reasons


MOVES = pytest.mark.parametrize(
    "command",
    [
        "mv .git git-backup",
        "mv venv env",
        "mv pkg lib",
        "mv pkg/node_modules modules",
        "mv pkg/node_modules node_modules",
        "mkdir -p deep/er; mv venv deep/er/env",
        "mv src node_modules",
        "mv pkg .tox",
    ],
)


@pytest.mark.few(2)
@MOVES
def test_a_moved_folder_is_renamed_back_and_again(
    workspace: AuditedWorkspace, root: Path, run: Run, command: str
) -> None:
    before = everything(root)
    point = workspace.log.head()
    run(command)
    assert coverage(workspace) == ("full", ())
    after = everything(root)
    assert after != before
    workspace.carry_out(workspace.plan_undo())
    assert everything(root) == before
    workspace.carry_out(workspace.plan_redo())
    assert everything(root) == after
    workspace.carry_out(workspace.plan_rollback(point))
    assert everything(root) == before
    assert workspace.status().drift == ()
    assert workspace.verify().ok


def blocked(workspace: AuditedWorkspace, root: Path, plan: Plan) -> list[tuple[str, str]]:
    """What blocks a plan; it is not carried out and changes nothing."""
    before = everything(root)
    with pytest.raises(Conflict):
        workspace.carry_out(plan)
    assert everything(root) == before
    return [(note.path, note.reason) for note in plan.blocked]


@pytest.mark.parametrize(
    ("then", "path", "why"),
    [
        ("mkdir venv", "env", "venv became env, and something is at venv; it is not renamed back"),
        (
            "echo edited > env/lib/site.py",
            "env",
            "venv became env, and env/lib/site.py changed since; it is not renamed back",
        ),
        (
            "echo new > env/new",
            "env",
            "venv became env, and env/new changed since; it is not renamed back",
        ),
        (
            "cp -r env other; rm -r env; mv other env",
            "env",
            "venv became env, and it is not known whether env is still the same folder;"
            " it is not renamed back",
        ),
    ],
)
def test_a_folder_that_is_not_as_it_was_moved_is_not_renamed_back(
    workspace: AuditedWorkspace, root: Path, run: Run, then: str, path: str, why: str
) -> None:
    number = run("mv venv env; echo changed > a.txt")
    subprocess.run(["sh", "-c", then], cwd=root, check=True)
    for plan in (workspace.plan_undo(), workspace.plan_revert([number])):
        assert blocked(workspace, root, plan) == [(path, why)]
    there = everything(root)
    workspace.carry_out(workspace.plan_undo(choices={path: "current"}))
    now = everything(root)
    assert now.pop(b"a.txt")[2] == b"one\ntwo\nthree\n"
    assert now == {name: entry for name, entry in there.items() if name != b"a.txt"}


def test_a_recorded_folder_that_was_renamed_out_of_scope_and_changed_there_stays_there(
    workspace: AuditedWorkspace, root: Path, run: Run
) -> None:
    run("mv src venv2; mv venv2 node_modules")
    (root / "node_modules" / "main.py").write_text("changed\n")
    [(path, why)] = blocked(workspace, root, workspace.plan_undo())
    assert path == "node_modules" and "node_modules/main.py changed in it" in why


def test_a_redo_looks_again_and_records_what_is_different(
    workspace: AuditedWorkspace, root: Path, run: Run
) -> None:
    run("mv venv env")
    workspace.carry_out(workspace.plan_undo())
    make(root / "venv", {"lib/more.py": "more\n", "lib/site.py": "changed\n"})
    there = everything(root / "venv")
    workspace.carry_out(workspace.plan_redo())
    assert everything(root / "env") == there
    assert workspace.timeline.content(workspace.timeline.tree()["env/lib/more.py"]) == b"more\n"
    assert workspace.status().drift == ()
    workspace.carry_out(workspace.plan_undo())
    assert everything(root / "venv") == there


@pytest.mark.parametrize(
    ("command", "reasons"),
    [
        ("rm -rf .git", ("not on record: .git",)),
        ("mkdir node_modules", ("not on record: node_modules",)),
        ("rm -r venv; mkdir venv", ("not on record: venv",)),
        ("mv venv env; mkdir venv", ("not on record: venv",)),
        ("cp -r venv env; rm -r venv", ("not on record: venv",)),
        ("rm -r venv; echo file > venv", ("not on record: venv",)),
        ("rm -r pkg", ("not on record: pkg/node_modules",)),
        ("touch .git/index venv/x; chmod 700 venv; rm -r venv/lib", ()),
        ("mkdir __pycache__ src/.pytest_cache; rm -r __pycache__; mkdir __pycache__", ()),
    ],
)
def test_what_came_went_or_was_replaced_lowers_coverage_and_stays_as_it_is(
    workspace: AuditedWorkspace, root: Path, run: Run, command: str, reasons: tuple[str, ...]
) -> None:
    run(f"{command}; echo changed > a.txt")
    assert coverage(workspace) == ("partial" if reasons else "full", reasons)
    left = {p: e for p, e in everything(root).items() if b"venv" in p or b".git" in p}
    plan = workspace.plan_undo()
    if plan.blocked:
        plan = workspace.plan_undo(choices={note.path: "current" for note in plan.blocked})
    if reasons:
        assert any(reasons[0] in note.reason for note in plan.irreversible)
    workspace.carry_out(plan)
    assert (root / "a.txt").read_bytes() == b"one\ntwo\nthree\n"
    now = everything(root)
    assert {path: now.get(path) for path in left} == left
    assert workspace.status().drift == ()


def test_an_inode_that_is_given_again_is_another_folder(
    workspace: AuditedWorkspace, root: Path, run: Run
) -> None:
    (root / "node_modules").mkdir()
    reused = False
    for _ in range(40):
        if reused:
            break  # others make files there, too, and may be given the inode first
        run("true")
        inode = (root / "node_modules").stat().st_ino
        run("rmdir node_modules; mkdir modules")
        reused = (root / "modules").stat().st_ino == inode
        assert coverage(workspace) == ("partial", ("not on record: node_modules",))
        plan = workspace.plan_undo()
        assert plan.moves == () and not plan.blocked
        run("rmdir modules; mkdir node_modules")
    assert reused, "this filesystem gives no inode again, so nothing is tried here"


def test_after_a_reboot_all_is_seen_anew_and_nothing_changed(
    workspace: AuditedWorkspace, root: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("mv venv env; mkdir node_modules")
    monkeypatch.setattr("loom_audit.disk.access.identity._epoch", lambda mount: "0123456789ab")
    head = workspace.log.head()
    assert workspace.status().drift == ()
    run("true")
    assert coverage(workspace) == ("full", ())
    assert workspace.timeline.diff(head, workspace.log.head()) == ()
    [(path, why)] = blocked(workspace, root, workspace.plan_undo())
    assert path == "env" and "it is not known whether env is still the same folder" in why
    run("mv node_modules modules")
    workspace.carry_out(workspace.plan_undo())
    assert (root / "node_modules").is_dir() and not (root / "modules").exists()


def test_a_copy_of_the_workspace_is_seen_anew(
    workspace: AuditedWorkspace, root: Path, run: Run
) -> None:
    run("true")
    subprocess.run(["cp", "-a", f"{root}/venv", f"{root}/../copy"], check=True)
    subprocess.run(["sh", "-c", f"rm -r {root}/venv; mv {root}/../copy {root}/venv"], check=True)
    run("true")
    assert coverage(workspace) == ("full", ())


def test_the_repository_of_a_worktree_which_is_a_file_counts_too(
    workspace: AuditedWorkspace, root: Path, run: Run
) -> None:
    (root / "tree").mkdir()
    (root / "tree" / ".git").write_text("gitdir: elsewhere\n")
    run("true")
    _, [of_git] = coverage(workspace)
    assert of_git.startswith(
        "git cannot be told in tree: .git is a file that names a folder elsewhere"
    )
    run("rm tree/.git")
    level, reasons = coverage(workspace)  # before the call git was not read
    assert (level, {*reasons}) == ("partial", {"not on record: tree/.git", of_git})
    run("true")
    assert coverage(workspace) == ("full", ())
    run("echo 'gitdir: here' > tree/.git")
    level, reasons = coverage(workspace)
    assert (level, {*reasons}) == ("partial", {"not on record: tree/.git", of_git})


def test_what_arrived_is_never_deleted(workspace: AuditedWorkspace, root: Path, run: Run) -> None:
    (root / "src" / "__pycache__").mkdir()
    (root / "src" / "__pycache__" / "x.pyc").write_text("bytes\n")
    run("true")
    point = workspace.log.head()
    run("mv src/__pycache__ compiled; echo changed > a.txt")
    assert coverage(workspace) == ("full", ())
    plan = workspace.plan_rollback(point, outside=True)
    assert {note.path for note in plan.kept} == {"compiled", "compiled/x.pyc"}
    workspace.carry_out(plan)
    assert (root / "compiled" / "x.pyc").read_text() == "bytes\n"
    assert (root / "a.txt").read_bytes() == b"one\ntwo\nthree\n"


def test_what_a_new_scope_lets_in_is_never_deleted(
    workspace: AuditedWorkspace, root: Path, run: Run
) -> None:
    make(root / "data", {"x": "x\n"})
    (root / ".loomignore").write_text("data/\n")
    workspace.accept_scope()
    point = workspace.log.head()
    (root / ".loomignore").write_text("")
    workspace.accept_scope()
    run("echo changed > a.txt")
    old: dict[str, Choice] = {"data/x": "old", "data": "old"}
    for choices in ({}, old):
        plan = workspace.plan_rollback(point, outside=True, choices=choices)
        assert not {c.path for c in plan.changes} & {"data", "data/x"}
    workspace.carry_out(plan)
    assert (root / "data" / "x").read_text() == "x\n"


@pytest.mark.parametrize("most", [1, 6000])
def test_a_scan_that_hands_on_its_parts_knows_the_move(
    workspace: AuditedWorkspace,
    root: Path,
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
    most: int,
) -> None:
    monkeypatch.setattr("loom_audit.history.look.batches.BATCH_BYTES", most)
    before = everything(root)
    run("mv .git git-backup")
    assert coverage(workspace) == ("full", ())
    workspace.carry_out(workspace.plan_undo())
    assert everything(root) == before


def test_an_opaque_entry_is_listed_and_its_inside_is_not(
    workspace: AuditedWorkspace, root: Path, tmp_path: Path
) -> None:
    tree = workspace.timeline.tree()
    opaque = {path for path, state in tree.items() if state.kind == "opaque"}
    assert opaque == {".git", "venv", "pkg/node_modules"}
    assert not any(path.startswith((".git/", "venv/", "pkg/node_modules/")) for path in tree)
    workspace.replay("head", tmp_path / "again")
    assert not (tmp_path / "again" / "venv").exists()


def test_a_folder_is_not_renamed_back_into_one_that_was_made_and_is_gone_by_what_is_taken_back(
    workspace: AuditedWorkspace, root: Path, run: Run
) -> None:
    point = workspace.log.head()
    run("mkdir made")
    run("mkdir made/venv; echo x > made/venv/x")
    run("mv made/venv .tox; rmdir made")
    gone = "made/venv became .tox, and the folder of made/venv is gone; it is not renamed back"
    plan = workspace.plan_rollback(point)
    assert blocked(workspace, root, plan) == [(".tox", gone)]
    workspace.carry_out(workspace.plan_rollback(point, choices={".tox": "current"}))
    assert (root / ".tox" / "x").read_text() == "x\n"


def test_before_it_arrived_or_was_first_listed_nothing_is_known_of_a_path(
    workspace: AuditedWorkspace, root: Path, run: Run
) -> None:
    (root / ".loomignore").write_text("data/\n")
    workspace.accept_scope()
    make(root / "data", {"x": "x\n"})
    point = workspace.log.head()
    (root / ".loomignore").write_text("src/\n")
    workspace.accept_scope()
    run("mv venv env; echo new > new")
    unknown = workspace.timeline.is_unknown
    assert unknown("data/x", point) and unknown("env/lib/site.py", point)
    assert not unknown("new", point) and not unknown("absent", point)


@pytest.mark.parametrize("made", ["venv", "deep/.git", "__pycache__"])
def test_a_left_out_folder_in_one_that_is_renamed_back_is_on_record(
    workspace: AuditedWorkspace, root: Path, run: Run, made: str
) -> None:
    (root / "src" / ".mypy_cache").write_text("a file\n")
    run(f"mv src .tox; mkdir -p .tox/{made}; echo x > .tox/{made}/x; mkfifo .tox/pipe")
    after = everything(root)
    plan = workspace.plan_undo()
    told = {note.path for note in plan.kept}
    assert told == {"src/pipe", *([f"src/{made}".removesuffix("/.git")] if made[0] != "_" else [])}
    workspace.carry_out(plan)
    back = everything(root)
    assert workspace.status().drift == ()
    opaque = {p for p, state in workspace.timeline.tree().items() if state.kind == "opaque"}
    assert (f"src/{made}" in opaque) == (made != "__pycache__")
    workspace.carry_out(workspace.plan_redo())
    assert everything(root) == after
    workspace.carry_out(workspace.plan_undo())
    assert everything(root) == back


@pytest.mark.parametrize(
    "command",
    [
        "mv venv env; echo more >> env/lib/site.py",
        "mv venv env; echo new > env/new",
        "echo more >> venv/lib/site.py; mv venv env",
        "mv venv env; rm env/lib/site.py",
        "mv .git git-backup; echo ref > git-backup/HEAD",
        "mv src .tox; echo more >> .tox/main.py",
        "mv src .tox; echo new > .tox/new.py",
        "mv venv .tox; rm .tox/bin/python",
    ],
)
def test_a_call_that_moves_a_left_out_folder_and_writes_into_it_is_partial(
    workspace: AuditedWorkspace, run: Run, command: str
) -> None:
    run("true")
    run(command)
    level, reasons = coverage(workspace)
    assert level == "partial"
    assert any("written in a folder that was moved" in reason for reason in reasons), reasons


@MOVES
def test_a_call_that_only_moves_such_a_folder_is_captured_in_full(
    workspace: AuditedWorkspace, run: Run, command: str
) -> None:
    run("true")
    run(command)
    assert coverage(workspace) == ("full", ())
