"""What a forger changes in the tables that follow the log is not served: it is read from the log.

The right answer or CORRUPT; lists may be wrong, and verification then says so.
"""

import asyncio
import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import rfc8785

from loom_audit.api.face import AuditedWorkspace, open_store
from loom_audit.errors import AuditError, Corrupt, NotFound
from loom_audit.history.ground.kept_contents import KeptContents
from loom_audit.history.read.verified import VerifiedReading
from loom_audit.model.coverage import Coverage
from loom_audit.model.events import CoverageLowered, Draft, SessionStarted, TreeHead
from loom_audit.ports import CallFilter, EventFilter
from loom_audit.sql.ground.driver import driver
from loom_audit.sql.projections import keyframes
from tests.cli.shells import Shell
from tests.integrity.test_tamper import leaf_of, other_actor, put_leaf, rewrite_from, unguarded

FILES = ("a.txt", "b.txt", "c.txt")


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[AuditedWorkspace]:
    """Three files, each written by a call of its own, and the first written again."""
    monkeypatch.setenv("LOOM_AUDIT_HOME", str(tmp_path / "home"))
    root = tmp_path / "work"
    root.mkdir()
    for name in FILES:
        (root / name).write_text(f"{name} as it was\n")
    with closing(open_store()) as store:
        found = store.attach(root)
        with found.session("test") as session:
            for n, name in enumerate((*FILES, "a.txt")):
                done = session.call("write_file", {"path": name, "content": f"{name} {n}\n"})
                assert asyncio.run(done).success
        yield found


def forge(workspace: AuditedWorkspace, *statements: str) -> None:
    with closing(driver().connect(str(workspace.adapters.settings.file))) as raw:
        raw.execute("PRAGMA foreign_keys = OFF")
        for sql in statements:
            assert unguarded(raw).execute(sql).rowcount > 0
        raw.commit()


def again(workspace: AuditedWorkspace) -> AuditedWorkspace:
    """The workspace as another process opens it."""
    return open_store(workspace.adapters.settings.url).workspace(workspace.id)


def test_an_undo_writes_what_is_on_record_or_nothing(workspace: AuditedWorkspace) -> None:
    root = Path(workspace.root)
    forge(
        workspace,
        "UPDATE file_change SET old_blob = (SELECT new_blob FROM file_change "
        "WHERE path = (SELECT number FROM path WHERE path = CAST('c.txt' AS BLOB)) "
        "ORDER BY seq DESC LIMIT 1) WHERE seq = (SELECT max(seq) FROM file_change)",
    )
    seen = again(workspace)
    seen.carry_out(seen.plan_undo())
    assert (root / "a.txt").read_bytes() == b"a.txt 0\n"
    seen.carry_out(seen.plan_undo())
    assert (root / "c.txt").read_bytes() == b"c.txt as it was\n"


@pytest.mark.parametrize(
    "sql",
    [
        "DELETE FROM file_change WHERE seq = (SELECT max(seq) FROM file_change)",
        "DELETE FROM change_set WHERE seq = (SELECT max(seq) FROM change_set)",
        "UPDATE tree_entry SET blob = (SELECT min(blob) FROM tree_entry)",
        "DELETE FROM tree_entry",
    ],
)
def test_a_plan_and_a_state_do_not_need_the_rows_of_changes(
    workspace: AuditedWorkspace, sql: str
) -> None:
    plan, tree = (
        workspace.plan_rollback("session:" + workspace.timeline.sessions()[0].id),
        {at: workspace.timeline.tree(at) for at in range(workspace.log.head() + 1)},
    )
    forge(workspace, sql)
    seen = again(workspace)
    assert {at: seen.timeline.tree(at) for at in tree} == tree
    assert plan.request
    assert seen.plan_rollback(plan.request.targets[0]).changes == plan.changes


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE call SET finished = finished + 9 WHERE finished = (SELECT max(finished) FROM call)",
        "DELETE FROM call WHERE requested = (SELECT max(requested) FROM call)",
        "INSERT INTO revert SELECT log, 9999, finished FROM call ORDER BY finished DESC LIMIT 1",
        "UPDATE call SET status = 'error' WHERE requested = (SELECT max(requested) FROM call)",
    ],
)
def test_an_undo_of_what_is_listed_wrongly_is_corrupt(
    workspace: AuditedWorkspace, sql: str
) -> None:
    forge(workspace, sql)
    with pytest.raises(Corrupt) as raised:
        again(workspace).plan_undo()
    assert "db rebuild" in raised.value.hint
    workspace.rebuild()
    assert again(workspace).plan_undo().changes


