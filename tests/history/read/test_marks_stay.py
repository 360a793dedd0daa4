"""Marks stay where tables are made anew, checked, upgraded, and where another log is forgotten."""

import asyncio
import gzip
from pathlib import Path

import pytest

from loom_audit import AuditedWorkspace, Session
from loom_audit.api.face import open_store
from loom_audit.api.lines import lines_of
from loom_audit.api.review.marks import (
    last_read,
    mark_viewed,
    read_up_to,
    unread_sessions,
    viewed_among,
)
from loom_audit.api.upkeep.forgetting import forget_workspace
from loom_audit.errors import InvalidArguments

STORES = Path(__file__).parents[2] / "data" / "stores"
BOB = "person:bob"


def names_of(workspace: AuditedWorkspace, session: str) -> list[str]:
    lines = lines_of(workspace)
    return [name for file in lines.net(lines.of_session(session)).files for name in file.named]


def write(session: Session, path: str, content: str) -> None:
    asyncio.run(session.call("write_file", {"path": path, "content": content}))


def test_marks_and_names_stay_the_same_after_a_rebuild_and_verification(
    workspace: AuditedWorkspace,
) -> None:
    with workspace.session("marked") as session:
        write(session, "one.txt", "one\n")
        write(session, "two.txt", "two\n")
    names = names_of(workspace, session.id)
    assert len({*names}) == 2
    mark_viewed(workspace, names[:1])
    mark_viewed(workspace, names, actor=BOB)
    read = read_up_to(workspace, session.id)
    for _ in range(2):
        assert workspace.verify().findings == ()
        assert names_of(workspace, session.id) == names
        assert viewed_among(workspace, names) == {names[0]}
        assert viewed_among(workspace, names, actor=BOB) == {*names}
        assert last_read(workspace, session.id) == read == workspace.log.head()
        assert unread_sessions(workspace) == []
        assert [one.session.id for one in unread_sessions(workspace, actor=BOB)] == [session.id]
        workspace.rebuild()
    with pytest.raises(InvalidArguments):
        mark_viewed(workspace, [names[0], "x"], viewed=False)
    assert viewed_among(workspace, names) == {names[0]}, "a mark that cannot be changes nothing"


def test_forgetting_a_workspace_takes_its_marks_and_no_other_s(
    workspace: AuditedWorkspace, tmp_path: Path
) -> None:
    (tmp_path / "other").mkdir()
    with open_store(workspace.adapters.settings.url) as store:
        other = store.attach(tmp_path / "other")
        sessions = {}
        for one in (workspace, other):
            with one.session("marked") as session:
                write(session, "same.txt", "same\n")
            sessions[one.id] = session.id
            mark_viewed(one, names_of(one, session.id))
            read_up_to(one, session.id)
        names = names_of(workspace, sessions[workspace.id])
        assert not {*names} & {*names_of(other, sessions[other.id])}, "each log has its own key"
        forget_workspace(store, other.id, reason="gone")
        with store.adapters.database.connections.reading() as connection:
            for table in ("marks", "viewed", "read_to"):
                rows = connection.execute(f"SELECT DISTINCT log FROM {table}").fetchall()
                assert [tuple(row) for row in rows] == [(1,)], table
        assert viewed_among(workspace, names) == {*names}
        assert last_read(workspace, sessions[workspace.id])
        assert workspace.verify().findings == ()


@pytest.mark.parametrize("release", ["0.1.0", "0.2.0"])
def test_what_an_older_release_recorded_is_not_unread_and_can_be_marked(
    release: str, tmp_path: Path
) -> None:
    file = tmp_path / "store" / "audit.db"
    file.parent.mkdir()
    file.write_bytes(gzip.decompress((STORES / release / "audit.db.gz").read_bytes()))
    with open_store(str(file)) as store:
        [entry] = store.workspaces()
        workspace = store.workspace(entry.id)
        assert unread_sessions(workspace) == []
        for session in workspace.timeline.sessions():
            names = names_of(workspace, session.id)
            mark_viewed(workspace, names)
            assert viewed_among(workspace, names) == {*names}
        assert workspace.verify().findings == ()
