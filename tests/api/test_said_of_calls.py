"""What is said of a call of which it is not certain what it changed: the same everywhere."""

import json
import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from loom_audit import AuditedWorkspace, AuditStore
from loom_audit.history.record.call import OpenCall
from loom_audit.mcp_server.resources import read_resource
from loom_audit.model.records import Call
from loom_audit.ports import CallFilter
from tests.cli.shells import Shell
from tests.web.conftest import asking


@pytest.fixture
def shell(root: Path) -> Shell:
    return Shell(root, Path(os.environ["LOOM_AUDIT_HOME"]))


@pytest.fixture
def shared(workspace: AuditedWorkspace, root: Path) -> list[Call]:
    """Two calls during which one file was made; it is listed with the first."""
    foreign = workspace.start_foreign_session("client", id="f", pid=os.getpid())
    foreign.begin_call("a", "Bash", {"command": "make"})
    foreign.begin_call("b", "Bash", {"command": "make"})
    (root / "made").write_text("made")
    (root / "a.txt").write_text("changed")
    foreign.end_call("b")
    (root / "a.txt").write_text("one\n")
    foreign.end_call("a")
    return [workspace.timeline.projections.call("f", id) for id in ("a", "b")]


def test_every_reader_lists_the_same_paths_of_a_call(
    store: AuditStore, workspace: AuditedWorkspace, shared: list[Call], shell: Shell
) -> None:
    logged = {one["seq"]: one["paths"] for one in shell.records("log")}
    with asking(store) as visitor:
        for call in workspace.timeline.calls(CallFilter(limit=None)):
            [shown] = shell.records("show", str(call.seq))
            told = read_resource(workspace, f"loom-audit:///event/{call.seq}")
            detail = workspace.timeline.call(call.seq or 0)
            listed = [change["path"] for change in shown["changes"]] + shown["as_before"]
            assert sorted(logged[call.seq]) == sorted(listed) == shown["paths"]
            assert (
                json.loads(told.model_dump()["text"])["paths"]
                == list(detail.call.paths)
                == list(call.paths)
            )
            page = visitor.get(f"/w/{workspace.id}/c/{call.seq}").text
            assert (f"Changed {len(detail.changes)} path" in page) == bool(detail.changes)


def test_show_says_what_is_only_maybe_the_call_s(
    workspace: AuditedWorkspace, shared: list[Call], shell: Shell
) -> None:
    first, second = shared
    assert (first.paths, second.paths) == (("a.txt",), ("a.txt", "made"))
    [other], [own] = (shell.records("show", str(one.seq)) for one in shared)
    assert own["shared"] == [
        {"path": path, "with": [first.requested]} for path in ("a.txt", "made")
    ]
    assert own["may_have_changed"] == other["shared"] == []
    assert [one["path"] for one in other["may_have_changed"]] == ["a.txt", "made"]
    text = shell("show", str(second.seq)).text
    assert f"  made: call {first.seq} may have done it" in text
    shown = shell("show", str(first.seq))
    assert "may have been changed by it, too:" in shown.text
    assert f"A made  (4 B)  on record as of call {second.seq}" in shown.text
    assert f"loom-audit revert {first.seq} --choose PATH=old" in shown.errors


def test_the_page_leads_to_a_choice_of_what_the_call_may_have_changed(
    store: AuditStore, workspace: AuditedWorkspace, shared: list[Call]
) -> None:
    first, second = shared
    with asking(store) as visitor:
        page = visitor.get(f"/w/{workspace.id}/c/{first.seq}").text
        plan = visitor.get(f"/w/{workspace.id}/plan?verb=revert&target={first.seq}").text
        own = visitor.get(f"/w/{workspace.id}/c/{second.seq}").text
    assert "May have changed, too" in page and f"plan?verb=revert&amp;target={first.seq}" in page
    assert "Kept as it is" in plan and "made" in plan
    assert "only maybe its own" in own and "May have changed, too" not in own
    home = f"/w/{workspace.id}/c"
    assert f'"{home}/{second.seq}">#{second.seq}</a>, event' in page
    assert f'"{home}/{first.seq}">#{first.seq}</a> may have changed it' in own


def test_what_was_changed_and_is_as_before_is_listed_by_both(
    store: AuditStore, workspace: AuditedWorkspace, shell: Shell
) -> None:
    with (
        workspace.session("agent") as session,
        OpenCall(session.writer, "twice", {}, "write", call_id="t") as call,
    ):
        call.edit("a.txt", b"two")
        call.edit("a.txt", b"one\n")
    [logged] = shell.records("log")
    [shown] = shell.records("show", str(logged["seq"]))
    assert (logged["paths"], shown["changes"], shown["as_before"]) == (["a.txt"], [], ["a.txt"])
    assert "changed, and left as it had been:" in shell("show", str(logged["seq"])).text
    with asking(store) as visitor:
        page = visitor.get(f"/w/{workspace.id}/c/{logged['seq']}").text
    assert "was changed and left as it had been" in page


@pytest.mark.few(2)
@pytest.mark.parametrize(
    "forged",
    [
        "DELETE FROM session WHERE id = 'f'",
        "DELETE FROM call WHERE requested = {}",
        "UPDATE call SET finished = 0 WHERE requested = {}",
        "UPDATE call SET finished = finished + 1 WHERE requested = {}",
    ],
)
@pytest.mark.parametrize("asked", [0, 1])
def test_the_other_calls_are_named_as_the_log_has_them_or_not_at_all(
    workspace: AuditedWorkspace, shared: list[Call], shell: Shell, forged: str, asked: int
) -> None:
    call, other = shared[asked], shared[1 - asked]
    told = ("show", str(call.seq)), ("show", str(call.seq), "--json")
    before = [shell(*words).text for words in told]
    with closing(sqlite3.connect(Path(os.environ["LOOM_AUDIT_HOME"]) / "audit.db")) as store:
        store.execute(forged.format(other.requested))
        store.commit()
    for words, text in zip(told, before, strict=True):
        done = shell(*words, code=None)
        assert done.text == text or (done.code == 6 and text.startswith(done.text))
