"""A tape as it is played: after each call and each edit what `os` sees is kept as a step.

Nothing here reads the log but to ask which calls have ended and where the events of a step are.
"""

import functools
import hashlib
import os
import random
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from loom_audit import AuditedWorkspace
from loom_audit.model.events import CallFinished, Event, FilesChanged
from loom_audit.model.plans.planning import Plan
from loom_audit.model.scope import TEMPORARY
from loom_audit.ports import EventFilter
from loom_audit.tools.calls.settings import ToolSettings
from tests.oracles.trees import tree_of
from tests.tapes.agents import Agents
from tests.tapes.person import CACHE, LEFT_OUT, Person

State = tuple[str, int, str]
"""Kind, permission bits, SHA-256 of the content (of a symlink's target; "" for a folder)."""

FILE_TOOLS = {"write_file", "edit_file", "delete_file", "move_file"}
MARK = re.compile(rb"<[^\s<]+ \d+>\n")  # what stands before it may be binary, with a < of its own


@dataclass(frozen=True)
class Look:
    """What is on disk at one moment, and the marks of the person in it."""

    tree: dict[bytes, State]
    marks: frozenset[bytes]
    linked: frozenset[bytes]
    """Paths whose inode has more names than one."""
    hidden: frozenset[str]
    """SHA-256 of contents in folders that are left out, of which a look's tree has the names."""


def look(root: Path) -> Look:
    tree: dict[bytes, State] = {}
    marks: set[bytes] = set()
    hidden: set[str] = set()
    for path, (kind, mode, content) in tree_of(root, skip=LEFT_OUT).items():
        if path.rpartition(b"/")[2].startswith(TEMPORARY.encode()):
            continue  # a kill left it
        digest = "" if kind == "directory" else hashlib.sha256(content).hexdigest()
        tree[path] = (kind, mode, digest)
        if kind == "file":
            marks.update(MARK.findall(content))
    files = [path for path, state in tree.items() if state[0] == "file"]
    linked = {path for path in files if os.stat(os.fsencode(root) + b"/" + path).st_nlink > 1}
    for folder in left_out(root):
        if folder.name != CACHE:
            tree[os.fsencode(folder.relative_to(root))] = ("opaque", 0, "")
        inside = tree_of(folder, skip=()).values()
        hidden.update(hashlib.sha256(one[2]).hexdigest() for one in inside if one[0] == "file")
    return Look(tree, frozenset(marks), frozenset(linked), frozenset(hidden))


def left_out(root: Path) -> list[Path]:
    """The folders that are not recorded, but for those in others."""
    found = []
    for above, folders, _ in os.walk(root):
        found += [Path(above, name) for name in folders if name in LEFT_OUT]
        folders[:] = [name for name in folders if name not in LEFT_OUT]
    return found


@dataclass(frozen=True)
class Step:
    """What happened between two looks: `calls` are the numbers of those that may have done it.

    A `tool` says which paths it changes, so nothing else is looked at; a call that is `looked`
    at, and a `plan` that is carried out, leave log and disk the same; what is `shared` was done
    by several calls at once. `reverts` are the calls that a plan said it takes back as a whole.
    """

    kind: Literal["person", "tool", "looked", "shared", "plan"]
    what: str
    before: Look
    after: Look
    calls: tuple[int, ...] = ()
    reverts: tuple[int, ...] = ()

    @property
    def changed(self) -> set[bytes]:
        old, new = self.before.tree, self.after.tree
        return {path for path in old.keys() | new.keys() if old.get(path) != new.get(path)}


@dataclass(frozen=True)
class Point:
    """A place of the log at which log and disk were the same: after so many steps."""

    seq: int
    steps: int
    tree: dict[bytes, State]


