"""Line maps that are kept: they speed up, and whatever stands in them, they name nobody falsely."""

import random
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

import pytest
from msgspec import msgpack

from loom_audit import AuditedWorkspace, ToolResult
from loom_audit.api.lines import lines_of
from loom_audit.history.read.lines import followed
from loom_audit.history.read.lines.followed import FileVersions, follow, window, with_maps
from loom_audit.model.authorship.line_map import LineMap, LineRange, line_map, names_of
from loom_audit.model.authorship.walk import walked
from loom_audit.model.files import FileState
from loom_audit.sql.line_maps import SqlLineMaps
from tests.history.read.lines.test_blame import newest, told
from tests.model.test_authorship import Compared, state_of, versions_of
from tests.oracles.authors import RandomFile

Call = Callable[..., ToolResult]


def follow_history(seed: int, count: int, folder: Path) -> int:
    """Follow a random history after each step by maps that come and go; the number of lines."""
    file, chance = RandomFile(seed), random.Random(seed)
    for _ in range(count):
        file.grow()
    contents = {state_of(step.content): step.content for step in file.steps}
    maps = SqlLineMaps(folder / f"{seed}.lines.db")

    def read(state: FileState | None) -> Sequence[bytes]:
        return (contents[state] or b"").splitlines(keepends=True)

    versions = tuple(versions_of(file.steps))
    compared = Compared(file.steps)
    right = {n + 1: line_map(done) for n, done in walked(versions, read)}
    used = 0
    for n in range(1, count + 1):
        state = state_of(file.steps[n].content)
        if state is None:
            continue
        if chance.random() < 0.1:
            (folder / f"{seed}.lines.db").unlink(missing_ok=True)
        found = with_maps(FileVersions("f", n, state, versions[:n]), maps)
        used += found.kept is not None
        kept = maps if chance.random() < 0.7 else None
        done = follow(found, read, kept)
        lines = window(done, read, maps, 1, None)
        assert done.map == right[n], (seed, n)
        assert done.unproven == (found.kept is not None)  # it was borne out
        writers = [run.by.event for run in lines.runs for _ in range(run.first, run.last + 1)]
        compared.compare(n, lines.texts, writers)
    assert used > count / 2
    return compared.lines


def test_a_random_history_is_told_the_same_with_maps_that_come_and_go(tmp_path: Path) -> None:
    assert follow_history(3, 60, tmp_path) > 200


@pytest.mark.deep
@pytest.mark.timeout(1800)
def test_ten_thousand_steps_are_told_the_same_with_maps_that_come_and_go(tmp_path: Path) -> None:
    assert sum(follow_history(seed, 500, tmp_path) for seed in range(100, 120)) > 100_000


