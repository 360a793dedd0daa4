"""Records the demonstration: two sessions, what is said in them, and a person's edit in between."""

import os
import shutil
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import wait
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from anyio.from_thread import start_blocking_portal
from msgspec import Struct, field
from msgspec.structs import replace

from loom_audit.api.agents.said import tell_message, tell_prompt
from loom_audit.api.face import ApprovalRequest, AuditStore, Session, open_store
from loom_audit.api.ground.event_loop import run_in_loop
from loom_audit.config import read_settings
from loom_audit.demo.story import (
    AFTER_NO,
    AFTER_YES,
    ASKED,
    ENVIRONMENT,
    Happening,
    Message,
    Prompt,
    building,
    edit_by_hand,
    going_too_far,
    make_workspace,
)
from loom_audit.ports import OnProgress, Progress
from loom_audit.tools.approvals.asking_gate import AskingGate
from loom_audit.tools.calls.thread import in_thread

PATIENCE = 7 * 24 * 3600
"""Seconds for which the call that waits does so."""
CHECKPOINT = "tests-pass"
AGENT = "demo"


class Demo(Struct, frozen=True):
    """Two recorded sessions and independent copies of the workspace at its turning points.

    `start`, `checkpoint` and `end` are seqs; `copies` has a folder for each. `session` is the
    second of the `sessions`. `numbers` are the calls by label, `outside` the paths a person changed
    in between, `environment` what must be set for other commands to find the store.
    """

    folder: str
    root: str
    store: str
    package: str
    session: str
    sessions: tuple[str, str]
    start: int
    checkpoint: int
    end: int
    calls: int
    failed: int
    numbers: Mapping[str, int]
    outside: tuple[str, ...]
    copies: Mapping[str, str]
    environment: Mapping[str, str]


# --- the session --------------------------------------------------------------------------


@contextmanager
def demo_store(folder: Path, url: str | None = None) -> Iterator[AuditStore]:
    """The store of this URL or of the settings; where nobody set any, one in the folder."""
    told = url or os.environ.get("LOOM_AUDIT_STORE") or os.environ.get("LOOM_AUDIT_HOME")
    if told:
        with open_store(url) as store:
            yield store
        return
    os.environ["LOOM_AUDIT_HOME"] = str(folder / "home")
    try:
        with open_store() as store:
            yield store
    finally:
        del os.environ["LOOM_AUDIT_HOME"]


def make_folder() -> Path:
    """A temporary folder for one demo; it stays until the person deletes it."""
    return Path(tempfile.mkdtemp(prefix="loom-audit-demo-")).resolve()


@contextmanager
def demonstrating(
    store: AuditStore, folder: Path, *, report: OnProgress | None = None, asking: bool = True
) -> Iterator[Demo]:
    """Copy a package into `folder/workspace`, and record two sessions of an agent on it.

    Independent copies of the workspace are kept in `folder/copies`. When `asking`, the second
    session goes on during the block, with a call that waits for a person; the call is cancelled at
    the end of the block if nobody has answered. NotFound when no suitable package is installed.
    """
    root, copies = folder / "workspace", folder / "copies"
    package = make_workspace(root)
    copies.mkdir()
    workspace = store.attach(root, report=report)
    start = workspace.log.head()
    _copy(root, copies / "start")
    first, second = building(root, package), going_too_far(package)
    recording = _Recording(report, first.calls + second.calls)
    with workspace.session(AGENT, title=first.title, environment=ENVIRONMENT) as building_session:
        run_in_loop(_record(building_session, first.happenings, recording))
    _copy(root, copies / "checkpoint")
    checkpoint = workspace.checkpoint(CHECKPOINT, note="before the clean-up")
    outside = edit_by_hand(root)
    with ExitStack() as stack:
        begun = workspace.session(AGENT, title=second.title, environment=ENVIRONMENT)
        session = stack.enter_context(begun)
        run_in_loop(_record(session, second.happenings, recording))
        if not asking:
            stack.close()
        _copy(root, copies / "end")
        made = Demo(
            folder=str(folder),
            root=str(root),
            store=store.url,
            package=package,
            session=session.id,
            sessions=(building_session.id, session.id),
            start=start,
            checkpoint=checkpoint.point,
            end=workspace.log.head(),
            calls=recording.done,
            failed=recording.failed,
            numbers=recording.numbers,
            outside=outside,
            copies={name: str(copies / name) for name in ("start", "checkpoint", "end")},
            environment=_environment(store),
        )
        if asking:
            number = stack.enter_context(_call_that_waits(session))
            numbers = {**made.numbers, ASKED.label: number}
            made = replace(made, calls=made.calls + 1, numbers=numbers)
        yield made