def test_a_call_is_shown_as_the_log_has_it(workspace: AuditedWorkspace) -> None:
    call = workspace.timeline.calls()[0]
    shown = workspace.timeline.call(call.requested)
    forge(
        workspace,
        "UPDATE call SET tool = 'read_file', summary = 'x', status = 'error', changed = 0 "
        "WHERE requested = (SELECT max(requested) FROM call)",
    )
    assert again(workspace).timeline.call(call.requested) == shown
    forge(workspace, "DELETE FROM call", "DELETE FROM session")
    assert again(workspace).timeline.call(call.requested) == shown


def test_a_session_that_is_not_listed_any_more_is_not_said_to_be_none(
    workspace: AuditedWorkspace,
) -> None:
    id = workspace.timeline.sessions()[0].id
    forge(workspace, "DELETE FROM session")
    with pytest.raises(Corrupt, match="What is listed of event"):
        again(workspace).plan_revert([f"session:{id}"])
    with pytest.raises(NotFound):
        again(workspace).timeline.point("session:none")
    shell = Shell(Path(workspace.root), workspace.adapters.settings.home)
    shell("revert", f"session:{id}", "--dry-run", code=6)
    shell("revert", "session:none", "--dry-run", code=4)


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE session SET actor = 'agent:another'",
        "UPDATE session SET agent = 'another'",
        "UPDATE session SET title = 'another'",
        "UPDATE session SET parent = 'another'",
        "UPDATE session SET ended = NULL",
        "UPDATE session SET ended = ended - 1",
        "DELETE FROM session",
    ],
)
def test_a_session_is_whose_it_is_in_the_log_from_its_start_to_its_end(
    workspace: AuditedWorkspace, sql: str
) -> None:
    [session] = workspace.timeline.sessions()
    assert workspace.timeline.verified.session(session.id) == session
    forge(workspace, sql)
    with pytest.raises(Corrupt):
        again(workspace).timeline.verified.session(session.id)


def test_a_session_that_went_on_after_its_end_is_as_it_was_told_last(
    workspace: AuditedWorkspace,
) -> None:
    [session] = workspace.timeline.sessions()
    goes_on = SessionStarted("later", "goes on")
    workspace.log.append([Draft(goes_on, session.id, "person:another")])
    found = workspace.timeline.verified.session(session.id)
    assert (found.agent, found.title, found.ended) == ("later", "goes on", None)
    assert (found.actor, found.started) == (session.actor, session.started)


def test_changes_of_a_session_that_is_not_listed_any_more_are_not_shown_as_nobodys(
    workspace: AuditedWorkspace,
) -> None:
    forge(workspace, "DELETE FROM session")
    with pytest.raises(Corrupt):
        again(workspace).timeline.history("a.txt")


def test_calls_are_counted_back_by_the_log_whatever_is_listed(
    workspace: AuditedWorkspace,
) -> None:
    client = workspace.start_foreign_session("client", id="f", pid=os.getpid())
    for id in ("one", "two", "three"):
        client.begin_call(id, "Bash", effect="execute")
    for id in ("one", "two", "three"):
        client.end_call(id)
    calls = workspace.timeline.calls(CallFilter(limit=None))
    numbers = sorted(one.seq for one in calls if one.seq is not None)
    back = {f"head~{n}": seq for n, seq in enumerate(reversed(numbers)) if n}
    back[f"head~{len(numbers)}"] = min(one.requested for one in calls) - 1
    for forged in ("requested = (SELECT max(requested) FROM call)", "true"):
        forge(workspace, f"DELETE FROM call WHERE {forged}")
        assert {point: again(workspace).timeline.point(point) for point in back} == back


def test_a_point_some_calls_back_is_not_given_by_events_that_were_altered(
    workspace: AuditedWorkspace,
) -> None:
    told = {n: again(workspace).timeline.point(f"head~{n}") for n in (1, 2)}
    last = max(one.seq for one in workspace.timeline.calls() if one.seq is not None)
    forge(workspace, "UPDATE event SET kind = 'call.decided' WHERE kind = 'call.finished'")
    assert {n: again(workspace).timeline.point(f"head~{n}") for n in (1, 2)} == told
    other = "(SELECT leaf FROM event WHERE seq = 1)"
    forge(workspace, f"UPDATE event SET leaf = {other} WHERE seq = {last}")
    with pytest.raises(Corrupt):
        again(workspace).timeline.point("head~1")