@pytest.fixture(autouse=True)
def every_file_is_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Maps are kept of every file."""
    monkeypatch.setattr(followed, "FROM_BYTES", 0)


@pytest.fixture
def long(call: Call) -> str:
    """A file of three versions, by three calls."""
    call("write_file", path="long", content="one\ntwo\nthree\n}\n")
    call("shell_execute", command="printf 'one\\n2\\nthree\\n}\\nfour\\n' > long")
    call("write_file", path="long", content="one\n2\nthree\n}\nfour\n}\n")
    return "long"


def maps_of(workspace: AuditedWorkspace) -> Path:
    return workspace.adapters.settings.home / "index" / f"{workspace.id}.lines.db"


def kept_maps(workspace: AuditedWorkspace) -> dict[bytes, LineMap]:
    with closing(sqlite3.connect(maps_of(workspace))) as db:
        rows = db.execute("SELECT name, content FROM map").fetchall()
    return {name: msgpack.decode(content, type=LineMap) for name, content in rows}


def forge(workspace: AuditedWorkspace, content: bytes) -> None:
    with closing(sqlite3.connect(maps_of(workspace))) as db:
        db.execute("UPDATE map SET content = ?", (content,))
        db.commit()


def test_a_map_is_kept_of_a_long_file_and_told_by(workspace: AuditedWorkspace, long: str) -> None:
    right = told(workspace, long)
    assert len(kept_maps(workspace)) == 3
    lines = lines_of(workspace)
    assert lines.versions(long).work == 0
    assert lines.versions(long).kept is not None
    assert told(workspace, long) == right == told(workspace, long, full=True)
    assert lines.versions(long, full=True).kept is None


def test_after_a_new_version_only_that_one_is_read(
    workspace: AuditedWorkspace, call: Call, long: str
) -> None:
    before = told(workspace, long)
    call("write_file", path=long, content="one\n2\nthree\n}\nfour\n}\nfive\n")
    found = lines_of(workspace).versions(long)
    assert found.start == len(found.versions) - 2
    assert told(workspace, long) == [*before, newest(workspace)]


def test_the_map_of_an_earlier_version_tells_of_that_point(
    workspace: AuditedWorkspace, long: str
) -> None:
    point = (workspace.timeline.calls()[0].requested) - 1
    right = told(workspace, long, point)
    maps_of(workspace).unlink()
    told(workspace, long)
    assert lines_of(workspace).versions(long, point).work == 0
    assert told(workspace, long, point) == right


def test_an_undo_of_what_no_map_was_kept_before_is_told_right(
    workspace: AuditedWorkspace, call: Call, long: str
) -> None:
    told(workspace, long)
    for _ in range(3):
        workspace.carry_out(workspace.plan_undo())
        if workspace.timeline.state(long, workspace.log.head()):
            assert (found := told(workspace, long)) and found == told(workspace, long, full=True)
        workspace.carry_out(workspace.plan_redo())
        assert told(workspace, long) == told(workspace, long, full=True)


FORGED = {
    "all lines are the newest call's": LineMap((LineRange(6, 2, 1),), {}),
    "all lines are the first call's": LineMap((LineRange(6, 0, 1),), {}),
    "all lines were there before": LineMap((LineRange(6, -1, 1),), {}),
    "nobody is known": LineMap((LineRange(6, 0, 1),), {0: "binary"}),
    "one line is another's": LineMap(
        (LineRange(1, 0, 1), LineRange(1, 0, 2), LineRange(2, 0, 3), LineRange(2, 1, 5)), {}
    ),
    "a call that took nothing back brought them": LineMap(
        (
            LineRange(1, 0, 1, 2),
            LineRange(1, 1, 2),
            LineRange(2, 0, 3),
            LineRange(1, 1, 5),
            LineRange(1, 2, 6),
        ),
        {},
    ),
    "it is of fewer lines": LineMap((LineRange(1, 0, 1),), {}),
    "it is of more lines": LineMap((LineRange(10**15, 0, 1),), {}),
    "a version that is not there": LineMap((LineRange(6, 99, 1),), {}),
    "a number that is none": LineMap((LineRange(7, 0, 0), LineRange(-1, 0, 1)), {}),
}


@pytest.mark.few(3)
@pytest.mark.parametrize("how", FORGED)
def test_a_forged_map_names_no_writer_and_is_forgotten(
    how: str, workspace: AuditedWorkspace, long: str
) -> None:
    right = told(workspace, long)
    forge(workspace, msgpack.encode(FORGED[how]))
    assert told(workspace, long) == right
    assert told(workspace, long, first=2, last=2) == right[1:2]
    assert len({*map(str, kept_maps(workspace).values())}) == 3


@pytest.mark.parametrize("content", [b"", b"\xc1", b"\x92\x90", msgpack.encode([[], {"a": 1}])])
def test_what_is_not_a_map_is_not_read(
    content: bytes, workspace: AuditedWorkspace, long: str
) -> None:
    right = told(workspace, long)
    forge(workspace, content)
    assert told(workspace, long) == right


def test_the_map_of_another_file_or_version_is_never_found(
    workspace: AuditedWorkspace, call: Call, long: str
) -> None:
    told(workspace, long)
    kept = [*kept_maps(workspace)]
    call("write_file", path="other", content="one\ntwo\nthree\n}\n")
    told(workspace, "other")
    names = names_of(lines_of(workspace).versions("other").versions)
    assert not {*kept} & {*names}
    assert told(workspace, "other") == [newest(workspace)] * 4


def test_a_map_file_that_is_none_or_cannot_be_written_is_done_without(
    workspace: AuditedWorkspace, long: str
) -> None:
    right = told(workspace, long)
    file = maps_of(workspace)
    file.write_bytes(b"no database" * 1000)
    assert told(workspace, long) == right
    assert kept_maps(workspace)  # made anew
    file.unlink()
    file.mkdir()
    assert told(workspace, long) == right


def test_the_oldest_maps_go_when_there_are_too_many(tmp_path: Path) -> None:
    maps = SqlLineMaps(tmp_path / "x.lines.db", most_bytes=1000)
    names = [bytes([n]) * 32 for n in range(10)]
    for name in names:
        maps.keep({name: b"x" * 300})
    assert [maps.newest([name]) is not None for name in names] == [False] * 7 + [True] * 3
    maps.keep({names[0]: b"y" * 900})
    assert maps.newest(names) == (0, b"y" * 900)
    maps.discard(names[0])
    assert maps.newest(names) is None