@contextmanager
def _call_that_waits(session: Session) -> Iterator[int]:
    """A call that asks a person and goes on in a thread during the block; its number."""
    asked = threading.Event()

    def note(_: ApprovalRequest) -> None:
        asked.set()

    async def ask() -> None:
        result = await session.call(ASKED.tool, dict(ASKED.arguments))
        said = AFTER_YES if result.success else AFTER_NO
        await in_thread(partial(tell_message, session, said))

    session.gate = AskingGate(ask=note, timeout=PATIENCE)
    with start_blocking_portal() as portal:
        asking = portal.start_task_soon(ask)
        asking.add_done_callback(lambda _: asked.set())
        asked.wait()
        open_calls = session.workspace.timeline.open_calls()
        try:
            yield next((call.requested for call in open_calls), 0)
        finally:
            if session.workspace.timeline.open_calls():
                asking.cancel()
            wait([asking])  # of an answered call the agent's last words are still to come


def _environment(store: AuditStore) -> dict[str, str]:
    needed = {}
    if home := os.environ.get("LOOM_AUDIT_HOME"):
        needed["LOOM_AUDIT_HOME"] = home
    if read_settings().url != store.url:
        needed["LOOM_AUDIT_STORE"] = store.url
    return needed


class _Recording(Struct):
    report: OnProgress | None
    total: int
    done: int = 0
    failed: int = 0
    numbers: dict[str, int] = field(default_factory=dict)


async def _record(session: Session, happenings: Sequence[Happening], recording: _Recording) -> None:
    for one in happenings:
        if isinstance(one, Prompt):
            tell_prompt(session, one.text)
            continue
        if isinstance(one, Message):
            tell_message(session, one.text)
            continue
        result = await session.call(one.tool, dict(one.arguments))
        recording.done += 1
        recording.failed += not result.success
        if one.label:
            recording.numbers[one.label] = session.workspace.log.head()
        if recording.report is not None:
            recording.report(Progress("recording", recording.done, recording.total, "calls"))


def _copy(source: Path, target: Path) -> None:
    shutil.copytree(source, target, symlinks=True)


def what_to_try(demo: Demo) -> list[tuple[str, str]]:
    """Commands with what each is for, to be typed in the workspace."""
    sed, edit = demo.numbers["sed"], demo.numbers["edit"]
    waiting = demo.numbers.get(ASKED.label)
    asked = ("loom-audit deny {waiting}", "the agent wants to delete your todo.txt, and waits")
    return [
        *([(asked[0].format(waiting=waiting), asked[1])] if waiting else []),
        ("loom-audit log", "every call of both sessions"),
        ("loom-audit find shortest", "who said that, and which calls"),
        (f"loom-audit show {sed}", "one of them: sed over all modules"),
        (f"loom-audit diff {demo.start} head --name-only", "all it did to the files"),
        ("loom-audit verify", "whether the log is what was written"),
        ("loom-audit undo --dry-run", "what taking back the newest change would do"),
        (f"loom-audit revert {demo.numbers['rm']}", f"bring {demo.package}/ back after rm -rf"),
        (f"loom-audit revert {edit}", "take back one edit, keep the later ones"),
        (f"loom-audit rollback @{CHECKPOINT}", "everything as it was when the tests passed"),
        ("loom-audit undo", "take the rollback back too"),
    ]
