"""The hash of the tree goes on record now and then, so that reads need not begin at the start."""

import asyncio
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from loom_audit.api.face import AuditedWorkspace, open_store
from loom_audit.errors import Corrupt
from loom_audit.history.ground import continuous_log
from loom_audit.history.ground.proven_listings import ProvenListings
from loom_audit.history.ground.proven_log import ProvenLog
from loom_audit.model.continuity import TreeFold
from loom_audit.model.events import FilesChanged, TreeListed
from loom_audit.model.files import FileChange, FileState
from loom_audit.model.stored.listing import listing_hash
from loom_audit.ports import EventFilter
from loom_audit.sql.projections import keyframes
from loom_audit.wiring import adapters
from tests.integrity.test_verified_reads import again, forge

EVERY = 20


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[AuditedWorkspace]:
    """A log of some 70 events, of which every 20th has a keyframe."""
    monkeypatch.setenv("LOOM_AUDIT_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(keyframes, "KEYFRAME_EVENTS", EVERY)
    monkeypatch.setattr(adapters, "KEYFRAME_EVENTS", EVERY)
    monkeypatch.setattr(continuous_log, "HEAD_EVENTS", 16)
    root = tmp_path / "work"
    root.mkdir()
    (root / "folder").mkdir()
    (root / "link").symlink_to("folder")
    with closing(open_store()) as store:
        found = store.attach(root)
        with found.session("test") as session:
            for n in range(16):
                arguments = {"path": f"folder/{n % 3}.txt", "content": f"{n}\n"}
                assert asyncio.run(session.call("write_file", arguments)).success
        yield found


def listed(workspace: AuditedWorkspace) -> list[tuple[int, TreeListed]]:
    events = workspace.log.read(EventFilter(kinds=(TreeListed.kind,)))
    return [(event.seq, event.fact) for event in events if isinstance(event.fact, TreeListed)]


def test_the_tree_is_listed_after_each_keyframe(workspace: AuditedWorkspace) -> None:
    found = listed(workspace)
    assert [fact.point for _, fact in found] == [20, 40, 60]
    for seq, fact in found:
        assert fact.point < seq <= fact.point + 5
        assert fact.listing == listing_hash(workspace.timeline.tree(fact.point))
    assert workspace.verify().exit_code == 0


def test_a_read_begins_at_the_last_listing(
    workspace: AuditedWorkspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    stretches = []
    whole = ProvenLog.folded

    def noted(self: ProvenLog, after: int, until: int) -> object:
        stretches.append((after, until))
        return whole(self, after, until)

    monkeypatch.setattr(ProvenLog, "folded", noted)
    again(workspace).timeline.state("folder/1.txt", 55)
    assert stretches == [(40, 55)]


FORGED = {
    "another one": "(SELECT listing FROM keyframe WHERE seq = 20)",
    "not compressed": "x'00'",
    "a number": "-1",
    "a text": "'x'",
}


@pytest.mark.parametrize("how", FORGED)
def test_a_keyframe_that_is_not_the_one_on_record_is_corrupt(
    workspace: AuditedWorkspace, how: str
) -> None:
    tree = workspace.timeline.tree(55)
    forge(
        workspace,
        f"UPDATE keyframe SET listing = {FORGED[how]} WHERE seq = 40",
    )
    with pytest.raises(Corrupt, match=r"keyframe|listing of the tree after event 40"):
        again(workspace).timeline.tree(55)
    workspace.rebuild()
    assert again(workspace).timeline.tree(55) == tree


def test_a_listing_that_was_compared_once_is_not_read_from_the_tables_again(
    workspace: AuditedWorkspace,
) -> None:
    opened = again(workspace)
    trees = {point: opened.timeline.tree(point) for point in (45, 55)}
    assert trees[45] != trees[55]
    forge(workspace, f"UPDATE keyframe SET listing = {FORGED['another one']} WHERE seq = 40")
    # each page has a timeline of its own
    for point in (55, 45, 55):
        entry = opened.adapters.find(opened.id)
        assert AuditedWorkspace(opened.adapters, entry, "x").timeline.tree(point) == trees[point]
    with pytest.raises(Corrupt, match="event 40"):
        again(workspace).timeline.tree(55)


def test_listings_are_kept_while_they_have_few_paths() -> None:
    state = FileState("directory", None, 0o755, 0)
    kept = ProvenListings(5)
    kept.keep("a", TreeFold({"1": state, "2": state}))
    kept.keep("large", TreeFold({str(n): state for n in range(6)}))
    found = kept.get("a")
    assert found is not None and kept.get("large") is None
    found.follow(FilesChanged((FileChange("3", None, state),), "tool"))
    same = kept.get("a")
    assert same is not None and list(same.states) == ["1", "2"]
    kept.keep("b", TreeFold({"1": state}))
    kept.get("a")
    kept.keep("c", TreeFold({"1": state, "2": state, "3": state}))
    assert [name for name in "abc" if kept.get(name)] == ["a", "c"]


def test_without_a_keyframe_or_a_listing_the_tree_is_folded_from_further_back(
    workspace: AuditedWorkspace,
) -> None:
    tree = workspace.timeline.tree(55)
    forge(workspace, "DELETE FROM keyframe WHERE seq = 40")
    assert again(workspace).timeline.tree(55) == tree
    forge(workspace, "UPDATE event SET kind = 'other' WHERE kind = 'tree.listed'")
    assert again(workspace).timeline.tree(55) == tree


def test_a_listing_on_record_that_the_log_does_not_make_is_found(
    workspace: AuditedWorkspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(continuous_log, "listing_hash", lambda *_: "0" * 64)
    with workspace.session("test") as session:
        for n in range(6):
            asyncio.run(session.call("write_file", {"path": "new", "content": str(n)}))
    seq, _ = listed(workspace)[-1]
    assert [(one.code, one.seq) for one in workspace.verify().findings] == [("tree.listed", seq)]


ANOTHER_TREE = {
    "another state": (
        "UPDATE tree_entry SET mode = mode - 1 WHERE path = "
        "(SELECT number FROM path WHERE path = CAST('many/7' AS BLOB))",
    ),
    "a path less": (
        "DELETE FROM tree_entry WHERE path = "
        "(SELECT number FROM path WHERE path = CAST('many/7' AS BLOB))",
    ),
    "a path more": (
        "INSERT INTO path (log, path) SELECT min(number), CAST('more' AS BLOB) FROM log",
        "INSERT INTO tree_entry (log, path, mode, size) SELECT log, number, 16877, 0 FROM path "
        "WHERE path = CAST('more' AS BLOB)",
    ),
}


@pytest.mark.few(1)
@pytest.mark.parametrize("how", ANOTHER_TREE)
def test_tables_with_another_tree_than_was_listed_take_nothing_however_many_paths_there_are(
    workspace: AuditedWorkspace, how: str
) -> None:
    many = Path(workspace.root) / "many"
    many.mkdir()
    for n in range(5_001):
        (many / str(n)).touch()
    with workspace.session("test") as session, session.recording("make"):
        pass
    with workspace.session("test") as session:
        for n in range(8):
            asyncio.run(session.call("write_file", {"path": "new", "content": str(n)}))
    assert max(fact.point for _, fact in listed(workspace)) > 80
    forge(workspace, *ANOTHER_TREE[how])
    found = again(workspace)
    for _ in range(2):
        with pytest.raises(Corrupt, match="another tree"), found.session("test"):
            pytest.fail("a session began")
    found.rebuild()
    with again(workspace).session("test") as session:
        assert asyncio.run(session.call("write_file", {"path": "new", "content": "last"})).success


def test_heads_are_kept_as_the_log_grows(workspace: AuditedWorkspace) -> None:
    sizes = [head.size for head in workspace.adapters.kept_heads(workspace.id)]
    assert sizes == sorted(set(sizes)) and sizes[-1] == workspace.log.head()
    for n in range(16, workspace.log.head(), 16):
        assert any(n <= size < n + 8 for size in sizes), (n, sizes)
