"""Every way in, however it ends: one finish on record, and each change once."""

import asyncio
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from msgspec.structs import replace

from loom_audit import (
    ApprovalDenied,
    AuditedWorkspace,
    AuditUnavailable,
    Conflict,
    DenyAll,
    InvalidArguments,
    Session,
    ToolContext,
    ToolResult,
    ToolTimeout,
    builtin_registry,
    tool,
)
from loom_audit.history.record.call import OpenCall
from loom_audit.model.events import CallFinished, CallRequested
from loom_audit.model.records import Call
from loom_audit.ports import Command, Moments, Runner
from tests.oracles.changes import check_each_change_once
from tests.oracles.trees import tree_of

PYTHON = sys.executable


@pytest.fixture(autouse=True)
def whole(workspace: AuditedWorkspace) -> Iterator[None]:
    """After each test: one finish per request, each change once, nothing unseen."""
    yield
    events = [*workspace.log.read()]
    facts = [event.fact for event in events]
    requested = Counter(fact.call_id for fact in facts if isinstance(fact, CallRequested))
    finished = Counter(fact.call_id for fact in facts if isinstance(fact, CallFinished))
    assert requested == finished and set(finished.values()) <= {1}
    check_each_change_once(events)
    assert workspace.status().drift == ()
    assert workspace.verify().findings == ()


@dataclass(frozen=True)
class Way:
    """A way in that makes `made`, then does what it is told. What it raises is its caller's."""

    name: str
    run: Callable[[Session, Path, str], object]


def told(how: str) -> str:
    """The end of an action, in the process or thread that is acting."""
    if how == "error":
        raise ValueError("no")
    if how == "denied":
        raise ApprovalDenied("somebody said no")
    if how == "timeout":
        raise ToolTimeout("too long")
    if how == "cancelled":
        raise KeyboardInterrupt
    return "done"


def by_tool(session: Session, root: Path, how: str) -> object:
    acted = asyncio.Event()

    @tool(effect="execute", timeout_seconds=0.2 if how == "timeout" else 20)
    async def act(ctx: ToolContext) -> str:
        """Changes a file, then ends as the test says."""
        await anyio.to_thread.run_sync((root / "made").touch)
        if how in ("timeout", "cancelled"):
            acted.set()
            await asyncio.sleep(60)
        return told(how)

    if how == "denied":
        session.gate = DenyAll()
    session._registry = builtin_registry()
    session.registry.register(act)

    async def call() -> ToolResult:
        calling = asyncio.ensure_future(session.call("act", {}))
        if how == "cancelled":
            await acted.wait()
            calling.cancel()
        return await calling

    result = asyncio.run(call())
    if result.error is not None:
        raise {"APPROVAL_DENIED": ApprovalDenied, "TIMEOUT": ToolTimeout}.get(
            result.error.code, ValueError
        )(result.error.message)
    return result


def by_run(session: Session, root: Path, how: str) -> object:
    ends = {"ok": "", "error": "exit(3)", "cancelled": "import time; time.sleep(60)"}[how]
    argv = [PYTHON, "-c", f"open('made', 'w').close(); {ends}"]
    if how != "cancelled":
        return session.run(argv)

    runner = type(session.workspace.attachment.on_disk.runner)
    run = runner.run

    def interrupted(self: Runner, folder: str, command: Command, moments: Moments) -> Any:
        until = time.monotonic() + 30

        def made() -> bool:
            assert time.monotonic() < until
            return (root / "made").exists()

        run(self, folder, command, replace(moments, cancelled=made))
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runner, "run", interrupted)
        return session.run(argv)


def by_recording(session: Session, root: Path, how: str) -> object:
    with session.recording("act"):
        (root / "made").touch()
        return told(how)


def by_function(session: Session, root: Path, how: str) -> object:
    @session.tool
    def act() -> str:
        (root / "made").touch()
        return told(how)

    return act()


def by_coroutine(session: Session, root: Path, how: str) -> object:
    @session.tool(effect="write")
    async def act() -> str:
        (root / "made").touch()
        await asyncio.sleep(0)
        if how == "cancelled":
            raise asyncio.CancelledError
        return told(how)

    return asyncio.run(act())