@dataclass
class Tape:
    """One workspace under audit with its agents and its person; `steps` is what they did."""

    workspace: AuditedWorkspace
    agents: Agents
    person: Person
    chosen: random.Random
    releases: Sequence[Path]
    steps: list[Step] = field(default_factory=list)
    points: list[Point] = field(default_factory=list)
    marks: set[bytes] = field(default_factory=set)
    """Those on disk that the person wrote and nobody else wrote again."""

    @property
    def root(self) -> Path:
        return Path(self.workspace.root)

    def edit(self) -> None:
        """Let the person edit once."""
        before = look(self.root)
        what = self.person.edit()
        after = look(self.root)
        self.marks = (self.marks | (after.marks - before.marks)) & after.marks
        self.steps.append(Step("person", what, before, after))

    def act(self, act: Callable[[], str | None]) -> bool:
        """Let an agent act once; whether it did. What its calls record is compared with disk."""
        head, before = self.workspace.log.head(), look(self.root)
        what = act()
        if what is None:
            return False
        self.add(what, head, before)
        return True

    def add(self, what: str, head: int, before: Look, plan: Plan | None = None) -> None:
        """Keep what happened since the event `head` and the look `before` as a step."""
        after = look(self.root)
        self.marks &= after.marks
        events = [*self.workspace.log.read(EventFilter(after=head))]
        ended = [event for event in events if isinstance(event.fact, CallFinished)]
        kind = "plan" if plan else _kind(ended)
        reverts = plan.reverts if plan else ()
        effects = [event.seq for event in ended if event.fact.effect != "read"]
        step = Step(kind, what, before, after, tuple(effects), reverts)
        known = recorded(self.workspace, head)
        self.steps.append(step)
        now = recorded(self.workspace, self.workspace.log.head())
        if kind == "tool":
            check_tool(step, known, now)
            return
        assert now == after.tree, ("after", what, apart(now, after.tree))
        if kind == "looked" and before.tree != after.tree:
            own = (event.seq for event in events if _is_change_of_call(event))
            seq = next(own) - 1
            was = recorded(self.workspace, seq)
            assert was == before.tree, ("before", what, apart(was, before.tree))
            self.points.append(Point(seq, len(self.steps) - 1, before.tree))
        self.points.append(Point(self.workspace.log.head(), len(self.steps), after.tree))

    def play(self, calls: int, between: Callable[["Tape"], None] | None = None) -> None:
        """Go towards each release by so many calls, with edits before and `between` after each."""
        for earlier, release in zip(self.releases, self.releases[1:], strict=False):
            for _ in range(calls):
                for _ in range(self.chosen.choice((0, 0, 1, 1, 2))):
                    self.edit()
                if not self.act(functools.partial(self.agents.act, release, earlier)):
                    break
                if between is not None:
                    between(self)


def _kind(ended: Sequence[Event]) -> Literal["tool", "looked", "shared"]:
    facts = [event.fact for event in ended if isinstance(event.fact, CallFinished)]
    if len(facts) != 1:
        return "shared"
    return "tool" if facts[0].tool in FILE_TOOLS else "looked"


def _is_change_of_call(event: Event) -> bool:
    return isinstance(event.fact, FilesChanged) and event.fact.call_id is not None


def recorded(workspace: AuditedWorkspace, point: int) -> dict[bytes, State]:
    """The log's tree of a point in the form of a look."""
    return {
        os.fsencode(path): (
            state.kind,
            0 if state.kind == "symlink" else state.mode,
            state.blob or "",
        )
        for path, state in workspace.timeline.tree(point).items()
    }


def apart(one: dict[bytes, State], other: dict[bytes, State]) -> dict[bytes, object]:
    """The paths that differ, with both sides."""
    paths = one.keys() | other.keys()
    return {p: (one.get(p), other.get(p)) for p in paths if one.get(p) != other.get(p)}


def check_tool(step: Step, known: dict[bytes, State], now: dict[bytes, State]) -> None:
    """What it changed is on record; what else is on record is as it was, or as it is on disk."""
    disk = step.after.tree
    for path in known.keys() | now.keys() | disk.keys():
        if path in step.changed or known.get(path) == step.before.tree.get(path):
            assert now.get(path) == disk.get(path), (step.what, path, now.get(path))
        else:
            assert now.get(path) in (known.get(path), disk.get(path)), (step.what, path)


@contextmanager
def recording(
    workspace: AuditedWorkspace, chosen: random.Random, releases: Sequence[Path], name: str
) -> Iterator[Tape]:
    """A tape in a workspace that is as the first release: two sessions of ours, one of others."""
    with ExitStack() as stack:
        sessions = [
            stack.enter_context(workspace.session(f"{name}-{which}")) for which in ("a", "b")
        ]
        for session in sessions:
            session.settings = ToolSettings(readable=(str(releases[0].parent),))
        foreign = workspace.start_foreign_session("client", id=f"{name}-c", pid=os.getpid())
        stack.callback(foreign.end)
        agents = Agents(workspace, sessions, foreign, chosen)
        yield Tape(workspace, agents, Person(Path(workspace.root), chosen, name), chosen, releases)
