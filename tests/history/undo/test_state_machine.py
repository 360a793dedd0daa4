"""A state machine over a real store and a real directory, against a plain list of past trees.

The oracle knows nothing of events: it keeps what `os` saw before and after every step and says
per path what taking a step back must give.
"""

import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from loom_audit import AuditError, Session
from loom_audit.api.face import AuditStore
from loom_audit.config import Settings
from loom_audit.wiring.adapters import open_adapters
from tests.given.examples import examples
from tests.oracles.trees import Entry, differences, tree_of

Snapshot = dict[bytes, Entry]

PATHS = st.sampled_from(["a", "b", "d/c", "d/e", "d/f/g", "h"])
WORDS = st.sampled_from([b"", b"x\n", b"yy\n", b"\x00\xff\n", b"zzz no newline"])


@dataclass
class Step:
    """A call as the oracle sees it."""

    number: int
    kind: str
    before: Snapshot
    after: Snapshot
    takes: "list[Step]" = field(default_factory=list)

    @property
    def changed(self) -> bool:
        return self.before != self.after


class Machine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="machine-"))
        self.root = self.folder / "ws"
        self.root.mkdir()
        self.steps: list[Step] = []
        self.points: list[tuple[int, Snapshot]] = []
        self.outside_since: list[int] = []
        self.looked_after: list[int] = []
        self.unseen = 0

    def teardown(self) -> None:
        self.session.__exit__(None, None, None)
        self.store.close()
        shutil.rmtree(self.folder)

    @initialize()
    def attach(self) -> None:
        (self.root / "a").write_bytes(b"first\n")
        (self.root / "d").mkdir()
        self.open()

    def open(self) -> None:
        home = self.folder / "home"
        chosen = Settings(
            f"sqlite:///{home / 'audit.db'}", home, self.folder / "heads", home / "config"
        )
        self.store = AuditStore(open_adapters(settings=chosen))
        self.workspace = self.store.attach(self.root)
        self.session: Session = self.workspace.session("machine")
        self.session.__enter__()
        self.mark()

    def mark(self, *, looked: bool = False) -> None:
        if looked:
            self.looked_after += [self.workspace.log.head()] * self.unseen
            self.unseen = 0
        self.points.append((self.workspace.log.head(), tree_of(self.root)))

    # --- what agents and people do ------------------------------------------------------------

    def call(self, tool: str, **arguments: Any) -> None:
        before = tree_of(self.root)
        result = anyio.run(lambda: self.session.call(tool, arguments))
        after = tree_of(self.root)
        if not result.success and tool != "shell_execute":
            assert after == before, (tool, arguments, result.error, differences(before, after))
        self.steps.append(Step(self.workspace.log.head(), tool, before, after))
        self.mark(looked=tool == "shell_execute")

    @rule(path=PATHS, content=WORDS)
    def write(self, path: str, content: bytes) -> None:
        self.call(
            "write_file", path=path, content=content.decode("latin-1") if content.isascii() else "é"
        )

    @rule(path=PATHS, new=st.sampled_from(["p", "q\n", ""]))
    def edit(self, path: str, new: str) -> None:
        self.call("edit_file", path=path, old_str="x", new_str=new)

    @rule(path=st.one_of(PATHS, st.sampled_from(["d", "d/f"])))
    def delete(self, path: str) -> None:
        self.call("delete_file", path=path, recursive=True)

    @rule(source=st.one_of(PATHS, st.just("d")), to=st.one_of(PATHS, st.just("k")))
    def move(self, source: str, to: str) -> None:
        self.call("move_file", **{"from": source, "to": to, "overwrite": True})

    @rule(
        command=st.sampled_from(
            [
                "echo shell > a",
                "rm -rf d",
                "mkdir -p d/f && echo deep > d/f/g",
                "chmod 755 a 2>/dev/null",
                "ln -sf a h",
                "mv d k 2>/dev/null; true",
                "mkdir -p empty/er",
                "rm -f a && mkdir a && echo in > a/in",
                "printf 'x\\n' > b; exit 3",
                "true",
            ]
        )
    )
    def shell(self, command: str) -> None:
        self.call("shell_execute", command=command)

    @rule(path=PATHS, content=st.sampled_from([b"outside 1\n", b"outside 2\n"]))
    def outside_edit(self, path: str, content: bytes) -> None:
        target = self.root / path
        if target.parent.is_dir() and not target.is_dir() and not target.is_symlink():
            target.write_bytes(content)
            self.outside_since.append(self.workspace.log.head())
            self.unseen += 1

    @rule()
    def reopen(self) -> None:
        self.session.__exit__(None, None, None)
        self.store.close()
        self.open()

    # --- taking back --------------------------------------------------------------------------

    def take_back(self, verb: str, steps: list[Step], plan: Any) -> None:
        """Carry the plan out and compare with what the oracle says, newest step first."""
        now = tree_of(self.root)
        expected, clash = now, False
        for step in reversed(steps):
            expected, clashes = taken_back(step, expected)
            clash = clash or clashes or self.moved_on(step)
        if plan.blocked:
            assert clash, (verb, plan.blocked)
            with pytest.raises(AuditError):
                self.workspace.carry_out(plan)
            assert tree_of(self.root) == now
            return
        self.workspace.carry_out(plan)
        after = tree_of(self.root)
        if not clash:
            assert after == expected, differences(after, expected)
        self.steps.append(Step(self.workspace.log.head(), verb, now, after, steps))
        self.mark(looked=True)

    def moved_on(self, step: Step) -> bool:
        """Whether a later step that still stands, or somebody outside, touched the same paths.

        Then the answer depends on what is the same file as what, and only its safety is asked.
        """
        mine = changed_paths(step)
        gone = self.undone()
        later = [s for s in self.steps if s.number > step.number and s.number not in gone]
        others = [
            s
            for s in later
            if s.kind not in ("undo", "redo") or any(t.number < step.number for t in s.takes)
        ]
        return any(mine & changed_paths(s) for s in others) or any(
            seq >= step.number for seq in self.outside_since
        )

    def undone(self) -> set[int]:
        """The numbers of the steps that a later one, which itself stands, has taken back."""
        gone: set[int] = set()
        for step in reversed(self.steps):
            if step.number not in gone:
                gone |= {taken.number for taken in step.takes}
        return gone

    def matters(self, takes: list[Step]) -> bool:
        """Whether other calls stand when these are taken back than do now."""
        own = {step.number for step in self.steps if not step.takes}
        now = self.undone()
        self.steps.append(Step(self.workspace.log.head() + 1, "", {}, {}, takes))
        then = self.undone()
        self.steps.pop()
        return own & now != own & then

    def newest(self, *, redo: bool) -> Step | None:
        gone = self.undone()
        for step in reversed(self.steps):
            wanted = step.kind == "undo" if redo else step.kind not in ("undo", "redo")
            if wanted and step.number not in gone and (redo or step.changed or step.takes):
                return step
        return None

    @precondition(lambda self: self.newest(redo=False) is not None)
    @rule()
    def undo(self) -> None:
        newest = self.newest(redo=False)
        assert newest
        self.take_back("undo", [newest], self.workspace.plan_undo())

    @precondition(lambda self: self.newest(redo=True) is not None)
    @rule()
    def redo(self) -> None:
        newest = self.newest(redo=True)
        assert newest
        self.take_back("redo", [newest], self.workspace.plan_redo())

    @rule(back=st.integers(0, 6))
    def rollback(self, back: int) -> None:
        point, wanted = self.points[max(0, len(self.points) - 1 - back)]
        # An outside edit is on record from the next look on, which may be after the point.
        strangers = self.unseen > 0 or any(seq >= point for seq in self.looked_after)
        now = tree_of(self.root)
        plan = self.workspace.plan_rollback(point, outside=True)
        assert not plan.blocked
        takes = [
            step for step in self.steps if step.number > point and (step.changed or step.takes)
        ]
        takes = takes if self.matters(takes) else []
        if plan.is_empty:
            assert not takes, "what stands is taken back, also where nothing is to be written"
        else:
            self.workspace.carry_out(plan)
        after = tree_of(self.root)
        if not strangers:
            assert after == wanted, differences(after, wanted)
        if plan.is_empty:
            return
        self.steps.append(Step(self.workspace.log.head(), "rollback", now, after, takes))
        self.mark(looked=True)

    # --- what must always hold ----------------------------------------------------------------

    @invariant()
    def the_log_is_whole(self) -> None:
        if self.points:
            head = self.workspace.log.head()
            seqs = [event.seq for event in self.workspace.log.read()]
            assert seqs == list(range(1, head + 1))

    @precondition(lambda self: len(self.points) > 2)
    @rule(n=st.integers(0, 100))
    def a_past_tree_is_as_it_was(self, n: int) -> None:
        point, wanted = self.points[n % len(self.points)]
        if any(seq >= self.points[0][0] for seq in self.outside_since):
            return
        target = self.folder / "replayed"
        shutil.rmtree(target, ignore_errors=True)
        self.workspace.replay(point, target)
        got = tree_of(target)
        assert got == wanted, differences(got, wanted)


def changed_paths(step: Step) -> set[bytes]:
    both = step.before.keys() | step.after.keys()
    return {path for path in both if step.before.get(path) != step.after.get(path)}


def taken_back(step: Step, now: Snapshot) -> tuple[Snapshot, bool]:
    """The tree without one step's changes, and whether some path has moved on since."""
    result, clash = dict(now), False
    for path in step.before.keys() | step.after.keys():
        before, after = step.before.get(path), step.after.get(path)
        if before == after or now.get(path) == before:
            continue
        if now.get(path) != after:
            clash = True
            continue
        if before is None:
            del result[path]
        else:
            result[path] = before
    folders = {p for p in result if b"/" in p and p.rpartition(b"/")[0] not in result}
    return result, clash or bool(folders)


TestMachine = Machine.TestCase
TestMachine.settings = settings(
    examples(2, 9),
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
)
