"""Calls counted back over blocks of the log: as a plain count of it says, whatever caches say."""

import random
import shutil
from collections.abc import Iterator
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from loom_audit.api.face import AuditedWorkspace, open_store
from loom_audit.errors import Corrupt, NotFound
from loom_audit.history.read.kept_counts import CountedBlock, KeptCounts
from loom_audit.model.events import CallFinished, CallRequested, Draft
from loom_audit.ports import BLOCK
from loom_audit.sql.ground.driver import driver
from loom_audit.sql.line_maps import SqlLineMaps
from tests.integrity.test_tamper import unguarded

CALLS = 900


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[AuditedWorkspace]:
    """A log of seven whole blocks and some events, of a call that spans most of it and others."""
    monkeypatch.setenv("LOOM_AUDIT_HOME", str(tmp_path / "home"))
    root = tmp_path / "work"
    root.mkdir()
    with closing(open_store()) as store:
        found = store.attach(root)
        calls = [one(f"{n}") for n in range(CALLS) for one in (request, finish)]
        append(found, request("long"), *calls, finish("long"), request("open"))
        assert found.log.head() // BLOCK == 7
        yield found


def request(id: str) -> Draft:
    return Draft(CallRequested(id, "t", {}, "write"), "s", "agent:a")


def finish(id: str) -> Draft:
    return Draft(CallFinished(id, "t", "write", "ok", None), "s", "agent:a")


def append(workspace: AuditedWorkspace, *drafts: Draft) -> None:
    workspace.log.append(drafts)


def again(workspace: AuditedWorkspace) -> AuditedWorkspace:
    """The workspace as another process opens it."""
    return open_store(workspace.adapters.settings.url).workspace(workspace.id)


def plain(workspace: AuditedWorkspace) -> list[int]:
    """The points `head~1`, `head~2`, … by a count of all events."""
    events = [*workspace.log.read()]
    ends = [one.seq for one in events if isinstance(one.fact, CallFinished)]
    first = next((one.seq for one in events if isinstance(one.fact, CallRequested)), 0)
    return [*ends[-2::-1], first - 1] if ends else []


def cache_of(workspace: AuditedWorkspace) -> Path:
    return workspace.adapters.settings.home / "index" / f"{workspace.id}.lines.db"


def kept_of(workspace: AuditedWorkspace) -> dict[bytes, bytes]:
    def step(db: Any) -> dict[bytes, bytes]:
        return dict(db.execute("SELECT name, content FROM map"))

    return SqlLineMaps(cache_of(workspace))._file.do(step)


