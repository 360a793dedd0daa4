"""Random steps of agents, a person and plans, held to plain trees of the disk.

As an ordinary user, whom modes forbid something, and as whoever runs the tests.

The oracle is a list of trees as `os` saw them; it knows nothing of events.
"""

import random
import stat
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from types import MappingProxyType

import pytest

from loom_audit import AuditedWorkspace, Session
from loom_audit.errors import AuditError, NotFound
from loom_audit.model.plans.planning import Plan
from tests.given.cases import some
from tests.processes.ordinary_user import ordinary_session

Entry = tuple[str, int, bytes]
Tree = dict[str, Entry]

STEPS, DEEP_STEPS, DEEP_RUNS = 40, 200, 100
MOST_STEPS = 5 * DEEP_STEPS
ENOUGH = {"carried out": 20, "exact": 1, "singly": 4}
"""What a long run has to have come to."""

PATHS = ("a", "b", "d", "d/a", "d/e", "d/e/a", "k", "k/a")
LEFT_OUT = (".git", "venv", "node_modules")
TEXTS = ("one\n", "two\n", "one\n", "1\n2\n3\n4\n5\n", "1\n2\n3\n4\n6\n")


def is_left_out(path: str, ignored: bool) -> bool:
    parts = path.split("/")
    return any(part in LEFT_OUT or (ignored and part == "k") for part in parts)


def look(root: Path) -> Tree:
    """Every path below a folder; what cannot be read has no content, and no inside."""
    found: Tree = {}

    def enter(folder: Path) -> None:
        for path in folder.iterdir():
            name, seen = str(path.relative_to(root)), path.lstat()
            mode = stat.S_IMODE(seen.st_mode)
            if stat.S_ISDIR(seen.st_mode):
                found[name] = ("directory", mode, b"")
                with suppress(PermissionError):
                    enter(path)
            else:
                try:
                    found[name] = ("file", mode, path.read_bytes())
                except PermissionError:
                    found[name] = ("closed", mode, b"")

    enter(root)
    return found


