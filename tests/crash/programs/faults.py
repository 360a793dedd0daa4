"""Faults at named system calls of one thread, by strace, and what must hold after each.

strace counts a fault's occurrences per thread and per system call, so the thread that does the
work is attached alone, when it is about to begin, and each system call is counted by itself.
"""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest

from loom_audit import AuditedWorkspace, open_store
from loom_audit.history.check.verification import verify
from loom_audit.model.events import (
    CallFinished,
    CallRequested,
    ChangeIntended,
    FilesChanged,
    TreeHead,
)
from loom_audit.model.files import BlobId
from loom_audit.model.scope import TEMPORARY
from loom_audit.sql.evidence.evidence import open_evidence
from tests.oracles.trees import Entry, differences, tree_of

ROOT = Path(__file__).parents[3]
Stage = Literal["open", "call"]
Tree = dict[bytes, Entry]
STAGES: Mapping[str, Sequence[Stage]] = {
    "write": ("open", "call"),
    "writes": ("call",),
    "shell": ("call",),
    "rollback": ("open",),
    "attach": ("open",),
}
"""`open` follows the thread that opens, closes and does what is not a tool call; `call` the
thread in which tools work."""

SYSCALLS = (
    "pwrite64",
    "fdatasync",
    "fsync",
    "ftruncate",
    "openat",
    "openat2",
    "renameat2",
    "rename",
    "renameat",
    "linkat",
    "unlink",
    "unlinkat",
    "rmdir",
    "mkdir",
    "mkdirat",
    "symlinkat",
    "fchmod",
    "chmod",
    "fchmodat",
    "syncfs",
    "write",
    "fallocate",
    "flock",
)
PATIENCE = 60.0


def needs_strace() -> None:
    if sys.platform != "linux" or not shutil.which("strace"):
        pytest.skip("needs strace: apt-get install strace")


def lines(path: Path) -> list[dict[str, Any]]:
    """What a child reported, its last line left out when it is cut short."""
    if not path.exists():
        return []
    whole = path.read_bytes().rpartition(b"\n")[0]
    return [json.loads(line) for line in whole.splitlines()]