def blocks_of(workspace: AuditedWorkspace) -> list[bytes]:
    head = workspace.timeline.proven.largest_head()
    assert head is not None
    return [*workspace.log.blocks(0, head.size // BLOCK, head)]


def counts_of(workspace: AuditedWorkspace, key: bytes = b"") -> KeptCounts:
    adapters = workspace.adapters
    own = adapters.marks(workspace.id).key()
    return KeptCounts(adapters.line_maps(workspace.id), lambda: key or own)


BACK = (1, 90, 101, 130, 400, CALLS - 30, CALLS, CALLS + 1)


def told(workspace: AuditedWorkspace) -> list[int]:
    return [again(workspace).timeline.point(f"head~{n}") for n in BACK]


def test_calls_are_counted_back_over_blocks_as_one_by_one(workspace: AuditedWorkspace) -> None:
    right = plain(workspace)
    for _ in range(2):
        assert told(workspace) == [right[n - 1] for n in BACK]
        assert len(kept_of(workspace)) == 7
    with pytest.raises(NotFound) as nothing:
        again(workspace).timeline.point("head~5000")
    assert nothing.value.hint == "On record: 901 calls."


@pytest.mark.few(1)
@pytest.mark.parametrize("seed", range(3))
def test_any_log_is_counted_back_as_one_by_one(workspace: AuditedWorkspace, seed: int) -> None:
    drawn = random.Random(seed)
    opened: list[str] = []
    seen = again(workspace)
    for turn in range(12):
        drafts: list[Draft] = []
        for n in range(drawn.randrange(150)):
            if opened and drawn.random() < 0.5:
                drafts.append(finish(opened.pop(drawn.randrange(len(opened)))))
            else:
                opened.append(f"{turn} {n}")
                drafts.append(request(opened[-1]))
        append(workspace, *drafts)
        right = plain(workspace)
        for _ in range(6):
            back = drawn.choice([drawn.randrange(1, 5), drawn.randrange(1, len(right) + 1)])
            assert seen.timeline.point(f"head~{back}") == right[back - 1]
        if drawn.random() < 0.3:
            seen = again(workspace)
        if drawn.random() < 0.2:
            cache_of(workspace).unlink(missing_ok=True)


def test_forged_counts_of_the_block_of_a_point_make_all_be_counted_anew(
    workspace: AuditedWorkspace,
) -> None:
    right = told(workspace)
    kept = kept_of(workspace)
    counts = {one: CountedBlock(BLOCK, True) for one in blocks_of(workspace)}
    counts_of(workspace).keep(counts)
    assert kept_of(workspace) != kept
    assert told(workspace) == right
    assert kept_of(workspace) == kept


def test_counts_forged_with_the_key_move_only_far_points_and_only_to_where_a_call_ended(
    workspace: AuditedWorkspace,
) -> None:
    right = plain(workspace)
    told(workspace)
    counts_of(workspace).keep({blocks_of(workspace)[5]: CountedBlock(3, True)})
    for back in range(1, CALLS - 140, 53):
        found = again(workspace).timeline.point(f"head~{back}")
        assert found == right[back - 1] if back <= 100 else found in right
    assert again(workspace).timeline.point("head~400") != right[399]


@pytest.mark.few(1)
@pytest.mark.parametrize("seal", ["of what was kept", "of another block", "of another key"])
def test_counts_that_were_not_sealed_with_the_key_of_the_store_are_none(
    workspace: AuditedWorkspace, seal: str
) -> None:
    right = told(workspace)
    kept = kept_of(workspace)
    maps = SqlLineMaps(cache_of(workspace))
    wrong = {one: CountedBlock(3, True) for one in blocks_of(workspace)}
    if seal == "of another block":
        names = [*kept]
        maps.keep({name: kept[other] for name, other in pairwise(names)})
    elif seal == "of another key":
        counts_of(workspace, b"k" * 32).keep(wrong)
        forged = {one: kept_of(workspace)[one] for one in kept_of(workspace).keys() - kept.keys()}
        maps.keep(dict(zip(kept, forged.values(), strict=True)))
    else:
        counts_of(workspace).keep(wrong)
        forged = kept_of(workspace)
        maps.keep({name: kept[name][:32] + forged[name][32:] for name in kept})
    assert told(workspace) == right
    assert {name: kept_of(workspace)[name] for name in kept} == kept


@pytest.mark.few(0)
def test_an_older_copy_of_the_cache_is_as_good(workspace: AuditedWorkspace, tmp_path: Path) -> None:
    told(workspace)
    shutil.copy(cache_of(workspace), tmp_path / "older")
    append(workspace, *(one(f"more {n}") for n in range(300) for one in (request, finish)))
    assert told(workspace) == [plain(workspace)[n - 1] for n in BACK]
    shutil.copy(tmp_path / "older", cache_of(workspace))
    assert told(workspace) == [plain(workspace)[n - 1] for n in BACK]


def test_without_a_kept_head_and_without_a_key_nothing_is_kept(
    workspace: AuditedWorkspace,
) -> None:
    right = told(workspace)
    cache_of(workspace).unlink()
    harm(workspace, "UPDATE marks SET key = 1")
    assert told(workspace) == right
    shutil.rmtree(workspace.adapters.settings.heads)
    assert told(workspace) == right
    assert not cache_of(workspace).exists()


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE tree_node SET hash = zeroblob(32) WHERE level = 8 AND position = 2",
        "DELETE FROM tree_node WHERE level = 8 AND position = 2",
        "UPDATE event SET leaf = (SELECT leaf FROM event WHERE seq = 5) WHERE seq = {seq}",
        "DELETE FROM event WHERE seq = {seq}",
    ],
)
def test_blocks_and_the_events_around_a_point_are_those_of_a_kept_head(
    workspace: AuditedWorkspace, sql: str
) -> None:
    right = told(workspace)
    harm(workspace, sql.format(seq=right[5] + 1))
    with pytest.raises(Corrupt):
        again(workspace).timeline.point(f"head~{BACK[5]}")


def harm(workspace: AuditedWorkspace, sql: str) -> None:
    with closing(driver().connect(str(workspace.adapters.settings.file))) as raw:
        raw.execute("PRAGMA foreign_keys = OFF")
        raw.execute("PRAGMA ignore_check_constraints = ON")
        assert unguarded(raw).execute(sql).rowcount > 0
        raw.commit()


def test_a_rebuild_drops_what_was_kept(workspace: AuditedWorkspace) -> None:
    right = told(workspace)
    workspace.rebuild()
    assert not cache_of(workspace).exists()
    assert told(workspace) == right