class Run:
    """One workspace; `points` are those at which nothing on disk was unrecorded or closed."""

    def __init__(self, session: Session, seed: int) -> None:
        self.session = session
        self.workspace: AuditedWorkspace = session.workspace
        self.root = Path(session.workspace.root)
        self.chance = random.Random(seed)
        self.ignored = False
        self.points: list[tuple[int, Tree]] = []
        self.counts: Counter[str] = Counter()

    def go(self, steps: int, until: Mapping[str, int]) -> None:
        """So many steps, and more where too little came of them, each time from plain files on."""
        for n in range(max(steps, MOST_STEPS)):
            if n >= steps and all(self.counts[what] >= least for what, least in until.items()):
                return
            if n and n % steps == 0:
                self.begin_anew()
            step = self.chance.choices(
                [
                    self.call,
                    self.person,
                    self.undo,
                    self.revert,
                    self.roll_back,
                    self.scope,
                    self.chain,
                ],
                [10, 2, 4, 3, 3, 0.5, 1],
            )[0]
            self.counts[step.__name__] += 1
            step()
            self.check()

    def begin_anew(self) -> None:
        """What cannot be read, or was kept by every plan, is gone, and nothing is unknown.

        What was untracked is so until it is recorded again, also where it is gone.
        """
        self.root.chmod(0o755)
        unseen = self.workspace.timeline.unseen(self.workspace.log.head())
        for path in (path for path in unseen if not is_left_out(path, self.ignored)):
            again = f"chmod -R u+rwX .; rm -rf {path.split('/')[0]}; mkdir -p $(dirname {path})"
            with self.session.recording("command"):
                shell = ["sh", "-p", "-c", f"{again}; echo seen > {path}"]
                subprocess.run(shell, cwd=self.root, check=True)
        command = f"chmod -R u+rwX .; rm -rf -- * {' '.join(LEFT_OUT)}; mkdir -p d .git venv/in"
        files = "echo one > a; echo two > d/a; echo ref > .git/HEAD; echo x > venv/in/x"
        with self.session.recording("command"):
            subprocess.run(["sh", "-p", "-c", f"{command}; {files}"], cwd=self.root, check=True)
        self.points.clear()
        self.check()

    # --- what agents and a person do ------------------------------------------------------

    def call(self) -> None:
        with self.session.recording("command"):
            for _ in range(self.chance.randint(1, 2)):
                self.act()

    def person(self) -> None:
        self.act()
        self.points.clear()  # what they did stays unless it is chosen: no plain tree says that

    def act(self) -> None:
        chance = self.chance
        one, other = chance.sample(PATHS, 2)
        out = chance.choice(LEFT_OUT)
        command = chance.choice(
            [
                f"mkdir -p $(dirname {one}); printf '{chance.choice(TEXTS)}' > {one}",
                f"mkdir -p {one}; printf '{chance.choice(TEXTS)}' > {one}/a",
                f"rm -rf {one}; mkdir {one} && echo in > {one}/a",
                f"rm -rf {one}; echo file > {one}",
                f"mv -f {one} {other}",
                f"cp -p {one} {other}; mv -f {one} {other}",
                f"mkdir -p {out}/in; echo {chance.random()} > {out}/in/x; echo y > {out}/HEAD",
                f"[ -e {one} ] || mv {out} {one}",
                f"[ -e {one} ] || {{ mv {out} {one}; mv {one} {other}-2; }}",
                f"[ -e {out} ] || mv {one}-2 {out}; mv {other}-2 {one}-3",
                f"[ -e {out} ] || [ ! -d {one} ] || mv {one} {out}",
                f"chmod {chance.choice(['000', '755', '700', '644'])} {one}",
                f"[ ! -d {one} ] || chmod {chance.choice(['555', '500', '311', '444'])} {one}",
                f"d=$(dirname {one}); chmod u+rwx $d; echo {chance.random()} > {one}; chmod 555 $d",
                f"chmod u+rwx d; rm -rf {one}; mkdir -p d/e; echo in > d/e/a; chmod 555 d/e d",
                "chmod -R u+rwX .",
                "chmod -R u+rwX .",
            ]
        )
        subprocess.run(["sh", "-p", "-c", command], cwd=self.root, capture_output=True, check=False)

    def scope(self) -> None:
        self.ignored = not self.ignored
        self.root.chmod(0o755)
        (self.root / ".loomignore").write_text("k\n" if self.ignored else "\n")
        self.workspace.accept_scope()
        self.points.clear()

    # --- plans ----------------------------------------------------------------------------

    def undo(self) -> None:
        for make in self.chance.choice(
            [
                [self.workspace.plan_undo],
                [self.workspace.plan_redo],
                [self.workspace.plan_undo, self.workspace.plan_undo],
                [self.workspace.plan_undo, self.workspace.plan_redo],
            ]
        ):
            with suppress(NotFound):
                self.carry_out(make())

    def chain(self) -> None:
        """A left-out folder is moved more than once, and taken back and brought again singly."""
        out = next((name for name in LEFT_OUT if (self.root / name).is_dir()), "")
        names = [f"c{n}" for n in range(4) if not (self.root / f"c{n}").exists()]
        self.root.chmod(0o755)
        if not out or len(names) < 2:
            return
        closed = any(
            kind == "closed" or not bits & 0o500 for kind, bits, _ in look(self.root).values()
        )
        edits = [
            "true",
            "echo edited > {0}/HEAD",
            "mkdir -p {0}/n; echo new > {0}/n/x",
            "rm -f {0}/HEAD",
        ]
        trees, there = [look(self.root)], out
        for name in self.chance.sample(names, self.chance.randint(2, len(names))):
            for command in (f"mv {there} {name}", self.chance.choice(edits).format(name)):
                with self.session.recording("command"):
                    subprocess.run(["sh", "-p", "-c", command], cwd=self.root, check=False)
                if look(self.root) != trees[-1]:
                    trees.append(look(self.root))
            there = name
        back, far = [*reversed(trees[:-1])], self.chance.randint(1, len(trees) - 1)
        for make, wanted in (
            (self.workspace.plan_undo, back[:far]),
            (self.workspace.plan_redo, trees[len(trees) - far :]),
            (self.workspace.plan_undo, back),
        ):
            for tree in wanted:
                plan = make()
                # on a busy machine it may not be known what a command left running
                unsaid = [one for one in plan.irreversible if "not settled" not in one.reason]
                assert closed or not (plan.blocked or unsaid), plan
                if not self.carry_out(plan) or plan.kept:  # a person's file stays in the folder
                    return
                assert look(self.root) == tree, plan
                self.counts["singly"] += 1

    def revert(self) -> None:
        calls = [call.seq for call in self.workspace.timeline.calls() if call.seq]
        if calls:
            some = calls[:1] if self.chance.random() < 0.5 else [self.chance.choice(calls)]
            self.carry_out(self.workspace.plan_revert(some))

    def roll_back(self) -> None:
        if not self.points:
            return
        point, wanted = self.chance.choice(self.points)
        plan = self.workspace.plan_rollback(point, outside=True)
        now = look(self.root)
        closed = any(kind == "closed" or not bits & 0o500 for kind, bits, _ in now.values())
        if self.carry_out(plan) and not closed:
            unsaid = plan.kept or plan.irreversible or plan.inexact
            if not unsaid:
                self.counts["exact"] += 1
                assert self.in_scope(look(self.root)) == self.in_scope(wanted), plan
            again = self.workspace.plan_rollback(point, outside=True)
            assert not again.changes or unsaid, again
            self.counts["empty"] += again.is_empty

    def carry_out(self, plan: Plan) -> bool:
        """Carry a plan out, and hold it to the paths that it names."""
        before = look(self.root)
        if plan.is_empty or plan.blocked:
            self.counts["blocked" if plan.blocked else "empty"] += 1
            return plan.is_empty and not plan.blocked
        try:
            self.workspace.carry_out(plan)
        except AuditError as error:
            self.counts[f"refused: {error.code}"] += 1
            return False
        after = look(self.root)
        named = {change.path for change in plan.changes}
        opaque = {
            c.path for c in plan.changes for s in (c.before, c.after) if s and s.kind == "opaque"
        }
        for path in before.keys() | after.keys():
            if before.get(path) != after.get(path) and path not in named:
                above = {path[:n] for n, letter in enumerate(path) if letter == "/"}
                hidden = any(
                    not tree[one][1] & 0o500
                    for tree in (before, after)
                    for one in above
                    if one in tree
                )
                assert above & (opaque | named) or hidden, f"{path} is not in {plan}"
        self.counts["carried out"] += 1
        return True

    # --- what must always hold ------------------------------------------------------------

    def in_scope(self, tree: Tree) -> Tree:
        return {path: one for path, one in tree.items() if not is_left_out(path, self.ignored)}

    def check(self) -> None:
        """The tree of the log is that of the disk, as far as it can be read."""
        with self.session.recording("look"):
            pass
        disk, tree = look(self.root), self.workspace.timeline.tree()
        mine = {path: state for path, state in tree.items() if state.kind != "opaque"}
        seen = {p: e for p, e in self.in_scope(disk).items() if e[0] != "closed"}
        lost = self.workspace.timeline.unseen(self.workspace.log.head()).keys()
        for path in mine.keys() - seen.keys():
            # a mode alone is known of what was read before it was closed
            assert disk[path][:2] == ("closed", mine[path].mode), (path, disk.get(path))
        for path in seen.keys() - mine.keys():
            assert any(path == one or path.startswith(one + "/") for one in lost), path
        for path in seen.keys() & mine.keys():
            kind, bits, content = seen[path]
            assert (mine[path].kind, mine[path].mode) == (kind, bits), path
            if kind == "file":
                assert mine[path].blob == sha256(content).hexdigest(), path
        if not lost and not any(kind == "closed" for kind, _, _ in disk.values()):
            self.points.append((self.workspace.log.head(), disk))


