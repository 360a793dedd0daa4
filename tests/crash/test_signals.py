"""Signals at random moments of every verb: what was recorded is whole, and recorded once.

At chosen moments, the commits, they come in test_signals_at_every_commit.py.
"""

import contextlib
import functools
import io
import os
import random
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from loom_audit import AuditedWorkspace, open_store, verify_alone
from loom_audit.errors import AuditError
from loom_audit.model.events import CallFinished, CallRequested
from tests.crash.programs.asked import SERVED, Asked
from tests.crash.programs.faults import check_finishes, check_fold, wait_for, working_in
from tests.oracles.changes import check_each_change_once
from tests.oracles.trees import Entry, tree_of
from tests.processes.forked import Forked
from tests.processes.stopped import die_after

FILES = 12
ROUNDS = 10
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
KILLED = 0.15
"""How often it is killed right away."""

TWICE = 0.15
"""How often a second signal follows, which kills when it comes within a step."""

CHANGE = "for n in 0 1 2 3 4 5; do echo run >> f$n; done; rm f6; mkdir made; echo x > made/x"
CLAUDE = Path(__file__).parent.parent / "data" / "clients" / "claude-code" / "session.jsonl"

VERBS: dict[str, tuple[str, Sequence[str]]] = {
    "run": ("changed", ("run", "--", "sh", "-c", CHANGE)),
    "run, slowly": ("changed", ("run", "--", "sh", "-c", f"sleep 0.1; {CHANGE}; sleep 0.1")),
    "write": ("changed", ("call", "write_file", "path=f1", "content=written")),
    "write new": ("changed", ("call", "write_file", "path=deep/er/new", "content=written")),
    "edit": ("changed", ("call", "edit_file", "path=f1", "old_str=more", "new_str=edited")),
    "delete": ("changed", ("call", "delete_file", "path=d", "recursive=true")),
    "move": ("changed", ("call", "move_file", "from=d", "to=e")),
    "shell": ("changed", ("call", "shell_execute", f"command={CHANGE}")),
    "read": ("changed", ("call", "read_file", "path=f1")),
    "undo": ("changed", ("undo", "--yes")),
    "redo": ("undone", ("redo", "--yes")),
    "revert": ("changed", ("revert", "{call}", "--yes")),
    "rollback": ("changed", ("rollback", "@start", "--yes")),
    "rollback, with what came from outside": (
        "changed",
        ("rollback", "@start", "--yes", "--outside"),
    ),
    "continue": ("stopped", ("recover", "--continue")),
    "abandon": ("stopped", ("recover", "--abandon")),
    "recover": ("killed", ("recover",)),
    "scope accept": ("changed", ("scope", "accept")),
    "checkpoint": ("changed", ("checkpoint", "here")),
    "init": ("changed", ("init", "{other}")),
    "import": ("changed", ("import", str(CLAUDE))),
    "replay": ("changed", ("replay", "@start", "--to", "{into}")),
    "rebuild": ("changed", ("db", "rebuild")),
    "verify": ("changed", ("verify",)),
    "status": ("changed", ("status",)),
}
CASES = [(verb, n) for n in range(7) for verb in (*VERBS, *SERVED)]
"""Of 10 signals each: 2,170."""
PERSONS = {"f10", ".loomignore"}
"""What a person wrote outside of any call."""


