"""Which backend a command gets, and what happens when one does not do what it should."""

import os
import threading
from pathlib import Path

import pytest
from msgspec.structs import replace

from loom_audit.errors import ExecutionFailed, InvalidArguments
from loom_audit.ports import Command, CommandResult, Confinement, Moments
from loom_audit.sandbox import (
    BACKENDS,
    ConfiningRunner,
    bubblewrap,
    confining_runner,
    landlock,
    open_runner,
    probe,
)
from loom_audit.sandbox.bubblewrap import BubblewrapRunner
from loom_audit.sandbox.landlock import LandlockRunner
from loom_audit.sandbox.plain import LaunchOptions, PlainRunner, supervise
from tests.sandbox.backends import working


class Pretended:
    """A backend that works or not, and counts how often it is asked."""

    def __init__(self, name: str, flaw: str = "", later: str = "") -> None:
        self.name, self.flaw, self.later, self.asked = name, flaw, later, 0

    def run(self, root: str, command: Command, _: Moments = Moments()) -> CommandResult:
        self.asked += 1
        if self.flaw or (self.later and self.asked > 1):
            raise ExecutionFailed(self.flaw or self.later)
        return CommandResult(0, b"", b"", 0, 0, False, 1, sandbox=self.name)


def run(runner: ConfiningRunner, confinement: Confinement, folder: Path) -> CommandResult:
    return runner.run(str(folder), Command(("touch", "ran"), confinement=confinement))


@pytest.mark.parametrize("confinement", ["required", "preferred"])
def test_the_first_backend_that_works_is_taken(tmp_path: Path, confinement: Confinement) -> None:
    bad, good, other = Pretended("a", "broken"), Pretended("b"), Pretended("c")
    runner = ConfiningRunner(PlainRunner, lambda: [bad, good, other])
    assert run(runner, confinement, tmp_path).sandbox == "b" == runner.name
    assert other.asked == 0
    assert not (tmp_path / "ran").exists()