def play(
    seed: int,
    steps: int,
    monkeypatch: pytest.MonkeyPatch,
    *,
    ordinary: bool = True,
    until: Mapping[str, int] = MappingProxyType({}),
) -> Counter[str]:
    files = {"a": "one\n", "b": "one\n", "d/a": "two\n", ".git/HEAD": "ref\n", "venv/in/x": "x\n"}
    with ordinary_session(files, monkeypatch, ordinary=ordinary) as session:
        run = Run(session, seed)
        try:
            run.go(steps, until)
        except BaseException as error:
            given = f"{seed}, {steps}, monkeypatch, ordinary={ordinary}, until={dict(until)}"
            error.add_note(f"to see it again: play({given})")
            raise
        return run.counts


@pytest.mark.parametrize("seed", some(range(4), 1))
def test_every_tree_is_a_plain_tree(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = play(seed, STEPS, monkeypatch, ordinary=seed % 4 > 0)
    assert counts["carried out"], counts


@pytest.mark.deep
@pytest.mark.parametrize("seed", range(5000, 5000 + DEEP_RUNS))
def test_every_tree_is_a_plain_tree_in_20_000_steps(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Steps are added until some rollback was exact, which by chance none is in the first ones."""
    counts = play(seed, DEEP_STEPS, monkeypatch, ordinary=seed % 4 > 0, until=ENOUGH)
    sys.stdout.write(f"{seed}: {dict(sorted(counts.items()))}\n")
    assert all(counts[what] >= least for what, least in ENOUGH.items()), counts