def wait_for(what: str, found: Any) -> Any:
    """The first true value of `found`, which must come in time."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        value = found()
        if value:
            return value
        time.sleep(0.002)
    raise AssertionError(f"nothing came in {PATIENCE:g} s: {what}")


class Stem:
    """A process that has everything loaded and forks the children that are killed."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._errors = (folder / "stem-errors").open("wb")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.crash.programs.child", str(folder)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )
        ready = self._read()
        assert ready == "ready", (folder / "stem-errors").read_text()

    def _read(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def begin(self, **order: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()

    def end(self) -> int:
        """How the child ended: its exit code, negative for a signal."""
        return int(json.loads(self._read())["status"])

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(PATIENCE)
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._errors.close()


@dataclass(frozen=True, slots=True)
class Point:
    """One fault: which thread of which scenario, at which occurrence of which system call."""

    scenario: str
    stage: Stage
    syscall: str
    nth: int
    fault: str = "signal=KILL"
    for_ever: bool = False

    @property
    def injection(self) -> str:
        return f"inject={self.syscall}:{self.fault}:when={self.nth}{'+' * self.for_ever}"

    def __str__(self) -> str:
        return f"{self.scenario}/{self.stage}: {self.injection}"


@dataclass(slots=True)
class Ended:
    """What is known of a child that has ended."""

    status: int
    said: list[dict[str, Any]]
    trace: str

    @property
    def hit(self) -> bool:
        return "(INJECTED)" in self.trace or "+++ killed by SIGKILL" in self.trace

    @property
    def acks(self) -> list[dict[str, Any]]:
        return [line for line in self.said if "ack" in line]

    @property
    def calls(self) -> list[dict[str, Any]]:
        return [line for line in self.acks if not line.get("tool", "(").startswith("(")]


@dataclass(slots=True)
class Arena:
    """A store and a workspace in a known state, which can be brought back again and again."""

    folder: Path
    stem: Stem
    prepared: dict[str, Tree] = field(default_factory=dict)
    outcomes: dict[str, Tree] = field(default_factory=dict)
    retried: Counter[str] = field(default_factory=Counter)
    """How often in the run that was counted last a system call found a lock held, and was made
    again: another run has as many more or less as the threads happen to meet."""

    @property
    def home(self) -> Path:
        return self.folder / "home"

    @property
    def root(self) -> Path:
        return self.folder / "root"

    def prepare(self, scenario: str) -> Tree:
        """Bring the state before a scenario back; the tree of its workspace."""
        kept = self.folder / f"kept-{scenario}"
        if scenario not in self.prepared:
            self._make(scenario)
            shutil.rmtree(kept, ignore_errors=True)
            kept.mkdir()
            (self.home / "audit.db.ballast").unlink(missing_ok=True)
            for part in (self.home, self.root):
                shutil.copytree(part, kept / part.name, symlinks=True)
            self.prepared[scenario] = tree_of(self.root)
        for part in (self.home, self.root):
            shutil.rmtree(part, ignore_errors=True)
            shutil.copytree(kept / part.name, part, symlinks=True)
        return self.prepared[scenario]

    def _make(self, scenario: str) -> None:
        for part in (self.home, self.root):
            shutil.rmtree(part, ignore_errors=True)
        self.home.mkdir(mode=0o700)
        fill(self.root, 300 if scenario == "attach" else 60)
        if scenario == "attach":
            return
        with open_store() as store:
            workspace = store.attach(self.root)
            workspace.checkpoint("start")
            if scenario == "rollback":
                with workspace.session("earlier") as session, session.recording("work"):
                    spoil(self.root)

    def run(self, point: Point | None, scenario: str, stage: Stage) -> Ended:
        """Run the scenario in a child with the fault, or with none and only counting."""
        report, go, trace = (self.folder / name for name in ("report", "go", "trace"))
        for path in (report, go, trace):
            path.unlink(missing_ok=True)
        self.stem.begin(
            scenario=scenario,
            home=str(self.home),
            root=str(self.root),
            report=str(report),
            hold=stage,
            go=str(go),
        )
        held = wait_for(
            f"{scenario} at {stage}", lambda: [line for line in lines(report) if "hold" in line]
        )
        with attached(held[0]["thread"], point, trace):
            go.touch()
            status = self.stem.end()
        wait_for("the end of the commands", lambda: not working_in(self.root))
        return Ended(status, lines(report), trace.read_text("utf-8", "replace"))

    def outcome(self, scenario: str) -> Tree:
        """The tree that a run without faults leaves; `count` makes one."""
        return self.outcomes[scenario]

    def count(self, scenario: str, stage: Stage) -> dict[str, list[int]]:
        """Which occurrences of each system call, from 1, are about the store or the workspace."""
        self.prepare(scenario)
        ended = self.run(None, scenario, stage)
        assert ended.status == 0, ended.said
        self.outcomes[scenario] = tree_of(self.root)
        found: dict[str, list[int]] = {name: [] for name in SYSCALLS}
        seen: Counter[str] = Counter()
        self.retried.clear()
        for name, words in re.findall(r"^(\w+)\((.*)", ended.trace, re.M):
            seen[name] += 1
            self.retried[name] += " = -1 EAGAIN " in words
            absolute = re.match(r'(?:AT_FDCWD, )?"(/[^"]*)', words)
            foreign = absolute and not absolute[1].startswith(str(self.folder))
            if not foreign and not words.startswith(self._reports):
                found[name].append(seen[name])
        return found

    @property
    def _reports(self) -> tuple[str, ...]:
        """How a line of the child's own report begins, as strace shows it."""
        return tuple(f'{fd}, "{{\\"' for fd in range(3, 12))


@contextmanager
def attached(thread: int, point: Point | None, trace: Path) -> Iterator[None]:
    """strace on one thread, in place when the block begins."""
    which = point.syscall if point else ",".join(SYSCALLS)
    command = ["strace", "-o", str(trace), "-e", f"trace={which}", "-p", str(thread)]
    if point:
        command[1:1] = ["-e", point.injection]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        said = process.stderr.readline()
        if "Operation not permitted" in said:
            process.wait(PATIENCE)
            right = "only root can" if os.geteuid() else "needs the right to"
            pytest.skip(f"{right} trace a process of one's own: {said.strip()}")
        assert "attached" in said, said
        yield
        process.wait(PATIENCE)
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


def working_in(root: Path) -> list[str]:
    """Processes whose working directory is in the workspace."""
    found = []
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            try:
                if os.readlink(f"/proc/{entry.name}/cwd").startswith(str(root)):
                    found.append(entry.name)
            except OSError:
                continue
    return found


def fill(root: Path, count: int) -> None:
    """A workspace of that many files, and what the scenarios change."""
    (root / "many").mkdir(parents=True)
    (root / "emptied").mkdir()
    (root / "emptied" / "file").write_bytes(b"in a folder\n")
    (root / "old.txt").write_bytes(b"old\n" * 3000)
    for n in range(count):
        (root / "many" / f"{n}.txt").write_bytes(b"old %d\n" % n * 20)


def spoil(root: Path) -> None:
    """What the rollback takes back: 50 paths changed, made, deleted, moved, chmod-ed."""
    for n in range(40):
        (root / "many" / f"{n}.txt").write_bytes(b"later %d\n" % n * 30)
    for n in range(40, 45):
        (root / "many" / f"{n}.txt").unlink()
    (root / "many" / "45.txt").chmod(0o755)
    (root / "made").mkdir()
    (root / "made" / "new").write_bytes(b"new\n")
    (root / "made" / "link").symlink_to("../old.txt")
    shutil.rmtree(root / "emptied")


# --- what must hold -----------------------------------------------------------------------


def naive_root(leaves: Sequence[bytes]) -> bytes:
    """RFC 9162 §2.1.1, as it stands there."""
    if not leaves:
        return hashlib.sha256().digest()
    if len(leaves) == 1:
        return leaves[0]
    half = 1
    while half * 2 < len(leaves):
        half *= 2
    parts = naive_root(leaves[:half]) + naive_root(leaves[half:])
    return hashlib.sha256(b"\x01" + parts).digest()


def check_log(workspace: AuditedWorkspace, acks: Sequence[Mapping[str, Any]]) -> None:
    """Gapless, every acknowledged event there and byte-equal, everything verified."""
    with workspace.adapters.database.connections.reading() as connection:
        rows = connection.execute(
            "SELECT e.seq, e.leaf_hash FROM event e JOIN log l ON l.number = e.log "
            "WHERE l.id = ? ORDER BY e.seq",
            (workspace.id,),
        ).fetchall()
    assert [seq for seq, _ in rows] == list(range(1, len(rows) + 1))
    leaves = [leaf for _, leaf in rows]
    for ack in acks:
        assert ack["ack"] <= len(leaves), f"acknowledged {ack['ack']}, there are {len(leaves)}"
        assert naive_root(leaves[: ack["ack"]]).hex() == ack["root"]
    heads = [TreeHead(workspace.id, ack["ack"], bytes.fromhex(ack["root"])) for ack in acks]
    evidence = open_evidence(workspace.adapters.database, workspace.id)
    try:
        checked = verify(evidence, heads=[*heads, *workspace.adapters.kept_heads(workspace.id)])
    finally:
        evidence.close()
    assert checked.ok, checked.findings
    assert checked.size == len(leaves)
    assert checked.root == naive_root(leaves)


def without_leftovers(workspace: AuditedWorkspace, tree: Tree) -> Tree:
    """The tree without our temporaries, each of which must be listed as a leftover."""
    mark = TEMPORARY.encode()
    ours = {path for path in tree if path.rpartition(b"/")[2].startswith(mark)}
    listed = {os.fsencode(path) for path in workspace.attachment.on_disk.workspace.leftovers()}
    assert ours == listed
    return {path: entry for path, entry in tree.items() if path not in ours}


def remove_leftovers(workspace: AuditedWorkspace) -> None:
    """Delete our temporaries, as a person would whom `doctor` tells of them."""
    for path in workspace.attachment.on_disk.workspace.leftovers():
        left = Path(workspace.root, path)
        if left.is_dir() and not left.is_symlink():
            left.rmdir()
        else:
            left.unlink()


def check_files(before: Tree, after: Tree, now: Tree) -> None:
    """Every path as it was or as it was to be, nothing between."""
    for path in before.keys() | after.keys() | now.keys():
        assert now.get(path) in (before.get(path), after.get(path)), path


def check_prior(workspace: AuditedWorkspace, before: Tree, now: Tree) -> None:
    """What was at every changed path is in the store."""
    for path, was in before.items():
        if was != now.get(path) and was[0] != "directory":
            blob = BlobId(hashlib.sha256(was[2]).hexdigest())
            assert workspace.blobs.get(blob) == was[2], path


def check_intended(workspace: AuditedWorkspace, before: Tree, now: Tree) -> None:
    """Nothing changed on disk that no intention or running command was on record for."""
    changed = {os.fsdecode(path) for path in differences(before, now)}
    meant: set[str] = set()
    for event in workspace.log.read():
        if isinstance(event.fact, ChangeIntended):
            meant |= {change.path for change in event.fact.changes}
        if isinstance(event.fact, CallRequested) and event.fact.effect == "execute":
            return
    assert changed <= meant, changed - meant


def check_finishes(workspace: AuditedWorkspace, *, waiting: bool = False) -> None:
    """Exactly one finish for every request."""
    requested: Counter[tuple[str, str]] = Counter()
    finished: Counter[tuple[str, str]] = Counter()
    for event in workspace.log.read():
        if isinstance(event.fact, CallRequested):
            requested[event.session, event.fact.call_id] += 1
        if isinstance(event.fact, CallFinished):
            finished[event.session, event.fact.call_id] += 1
    if not waiting:
        assert requested == finished
    assert set(finished.values()) <= {1} and set(requested.values()) <= {1}


def check_fold(workspace: AuditedWorkspace, now: Tree) -> None:
    """The log's tree, folded from its events the plain way, is what is on disk."""
    tree: dict[str, tuple[str, int, str | None]] = {}
    for event in workspace.log.read():
        if isinstance(event.fact, FilesChanged):
            for change in event.fact.changes:
                if change.after is None:
                    tree.pop(change.path, None)
                else:
                    after = change.after
                    mode = 0 if after.kind == "symlink" else after.mode
                    tree[change.path] = (after.kind, mode, after.blob)
    found = {
        os.fsdecode(path): (
            kind,
            mode,
            None if kind == "directory" else hashlib.sha256(content).hexdigest(),
        )
        for path, (kind, mode, content) in now.items()
    }
    assert found == tree