@pytest.mark.parametrize("forged", ["listed time", "event"])
def test_a_time_means_the_events_of_the_log(
    workspace: AuditedWorkspace, monkeypatch: pytest.MonkeyPatch, forged: str
) -> None:
    monkeypatch.setattr(keyframes, "KEYFRAME_EVENTS", 4)
    workspace.rebuild()
    written = workspace.timeline.calls()[-2]
    at, events = written.at.isoformat(), {e.seq: e for e in workspace.timeline.events()}
    point = workspace.timeline.point(at)
    assert events[point].at <= written.at < events[point + 1].at
    if forged == "listed time":
        forge(workspace, "UPDATE keyframe SET latest = 0")
        assert again(workspace).timeline.point(at) == point
    else:
        with closing(driver().connect(str(workspace.adapters.settings.file))) as raw:
            leaf = json.loads(leaf_of(unguarded(raw), point))
            leaf["at"] = json.loads(leaf_of(raw, point + 1))["at"]
            put_leaf(raw, point, rfc8785.dumps(leaf))
            raw.commit()
        with pytest.raises(Corrupt):
            again(workspace).timeline.point(at)


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE call SET finished = NULL WHERE requested = (SELECT max(requested) FROM call)",
        "UPDATE call SET finished = NULL, call_id = x'0102030405060708' WHERE requested = "
        "(SELECT max(requested) FROM call)",
        "UPDATE call SET finished = NULL, requested = requested - 1 WHERE requested = "
        "(SELECT max(requested) FROM call)",
        "UPDATE session SET ended = NULL",
    ],
    ids=["finished", "unknown", "elsewhere", "session"],
)
def test_what_is_only_listed_as_open_is_not_ended_again(
    workspace: AuditedWorkspace, sql: str
) -> None:
    head = workspace.log.head()
    forge(workspace, sql)
    seen = again(workspace)
    with pytest.raises(Corrupt, match="What is listed of event"):
        seen.recover()
    assert seen.log.head() == head
    seen.rebuild()
    assert not seen.recover() and not seen.differences()


@pytest.mark.parametrize(
    "sql",
    [
        "DELETE FROM checkpoint",
        "UPDATE checkpoint SET seq = seq + 2",
        "UPDATE checkpoint SET point = 1",
        "UPDATE checkpoint SET name = 'here' WHERE name = 'there'",
    ],
)
def test_a_checkpoint_means_what_was_recorded(workspace: AuditedWorkspace, sql: str) -> None:
    workspace.checkpoint("here", 5)
    workspace.checkpoint("there", 6)
    with workspace.session("more"):
        pass  # the tables do not tell of more events than there are
    forge(workspace, sql)
    assert again(workspace).timeline.point("@here") == 5


def test_what_an_earlier_call_did_not_capture_is_not_said_of_a_later_one(
    workspace: AuditedWorkspace,
) -> None:
    client = workspace.start_foreign_session("client", id="f", pid=os.getpid())
    for id in ("one", "two"):
        client.begin_call(id, "Bash", effect="execute")
    (Path(workspace.root) / "shared.txt").write_text("by one of them")
    for id in ("one", "two"):
        client.end_call(id)
    point = workspace.log.head()
    with workspace.session("test") as session:
        done = session.call("write_file", {"path": "b.txt", "content": "later\n"})
        assert asyncio.run(done).success
    assert not workspace.plan_rollback(point).irreversible
    forge(
        workspace,
        "UPDATE call SET finished = (SELECT max(finished) FROM call) "
        "WHERE finished = (SELECT max(finished) FROM call WHERE coverage IS NOT NULL)",
    )
    with pytest.raises(Corrupt):
        again(workspace).plan_rollback(point)


def test_a_rebuild_says_what_differed(workspace: AuditedWorkspace) -> None:
    assert workspace.differences() == []
    forge(
        workspace,
        "UPDATE call SET status = 'error' WHERE requested = (SELECT max(requested) FROM call)",
    )
    [(seq, message)] = workspace.differences()
    assert seq == workspace.timeline.calls()[0].requested
    assert message.startswith("the projection call differs from what the log makes")
    seen = again(workspace)
    seen.rebuild()
    assert seen.differences() == []


def rewrite(raw: Any, first: int, last: int) -> None:
    """Other leaves that fit each other, as somebody makes who knows the format."""
    for seq in range(first, last + 1):
        put_leaf(raw, seq, other_actor(leaf_of(raw, seq)))


