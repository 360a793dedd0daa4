"""Tapes of a project while a person writes as fast as they can, and tapes that are killed.

A person who writes into one file during rollbacks is in test_races.py, kills at chosen moments in
test_kill_at_every_commit.py.
"""

import os
import random
import shutil
import signal
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import pytest

from loom_audit import AuditedWorkspace, AuditError, Conflict, open_store
from loom_audit.model.files import BlobId
from loom_audit.model.plans.planning import Choice, Plan
from loom_audit.model.scope import TEMPORARY
from tests.crash.programs.beside import other
from tests.crash.programs.faults import Stem, check_finishes, check_log, lines, wait_for, working_in
from tests.oracles.trees import Entry, tree_of
from tests.tapes.agents import by_block
from tests.tapes.plans import take_back_something
from tests.tapes.releases import PROJECTS, unpack_releases
from tests.tapes.tape import MARK, Tape, look, recording

pytestmark = pytest.mark.timeout(3600)

MOST = 4
"""How often the kills that are wanted are repeated until enough met something open."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """With a data folder of its own."""
    monkeypatch.setenv("LOOM_AUDIT_HOME", str(tmp_path / "home"))
    return tmp_path


def laid(folder: Path, project: str) -> list[Path]:
    """A project under audit in the folder, and its releases."""
    releases = unpack_releases(project, folder / "releases")
    shutil.copytree(releases[0], folder / "root", symlinks=True)
    with open_store() as store:
        store.attach(folder / "root")
    return releases


# --- a person who writes during rollbacks -------------------------------------------------------


@pytest.mark.deep
def test_what_a_person_writes_during_rollbacks_is_never_lost(folder: Path, seed: str) -> None:
    write_during_rollbacks(folder, "tomli", 60, seed)


@pytest.mark.deep
@pytest.mark.parametrize("project", PROJECTS)
def test_many_writes_of_a_person_during_rollbacks_are_never_lost(
    folder: Path, project: str, seed: str
) -> None:
    write_during_rollbacks(folder, project, 1500, seed)


def write_during_rollbacks(folder: Path, project: str, writes: int, seed: str) -> None:
    """Roll back to and fro until the person has written so often, then look for all of it."""
    releases = laid(folder, project)
    chosen = random.Random(f"{seed} {project}")
    ended: Counter[str] = Counter()
    with open_store() as store:
        workspace = store.workspace(folder / "root")
        with recording(workspace, chosen, releases, "tape") as tape:
            tape.play(4)
            with other("editing", workspace) as said:
                report = folder / "said"
                while report.read_bytes().count(b"\n") < writes:
                    ended[roll_back(tape)] += 1
        assert ended["ok"] and {*ended} <= {"ok", "CONFLICT"}, ended
        kept = marks_on_disk_and_in_store(workspace)
        kept |= marks_in(
            word["displaced"].encode("latin-1") for word in said if "displaced" in word
        )
        assert {word["wrote"].encode() for word in said if "wrote" in word} <= kept
        settle(workspace, chosen, releases, "after")
        check_finishes(workspace)
        check_log(workspace, [])


def roll_back(tape: Tape) -> str:
    """Go to a point with all or some paths, keeping what blocks that; how it ended."""
    point, outside = tape.chosen.choice(tape.points), tape.chosen.random() < 0.5
    some = tape.chosen.sample(sorted(point.tree), 3) if tape.chosen.random() < 0.7 else []
    paths, choices = [os.fsdecode(path) for path in some], dict[str, Choice]()

    def plan() -> Plan:
        back = tape.workspace.plan_rollback
        return back(point.seq, paths=paths, outside=outside, choices=choices)

    try:
        choices.update((note.path, "current") for note in plan().blocked)
        tape.workspace.carry_out(plan())
    except AuditError as error:
        return error.code
    return "ok"


def test_a_mark_is_found_behind_binary_content_that_has_its_first_sign() -> None:
    assert marks_in([b"\x89PNG <c\x9aI<editing 21>\n"]) == {b"<editing 21>\n"}


def marks_in(contents: Iterable[bytes]) -> set[bytes]:
    return {mark for content in contents for mark in MARK.findall(content)}


def marks_on_disk_and_in_store(workspace: AuditedWorkspace) -> set[bytes]:
    """What somebody wrote that still is somewhere."""
    with workspace.adapters.database.connections.reading() as connection:
        rows = connection.execute("SELECT sha256 FROM blob WHERE encoding <> 'absent'").fetchall()
    stored = (workspace.blobs.get(BlobId(bytes(row[0]).hex())) for row in rows)
    found = tree_of(workspace.root, skip=()).values()  # also in folders that are left out
    return marks_in(stored) | marks_in(content for _, _, content in found)


def settle(
    workspace: AuditedWorkspace, chosen: random.Random, releases: list[Path], name: str
) -> None:
    """Once more look at everything: log and disk are the same, as `Tape.add` asserts."""
    with recording(workspace, chosen, releases, name) as tape:
        head, before = workspace.log.head(), look(tape.root)
        by_block(tape.agents, releases[0], [])
        tape.add("a look", head, before)
        assert workspace.status().drift == ()


# --- tapes that are killed ----------------------------------------------------------------------


@pytest.mark.deep
def test_a_tape_that_is_killed_again_and_again_loses_nothing(
    stem: Stem, folder: Path, seed: str
) -> None:
    kill_again_and_again(stem, folder, "iniconfig", 4, seed)


@pytest.mark.deep
@pytest.mark.parametrize("project", PROJECTS)
def test_a_tape_that_is_killed_a_hundred_times_loses_nothing(
    stem: Stem, folder: Path, project: str, seed: str
) -> None:
    kill_again_and_again(stem, folder, project, 100, seed)


def kill_again_and_again(stem: Stem, folder: Path, project: str, times: int, seed: str) -> None:
    """So many kills, and more where too few came in the middle of something: how many do depends on
    how fast the machine is.
    """
    releases = laid(folder, project)
    chosen = random.Random(f"{seed} {project}")
    met: Counter[str] = Counter()
    for n in range(MOST * times):
        if n >= times and met.total() >= times // 10:
            break
        said = play_until_killed(stem, folder, releases, n, chosen)
        with open_store() as store:
            workspace = store.workspace(folder / "root")
            check_log(workspace, [line for line in said if "ack" in line])
            if "contents" in said[-1]:
                check_contents(workspace, said[-1]["contents"])
            met.update(close_what_is_open(workspace, chosen))
            check_finishes(workspace)
            settle(workspace, chosen, releases, f"settled-{n}")
            with recording(workspace, chosen, releases, f"after-{n}") as tape:
                take_back_something(tape)
            check_finishes(workspace)
    assert met.total() >= times // 10, met


def play_until_killed(
    stem: Stem, folder: Path, releases: list[Path], n: int, chosen: random.Random
) -> list[dict[str, Any]]:
    """What the child said until it was killed in the middle of something."""
    report = folder / f"said-{n}"
    stem.begin(
        scenario="tape",
        home=str(folder / "home"),
        root=str(folder / "root"),
        report=str(report),
        releases=[str(release) for release in releases],
        seed=f"{chosen.random()}",
        name=f"tape-{n}",
    )
    wanted = chosen.randint(2, 14)
    wait_for("a step that begins", lambda: begins(report, wanted) or has_failed(report))
    time.sleep(chosen.random() * 0.1)  # any moment of it
    assert not has_failed(report), lines(report)[-1]
    os.kill(lines(report)[0]["pid"], signal.SIGKILL)
    assert stem.end() == -signal.SIGKILL
    wait_for("the end of the commands", lambda: not working_in(folder / "root"))
    return lines(report)


def begins(report: Path, wanted: int) -> bool:
    said = lines(report)
    return len(said) >= wanted and "contents" in said[-1]


def has_failed(report: Path) -> bool:
    return any("error" in line for line in lines(report))


def check_contents(workspace: AuditedWorkspace, contents: list[str]) -> None:
    """What was on disk before a step that was killed is on disk or in the store."""
    there = {digest for _, _, digest in look(Path(workspace.root)).tree.values()}
    lost = [one for one in contents if one and one not in there]
    assert [one for one in lost if BlobId(one) not in workspace.blobs] == []


def close_what_is_open(workspace: AuditedWorkspace, chosen: random.Random) -> Iterator[str]:
    """Recover, and continue or abandon an undo that was killed; the tools that were open."""
    before = tree_of(workspace.root)
    found = workspace.recover()
    assert kept_of(tree_of(workspace.root)) == kept_of(before)
    yield from (one.call.tool for one in found)
    if any(one.waiting for one in found):
        mode: Literal["continue", "abandon"] = chosen.choice(("continue", "abandon"))
        try:
            workspace.recover(mode)
        except Conflict:  # the person's edit, or a half of a command, stands where it would go on
            workspace.recover("abandon")
    assert workspace.leftovers() == []
    status = workspace.status()
    assert (status.open_calls, status.interrupted) == ((), ())


def kept_of(tree: Mapping[bytes, Entry]) -> dict[bytes, Entry]:
    """The tree without our own temporary files, which recovery may remove."""
    ours = TEMPORARY.encode()
    return {p: entry for p, entry in tree.items() if not p.rpartition(b"/")[2].startswith(ours)}
