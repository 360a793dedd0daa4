"""What people do between and during calls, each followed by all readers and an undo of all."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from loom_audit import AuditedWorkspace, Session
from tests.history.record.test_continuity import assert_whole
from tests.oracles.trees import differences, tree_of


class Person:
    """A session and a person in one workspace."""

    def __init__(self, root: Path, session: Session) -> None:
        self.root, self.session = root, session

    def write(self, path: str, content: str = "a tool's\n") -> bool:
        return self.call("write_file", path=path, content=content)

    def call(self, tool: str, **arguments: str) -> bool:
        return anyio.run(lambda: self.session.call(tool, arguments)).success

    def run(self, *argv: str) -> None:
        env = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null"}
        who = ["-c", "user.name=p", "-c", "user.email=p@example.org"]
        subprocess.run(
            ["git", *who, *argv], cwd=self.root, check=True, capture_output=True, env=env
        )


def a_fifo_for_a_folder(p: Person) -> None:
    p.call("delete_file", path="src/main.py")
    (p.root / "src").rmdir()
    os.mkfifo(p.root / "src")
    assert not p.write("src/main.py")
    (p.root / "src").unlink()
    assert p.write("src/main.py")


def a_link_for_a_folder(p: Person) -> None:
    (p.root / "src").rename(p.root / "real")
    (p.root / "src").symlink_to("real")
    assert p.write("src/main.py") and p.write("src/new/deep.py")
    (p.root / "src").unlink()
    (p.root / "src").symlink_to("a.txt")
    assert not p.write("src/main.py")


def a_link_for_a_folder_during_a_call(p: Person) -> None:
    with p.session.recording("one"):
        (p.root / "src" / "new").mkdir()
        (p.root / "src" / "new" / "f").write_text("f")
    with p.session.recording("two"):
        (p.root / "src" / "new").rename(p.root / "elsewhere")
        (p.root / "src" / "new").symlink_to("../elsewhere")
    assert p.write("src/new/g")


def a_scope_during_a_call(p: Person) -> None:
    with p.session.recording("one"):
        (p.root / "src" / "made").write_text("made")
        (p.root / ".loomignore").write_text("src/\n")
    assert p.write("src/main.py")
    with p.session.recording("two"):
        (p.root / "src" / "main.py").unlink()
        (p.root / ".loomignore").unlink()


def a_checkout_between_calls(p: Person) -> None:
    p.run("init", "-q", "-b", "main")
    p.run("add", "a.txt", "src")
    p.run("commit", "-qm", "one")
    p.run("checkout", "-qb", "other")
    (p.root / "src" / "main.py").unlink()
    (p.root / "src").rmdir()
    (p.root / "src").write_text("a file here")
    p.run("add", "-A", "src")
    p.run("commit", "-qm", "two")
    p.run("checkout", "-q", "main")
    assert p.write("src/main.py", "print('hello')\n")
    p.run("checkout", "-q", "other")
    assert not p.write("src/main.py")
    with p.session.recording("checkout"):
        p.run("checkout", "-q", "main")
    assert p.write("src/more.py")


def folders_swapped_during_a_call(p: Person) -> None:
    assert p.write("other/main.py", "another\n")
    with p.session.recording("swap"):
        (p.root / "src").rename(p.root / "tmp")
        (p.root / "other").rename(p.root / "src")
        (p.root / "tmp").rename(p.root / "other")
    assert p.write("src/main.py") and p.call("delete_file", path="other/main.py")


def a_child_of_the_root_renamed_during_a_call(p: Person) -> None:
    with p.session.recording("rename"):
        (p.root / "src" / "half").write_text("half")
        (p.root / "src").rename(p.root / "lib")
        (p.root / "lib" / "rest").write_text("rest")
    (p.root / "lib").rename(p.root / "src")
    assert p.write("lib/main.py") and p.write("src/half")


def files_and_folders_change_places(p: Person) -> None:
    with p.session.recording("change"):
        (p.root / "a.txt").rename(p.root / "src" / "a.txt")
        (p.root / "src").rename(p.root / "a.txt")
        (p.root / "src").write_text("src")
    (p.root / "src").unlink()
    assert p.write("src/a/b/c") and not p.write("a.txt")
    with p.session.recording("back"):
        (p.root / "a.txt" / "a.txt").rename(p.root / "x")


def a_left_out_folder_in_the_place_of_one(p: Person) -> None:
    assert p.write("lib/a")
    with p.session.recording("install"):
        (p.root / "lib" / "a").unlink()
        (p.root / "lib").rmdir()
        (p.root / "src").rename(p.root / "node_modules")
    with p.session.recording("and back"):
        (p.root / "node_modules").rename(p.root / "src")


def somebody_removes_all_during_a_call(p: Person) -> None:
    with p.session.recording("all"):
        for path in sorted(p.root.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
    assert p.write("src") and not p.write("src/main.py")


def hard_links_over_folders(p: Person) -> None:
    os.link(p.root / "a.txt", p.root / "src" / "linked")
    assert p.write("src/linked", "both\n")
    with p.session.recording("apart"):
        (p.root / "src" / "linked").unlink()
        (p.root / "src" / "linked").mkdir()
        os.link(p.root / "a.txt", p.root / "src" / "linked" / "again")
    assert p.write("a.txt", "both again\n")


VARIANTS: list[Callable[[Person], None]] = [
    a_fifo_for_a_folder,
    a_link_for_a_folder,
    a_link_for_a_folder_during_a_call,
    a_scope_during_a_call,
    a_checkout_between_calls,
    folders_swapped_during_a_call,
    a_child_of_the_root_renamed_during_a_call,
    files_and_folders_change_places,
    a_left_out_folder_in_the_place_of_one,
    somebody_removes_all_during_a_call,
    hard_links_over_folders,
]


@pytest.mark.few(3)
@pytest.mark.parametrize("variant", VARIANTS, ids=lambda one: one.__name__)
def test_everything_agrees_with_the_disk_and_an_undo_gives_back_the_first_tree(
    variant: Callable[[Person], None], root: Path, workspace: AuditedWorkspace, tmp_path: Path
) -> None:
    first, point = tree_of(root), workspace.log.head()
    with workspace.session("tool") as session:
        variant(Person(root, session))
    with workspace.session("look") as session, session.recording("nothing"):
        pass  # what a person did since is on record
    assert workspace.verify().findings == ()
    tree, disk = workspace.timeline.tree(), tree_of(root)
    left_out = tuple(f"{path}/".encode() for path, state in tree.items() if state.kind == "opaque")
    assert {*map(str.encode, tree)} - {b".git"} == {p for p in disk if not p.startswith(left_out)}
    for path, state in tree.items():
        if state.kind == "file":
            assert workspace.timeline.content(state) == (root / path).read_bytes()
    if not left_out:
        assert_whole(workspace, root, tmp_path)
    plan = workspace.plan_rollback(point, outside=True)
    kept = {note.path.encode() for note in (*plan.kept, *plan.blocked)}
    workspace.carry_out(plan)
    assert workspace.verify().findings == ()
    assert differences(tree_of(root), first).keys() <= kept, plan
    assert kept <= {b".git", b"src/main.py", b"src/rest"}, "what a person moved in, or made"