def by_generator(session: Session, root: Path, how: str) -> object:
    @session.tool
    def act() -> Iterator[str]:
        (root / "made").touch()
        yield "one"
        yield told(how)

    steps = act()
    next(steps)
    if how == "cancelled":
        steps.close()  # type: ignore[attr-defined]
        raise GeneratorExit
    return list(steps)


def by_call(session: Session, root: Path, how: str) -> object:
    with OpenCall(session.writer, "act", {}, "write", call_id="c") as call:
        call.edit("made", b"")
        return told(how)


ALL = ("ok", "error", "denied", "timeout", "cancelled")
WAYS = {
    "tool": (by_tool, ALL),
    "command": (by_run, ("ok", "error", "cancelled")),
    "recording": (by_recording, ALL),
    "function": (by_function, ALL),
    "coroutine": (by_coroutine, ALL),
    "generator": (by_generator, ALL),
    "call": (by_call, ALL),
}
ROWS = [(name, how) for name, (_, ends) in WAYS.items() for how in ends]


@pytest.mark.few(9)
@pytest.mark.parametrize(("way", "how"), ROWS)
def test_a_call_that_ends_so_has_one_finish_that_says_so(
    workspace: AuditedWorkspace, root: Path, way: str, how: str
) -> None:
    raised: BaseException | None = None
    with workspace.session("agent") as session:
        try:
            WAYS[way][0](session, root, how)
        except BaseException as error:  # noqa: BLE001 - all that ends a call
            raised = error
    (call,) = workspace.timeline.calls()
    assert (raised is not None) == (how != "ok" and (way, how) != ("command", "error"))
    assert call.status == how
    denied = (way, how) == ("tool", "denied")
    assert call.paths == (() if denied else ("made",))
    assert call.coverage.level == "full"


@pytest.mark.parametrize("status", ["ok", "error"])
def test_an_undo_has_one_finish(
    workspace: AuditedWorkspace, call: Callable[..., ToolResult], root: Path, status: str
) -> None:
    call("write_file", path="a.txt", content="changed")
    plan = workspace.plan_undo()
    with pytest.MonkeyPatch.context() as patch:
        if status == "error":
            carry_out = "loom_audit.history.record.carrying_out.Step.carry_out"
            patch.setattr(carry_out, lambda *_, **__: told("denied"))
        with suppress(ApprovalDenied):
            workspace.carry_out(plan)
    (undo, *_) = workspace.timeline.calls()
    assert (undo.tool, undo.status) == ("undo", {"ok": "ok", "error": "denied"}[status])


# --- what the functions keep --------------------------------------------------------------


def only_call(workspace: AuditedWorkspace) -> Call:
    (call,) = workspace.timeline.calls()
    return call


@pytest.mark.parametrize(
    ("value", "output", "data"),
    [
        (None, "", None),
        ("text", "text", None),
        ({"a": [1]}, '{"a": [1]}', {"a": [1]}),
        ((1, 2), "[1, 2]", {"result": [1, 2]}),
        (float("nan"), "<float: nan>", None),
    ],
    ids=str,
)
def test_what_a_function_returns_is_the_result_of_its_call(
    workspace: AuditedWorkspace, value: object, output: str, data: object
) -> None:
    with workspace.session("agent") as session:

        @session.tool
        def give() -> object:
            return value

        assert give() is value
    seq = only_call(workspace).seq
    assert seq is not None
    result = workspace.timeline.call(seq).result
    assert (result["success"], result["output"], result["data"]) == (True, output, data)


def test_a_function_says_its_effect_and_a_read_is_not_looked_at(
    workspace: AuditedWorkspace, root: Path
) -> None:
    with workspace.session("agent") as session:

        @session.tool(effect="read")
        def look() -> str:
            assert len(workspace.timeline.open_calls()) == 1, "it is on record while it runs"
            return (root / "a.txt").read_text()

        with pytest.MonkeyPatch.context() as patch:
            patch.delattr(type(workspace.attachment.on_disk.workspace), "differences")
            look()
    assert only_call(workspace).effect == "read"


