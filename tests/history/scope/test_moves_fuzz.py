"""Moves and deletions into the scope and out of it, compared with plain trees of every byte.

The oracle is `os` alone: before and after every plan that is carried out, all files of the
workspace are read, also those that are out of scope. Each content is written once, so that a
content stands for its file.
"""

import hashlib
import os
import random
import shutil
from pathlib import Path

import pytest

from loom_audit import AuditedWorkspace, AuditStore, Session, open_store
from loom_audit.errors import AuditError, Conflict
from loom_audit.model.files import BlobId
from loom_audit.model.plans.planning import Choice, Plan
from loom_audit.model.scope import HEAVY
from loom_audit.ports import BlobStore
from tests.given.cases import some
from tests.oracles.trees import Entry, tree_of

SCOPE = ("a", "b", "lib", "src", "x.txt", "y.txt")
BORDER = ("node_modules", "venv", ".git", "__pycache__", "out")
"""`out` is left out by the rules; so are files that end in .log."""


def is_left_out(path: str, kind: str) -> bool:
    """Whether a path is out of scope, said anew: by the names of it and of the folders above."""
    *above, name = path.split("/")
    folders = [*above, name] if kind == "directory" else above
    heavy = any(folder in HEAVY or folder == "out" for folder in folders)
    return heavy or any(one == ".git" or one.endswith(".log") for one in (*above, name))


def in_scope(tree: dict[str, Entry]) -> dict[str, Entry]:
    return {path: entry for path, entry in tree.items() if not is_left_out(path, entry[0])}


class Script:
    """Random acts in a workspace, a step of them for each number."""

    def __init__(self, root: Path, rng: random.Random) -> None:
        self.root = root
        self.rng = rng
        self.made = 0

    def content(self) -> bytes:
        self.made += 1
        return f"content {self.made} {self.rng.random()}\n".encode()

    def folders(self) -> list[Path]:
        return [Path(folder) for folder, _, _ in os.walk(self.root)]

    def paths(self) -> list[Path]:
        return [
            Path(top, name)
            for top, folders, files in os.walk(self.root)
            for name in (*folders, *files)
        ]

    def free(self) -> Path:
        """A name that is not taken, in some folder."""
        while True:
            names = self.rng.choice((SCOPE, BORDER))
            path: Path = self.rng.choice(self.folders()) / self.rng.choice((*names, "z.log"))
            if not path.exists() and len(path.relative_to(self.root).parts) < 5:
                return path

    def act(self) -> None:
        paths = self.paths()
        choice = self.rng.random()
        if choice < 0.25 or not paths:
            path = self.free()
            folders = {"a", "b", "lib", "src", *BORDER}
            if path.name in folders:
                path.mkdir()
                for name in self.rng.sample(("one", "two", "three.log"), 2):
                    (path / name).write_bytes(self.content())
            else:
                path.write_bytes(self.content())
        elif choice < 0.65:
            source, target = self.rng.choice(paths), self.free()
            if source not in (target, *target.parents):
                source.rename(target)
        elif choice < 0.8:
            path = self.rng.choice(paths)
            if path.is_file():
                path.write_bytes(self.content())
        elif choice < 0.9:
            path = self.rng.choice(paths)
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()
        else:
            path = self.rng.choice(paths)
            if path.is_dir():
                path.chmod(self.rng.choice((0o755, 0o700)))

    def look(self) -> dict[str, Entry]:
        """Every byte below the root."""
        return {os.fsdecode(path): entry for path, entry in tree_of(self.root, skip=()).items()}


def contents(tree: dict[str, Entry]) -> set[bytes]:
    return {entry[2] for entry in tree.values() if entry[0] == "file"}


