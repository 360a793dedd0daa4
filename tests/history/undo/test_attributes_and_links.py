"""Random writes, links, modes, lists, undos and rollbacks, against a plain list of past trees."""

import os
import random
import stat
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from loom_audit import AuditedWorkspace, Session, open_store
from loom_audit.errors import NotFound
from tests.given.cases import some
from tests.oracles.attributes import ACL, acl_bytes, acl_entries, needs_acl
from tests.places.on_disk import tmp_path_factory as tmp_path_factory

Entry = tuple[bytes, int, bool, frozenset[str]]
"""Content; owner's, own group's and others' bits; whether there is a list; all names."""

Tree = dict[str, Entry]
NAMES = [f"{folder}{name}" for folder in ("", "d/", "d/e/") for name in ("a", "b", "c")]
LISTS = [(6, 4, 0, 4, 0), (7, 7, 5, 7, 5), (6, 6, 4, 6, 4), (6, 2, 6, 2, 0)]
STEPS = 25


def look(root: Path) -> Tree:
    """The files, by `os` alone."""
    paths = [Path(folder, name) for folder, _, files in os.walk(root) for name in files]
    names: dict[int, set[str]] = {}
    for path in paths:
        names.setdefault(path.stat().st_ino, set()).add(str(path.relative_to(root)))
    return {
        str(path.relative_to(root)): (
            path.read_bytes(),
            rights(path),
            acl_entries(path) is not None,
            frozenset(names[path.stat().st_ino]),
        )
        for path in paths
    }


def rights(path: Path) -> int:
    """What the owner, the file's own group and others may, whatever a list's mask shows."""
    entries = acl_entries(path)
    mode = stat.S_IMODE(path.stat().st_mode)
    if entries is None:
        return mode
    return mode & ~0o070 | (entries["group"] & entries["mask"]) << 3


def without_lists(tree: Tree) -> Tree:
    return {path: (text, mode, False, names) for path, (text, mode, _, names) in tree.items()}


class Player:
    """Does one random thing after the other, and knows every tree that there was."""

    def __init__(self, workspace: AuditedWorkspace, session: Session, seed: int) -> None:
        self.workspace, self.session = workspace, session
        self.root = Path(workspace.root)
        self.chance = random.Random(seed)
        self.points = [(workspace.log.head(), look(self.root))]
        self.log: list[str] = []

    def name(self) -> str:
        return self.chance.choice(NAMES)

    def tool(self, tool: str, **arguments: object) -> bool:
        result = anyio.run(self.session.call, tool, arguments)
        codes = ("CONFLICT", "FILE_NOT_FOUND", "INVALID_PATH", "IS_A_DIRECTORY", "NOT_A_DIRECTORY")
        assert result.error is None or result.error.code in codes, result.error
        return result.success

    def write(self) -> None:
        """A file written by one name is the same file by all, with its rights and its list."""
        path, text = self.name(), f"{self.chance.random()}\n"
        before = look(self.root)
        assert self.tool("write_file", path=path, content=text)
        _, mode, acl, names = before.get(path, (b"", 0o644, False, frozenset({path})))
        expected = before | dict.fromkeys(names, (text.encode(), mode, acl, names))
        assert look(self.root) == expected

    def delete(self) -> None:
        self.tool("delete_file", path=self.name())

    def move(self) -> None:
        self.tool("move_file", **{"from": self.name(), "to": self.name(), "overwrite": True})

    def command(self) -> None:
        with self.session.recording("command"):
            for _ in range(self.chance.randrange(1, 4)):
                self.spoil()

    def spoil(self) -> None:
        one, other = self.root / self.name(), self.root / self.name()
        what = self.chance.choice(["link", "append", "chmod", "list", "unlist", "delete", "copy"])
        other.parent.mkdir(parents=True, exist_ok=True)
        if not one.exists():
            one.parent.mkdir(parents=True, exist_ok=True)
            one.write_text(f"made {self.chance.random()}\n")
        elif what == "link" and one != other:
            other.unlink(missing_ok=True)
            os.link(one, other)
        elif what == "append":
            with one.open("a") as file:
                file.write("appended\n")
        elif what == "chmod" and acl_entries(one) is None:
            one.chmod(self.chance.choice([0o600, 0o644, 0o755]))
        elif what == "list":
            os.setxattr(one, ACL, acl_bytes(*self.chance.choice(LISTS)))
        elif what == "unlist" and acl_entries(one) is not None:
            mode = rights(one)
            os.removexattr(one, ACL)
            one.chmod(mode)
        elif what == "delete":
            one.unlink()
        elif what == "copy" and one != other:
            other.unlink(missing_ok=True)
            other.write_bytes(one.read_bytes())

    def undo(self) -> None:
        with_plan = self.chance.choice([self.workspace.plan_undo, self.workspace.plan_redo])
        try:
            plan = with_plan()
        except NotFound:
            return
        if not (plan.blocked or plan.is_empty):
            self.workspace.carry_out(plan)

    def rollback(self) -> None:
        point, wanted = self.chance.choice(self.points)
        plan = self.workspace.plan_rollback(point, outside=True)
        assert plan.blocked == ()
        lists = {path for path, entry in look(self.root).items() if entry[2]}
        if not plan.is_empty:
            self.workspace.carry_out(plan)
        found = look(self.root)
        assert without_lists(found) == without_lists(wanted)
        gone = {path for path, entry in wanted.items() if entry[2] and not found[path][2]}
        assert gone == {note.path for note in plan.inexact}, "what does not come back is named"
        assert all(entry[2] <= (wanted[path][2]) for path, entry in found.items()), lists

    def step(self) -> None:
        tools: list[Callable[[], None]] = [self.write, self.delete, self.move, self.undo]
        act = self.chance.choice([*tools, self.command, self.command, self.rollback])
        self.log.append(act.__name__)
        act()
        self.check()
        self.points.append((self.workspace.log.head(), look(self.root)))

    def check(self) -> None:
        """The log says of every file what the system says."""
        names: dict[int, set[str]] = {}
        tree = self.workspace.attachment.stored.tables.tree()
        for path, state in tree.items():
            if state.group is not None:
                names.setdefault(state.group, set()).add(path)
        said = {
            path: (
                self.workspace.blobs.get(state.blob),
                state.mode,
                state.acl,
                frozenset({path} if state.group is None else names[state.group]),
            )
            for path, state in tree.items()
            if state.blob
        }
        assert said == look(self.root)
        assert self.workspace.leftovers() == []


