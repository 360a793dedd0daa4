"""Agents that write on while a rollback holds them, against a plain account of the disk.

The account watches the disk between any two system calls of ours. It knows what everybody wrote,
what they wrote over themselves, and so which of it we displaced.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from loom_audit import AuditedWorkspace, Conflict, open_store
from loom_audit.api.control import holding
from loom_audit.model.events import ContentFound
from loom_audit.model.files import FileState
from tests.given.examples import examples
from tests.oracles.changes import check_each_change_once
from tests.places.made_store import lay_store

AGENTS = ("a", "b", "made", "d/x")
PERSONS = ("mine", "a")
START = {"a": b"a at the point\n", "b": b"b at the point\n"}
CALLS = (
    "open",
    "fsync",
    "stat",
    "lstat",
    "fstat",
    "unlink",
    "rename",
    "mkdir",
    "rmdir",
    "write",
    "pread",
    "close",
    "link",
    "fchmod",
    "scandir",
    "readlink",
)
"""Functions of `os` before each of which somebody may act: nearly every step of ours is one."""

Act = tuple[str, str]
"""Who does what (`writes`, `replaces`, `deletes`), and to which path."""

agent = st.tuples(st.sampled_from(["writes", "replaces", "deletes"]), st.sampled_from(AGENTS))
person = st.tuples(st.just("person"), st.sampled_from(PERSONS))
later = st.lists(st.tuples(st.integers(0, 200), agent), max_size=5)


@dataclass
class Account:
    """What is at each path as the writers left it, and what of theirs was taken from there."""

    root: Path
    there: dict[str, bytes | None] = field(default_factory=dict)
    displaced: set[bytes] = field(default_factory=set)
    names: Iterator[int] = field(default_factory=count)

    def disk(self, path: str) -> bytes | None:
        with suppress(FileNotFoundError, NotADirectoryError):
            return (self.root / path).read_bytes()
        return None

    def look(self) -> None:
        """Whatever is not as the writers left it was changed by us."""
        for path in {*AGENTS, *PERSONS}:
            now, was = self.disk(path), self.there.get(path)
            if now != was:
                self.displaced |= {was} if was else set()
                self.there[path] = now

    def act(self, act: Act) -> None:
        """Let somebody act, in one system call where the system has one for it."""
        self.look()
        what, path = act
        file = self.root / path
        file.parent.mkdir(exist_ok=True)
        content: bytes | None = f"{what} {path} {next(self.names)}\n".encode()
        if what == "deletes":
            content = None
            file.unlink(missing_ok=True)
        elif what == "writes":
            file.write_bytes(content or b"")
        else:
            other = self.root.parent / "beside"
            other.write_bytes(content or b"")
            other.replace(file)
        self.there[path] = content


@contextmanager
def acting(due: list[tuple[int, Act]], account: Account) -> Iterator[None]:
    """Within the block the acts happen, each so many system calls of ours after the one before."""
    left = [[gap, act] for gap, act in due]
    busy = False

    def tick() -> None:
        nonlocal busy
        if busy or not left:
            return
        busy = True
        left[0][0] -= 1  # type: ignore[operator]
        while left and left[0][0] <= 0:  # type: ignore[operator]
            account.act(left.pop(0)[1])  # type: ignore[arg-type]
        busy = False

    def ticking(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any, **named: Any) -> Any:
            tick()
            return function(*given, **named)

        return call

    with pytest.MonkeyPatch.context() as patch:
        for name in CALLS:
            patch.setattr(os, name, ticking(getattr(os, name)))
        yield
    for _, act in left:
        account.act(act)  # type: ignore[arg-type]


def go_back(workspace: AuditedWorkspace, point: int) -> bool:
    """Whether it was done; else agents wrote faster than plans are made, or a choice is needed."""
    try:
        holding.carry_out(workspace, workspace.plan_rollback(point, running=True))
    except Conflict:
        return False
    return True


def states(workspace: AuditedWorkspace) -> Iterator[FileState]:
    """All that is on record of any file."""
    for one in workspace.attachment.stored.tables.changes():
        yield from filter(None, (one.change.before, one.change.after))
    for event in workspace.log.read():
        if isinstance(event.fact, ContentFound):
            yield event.fact.state


def contents(workspace: AuditedWorkspace) -> dict[str, bytes]:
    """What the log says is in each file now."""
    tree = workspace.timeline.tree()
    return {path: workspace.blobs.get(one.blob) for path, one in tree.items() if one.blob}


def owners(workspace: AuditedWorkspace, path: str) -> set[str]:
    """The calls that may have made the last change of a path."""
    [*_, last] = workspace.attachment.stored.tables.changes(paths=[path])
    calls = workspace.attachment.stored.tables
    return {calls.call_at(seq).call_id for seq in last.causes or (last.requested or 0,) if seq}


@examples(3, 25)
@given(
    st.lists(person, max_size=2),
    st.lists(agent, max_size=4),
    later,
    st.lists(agent, max_size=3),
    st.sampled_from([("c1",), ("c1", "c2")]),
)
@example([("person", "mine")], [("writes", "a")], [(0, ("writes", "a"))], [], ("c1",))
@example([], [("deletes", "a")], [(120, ("writes", "a"))], [("writes", "made")], ("c1", "c2"))
@example([("person", "a")], [("writes", "a")], [(40, ("deletes", "a"))], [], ("c1",))
def test_nothing_is_lost_and_what_agents_write_later_is_a_later_change_of_theirs(
    edits: list[Act],
    before: list[Act],
    during: list[tuple[int, Act]],
    after: list[Act],
    calls: tuple[str, ...],
) -> None:
    with TemporaryDirectory() as folder:
        root = Path(folder) / "root"
        root.mkdir()
        for path, content in START.items():
            (root / path).write_bytes(content)
        lay_store(Path(folder) / "home")
        account = Account(root)
        with open_store(f"sqlite:///{folder}/home/audit.db") as store:
            workspace = store.attach(root)
            session = workspace.start_foreign_session("client", id="s")
            point = workspace.log.head()
            account.look()
            for edit in edits:
                account.act(edit)
            for call in calls:
                session.begin_call(call, "Bash", {})
            persons = {edit[1]: account.disk(edit[1]) for edit in edits}
            for act in before:
                account.act(act)
            with acting(during, account):
                holding.hold_all(workspace, "back")
                gone_back = go_back(workspace, point)
            account.look()
            alone = {*AGENTS} - {*persons} - {path for _, (_, path) in during}
            for path in alone if gone_back else ():
                assert account.there.get(path) == START.get(path), "as it was at the point"
            recorded = contents(workspace)
            for act in after:
                account.act(act)
            for call in calls:
                session.end_call(call)
            account.look()
            check(workspace, account, persons, recorded, {*calls})


def check(
    workspace: AuditedWorkspace,
    account: Account,
    persons: dict[str, bytes | None],
    recorded: dict[str, bytes],
    calls: set[str],
) -> None:
    assert workspace.timeline.hold("s") is not None
    known = {workspace.blobs.get(one.blob) for one in states(workspace) if one.blob}
    assert account.displaced <= known, "what we displaced is on record"
    there = {path: content for path, content in account.there.items() if content is not None}
    assert {*there.values()} <= known, "what is on disk is on record"
    if "mine" in persons:
        assert there["mine"] == persons["mine"], "an agent never touched it"
    for path, content in account.there.items():
        by_agent = content is not None and content.startswith((b"writes", b"replaces"))
        if by_agent or content != recorded.get(path):
            assert owners(workspace, path) == calls, path
    assert workspace.status().drift == ()
    assert [*workspace.leftovers()] == []
    check_each_change_once(workspace.log.read())
    assert workspace.verify().findings == ()