READERS: dict[str, Callable[[AuditedWorkspace], object]] = {
    "cat": lambda workspace: workspace.timeline.state("a.txt"),
    "tree": lambda workspace: workspace.timeline.tree(),
    "show": lambda workspace: workspace.timeline.call(workspace.timeline.calls()[0].requested),
    "undo": lambda workspace: workspace.plan_undo(),
    "diff": lambda workspace: workspace.timeline.diff(3, workspace.log.head()),
}


@pytest.mark.parametrize("reader", READERS.values(), ids=READERS)
def test_an_event_that_the_next_one_does_not_follow_is_corrupt(
    workspace: AuditedWorkspace, reader: Callable[[AuditedWorkspace], object]
) -> None:
    with closing(driver().connect(str(workspace.adapters.settings.file))) as raw:
        unguarded(raw)
        [(seq,)] = raw.execute("SELECT max(seq) FROM event WHERE kind = 'files.changed'")
        rewrite(raw, seq, seq)
        raw.commit()
    with pytest.raises(Corrupt):
        reader(again(workspace))


@pytest.mark.parametrize("reader", READERS.values(), ids=READERS)
def test_events_that_are_not_those_of_a_kept_head_are_corrupt(
    workspace: AuditedWorkspace, reader: Callable[[AuditedWorkspace], object]
) -> None:
    heads = workspace.adapters.settings.heads / f"{workspace.id}.heads"
    [*others, last] = workspace.adapters.kept_heads(workspace.id)
    assert last.size == workspace.log.head()
    heads.unlink()
    reader(again(workspace))
    workspace.adapters.keep_head(TreeHead(last.log, last.size, bytes(32)))
    with pytest.raises(Corrupt, match="of which the head"):
        reader(again(workspace))
    heads.unlink()
    for head in (*others, last):
        workspace.adapters.keep_head(head)
    reader(again(workspace))


@pytest.mark.parametrize("name", ["show", "undo", "diff"])
def test_what_a_head_was_seen_to_hold_is_looked_at_again(
    workspace: AuditedWorkspace, name: str
) -> None:
    seen, reader = again(workspace), READERS[name]
    reader(seen)
    reader(seen)
    with closing(driver().connect(str(workspace.adapters.settings.file))) as raw:
        unguarded(raw)
        rewrite_from(raw, 2)
        raw.commit()
    with pytest.raises(Corrupt, match="of which the head"):
        reader(seen)


def test_a_missing_event_is_named(workspace: AuditedWorkspace) -> None:
    forge(workspace, "DELETE FROM event WHERE seq = (SELECT max(seq) - 2 FROM event)")
    head = workspace.log.head()
    with pytest.raises(Corrupt, match=f"Event {head - 2} is damaged: it is missing"):
        again(workspace).timeline.tree()


def test_a_content_that_is_gone_is_not_said_to_have_been_too_large(
    workspace: AuditedWorkspace,
) -> None:
    state = workspace.timeline.state("b.txt")
    assert state is not None
    forge(
        workspace,
        f"UPDATE blob SET encoding = 'absent', base = NULL WHERE sha256 = x'{state.blob}'",
    )
    with pytest.raises(AuditError) as raised:
        again(workspace).timeline.content(state)
    assert raised.value.code == "CORRUPT"


def test_a_call_is_the_same_however_far_behind_it_is_looked(workspace: AuditedWorkspace) -> None:
    root = Path(workspace.root)
    for plan in (workspace.plan_undo, workspace.plan_redo, workspace.plan_undo):
        workspace.carry_out(plan())
    client = workspace.start_foreign_session("client", id="f", pid=os.getpid())
    for id in ("one", "two"):
        client.begin_call(id, "Bash", effect="execute")
    (root / "shared.txt").write_text("by one of them")
    client.end_call("one", "running")
    client.end_call("two")
    client.end_call("one", "error")
    lowered = Coverage("partial", ("found later",))
    numbers = tuple(call.seq for call in workspace.timeline.calls() if call.seq)
    workspace.log.append([Draft(CoverageLowered(numbers, lowered), "", "outside")])

    timeline = workspace.timeline
    calls = timeline.calls()
    assert {call.status for call in calls} == {"ok", "running"}
    assert {call.undone_by is None for call in calls} == {True, False}
    for near in range(0, workspace.log.head(), 3):
        contents = KeptContents(timeline.log, timeline.blobs)
        seen = VerifiedReading(timeline.proven, timeline.projections, contents, near=near)
        for call in calls:
            whole = timeline.verified.call_record(call.session, call.call_id)
            assert seen.call_record(call.session, call.call_id) == whole


