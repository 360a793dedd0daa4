"""The file in which hooks note that they failed: nothing in it is lost, and all is told once."""

import os
import subprocess
import sys
import threading
from datetime import UTC, datetime
from pathlib import Path

import pytest

from loom_audit import AuditedWorkspace, AuditStore
from loom_audit.api.agents import failed_hooks
from loom_audit.api.agents.clients import Hooks
from loom_audit.disk.machine.spool import RESERVED, Spool
from loom_audit.errors import StorageFailed
from tests.processes.hooked import HookedClaude
from tests.test_daemon import pre_tool_use, run_hook
from tests.test_failed_hooks import (
    claude,
    failures,
    home,
    root,
    spool,
    store,
    take_up,
    transcripts,
    waiting_lines,
    workspace,
)
from tests.web.conftest import asking

__all__ = ["claude", "home", "root", "spool", "store", "transcripts", "workspace"]


def test_a_line_that_was_torn_takes_no_other_with_it(
    claude: HookedClaude, workspace: AuditedWorkspace, store: AuditStore, spool: Path
) -> None:
    """The disk was full in the middle of it, and has room again."""
    now = datetime.now(UTC).timestamp()
    spool.write_bytes(b"loom-failed 1 %.3f\tclaude-code\tPreToolUse\ts1\tc0" % now)
    claude.bash("c1", "true")
    take_up(store)
    assert [fact.count for fact in failures(workspace)] == [3], "the torn one names its hook"
    assert {call.call_id for call in workspace.timeline.calls()} == {"c1"}


def test_there_is_a_file_with_space_at_any_time_while_lines_are_taken(
    home: Path, spool: Path
) -> None:
    """So that a hook never makes one of its own, which has none on a full disk."""
    taking = Spool(home / "hooks")
    taking.reserve()
    if spool.stat().st_blocks * 512 < RESERVED:
        pytest.skip("the filesystem of the data folder cannot reserve space behind a file's end")
    stop, missed = threading.Event(), list[str]()

    def look() -> None:
        while not stop.is_set():
            try:
                if spool.stat().st_blocks * 512 < RESERVED:
                    missed.append("without space")
            except FileNotFoundError:
                missed.append("not there")

    looking = threading.Thread(target=look)
    looking.start()
    taken = list[bytes]()
    for number in range(300):
        with spool.open("ab") as file:
            file.write(b"line %d\n" % number)
        with taking.taken() as (lines, _):
            taken += lines
    stop.set()
    looking.join()
    assert not missed
    assert taken == [b"line %d" % number for number in range(300)]
    assert [one.name for one in (home / "hooks").glob("spool*")] == ["spool", "spool.lock"]


def test_hooks_that_fail_after_it_was_put_on_record_that_others_did_are_on_record_too(
    claude: HookedClaude,
    workspace: AuditedWorkspace,
    store: AuditStore,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What their session's transcript tells could not be recorded, so that the lines wait."""
    claude.bash("c1", "true")

    def fail(*_: object) -> None:
        raise StorageFailed("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(Hooks, "_recall", fail)
        for _ in range(2):
            with pytest.raises(StorageFailed):
                take_up(store)
            assert [fact.count for fact in failures(workspace)] == [2]
    claude.bash("c2", "true")
    take_up(store)
    assert [fact.count for fact in failures(workspace)] == [2, 2]
    assert {call.call_id for call in workspace.timeline.calls()} == {"c1", "c2"}
    assert not failed_hooks.waiting(store.adapters.settings)
    assert workspace.verify().findings == ()


def test_a_transcript_of_another_account_is_not_believed(
    claude: HookedClaude, workspace: AuditedWorkspace, store: AuditStore
) -> None:
    if os.geteuid():
        pytest.skip("only root can give a file to another account")
    claude.bash("c1", "true")
    os.chown(claude.transcript, 12345, 12345)
    take_up(store)
    assert [fact.count for fact in failures(workspace)] == [2]
    assert [*workspace.timeline.calls()] == []


def test_a_spool_of_another_account_is_not_believed(
    claude: HookedClaude, workspace: AuditedWorkspace, store: AuditStore, spool: Path
) -> None:
    if os.geteuid():
        pytest.skip("only root can give a file to another account")
    claude.bash("c1", "true")
    os.chown(spool, 12345, 12345)
    take_up(store)
    assert failures(workspace) == [] and [*workspace.timeline.calls()] == []


def test_the_status_page_shows_what_waits_and_records_nothing(
    claude: HookedClaude, workspace: AuditedWorkspace, store: AuditStore, home: Path
) -> None:
    claude.bash("c1", "true")
    head = workspace.log.head()
    with asking(store) as visitor:
        assert "2 hooks of claude-code failed" in visitor.get(f"/w/{workspace.id}/status").text
    assert workspace.log.head() == head and len(waiting_lines(home)) == 2


def imported(root: Path, *words: str) -> set[str]:
    """The modules that a process with these words imports, which is given the input of a hook."""
    argv = [sys.executable, "-I", "-S", "-X", "importtime", *words]
    done = subprocess.run(argv, input=pre_tool_use(root), cwd=root, capture_output=True)
    lines = done.stderr.decode().splitlines()
    return {line.rpartition("|")[2].strip() for line in lines if "import time:" in line}


def test_a_hook_that_fails_imports_nothing_for_that(home: Path, root: Path) -> None:
    hook = str(home / "hooks" / "hook_client.py")
    more = imported(root, hook, "claude-code") - imported(root, "-c", "pass")
    assert more == {"hook", "_socket"}
    assert waiting_lines(home), "it has noted it"


def test_a_line_is_one_write_that_begins_and_ends_it(
    home: Path, root: Path, workspace: AuditedWorkspace, spool: Path
) -> None:
    assert workspace.root == str(root)
    run_hook(home, pre_tool_use(root), "claude-code", cwd=root)
    text = spool.read_bytes()
    assert text.startswith(b"\nloom-failed 1 ") and text.endswith(b"\n") and len(text) <= 4096