@pytest.mark.parametrize("n", some(range(6), 2))
def test_every_tree_is_brought_back_with_its_modes_lists_and_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: str, n: int
) -> None:
    play(tmp_path, monkeypatch, f"{seed}-{n}", STEPS)


@pytest.mark.deep
@pytest.mark.timeout(3600)
def test_every_tree_of_long_histories_is_brought_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: str
) -> None:
    for n in range(60):
        play(tmp_path / str(n), monkeypatch, f"{seed}-long-{n}", 60)


@pytest.mark.parametrize("kept", ["a", "d/b", None])
def test_names_that_become_one_file_again_have_the_list_that_one_of_them_still_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: str | None
) -> None:
    root = tmp_path / "root"
    (root / "d").mkdir(parents=True)
    needs_acl(root)
    monkeypatch.setenv("LOOM_AUDIT_HOME", str(tmp_path / "home"))
    one, other = root / "a", root / "d" / "b"
    one.write_text("first\n")
    os.setxattr(one, ACL, acl_bytes(*LISTS[0]))
    os.link(one, other)
    with open_store() as store:
        workspace = store.attach(root)
        point, wanted = workspace.log.head(), look(root)
        with workspace.session("player") as session, session.recording("divide"):
            for path in (one, other):
                path.unlink()
                path.write_text(f"second of {path.name}\n")
                if path == root / (kept or ""):
                    os.setxattr(path, ACL, acl_bytes(*LISTS[0]))
        plan = workspace.plan_rollback(point)
        workspace.carry_out(plan)
        assert without_lists(look(root)) == without_lists(wanted)
        listed = {path for path, entry in look(root).items() if entry[2]}
        assert listed == ({"a", "d/b"} if kept else set())
        assert {note.path for note in plan.inexact} == {"a", "d/b"} - listed
        assert (workspace.status().drift, workspace.verify().findings) == ((), ())


def test_a_file_moved_over_another_comes_back_with_its_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "root"
    root.mkdir()
    needs_acl(root)
    monkeypatch.setenv("LOOM_AUDIT_HOME", str(tmp_path / "home"))
    (root / "one").write_text("first\n")
    (root / "other").write_text("second\n")
    os.setxattr(root / "one", ACL, acl_bytes(*LISTS[0]))
    with open_store() as store:
        workspace = store.attach(root)
        wanted = look(root)
        with workspace.session("player") as session:
            anyio.run(session.call, "move_file", {"from": "one", "to": "other", "overwrite": True})
        plan = workspace.plan_undo()
        workspace.carry_out(plan)
        assert (look(root), plan.inexact) == (wanted, ())
        assert (workspace.status().drift, workspace.verify().findings) == ((), ())


def play(folder: Path, monkeypatch: pytest.MonkeyPatch, seed: str, steps: int) -> None:
    root = folder / "root"
    (root / "d" / "e").mkdir(parents=True)
    needs_acl(root)
    (root / "a").write_text("first\n")
    os.link(root / "a", root / "d" / "b")
    (root / "d" / "c").write_text("second\n")
    os.setxattr(root / "d" / "c", ACL, acl_bytes(*LISTS[0]))
    monkeypatch.setenv("LOOM_AUDIT_HOME", str(folder / "home"))
    with open_store() as store:
        workspace = store.attach(root)
        with workspace.session("player") as session:
            player = Player(workspace, session, random.Random(seed).randrange(2**32))
            try:
                for _ in range(steps):
                    player.step()
            except BaseException as error:
                error.add_note(f"seed {seed}: {player.log}")
                raise
        assert workspace.verify().findings == ()