class Place:
    """A store and a workspace in several states, brought back for each signal."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.home, self.root, self.other = folder / "home", folder / "root", folder / "other"
        self.into = folder / "into"
        self._kept = folder / "kept"
        self._seconds: dict[str, float] = {}
        patch.setenv("LOOM_AUDIT_HOME", str(self.home))
        for root in (self.root, self.other):
            root.mkdir()
            (root / "d" / "e").mkdir(parents=True)
            (root / "d" / "e" / "f").write_text("deep\n")
            for n in range(FILES):
                (root / f"f{n}").write_text(f"old {n}\n" * 200)
        self.first = tree_of(self.root)
        with open_store() as store:
            workspace = store.attach(self.root)
            workspace.checkpoint("start")
            with workspace.session("earlier") as session:
                words = "for n in 0 1 2 3 4 5 6 7; do echo more >> f$n; done; rm f9; echo y > y"
                session.run(["sh", "-c", words])
        (self.root / "f10").write_text("by a person\n")
        (self.root / ".loomignore").write_text("f11\n")
        self._keep("changed")
        self._prepare("undone", lambda one: one.carry_out(one.plan_undo()))
        self._prepare("stopped", _roll_back_to_start, killed=True)
        self._prepare("killed", _run, killed=True)

    def _prepare(
        self, state: str, act: Callable[[AuditedWorkspace], object], *, killed: bool = False
    ) -> None:
        self.bring_back("changed")
        pid = os.fork()
        if pid == 0:
            try:
                if killed:
                    die_after(4)
                with open_store() as store:
                    act(store.workspace(self.root))
                os._exit(0)
            finally:
                os._exit(1)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        assert status == (-signal.SIGKILL if killed else 0)
        wait_for("the end of the commands", lambda: not working_in(self.root))
        self._keep(state)

    def _keep(self, state: str) -> None:
        (self.home / "audit.db.ballast").unlink(missing_ok=True)
        for part in (self.home, self.root, self.other):
            shutil.copytree(part, self._kept / state / part.name, symlinks=True)

    def bring_back(self, state: str) -> None:
        wait_for("the end of what was begun", lambda: not working_in(self.root))
        shutil.rmtree(self.into, ignore_errors=True)
        for part in (self.home, self.root, self.other):
            shutil.rmtree(part)
            shutil.copytree(self._kept / state / part.name, part, symlinks=True)

    def begin(self, verb: str) -> Forked:
        kept = {k: v for k, v in os.environ.items() if not k.startswith("COV_")}
        environment = kept | {"LC_ALL": "C.UTF-8"}
        if verb in SERVED:
            state, serve = SERVED[verb]
            self.bring_back(state)
            served = serve(cwd=self.root, env=environment, data=self.home)
            served.begin()
            return served
        state, words = VERBS[verb]
        self.bring_back(state)
        named = {"other": self.other, "into": self.into, "call": self.call}
        arguments = [word.format(**named) if word[0] == "{" else word for word in words]
        return Forked(arguments, cwd=self.root, env=environment)

    @functools.cached_property
    def call(self) -> int:
        """The number of the call that changed files."""
        with open_store() as store:
            return store.workspace(self.root).timeline.calls()[-1].seq or 0

    def seconds(self, verb: str) -> float:
        """How long it takes when nothing comes in between."""
        if verb not in self._seconds:
            self._seconds[verb] = min(self._time(verb) for _ in range(2))  # one may have to load
        return self._seconds[verb]

    def _time(self, verb: str) -> float:
        process = self.begin(verb)
        began = time.monotonic()
        if isinstance(process, Asked):
            process.answered.wait()
        else:
            code = process.wait()
            assert code in (0, 3, 7), (verb, code, process.printed())
        seconds = time.monotonic() - began
        process.wait()
        return seconds


def _roll_back_to_start(workspace: AuditedWorkspace) -> None:
    workspace.carry_out(workspace.plan_rollback("@start"))


def _run(workspace: AuditedWorkspace) -> None:
    with workspace.session("agent") as session:
        session.run(["sh", "-c", f"{CHANGE}; kill -9 {os.getpid()}; sleep 100"])


@pytest.fixture(scope="module")
def _place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with pytest.MonkeyPatch.context() as patch:
        yield Place(tmp_path_factory.mktemp("signals"), patch)


@pytest.fixture
def place(_place: Place, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.setenv("LOOM_AUDIT_HOME", str(_place.home))
    return _place


@pytest.mark.deep
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("verb", "n"), CASES)
def test_a_signal_at_any_moment_leaves_one_finish_and_each_change_once(
    place: Place, verb: str, n: int, seed: str
) -> None:
    chosen = random.Random(f"{seed} {verb} {n}")
    ends: Counter[int] = Counter()
    sent: Counter[signal.Signals] = Counter()
    for _ in range(ROUNDS):
        told = interrupt(place, verb, chosen, ends, sent)
        try:
            check(place, chosen)
        except BaseException as error:
            error.add_note(f"{verb}: {told}")
            raise
    signals = {one.name: n for one, n in sent.items()}
    sys.stdout.write(f"{verb}: {signals}, ended by {dict(ends)}\n")


def interrupt(
    place: Place,
    verb: str,
    chosen: random.Random,
    ends: Counter[int],
    sent: Counter[signal.Signals],
) -> str:
    """Send one signal, or two, at random moments of a verb; which they were."""
    whole = place.seconds(verb)
    numbers = chosen.choices(SIGNALS, k=1 + (chosen.random() < TWICE))
    if chosen.random() < KILLED:
        numbers = [signal.SIGKILL]
    first = chosen.random() * whole
    process = place.begin(verb)
    told: list[str] = []
    for number in numbers:
        wait = first if not told else chosen.random() * 0.05 * whole
        time.sleep(wait)  # the moment is what is chosen
        process.kill(number)
        told.append(f"{number.name} after {wait:.4f} s")
    code = process.wait()
    ends[code] += 1
    sent.update(numbers)
    wait_for("the end of the commands", lambda: not working_in(place.root))
    if isinstance(process, Asked):
        process.check()
    out, errors = process.printed()
    # before we answer signals, and when Python ends, it says itself that it was interrupted
    said = out + errors
    expected = {0, 3, 7, -signal.SIGINT, *(-n for n in numbers), *(128 + n for n in numbers)}
    assert code in expected, (verb, told, code, said)
    assert b"Traceback" not in said or b"KeyboardInterrupt" in said, (verb, told, said)
    return ", ".join(told)


def check(place: Place, chosen: random.Random) -> None:
    """After recovery, which leaves or finishes what was killed, all is whole and on record."""
    with open_store() as store:
        for entry in store.workspaces():
            workspace = store.workspace(entry.id)
            if entry.root.startswith("import:"):
                assert workspace.verify().exit_code in (0, 3)
                continue
            store.attach(entry.root)  # as far as the first listing did not come
            check_explained(workspace)
            if any(one.waiting for one in workspace.recover()):
                decide(workspace, chosen)
            check_finishes(workspace)
            check_each_change_once([*workspace.log.read()])
            assert workspace.timeline.open_calls() == [] and workspace.recover() == []
            assert workspace.leftovers() == []
            with workspace.session("next") as session:
                session.run(["true"])
            assert workspace.status().drift == ()
            if not workspace.scope.ignore:
                check_fold(workspace, tree_of(workspace.root))
            found = workspace.verify()
            # a second signal kills also who makes a log, which is empty then
            left = [one for one in found.findings if one.code != "log.empty"]
            assert found.exit_code in (0, 3) and not left, left
            if Path(entry.root) == place.root:
                check_taken_back(workspace, place.first)
                assert workspace.verify().exit_code in (0, 3)
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        code = verify_alone.main([str(place.home / "audit.db")])
    assert code == 0, said.getvalue()


def check_explained(workspace: AuditedWorkspace) -> None:
    """What differs from the log is the person's, or of a call that is named as open."""
    found = workspace.status()
    ours = {change.path for change in found.drift} - PERSONS
    assert not ours or any(call.effect == "execute" for call in found.open_calls), ours


