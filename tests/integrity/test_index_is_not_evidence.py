"""A forged or lost index hides nothing from who reads the disk anew, and a cut log is found."""

import asyncio
from hashlib import sha256
from pathlib import Path

from loom_audit import __version__
from loom_audit.api.face import AuditedWorkspace
from loom_audit.disk.looking.index import DiskChangeIndex
from loom_audit.model.events import RulesChanged, SessionStarted
from loom_audit.model.files import BlobId
from loom_audit.ports import EventFilter, IndexEntry
from tests.integrity.test_verified_reads import again, forge, workspace

__all__ = ["workspace"]


def index_of(found: AuditedWorkspace) -> DiskChangeIndex:
    return DiskChangeIndex(found.adapters.settings.home / "index" / f"{found.id}.db")


def hide(found: AuditedWorkspace, path: str) -> None:
    """Make the index say that the file is as it was when it was recorded."""
    index, state, stamp = index_of(found), found.timeline.state(path), None
    while stamp is None or stamp.ctime_ns < 0:  # one so new equals no later one
        stamp = found.attachment.on_disk.workspace.stamp(path)
    assert state and state.blob
    index.update({path: IndexEntry(stamp, BlobId(state.blob))}, head=index.head())


def test_an_edit_that_the_index_hides_is_seen_by_a_rehash_and_by_verify(
    workspace: AuditedWorkspace,
) -> None:
    (Path(workspace.root) / "b.txt").write_text("somebody else's\n")
    hide(workspace, "b.txt")
    seen = again(workspace)
    assert seen.status().drift == ()
    assert [change.path for change in seen.status(rehash=True).drift] == ["b.txt"]
    found = seen.verify()
    assert [(one.code, one.grade) for one in found.findings] == [("index", "incomplete")]
    assert "b.txt" in found.findings[0].message


def test_an_edit_that_nothing_hides_is_not_a_finding(workspace: AuditedWorkspace) -> None:
    (Path(workspace.root) / "b.txt").write_text("somebody else's\n")
    (Path(workspace.root) / "c.txt").unlink()
    (Path(workspace.root) / "new.txt").touch()
    found = again(workspace).verify()
    assert found.findings == () and found.checked["paths_on_disk"] == 3
    assert len(again(workspace).status(rehash=True).drift) == 3


def test_a_log_shorter_than_the_index_has_seen_is_a_finding_also_after_a_look(
    workspace: AuditedWorkspace,
) -> None:
    head = workspace.log.head()
    forge(
        workspace,
        f"DELETE FROM payload WHERE seq > {head - 5}",
        f"DELETE FROM event WHERE seq > {head - 5}",
    )
    again(workspace).rebuild()
    for file in workspace.adapters.settings.heads.iterdir():
        file.unlink()
    for _ in range(2):
        seen = again(workspace)
        found = [(one.code, one.grade) for one in seen.verify().findings]
        assert ("log.short", "tampered") in found
        assert any(
            "cut off, or copied while it was written" in one.message
            for one in workspace.verify().findings
        )
        seen.status()


def test_the_last_verification_is_kept_beside_the_heads(workspace: AuditedWorkspace) -> None:
    assert workspace.last_verified() is None
    workspace.verify(quick=True)
    assert workspace.last_verified() is None
    workspace.verify()
    last = workspace.last_verified()
    assert last and (last.size, last.code) == (workspace.log.head(), 0)


def test_a_session_of_several_calls_does_not_believe_an_index_that_hides_an_edit(
    workspace: AuditedWorkspace,
) -> None:
    (Path(workspace.root) / "b.txt").write_text("somebody else's\n")
    hide(workspace, "b.txt")
    seen = again(workspace)
    with seen.session("test") as session:
        for _ in range(3):
            with session.recording("step"):
                pass
    [found] = [one for one in seen.timeline.history("b.txt") if one.origin == "outside"]
    assert found.change.after == seen.timeline.state("b.txt")
    assert seen.status(rehash=True).drift == ()


def test_other_rules_during_a_session_are_on_record(workspace: AuditedWorkspace) -> None:
    folder = workspace.adapters.settings.configuration
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tools.toml").write_text("")
    with workspace.session("test") as session:
        asyncio.run(session.call("read_file", {"path": "a.txt"}))
        (folder / "approvals.toml").write_text("# none\n")
        asyncio.run(session.call("read_file", {"path": "a.txt"}))
        asyncio.run(session.call("read_file", {"path": "a.txt"}))
        (folder / "tools.toml").unlink()
    facts = [event.fact for event in workspace.log.read(EventFilter(session=session.id))]
    [started] = [fact for fact in facts if isinstance(fact, SessionStarted)]
    changed = [fact.rules for fact in facts if isinstance(fact, RulesChanged)]
    empty, rules = sha256().hexdigest(), sha256(b"# none\n").hexdigest()
    assert started.version == __version__ and started.rules == (("tools", empty),)
    assert changed == [(("approvals", rules), ("tools", empty)), (("approvals", rules),)]
    assert isinstance(facts[-2], RulesChanged)