def test_a_model_s_id_for_a_call_is_its_id_and_is_used_once(workspace: AuditedWorkspace) -> None:
    def give(n: int) -> int:
        return n

    with workspace.session("agent") as session:
        assert session.tool(give, call_id="toolu_1")(4) == 4
        with pytest.raises(Conflict, match="toolu_1"):
            session.tool(give, call_id="toolu_1")(5)
    assert only_call(workspace).call_id == "toolu_1"


def test_a_function_is_not_taken_for_our_undo(workspace: AuditedWorkspace) -> None:
    with workspace.session("agent") as session:

        @session.tool(effect="write")
        def undo() -> None:
            raise AssertionError("it must not run")

        with pytest.raises(InvalidArguments, match="undo"):
            undo()
    assert workspace.timeline.calls() == []


def test_a_writing_function_and_a_command_that_overlap_share_what_changed(
    workspace: AuditedWorkspace, root: Path
) -> None:
    with workspace.session("one") as one, workspace.session("two") as two:

        @one.tool(effect="write")
        def write() -> None:
            (root / "mine").touch()
            two.run([PYTHON, "-c", "open('its', 'w').close()"])

        write()
    calls = {call.tool: call for call in workspace.timeline.calls()}
    assert calls["run"].paths == ("its",)
    assert {c.path for c in workspace.timeline.changes_of(calls["write"])} == {"mine", "its"}
    for call in calls.values():
        assert "shared with other commands" in call.coverage.reasons


# --- a log that cannot be written ---------------------------------------------------------


@pytest.mark.few(2)
@pytest.mark.parametrize("way", ["recording", "function", "coroutine", "call"])
@pytest.mark.parametrize("how", ["ok", "error"])
def test_a_finish_that_fails_is_told_and_made_up_for(
    workspace: AuditedWorkspace, root: Path, way: str, how: str
) -> None:
    kind = type(workspace.attachment.stored.log)
    append = kind.append

    def full(self: Any, drafts: Any, **options: Any) -> Any:
        if any(isinstance(draft.fact, CallFinished) for draft in drafts):
            raise AuditUnavailable("the disk is full")
        return append(self, drafts, **options)

    before, start = tree_of(root), workspace.log.head()
    with workspace.session("agent") as session:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(kind, "append", full)
            with pytest.raises(AuditUnavailable):
                WAYS[way][0](session, root, how)
        assert len(workspace.timeline.open_calls()) == 1
        assert session.run([PYTHON, "-c", ""]).files_changed == ()
    closed = workspace.timeline.calls()[-1]
    assert (closed.status, closed.paths) == ("interrupted", ("made",))
    workspace.carry_out(workspace.plan_rollback(start, outside=True))
    assert tree_of(root) == before


# --- ended while a step is under way -------------------------------------------------------


def test_a_call_that_another_thread_ends_during_a_step_has_the_changes_of_that_step(
    workspace: AuditedWorkspace, session: Session
) -> None:
    """As where a second Ctrl-C comes while a thread is changing the disk."""
    opened = OpenCall(session.writer, "write_file", {}, "write", call_id="ended")
    began, goes_on = threading.Event(), threading.Event()

    def content(_: bytes | None) -> bytes:
        began.set()
        assert goes_on.wait(30)
        return b"made\n"

    step = threading.Thread(target=partial(opened.edit, "made", content, final=True))
    step.start()
    assert began.wait(30)
    error = KeyboardInterrupt()
    end = threading.Thread(target=opened.__exit__, args=(KeyboardInterrupt, error, None))
    end.start()
    end.join(0.3)  # the finish would be on record by now
    goes_on.set()
    step.join(30)
    end.join(30)
    [call] = workspace.timeline.calls()
    assert (call.status, [*call.paths]) == ("cancelled", ["made"])
    with pytest.raises(Conflict):
        opened.edit("more", b"")
    assert not (Path(workspace.root) / "more").exists()
