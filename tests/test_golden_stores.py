"""The store of every release stays readable: each is opened, listed, verified and replayed."""

import asyncio
import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from loom_audit import AuditedWorkspace, AuditStore, open_store
from loom_audit.api.upkeep.forgetting import forget_workspace
from loom_audit.api.upkeep.moving import BY_LISTING
from loom_audit.disk.machine.heads import parse_heads
from loom_audit.history.ground.writer import Writer
from loom_audit.model.events import WorkspaceAttached, WorkspaceForgotten
from loom_audit.ports import CallFilter, EventFilter
from loom_audit.verify_alone import main as verify_alone
from tests.data.stores.make import WORKSPACE, tree

STORES = Path(__file__).parent / "data" / "stores"
RELEASES = sorted(folder.name for folder in STORES.iterdir() if (folder / "audit.db.gz").exists())


@pytest.fixture(params=RELEASES)
def golden(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SimpleNamespace]:
    """A copy of a release's store, open, and what was kept beside it."""
    kept = STORES / request.param
    file = tmp_path / "store" / "audit.db"
    file.parent.mkdir()
    file.write_bytes(gzip.decompress((kept / "audit.db.gz").read_bytes()))
    (head,) = parse_heads((kept / "head").read_text())
    trees = {int(at): found for at, found in json.loads((kept / "trees.json").read_text()).items()}
    with open_store(str(file)) as store:
        yield SimpleNamespace(
            store=store, workspace=store.workspace(head.log), head=head, trees=trees
        )


def test_this_release_has_a_store() -> None:
    import loom_audit

    assert loom_audit.__version__ in RELEASES


def test_a_release_s_store_is_small() -> None:
    for release in RELEASES:
        assert sum(file.stat().st_size for file in (STORES / release).iterdir()) < 200_000


def test_an_older_release_s_store_is_verified_against_the_head_kept_of_it(
    golden: SimpleNamespace,
) -> None:
    workspace: AuditedWorkspace = golden.workspace
    found = workspace.verify(against=golden.head)
    assert found.findings == () and found.anchored == golden.head.size
    assert found.root == golden.head.root


def test_an_older_release_s_store_is_replayed_as_it_lay_on_disk(
    golden: SimpleNamespace, tmp_path: Path
) -> None:
    for at, expected in golden.trees.items():
        target = tmp_path / f"at-{at}"
        golden.workspace.replay(at, target)
        assert tree(target) == expected


def test_an_older_release_s_store_is_listed(golden: SimpleNamespace) -> None:
    store: AuditStore = golden.store
    workspace: AuditedWorkspace = golden.workspace
    (entry,) = store.workspaces()
    assert entry.id == golden.head.log and entry.baseline_done
    calls = workspace.timeline.calls(CallFilter(limit=None))
    assert {call.tool for call in calls} > {"read_file", "a block", "undo", "redo", "rollback"}
    for call in calls:
        detail = workspace.timeline.call(call.requested)
        assert detail.call == call and detail.events
    events = list(workspace.timeline.events(EventFilter()))
    assert [event.seq for event in events] == list(range(1, golden.head.size + 1))
    assert isinstance(events[0].fact, WorkspaceAttached)
    assert [one.name for one in workspace.timeline.checkpoints()] == ["here"]
    assert workspace.rebuild() == golden.head.size
    assert workspace.timeline.calls(CallFilter(limit=None)) == calls


@pytest.mark.few(1)
def test_an_older_release_s_store_is_moved_appended_to_and_rolled_back(
    golden: SimpleNamespace, tmp_path: Path
) -> None:
    place = tmp_path / "workspace"
    golden.workspace.replay(golden.head.size, place)
    before = tree(place)
    # what a move puts on record; a move looks at the folder that the stores name, which is one for
    # all runs and accounts, and may be there
    attachment = golden.store.adapters.attachment(golden.head.log)
    rules = attachment.scope
    moved = WorkspaceAttached(
        str(place), rules.ignore, rules.max_file_bytes, str(WORKSPACE), BY_LISTING
    )
    Writer(attachment, session="", actor="person:ada").record(moved)
    workspace = golden.store.workspace(golden.head.log)
    with workspace.session("later") as session:
        written = asyncio.run(session.call("write_file", {"path": "later.txt", "content": "x"}))
        asyncio.run(session.call("shell_execute", {"command": "rm -r src; echo y > later.txt"}))
    assert written.ok and tree(place) != before
    workspace.carry_out(workspace.plan_undo(), actor="person:ada")
    workspace.carry_out(workspace.plan_undo(), actor="person:ada")
    assert tree(place) == before
    for at in sorted(golden.trees, reverse=True):
        plan = workspace.plan_rollback(at, outside=True)
        if not plan.is_empty:
            workspace.carry_out(plan, actor="person:ada")
        assert tree(place) == golden.trees[at]
    found = workspace.verify(against=golden.head)
    assert found.findings == () and golden.head.size < found.anchored == found.size


def test_an_older_release_s_workspace_is_forgotten_but_for_what_another_has(
    golden: SimpleNamespace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store: AuditStore = golden.store
    golden.workspace.replay(golden.head.size, tmp_path / "copy")
    other = store.attach(tmp_path / "copy")
    done = forget_workspace(store, golden.head.log, reason="of long ago")
    fact = done.event.fact
    assert done.is_finished and isinstance(fact, WorkspaceForgotten) and fact.contents > 0
    found = store.verify_forgotten(golden.head.log, against=[golden.head])
    assert [one.code for one in found.findings] == ["log.forgotten"]
    assert found.size == golden.head.size + 1 and found.unanchored == 0
    assert other.verify().findings == ()
    assert tree(tmp_path / "copy")
    other.replay("head", tmp_path / "again")
    assert tree(tmp_path / "again") == tree(tmp_path / "copy")
    assert store.adapters.settings.file is not None
    verify_alone([str(store.adapters.settings.file)])
    said = capsys.readouterr().out.splitlines()
    assert [line for line in said if line.startswith(f"forgotten: log {golden.head.log}")]
    # a revision that comes is one that it does not know yet
    assert [one for one in said if one.startswith("wrong: ") and "revisions" not in one] == []