def test_what_lowered_a_call_far_behind_is_found_whatever_kind_its_row_says(
    workspace: AuditedWorkspace,
) -> None:
    call = workspace.timeline.calls()[-1]
    assert call.seq is not None
    lowered = Coverage("partial", ("found later",))
    workspace.log.append([Draft(CoverageLowered((call.seq,), lowered), "", "outside")])
    forge(workspace, "UPDATE event SET kind = 'x' WHERE kind = 'coverage.lowered'")

    def far() -> Coverage:
        timeline = again(workspace).timeline
        contents = KeptContents(timeline.log, timeline.blobs)
        seen = VerifiedReading(timeline.proven, timeline.projections, contents, near=0)
        return seen.call_record(call.session, call.call_id).call.coverage

    assert far() == lowered
    forge(workspace, "UPDATE event SET leaf_hash = zeroblob(32) WHERE kind = 'x'")
    with pytest.raises(Corrupt):
        far()


@pytest.mark.parametrize("column", ["leaf", "leaf_hash"])
def test_what_is_changed_in_a_log_after_it_was_read_is_not_taken_for_what_was_read(
    workspace: AuditedWorkspace, column: str
) -> None:
    """The process that read it goes on, as a dashboard does."""
    call = workspace.timeline.calls()[-1]
    assert call.seq is not None
    shown = workspace.timeline.call(call.seq)
    assert workspace.timeline.call(call.seq) == shown
    other = f"(SELECT {column} FROM event WHERE seq = {call.seq - 1})"
    forge(workspace, f"UPDATE event SET {column} = {other} WHERE seq = {call.seq}")
    with pytest.raises(Corrupt):
        workspace.timeline.call(call.seq)


SCOPES = {
    "what is left out": "UPDATE workspace SET ignore = '*.txt'",
    "the limit of a file": "UPDATE workspace SET max_file_bytes = 1",
    "the event that told it": "UPDATE event SET kind = 'x' WHERE kind = 'scope.accepted'",
}


@pytest.mark.parametrize("how", SCOPES)
def test_what_is_recorded_is_what_was_accepted_or_nothing_is(
    workspace: AuditedWorkspace, how: str
) -> None:
    (Path(workspace.root) / ".loomignore").write_text("*.log\n")
    workspace.accept_scope()
    forge(workspace, SCOPES[how])
    attempts: Sequence[Callable[[AuditedWorkspace], object]] = (
        lambda seen: seen.status(),
        lambda seen: seen.scope,
        lambda seen: seen.carry_out(seen.plan_undo()),
        lambda seen: seen.start_foreign_session("later").begin_call("1", "x"),
    )
    for attempt in attempts:
        head = workspace.log.head()
        with pytest.raises(Corrupt, match="what its log says"):
            attempt(again(workspace))
        assert workspace.log.head() == head
    with again(workspace).session("later") as session:
        written = asyncio.run(session.call("write_file", {"path": "new.txt", "content": ""}))
        assert written.error is not None and written.error.code == "CORRUPT"
        assert not (Path(workspace.root) / "new.txt").exists()
    if "event" not in SCOPES[how]:
        workspace.rebuild()
        assert again(workspace).scope.ignore == "*.log\n"
        assert not again(workspace).status().drift


@pytest.mark.parametrize(
    ("kinds", "index"),
    [
        (("scope.accepted", "workspace.attached"), "event_scope"),
        (("git.changed",), "event_git"),
    ],
)
def test_the_few_events_of_a_kind_are_found_by_their_index(
    workspace: AuditedWorkspace, kinds: tuple[str, ...], index: str
) -> None:
    asked = list[str]()
    events = EventFilter(kinds=kinds, newest_first=True)
    with closing(open_store(workspace.adapters.settings.url)) as store:
        with store.adapters.database.connections.reading() as connection:
            connection.raw.set_trace_callback(asked.append)
        list(store.workspace(workspace.id).log.read(events))
        with store.adapters.database.connections.reading() as connection:
            plans = [
                connection.execute(f"EXPLAIN QUERY PLAN {sql}").fetchall()
                for sql in asked
                if kinds[0] in sql
            ]
    assert plans
    assert all(index in step[3] for plan in plans for step in plan), plans
