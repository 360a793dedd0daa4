"""Points, and what differs between them."""

from collections.abc import Callable

import pytest

from loom_audit import AuditedWorkspace, ToolResult
from loom_audit.errors import InvalidArguments

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


def test_a_created_and_then_modified_file_is_compared_with_nothing(
    workspace: AuditedWorkspace, call: Call
) -> None:
    point = workspace.log.head()
    call("write_file", path="n", content="1")
    call("write_file", path="n", content="2")
    (change,) = workspace.timeline.diff(point, workspace.log.head())
    assert change.before is None
