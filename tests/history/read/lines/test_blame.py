"""Who wrote each line of a file, in real stores: commands, undos, moves, outside edits."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from loom_audit import AuditedWorkspace, Session, ToolResult
from loom_audit.api.lines import lines_of
from loom_audit.errors import Corrupt, InvalidArguments, NotFound
from loom_audit.model.authorship.blame import joined
from tests.integrity.test_verified_reads import again, forge

Call = Callable[..., ToolResult]


def told(workspace: AuditedWorkspace, path: str, at: int | None = None, **asked: Any) -> list[str]:
    """Who wrote each line, with what brought it back: `#12`, `#12 by #15`."""
    found = lines_of(workspace).blame(path, at, **asked)
    return [
        run.by.text + (f" by {run.brought_back.text}" if run.brought_back else "")
        for run in found.runs
        for _ in range(run.first, run.last + 1)
    ]


def newest(workspace: AuditedWorkspace) -> str:
    return f"#{workspace.timeline.calls()[0].seq}"


def test_lines_are_those_of_the_calls_that_wrote_them_and_the_rest_is_not_known(
    workspace: AuditedWorkspace, call: Call
) -> None:
    call("write_file", path="a.txt", content="one\n2\nthree\n")
    write = newest(workspace)
    call("shell_execute", command="echo four >> a.txt")
    first = f"not known before #{workspace.timeline.history('a.txt')[-1].seq}"
    assert told(workspace, "a.txt") == [first, write, first, newest(workspace)]
    assert told(workspace, "a.txt", full=True) == told(workspace, "a.txt")
    assert told(workspace, "a.txt", first=2, last=2) == [write]
    before = workspace.timeline.calls()[1].requested - 1
    assert told(workspace, "a.txt", before) == [first] * 3


def test_an_edit_from_outside_is_named_with_its_event(
    workspace: AuditedWorkspace, call: Call, root: Path
) -> None:
    call("write_file", path="new", content="one\n")
    write = newest(workspace)
    (root / "new").write_text("one\nmine\n")
    call("shell_execute", command="true")
    [outside, _] = workspace.timeline.history("new")
    assert told(workspace, "new") == [write, f"outside, #{outside.seq}"]


def test_what_an_undo_brings_back_keeps_its_writer(workspace: AuditedWorkspace, call: Call) -> None:
    call("write_file", path="new", content="one\ntwo\n")
    write = newest(workspace)
    call("write_file", path="new", content="other\n")
    other = newest(workspace)
    undone = workspace.carry_out(workspace.plan_undo()).call.seq
    assert told(workspace, "new") == [f"{write} by #{undone}"] * 2
    workspace.carry_out(workspace.plan_redo())
    assert told(workspace, "new") == [f"{other} by {newest(workspace)}"]
    call("delete_file", path="new")
    workspace.carry_out(workspace.plan_undo())
    assert told(workspace, "new") == [f"{other} by {newest(workspace)}"]


def test_a_revert_that_merges_keeps_the_writers_of_both_sides(
    workspace: AuditedWorkspace, call: Call
) -> None:
    lines = [f"line {n}\n" for n in range(9)]
    call("write_file", path="new", content="".join(lines))
    write = newest(workspace)
    call("write_file", path="new", content="".join(["zero\n", *lines[2:]]))
    first = workspace.timeline.calls()[0].seq or 0
    call("write_file", path="new", content="".join(["zero\n", *lines[2:8], "last\n"]))
    last = newest(workspace)
    workspace.carry_out(workspace.plan_revert([first]))
    back = f"{write} by {newest(workspace)}"
    assert told(workspace, "new") == [back, back, *[write] * 6, last]


def test_a_rollback_of_one_file_brings_back_the_lines_of_its_point(
    workspace: AuditedWorkspace, call: Call
) -> None:
    call("write_file", path="new", content="same\n")
    write, point = newest(workspace), workspace.log.head()
    call("shell_execute", command="echo other > new; echo more > more")
    call("write_file", path="new", content="same\n")
    call("write_file", path="new", content="third\n")
    workspace.carry_out(workspace.plan_rollback(point, paths=["new"]))
    assert told(workspace, "new") == [f"{write} by {newest(workspace)}"]


def test_who_writes_a_line_again_after_it_was_removed_is_its_writer(
    workspace: AuditedWorkspace, call: Call
) -> None:
    for content in ("one\ntwo\n", "one\n", "one\ntwo\n"):
        call("write_file", path="new", content=content)
    write = f"#{workspace.timeline.calls()[2].seq}"
    assert told(workspace, "new") == [write, newest(workspace)]


def test_a_moved_file_keeps_the_writers_of_its_lines(
    workspace: AuditedWorkspace, call: Call
) -> None:
    call("write_file", path="new", content="one\ntwo\n")
    write = newest(workspace)
    call("shell_execute", command="mkdir d && mv new d/moved")
    call("shell_execute", command="echo three >> d/moved")
    assert told(workspace, "d/moved") == [write, write, newest(workspace)]
    runs = lines_of(workspace).blame("d/moved").runs
    assert [run.old_path for run in runs] == ["new", "d/moved"]
    call("write_file", path="new", content="one\n")
    assert told(workspace, "new") == [newest(workspace)]


def test_only_a_line_feed_ends_a_line_and_a_carriage_return_is_content(
    workspace: AuditedWorkspace, call: Call
) -> None:
    call("shell_execute", command=r"printf 'a\rb\nc\fd\n' > new")
    write = newest(workspace)
    call("shell_execute", command=r"printf 'a\rb\r\nc\fd\n' > new")
    found = lines_of(workspace).blame("new")
    assert found.texts == (b"a\rb\r\n", b"c\x0cd\n")
    assert told(workspace, "new") == [newest(workspace), write]


@pytest.mark.parametrize(
    ("content", "reason"),
    [("head -c 100 /dev/zero", "binary"), ("head -c 8388609 /dev/zero | tr '\\0' x", "over 8 MiB")],
)
def test_what_follows_a_content_without_lines_is_not_known_before(
    content: str, reason: str, workspace: AuditedWorkspace, call: Call
) -> None:
    call("write_file", path="new", content="one\n")
    call("shell_execute", command=f"{content} > new")
    found = lines_of(workspace).blame("new")
    assert (found.reason, found.runs, found.lines) == (reason, (), 0)
    call("write_file", path="new", content="one\ntwo\n")
    [event, *_] = workspace.timeline.history("new")
    assert told(workspace, "new") == [f"not known before #{event.seq}"] * 2
    [run] = lines_of(workspace).blame("new").runs
    assert run.by.reason == reason


def test_an_empty_file_and_a_symlink_have_lines_too(
    workspace: AuditedWorkspace, call: Call
) -> None:
    call("shell_execute", command="touch empty; ln -s a.txt link")
    found = lines_of(workspace).blame("empty")
    assert (found.lines, found.runs, found.first, found.last) == (0, (), 1, 0)
    assert told(workspace, "link") == [newest(workspace)]


def test_what_has_no_lines_is_refused(workspace: AuditedWorkspace) -> None:
    lines = lines_of(workspace)
    for path in ("", "src"):
        with pytest.raises(InvalidArguments):
            lines.blame(path)
    with pytest.raises(NotFound):
        lines.blame("nothing")
    with pytest.raises(InvalidArguments):
        lines.blame("a.txt", first=3, last=2)


def test_what_may_be_of_several_calls_is_one_of_them(
    workspace: AuditedWorkspace, session: Session, root: Path
) -> None:
    with session.recording("one"), session.recording("other"):
        (root / "both").write_text("both\n")
    numbers = sorted(one.seq or 0 for one in workspace.timeline.calls())
    assert told(workspace, "both") == [f"one of #{numbers[0]}, #{numbers[1]}"]


FORGERIES = {
    "the newest change is hidden": "DELETE FROM file_change WHERE {path} AND seq = "
    "(SELECT max(seq) FROM file_change WHERE {path})",
    "a change in between is hidden": "DELETE FROM file_change WHERE {path} AND seq = (SELECT seq "
    "FROM file_change WHERE {path} ORDER BY seq DESC LIMIT 1 OFFSET 1)",
    "all changes are hidden": "DELETE FROM file_change WHERE {path}",
    "a change is another file's": "UPDATE file_change SET path = (SELECT number FROM path WHERE "
    "path = CAST('new' AS BLOB)) WHERE path = (SELECT number FROM path WHERE path = "
    "CAST('other' AS BLOB))",
}


@pytest.mark.parametrize("how", FORGERIES)
def test_a_forged_table_of_changes_names_no_writer(
    how: str, workspace: AuditedWorkspace, call: Call
) -> None:
    call("write_file", path="other", content="other\n")
    for content in ("one\n", "one\ntwo\n", "one\ntwo\nthree\n"):
        call("write_file", path="new", content=content)
    right = told(workspace, "new")
    here = "path = (SELECT number FROM path WHERE path = CAST('new' AS BLOB))"
    forge(workspace, FORGERIES[how].format(path=here))
    with pytest.raises(Corrupt):
        told(again(workspace), "new")
    assert told(again(workspace), "new", full=True) == right


def test_runs_that_differ_only_in_where_their_lines_stood_are_joined(
    workspace: AuditedWorkspace, call: Call
) -> None:
    call("write_file", path="new", content="one\ntwo\nthree\nfour\n")
    call("write_file", path="new", content="one\nfour\n")
    runs = lines_of(workspace).blame("new").runs
    assert [(run.first, run.old_first) for run in runs] == [(1, 1), (2, 4)]
    assert [(run.first, run.last) for run in joined(runs)] == [(1, 2)]