def check_taken_back(workspace: AuditedWorkspace, first: dict[bytes, Entry]) -> None:
    """All of it can be taken back, to the byte, and brought back."""
    now = tree_of(Path(workspace.root))
    plan = workspace.plan_rollback("@start", outside=True)
    if plan.is_empty:
        assert now == first
        return
    done = workspace.carry_out(plan)
    assert done.call.status == "ok" and tree_of(Path(workspace.root)) == first
    again = workspace.plan_undo(session=done.call.session)
    assert workspace.carry_out(again).call.status == "ok"
    assert tree_of(Path(workspace.root)) == now and workspace.status().drift == ()


def decide(workspace: AuditedWorkspace, chosen: random.Random) -> None:
    """Finish what waits, or leave it, as a person would; left where it cannot be finished."""
    if chosen.random() < 0.5:
        with contextlib.suppress(AuditError):
            workspace.recover("continue")
            return
    workspace.recover("abandon")


@pytest.mark.deep
def test_a_single_signal_leaves_no_undo_to_be_decided_about(place: Place, seed: str) -> None:
    """Its step is carried through, and its process ends the call."""
    chosen = random.Random(f"{seed} once")
    for verb in ("undo", "rollback", "revert"):
        for _ in range(4):
            seconds = place.seconds(verb)  # before the signalled one begins: it brings back, too
            process = place.begin(verb)
            time.sleep(chosen.random() * seconds)
            process.kill(chosen.choice(SIGNALS))
            process.wait()
            with open_store() as store:
                workspace = store.workspace(place.root)
                events = [one.fact for one in workspace.log.read()]
                asked = [one.call_id for one in events if isinstance(one, CallRequested)]
                ended = [one.call_id for one in events if isinstance(one, CallFinished)]
                assert asked == ended, verb
                assert workspace.timeline.open_sessions() == []
