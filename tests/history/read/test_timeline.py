"""Points, and what differs between them."""

import os
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest

from loom_audit import AuditedWorkspace, ToolResult
from loom_audit.errors import Conflict, InvalidArguments, NotFound
from loom_audit.sql.ground.clock import SystemClock

Call = Callable[..., ToolResult]


@pytest.mark.parametrize("target", ["²", "٣", "-1", "1.0", "", "9" * 5000])
def test_what_only_looks_like_a_number_does_not_name_a_call(
    workspace: AuditedWorkspace, target: str
) -> None:
    with pytest.raises(InvalidArguments, match="not the number of a call"):
        workspace.plan_revert([target])


@pytest.mark.parametrize(
    "point",
    ["9" * 5000, "head~" + "9" * 5000, "٣", "0001-01-01T00:00:00+14:00", "9999-12-31T23:00-14:00"],
)
def test_what_no_clock_or_count_can_mean_is_not_a_point(
    workspace: AuditedWorkspace, point: str
) -> None:
    with pytest.raises(InvalidArguments, match="is not a point"):
        workspace.plan_rollback(point)


@pytest.mark.parametrize(
    ("point", "why"),
    [
        ("2016-12-31T23:59:60Z", "seconds 00 to 59"),
        ("2301-01-01T00:00:00Z", "to the year 2300"),
        ("12026-01-01T00:00:00Z", "to the year 2300"),
    ],
)
def test_a_point_that_is_nearly_a_time_is_refused_with_a_word(
    workspace: AuditedWorkspace, point: str, why: str
) -> None:
    with pytest.raises(InvalidArguments, match=why):
        workspace.plan_rollback(point)


def test_a_created_and_then_modified_file_is_compared_with_nothing(
    workspace: AuditedWorkspace, call: Call
) -> None:
    point = workspace.log.head()
    call("write_file", path="n", content="1")
    call("write_file", path="n", content="2")
    (change,) = workspace.timeline.diff(point, workspace.log.head())
    assert change.before is None


def test_what_differs_is_the_same_by_trees_and_by_what_happened(
    workspace: AuditedWorkspace, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    points = [workspace.log.head()]
    for n in range(4):
        call("write_file", path=f"d/n{n % 2}", content=str(n))
        points.append(workspace.log.head())
        call("move_file", **{"from": f"d/n{n % 2}", "to": f"m{n}"})
        points.append(workspace.log.head())
    found = []
    for near in (0, 1_000):
        monkeypatch.setattr("loom_audit.history.read.timeline.NEAR", near)
        monkeypatch.setattr(type(workspace.timeline), "_since_listed", lambda *_: 0)
        found.append([{*workspace.timeline.diff(a, b)} for a in points for b in points if a < b])
    assert found[0] == found[1] and all(found[0])


def test_calls_are_counted_back_past_those_that_are_open(
    workspace: AuditedWorkspace, call: Call
) -> None:
    call("write_file", path="n", content="1")
    first = workspace.log.head()
    call("write_file", path="n", content="2")
    client = workspace.start_foreign_session("client", id="f", pid=os.getpid())
    for id in ("one", "two"):
        client.begin_call(id, "Bash", effect="execute")
    assert workspace.timeline.point("head~1") == first
    with pytest.raises(NotFound) as nothing:
        workspace.timeline.point("head~9")
    assert nothing.value.hint == "On record: 2 calls."


def test_a_call_that_spans_others_is_counted_back_where_it_ended(
    workspace: AuditedWorkspace, call: Call
) -> None:
    client = workspace.start_foreign_session("client", id="f", pid=os.getpid())
    client.begin_call("long", "Bash", effect="execute")
    before = workspace.log.head()
    ends = []
    for n in range(4):
        call("write_file", path="n", content=f"{n}")
        ends.append(workspace.log.head())
    client.end_call("long")
    assert [workspace.timeline.point(f"head~{n}") for n in (1, 2, 3, 4)] == ends[::-1]
    assert workspace.timeline.point("head~5") < before


def test_what_was_counted_back_goes_on_with_the_log(
    workspace: AuditedWorkspace, call: Call
) -> None:
    ends = [workspace.log.head()]
    for n in range(60):
        call("list_directory", path="src")
        ends.append(workspace.log.head())
        back = n % 40 + 1
        assert workspace.timeline.point(f"head~{min(back, n + 1)}") <= ends[-1 - min(back, n + 1)]
        if back <= n:
            assert workspace.timeline.point(f"head~{back}") == ends[-1 - back]


@pytest.fixture
def around(
    workspace: AuditedWorkspace, call: Call, monkeypatch: pytest.MonkeyPatch
) -> tuple[str, int, int]:
    """A time with one event a year ahead before it, and the two points that it may mean."""
    call("write_file", path="n", content="1")
    earlier = workspace.log.head()
    now = SystemClock().now
    with monkeypatch.context() as ahead:
        ahead.setattr(SystemClock, "now", lambda _: now() + timedelta(days=365))
        call("write_file", path="n", content="2")
    for text in "3456":
        call("write_file", path="n", content=text)
    return now().isoformat(), earlier, workspace.log.head()


def test_one_event_a_year_ahead_does_not_make_a_rollback_to_now_take_back_what_follows(
    workspace: AuditedWorkspace, around: tuple[str, int, int], root: Path
) -> None:
    now, earlier, later = around
    for act in (workspace.plan_rollback, partial(workspace.checkpoint, "here")):
        with pytest.raises(Conflict) as refused:
            act(now)
        assert refused.value.details["points"] == [earlier, later]
        assert str(earlier) in refused.value.message and str(later) in refused.value.message
    assert workspace.plan_rollback(later).changes == ()
    assert (root / "n").read_text() == "6"


def test_what_reads_takes_the_earlier_point_where_clocks_went_back(
    workspace: AuditedWorkspace, around: tuple[str, int, int], tmp_path: Path
) -> None:
    now, earlier, _ = around
    assert workspace.timeline.point(now) == earlier
    workspace.replay(now, tmp_path / "then")
    assert (tmp_path / "then" / "n").read_text() == "1"