def test_every_backend_is_probed_once_though_many_ask_at_once(tmp_path: Path) -> None:
    bad, good = Pretended("a", "broken"), Pretended("b")
    runner = ConfiningRunner(PlainRunner, lambda: [bad, good])
    threads = [threading.Thread(target=run, args=(runner, "preferred", tmp_path)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (bad.asked, good.asked) == (1, 9)


def test_preferred_and_not_to_be_had_runs_and_says_why(tmp_path: Path) -> None:
    runner = ConfiningRunner(
        PlainRunner, lambda: [Pretended("a", "broken"), Pretended("b", "too old")]
    )
    done = run(runner, "preferred", tmp_path)
    assert (done.sandbox, done.unconfined) == ("plain", "a: broken; b: too old")
    assert (tmp_path / "ran").exists() and runner.name == "plain"


def test_required_and_not_to_be_had_runs_nothing(tmp_path: Path) -> None:
    begun: list[bool] = []
    runner = ConfiningRunner(PlainRunner, lambda: [Pretended("a", "broken")])
    command = Command(("touch", "ran"), confinement="required")
    with pytest.raises(ExecutionFailed) as caught:
        runner.run(str(tmp_path), command, Moments(lambda: begun.append(True)))
    assert "a: broken" in caught.value.message and "doctor" in caught.value.hint
    assert (list(tmp_path.iterdir()), begun) == ([], [])


def test_one_that_worked_and_fails_is_an_error_and_no_reason_for_less(tmp_path: Path) -> None:
    """Else an agent could choose the backend by what it does to the workspace."""
    runner = ConfiningRunner(PlainRunner, lambda: [Pretended("a", later="no more"), Pretended("b")])
    with pytest.raises(ExecutionFailed, match="no more"):
        run(runner, "preferred", tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_landlock_is_not_enough_for_root_where_confinement_is_required(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = ConfiningRunner(PlainRunner, lambda: [Pretended("landlock")])
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert run(runner, "preferred", tmp_path).sandbox == "landlock"
    with pytest.raises(ExecutionFailed, match="modes and owners"):
        run(runner, "required", tmp_path)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert run(runner, "required", tmp_path).sandbox == "landlock"


def test_not_confined_is_not_probed(tmp_path: Path) -> None:
    backend = Pretended("a")
    assert run(ConfiningRunner(PlainRunner, lambda: [backend]), "off", tmp_path).sandbox == "plain"
    assert backend.asked == 0


def test_the_probe_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert len([*confining_runner().backends()]) == 2
    assert list(tmp_path.iterdir()) == []


def test_a_bwrap_that_does_not_start_the_command_is_said_in_its_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "bwrap"
    program.write_text("#!/bin/sh\necho 'bwrap: Creating new namespace failed' >&2\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setattr(bubblewrap, "PROGRAMS", str(tmp_path))
    with pytest.raises(ExecutionFailed, match="Creating new namespace failed"):
        BubblewrapRunner().run(str(tmp_path), Command(("true",)))


def test_a_bwrap_in_the_workspace_is_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A project's environment on PATH is in reach of the agent."""
    program = tmp_path / "bwrap"
    program.write_text(f"#!/bin/sh\ntouch {tmp_path}/escaped\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    runner = working("bubblewrap")
    assert runner.run(str(tmp_path), Command(("true",))).exit_code == 0
    assert not (tmp_path / "escaped").exists()


def test_without_bwrap_it_is_said_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bubblewrap, "PROGRAMS", str(tmp_path))
    with pytest.raises(ExecutionFailed) as caught:
        BubblewrapRunner().run(str(tmp_path), Command(("true",)))
    assert "apt-get install bubblewrap" in caught.value.hint


@pytest.mark.parametrize(
    "steps",
    ["nonsense", "limit 7 x y", "landlock 0 0 0 8", "seccomp 00", "seccomp " + "ff" * 8],
)
def test_what_cannot_be_given_up_means_that_nothing_runs(tmp_path: Path, steps: str) -> None:
    with pytest.raises(ExecutionFailed, match="could not be confined"):
        supervise(str(tmp_path), Command(("touch", "ran")), launch=LaunchOptions(steps=steps))
    assert list(tmp_path.iterdir()) == []


def test_an_older_landlock_is_asked_only_for_what_it_knows() -> None:
    """Its set of rights and the size of the structure grew with its versions."""
    asked = {v: landlock.ruleset(v, network=False).split()[1:] for v in (3, 4, 5, 6, 7)}
    assert asked[3] == [str((1 << 15) - 1), "0", "0", "8"]
    assert asked[4] == [str((1 << 15) - 1), "3", "0", "16"]
    assert asked[5] == [str((1 << 16) - 1), "3", "0", "16"]
    assert asked[6] == asked[7] == [str((1 << 16) - 1), "3", "3", "24"]
    assert landlock.ruleset(7, network=True).split()[2] == "0"


@pytest.mark.parametrize("version", [3, 4, 5, 6])
def test_what_older_landlocks_know_can_be_asked_for_here(tmp_path: Path, version: int) -> None:
    working("landlock")
    runner = LandlockRunner(newest=version)
    done = runner.run(str(tmp_path), Command(("sh", "-c", "ls / >&2; echo x > made && cat made")))
    assert (done.exit_code, done.stdout) == (0, b"x\n")
    assert b"ermission denied" in done.stderr


def test_a_landlock_that_is_too_old_or_off_is_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    working("landlock")
    monkeypatch.setattr(landlock, "OLDEST", 1000)
    with pytest.raises(ExecutionFailed, match="too old or switched off"):
        LandlockRunner().run(str(tmp_path), Command(("true",)))


def test_further_variables_are_added_to_whatever_environment_there_is(tmp_path: Path) -> None:
    command = Command(("sh", "-c", "echo $A $B $HOME"), variables={"A": "1"})
    assert PlainRunner().run(str(tmp_path), command).stdout.startswith(b"1 ")
    given = replace(command, environment={"PATH": os.defpath, "A": "0", "B": "2"})
    assert PlainRunner().run(str(tmp_path), given).stdout == b"1 2\n"


def test_an_unknown_sandbox_is_never_another_one() -> None:
    with pytest.raises(InvalidArguments) as caught:
        open_runner("bubblewrapp")
    assert caught.value.details["known"] == sorted(BACKENDS)


def test_every_backend_runs_true_here() -> None:
    for name in BACKENDS:
        runner = open_runner(name)
        assert runner.name == name
    for name in BACKENDS:
        probe(working(name))


def test_a_backend_that_cannot_run_true_is_refused() -> None:
    class Broken:
        name = "broken"

        def run(self, root: str, command: Command, _: Moments = Moments()) -> CommandResult:
            return CommandResult(1, b"", b"no user namespaces", 0, 0, False, 0)

    with pytest.raises(ExecutionFailed) as caught:
        probe(Broken())
    assert caught.value.details["stderr"] == "no user namespaces"