class Fuzz:
    """One workspace with its store; counts what was done."""

    def __init__(self, store: AuditStore, root: Path, seed: int) -> None:
        self.rng = random.Random(seed)
        self.script = Script(root, self.rng)
        for _ in range(12):
            self.script.act()
        self.store = store
        self.workspace: AuditedWorkspace = store.attach(root, ignore="out/\n*.log\n")
        self.counts = dict.fromkeys(("acts", "plans", "carried out", "blocked", "exact"), 0)

    def run(self, session: Session, steps: int) -> None:
        points = [self.workspace.log.head()]
        for _ in range(steps):
            before = self.script.look()
            with session.recording("command"):
                for _ in range(self.rng.randint(1, 3)):
                    self.script.act()
                    self.counts["acts"] += 1
            call = self.workspace.timeline.calls()[0]
            points.append(self.workspace.log.head())
            if self.rng.random() < 0.5 and call.changed:
                self.check_exact(before)
            elif self.rng.random() < 0.5:
                if self.rng.random() < 0.5:
                    self.script.act()  # by a person
                outside = self.rng.random() < 0.5
                self.carry_out(
                    self.workspace.plan_rollback(self.rng.choice(points), outside=outside)
                )
            self.check_tree()

    def check_exact(self, before: dict[str, Entry]) -> None:
        """An undo at once gives what was there and in scope, byte for byte, or says what not."""
        after = self.script.look()
        plan = self.workspace.plan_undo()
        exact = not (plan.kept or plan.irreversible or plan.blocked or plan.inexact)
        if not self.carry_out(plan) or not exact:
            return
        assert in_scope(self.script.look()) == in_scope(before)
        self.carry_out(self.workspace.plan_redo())
        assert in_scope(self.script.look()) == in_scope(after)
        self.counts["exact"] += 1

    def carry_out(self, plan: Plan) -> bool:
        """Carry a plan out; blocked ones with what is there kept. Nothing is lost by it."""
        self.counts["plans"] += 1
        if plan.blocked:
            self.counts["blocked"] += 1
            before = self.script.look()
            with pytest.raises(Conflict):
                self.workspace.carry_out(plan)
            assert self.script.look() == before
            choices: dict[str, Choice] = {note.path: "current" for note in plan.blocked}
            request = plan.request
            assert request is not None
            if plan.verb == "rollback":
                [target] = request.targets
                plan = self.workspace.plan_rollback(
                    target, outside=request.outside, choices=choices
                )
            else:
                plan = self.workspace.plan_undo(choices=choices)
            if plan.blocked:
                return False
        if plan.is_empty:
            return False
        before = self.script.look()
        try:
            self.workspace.carry_out(plan)
        except AuditError:
            self.check_lost(before)
            raise
        self.check_lost(before)
        self.counts["carried out"] += 1
        return True

    def check_lost(self, before: dict[str, Entry]) -> None:
        """What was there is there, or on record; what is out of scope is there, but for what came
        back into the scope with its folder, and was taken back there.
        """
        after = self.script.look()
        gone = contents(before) - contents(after)
        lost = {c for c in gone if BlobId(hashlib.sha256(c).hexdigest()) not in self.blobs}
        assert lost == set()
        call = self.workspace.timeline.calls()[0]
        folders = tuple(
            f"{one.change.path}/"
            for one in self.workspace.timeline.projections.changes(calls=[call.requested])
            if one.change.before and one.change.before.kind == "opaque" and not one.change.after
        )
        out = {
            entry[2]
            for path, entry in before.items()
            if entry[0] == "file" and is_left_out(path, entry[0]) and not path.startswith(folders)
        }
        assert out <= contents(after)

    @property
    def blobs(self) -> BlobStore:
        return self.workspace.timeline.blobs

    def check_tree(self) -> None:
        """The log's tree is what is on disk and in scope."""
        with self.workspace.session("look") as session, session.recording("look"):
            pass
        tree = self.workspace.timeline.tree()
        disk = set(in_scope(self.script.look()))
        assert {path for path, state in tree.items() if state.kind != "opaque"} == disk
        for path, state in tree.items():
            if state.kind == "file":
                content = (self.script.root / path).read_bytes()
                assert hashlib.sha256(content).hexdigest() == state.blob, path
        assert self.workspace.status().drift == ()


@pytest.fixture
def place(tmp_path: Path, home: Path) -> Path:
    """An empty folder; `home` is where the store is."""
    (tmp_path / "w").mkdir()
    return tmp_path / "w"


def fuzz(root: Path, seed: int, steps: int) -> dict[str, int]:
    with open_store() as store:
        run = Fuzz(store, root, seed)
        with run.workspace.session("fuzz") as session:
            run.run(session, steps)
        assert run.workspace.verify().ok
        return run.counts


@pytest.mark.parametrize("seed", some(range(6), 1))
def test_nothing_is_lost_by_moves_in_and_out_of_the_scope(place: Path, seed: int) -> None:
    counts = fuzz(place, seed, 12)
    assert counts["carried out"], counts


@pytest.mark.deep
@pytest.mark.parametrize("seed", range(1000, 1060))
def test_nothing_is_lost_by_moves_in_and_out_of_the_scope_in_long_runs(
    place: Path, seed: int
) -> None:
    counts = fuzz(place, seed, 60)
    assert counts["carried out"] and counts["exact"], counts
