"""Every request gets exactly one finish, however the call ends."""

import asyncio
import logging
import re
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import anyio
import pytest

from loom_audit import errors
from loom_audit.errors import AuditUnavailable, PermissionDenied
from loom_audit.history.record.call import OpenCall
from loom_audit.model.events import Draft, Event
from loom_audit.sql.store.event_log import SqlEventLog
from loom_audit.tools.calls.call import call_tool
from loom_audit.tools.calls.context import ToolContext
from loom_audit.tools.calls.gate import AllowAll, Decision, DenyAll
from loom_audit.tools.calls.result import ToolResult
from loom_audit.tools.calls.tool import Tool, one_thread
from tests.crash.programs.faults import working_in
from tests.tools.conftest import Bench

Action = Callable[[ToolContext], Awaitable[Any]]
WithAction = Callable[..., Bench]


class Probe(Tool):
    """A tool that does what the test says."""

    name = "probe"
    description = "does what the test says"
    effect = "write"
    timeout_seconds: float = 20

    def __init__(self, action: Action) -> None:
        self.action = action

    async def execute(self, args: Any, ctx: ToolContext) -> Any:
        return await self.action(ctx)


@pytest.fixture
def probe(bench: Bench) -> WithAction:
    def with_action(action: Action, **attributes: Any) -> Bench:
        tool = Probe(action)
        for name, value in attributes.items():
            setattr(tool, name, value)
        bench.registry.register(tool)
        return bench

    return with_action


def test_a_bug_in_a_tool_is_a_result(probe: WithAction, caplog: pytest.LogCaptureFixture) -> None:
    async def fail(ctx: ToolContext) -> None:
        raise ZeroDivisionError("one / zero")

    bench = probe(fail)
    result = bench.call("probe", {})
    assert result.error.code == "EXECUTION_ERROR"
    assert result.error.details["exception"] == "ZeroDivisionError"
    assert "one / zero" in str(result.error) and "Traceback" in caplog.text
    bench.assert_every_call_has_one_finish()


def test_a_bug_after_a_write_leaves_the_write_on_record(probe: WithAction) -> None:
    async def fail(ctx: ToolContext) -> None:
        await ctx.write("made", b"1")
        raise KeyError("x")

    bench = probe(fail)
    result = bench.call("probe", {})
    assert not result.success and result.files_changed == ["made"]
    bench.assert_every_call_has_one_finish()
    bench.assert_log_agrees_with_disk()


@pytest.mark.parametrize("value", [None, ["text"], "text"])
def test_a_tool_that_returns_no_result(probe: WithAction, value: list[str] | str | None) -> None:
    async def odd(ctx: ToolContext) -> list[str] | str | None:
        return value

    bench = probe(odd)
    assert bench.call("probe", {}).error.code == "EXECUTION_ERROR"
    bench.assert_every_call_has_one_finish()


def test_a_result_that_cannot_be_recorded_is_an_error_with_its_finish(probe: WithAction) -> None:
    async def odd(ctx: ToolContext) -> ToolResult | None:
        await ctx.write("made", b"1", final=True)
        return ToolResult(True, "fine", {"when": time})

    bench = probe(odd)
    result = bench.call("probe", {})
    assert result.error.code == "SERIALIZATION" and result.files_changed == ["made"]
    bench.assert_every_call_has_one_finish()
    bench.assert_log_agrees_with_disk()


def test_a_tool_that_takes_too_long_is_stopped(probe: WithAction) -> None:
    async def wait(ctx: ToolContext) -> None:
        await ctx.write("made", b"1")
        await anyio.sleep(60)

    bench = probe(wait, timeout_seconds=0.3)
    result = bench.call("probe", {})
    assert result.error.code == "TIMEOUT" and result.files_changed == ["made"]
    assert result.error.message == "probe was stopped after 0.3 seconds"
    assert "timeout" in result.error.hint and result.error.hint in result.output
    assert bench.last().status == "timeout"
    bench.assert_every_call_has_one_finish()


def test_a_time_limit_of_the_tool_s_own_code_is_not_ours(probe: WithAction) -> None:
    async def wait(ctx: ToolContext) -> None:
        raise TimeoutError("socket")

    bench = probe(wait)
    assert bench.call("probe", {}).error.code == "EXECUTION_ERROR"


def test_a_step_under_way_at_the_timeout_ends_first(probe: WithAction) -> None:
    order = []

    def step() -> None:
        time.sleep(0.5)
        order.append("step ended")

    async def wait(ctx: ToolContext) -> None:
        await ctx.in_thread(step)

    bench = probe(wait, timeout_seconds=0.1)
    assert bench.call("probe", {}).error.code == "TIMEOUT"
    order.append("call ended")
    assert order == ["step ended", "call ended"]


def test_a_running_command_is_killed_when_the_call_is_cancelled(bench: Bench) -> None:
    async def main() -> None:
        command = {"command": "echo 1 > made; sleep 600"}
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(bench.acall, "shell_execute", command)
            while not (bench.root / "made").exists():
                await anyio.sleep(0.01)
            assert working_in(bench.root)
            tasks.cancel_scope.cancel()

    anyio.run(main)
    end = time.monotonic() + 20  # what was killed is not gone at once on a busy machine
    while working_in(bench.root):
        assert time.monotonic() < end
        time.sleep(0.01)
    assert bench.last().status == "cancelled"
    assert bench.last().result["files_changed"] == ["made"]
    bench.assert_every_call_has_one_finish()
    bench.assert_log_agrees_with_disk()


def test_asyncio_s_own_cancellation_waits_for_the_step_too(probe: WithAction) -> None:
    """`asyncio.wait_for` cancels the task itself, which no scope of anyio shields from."""
    began, order = threading.Event(), []

    def step() -> None:
        began.set()
        time.sleep(0.5)
        order.append("step ended")

    async def wait(ctx: ToolContext) -> None:
        await ctx.in_thread(step)

    bench = probe(wait)

    async def main() -> None:
        task = asyncio.ensure_future(bench.acall("probe", {}))
        while not began.is_set():
            await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        order.append("call ended")

    asyncio.run(main())
    assert order == ["step ended", "call ended"]
    assert bench.last().status == "cancelled"
    bench.assert_every_call_has_one_finish()


def test_a_call_left_running_at_the_loop_s_end_is_finished(probe: WithAction) -> None:
    began = threading.Event()

    def step() -> None:
        began.set()
        time.sleep(0.3)

    async def wait(ctx: ToolContext) -> None:
        await ctx.write("made", b"1")
        await ctx.in_thread(step)

    bench = probe(wait)
    kept = []

    async def main() -> None:
        kept.append(asyncio.ensure_future(bench.acall("probe", {})))
        while not began.is_set():
            await asyncio.sleep(0.01)

    asyncio.run(main())
    assert bench.last().status == "cancelled"
    bench.assert_every_call_has_one_finish()


def test_cancelling_at_any_moment_leaves_one_finish_and_a_log_that_agrees(bench: Bench) -> None:
    async def main() -> None:
        for n in range(40):
            with anyio.move_on_after(n * 0.001):
                await bench.acall("write_file", {"path": f"f{n}", "content": str(n)})

    anyio.run(main)
    bench.assert_every_call_has_one_finish()
    bench.assert_log_agrees_with_disk()


def test_asyncio_s_own_cancelling_at_any_moment_does_no_worse(bench: Bench) -> None:
    async def main() -> None:
        for n in range(40):
            arguments = {"path": f"f{n}", "content": str(n)}
            task = asyncio.ensure_future(bench.acall("write_file", arguments))
            await asyncio.sleep(n * 0.0005)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    asyncio.run(main())
    bench.assert_every_call_has_one_finish()
    bench.assert_log_agrees_with_disk()


class AtOnce(Probe):
    """As Probe, whole in one worker thread."""

    @one_thread
    async def execute(self, args: Any, ctx: ToolContext) -> Any:
        return await self.action(ctx)


def test_a_call_in_one_thread_stays_there_from_its_first_step_to_its_finish(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = []
    finish = OpenCall.finish

    def watched(self: OpenCall, *args: Any, **kwargs: Any) -> Event:
        threads.append(threading.get_ident())
        return finish(self, *args, **kwargs)

    async def write_twice(ctx: ToolContext) -> ToolResult:
        threads.append(threading.get_ident())
        await ctx.write("one", b"1")
        await ctx.write("two", b"2", final=True)
        return ToolResult(True, "both")

    monkeypatch.setattr(OpenCall, "finish", watched)
    bench.registry.register(AtOnce(write_twice))
    result = bench.call("probe", {})
    assert result.success and result.files_changed == ["one", "two"]
    assert len(threads) == 2 and len({*threads, threading.get_ident()}) == 2
    bench.assert_every_call_has_one_finish()
    bench.assert_log_agrees_with_disk()


def test_a_call_in_one_thread_that_awaits_something_else_fails_and_keeps_its_write(
    bench: Bench,
) -> None:
    async def sleep(ctx: ToolContext) -> None:
        await ctx.write("made", b"1")
        await anyio.sleep(0)
        await ctx.write("more", b"1")

    bench.registry.register(AtOnce(sleep))
    result = bench.call("probe", {})
    assert result.error.code == "EXECUTION_ERROR" and result.files_changed == ["made"]
    bench.assert_every_call_has_one_finish()
    bench.assert_log_agrees_with_disk()


@pytest.mark.parametrize("status", ["timeout", "cancelled"])
def test_a_call_in_one_thread_that_is_stopped_takes_no_further_step(
    bench: Bench, status: str
) -> None:
    began = threading.Event()

    async def wait(ctx: ToolContext) -> ToolResult:
        await ctx.write("made", b"1")
        began.set()
        while not ctx.stop.is_set():
            time.sleep(0.01)
        await ctx.write("more", b"1")
        return ToolResult(True)

    tool = AtOnce(wait)
    tool.timeout_seconds = 0.3 if status == "timeout" else 20
    bench.registry.register(tool)

    async def main() -> None:
        task = asyncio.ensure_future(bench.acall("probe", {}))
        while not began.is_set():
            await asyncio.sleep(0.01)
        if status == "cancelled":
            task.cancel()
        await asyncio.wait([task])

    asyncio.run(main())
    assert bench.last().status == status and bench.last().result["files_changed"] == ["made"]
    bench.assert_every_call_has_one_finish()
    bench.assert_log_agrees_with_disk()


def test_a_call_in_one_thread_cancelled_behind_its_finish_ended_well(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer is on record; that nobody waited for it any more changes nothing."""
    recorded, go_on = threading.Event(), threading.Event()
    finish = OpenCall.finish

    def slow(self: OpenCall, *args: Any, **kwargs: Any) -> Event:
        event = finish(self, *args, **kwargs)
        recorded.set()
        go_on.wait(20)
        return event

    monkeypatch.setattr(OpenCall, "finish", slow)

    async def main() -> None:
        task = asyncio.ensure_future(bench.acall("write_file", {"path": "x", "content": "1"}))
        while not recorded.is_set():
            await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.sleep(0.05)
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert bench.last().status == "ok"
    bench.assert_every_call_has_one_finish()
    bench.assert_log_agrees_with_disk()


def test_a_denied_call_does_nothing_and_says_by_whom(bench: Bench) -> None:
    before = bench.tree()
    result = bench.call("write_file", {"path": "x", "content": ""}, gate=DenyAll("write"))
    assert result.error.code == "APPROVAL_DENIED" and bench.tree() == before
    assert bench.last().status == "denied"
    (decided,) = bench.events("call.decided")
    assert (decided.fact.decision, decided.fact.by) == ("denied", "gate:deny-all")
    assert bench.call("read_file", {"path": "notes.txt"}, gate=DenyAll("write")).success
    bench.assert_every_call_has_one_finish()


def test_without_a_gate_nobody_decided_and_with_one_its_yes_to_a_question_is_on_record(
    bench: Bench,
) -> None:
    overwrite = {"path": "notes.txt", "content": "x"}
    assert bench.call("write_file", overwrite, gate=AllowAll()).success
    assert bench.events("call.decided") == []
    assert bench.call("write_file", overwrite, gate=DenyAll("network")).success
    (decided,) = bench.events("call.decided")
    assert (decided.fact.by, decided.fact.reason) == ("gate:deny-all", "overwrites notes.txt")


class Gate:
    def __init__(self, answer: Decision | Exception) -> None:
        self.answer = answer

    async def decide(self, tool: Tool, args: Any, ctx: ToolContext, *, asked: str = "") -> Decision:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def test_a_person_s_plain_yes_is_on_record_and_a_gate_s_own_is_not(bench: Bench) -> None:
    for by in ("gate", "policy:mine", "person:ada"):
        assert bench.call("read_file", {"path": "notes.txt"}, gate=Gate(Decision("allowed", by)))
    (decided,) = bench.events("call.decided")
    assert (decided.fact.decision, decided.fact.by) == ("allowed", "person:ada")
    assert decided.fact.call_id == bench.last().call_id
    bench.assert_every_call_has_one_finish()


@pytest.mark.parametrize("trouble", [RuntimeError("no terminal"), PermissionDenied("not now")])
def test_a_gate_in_trouble_denies(bench: Bench, trouble: RuntimeError | PermissionDenied) -> None:
    result = bench.call("write_file", {"path": "x", "content": ""}, gate=Gate(trouble))
    assert result.error.code == "APPROVAL_DENIED" and str(trouble) in str(result.error)
    bench.assert_every_call_has_one_finish()


def test_a_gate_may_change_the_arguments_and_both_are_on_record(bench: Bench) -> None:
    other = {"path": "safe", "content": "x"}
    gate = Gate(Decision("allowed", "person:me", "elsewhere", other))
    assert bench.call("write_file", {"path": "x", "content": "x"}, gate=gate).success
    assert (bench.root / "safe").exists() and not (bench.root / "x").exists()
    assert bench.requested()[0].arguments["path"] == "x"
    assert bench.events("call.decided")[0].fact.arguments == other


def test_a_gate_s_arguments_are_validated_like_the_caller_s(bench: Bench) -> None:
    gate = Gate(Decision("allowed", "person:me", "", {"path": 1}))
    result = bench.call("write_file", {"path": "x", "content": "x"}, gate=gate)
    assert result.error.code == "INVALID_ARGUMENTS"
    bench.assert_every_call_has_one_finish()


def test_a_tool_registered_to_read_cannot_write_or_run(probe: WithAction) -> None:
    refused = []

    async def overreach(ctx: ToolContext) -> ToolResult | None:
        for attempt in (
            ctx.write("x", b""),
            ctx.edit("notes.txt", lambda old: b""),
            ctx.delete("notes.txt"),
            ctx.move("notes.txt", "n"),
            ctx.run("touch", "x"),
        ):
            try:
                await attempt
            except PermissionDenied:
                refused.append(True)
        return ToolResult(True)

    bench = probe(overreach, effect="read")
    before = bench.tree()
    bench.call("probe", {})
    assert len(refused) == 5 and bench.tree() == before


def test_a_tool_registered_to_write_cannot_run_commands(probe: WithAction) -> None:
    async def overreach(ctx: ToolContext) -> None:
        await ctx.run("touch", "x")

    bench = probe(overreach)
    assert bench.call("probe", {}).error.code == "PERMISSION_DENIED"


def test_a_network_tool_is_on_record_before_it_starts(probe: WithAction) -> None:
    seen = []

    async def look(ctx: ToolContext) -> ToolResult:
        seen.extend(bench.requested())
        return ToolResult(True)

    bench = probe(look, effect="network")
    assert bench.call("probe", {}).success and len(seen) == 1


def test_nothing_with_an_effect_runs_when_the_log_cannot_be_written(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise AuditUnavailable("the disk is full")

    before = bench.tree()
    with monkeypatch.context() as patch:
        patch.setattr(type(bench.session.writer.attachment.stored.log), "append", full)
        for tool, arguments in (
            ("write_file", {"path": "x", "content": ""}),
            ("delete_file", {"path": "notes.txt"}),
            ("shell_execute", {"command": "touch x"}),
            ("read_file", {"path": "notes.txt"}),
        ):
            result = bench.call(tool, arguments)
            assert result.error.code == "AUDIT_UNAVAILABLE", tool
            assert "the disk is full" in result.output and result.data is None
        assert bench.tree() == before
    assert bench.call("write_file", {"path": "x", "content": ""}).success


def test_a_finish_that_cannot_be_recorded_says_that_the_change_stands(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    append = SqlEventLog.append

    def full(self: SqlEventLog, drafts: Sequence[Draft], **options: Any) -> Sequence[Event]:
        if any(draft.fact.kind == "call.finished" for draft in drafts):
            raise AuditUnavailable("the disk is full")
        return append(self, drafts, **options)

    with monkeypatch.context() as patch:
        patch.setattr(SqlEventLog, "append", full)
        result = bench.call("write_file", {"path": "x", "content": ""})
    assert result.error.code == "AUDIT_UNAVAILABLE" and result.files_changed == ["x"]
    assert "The change was made" in result.output and "recover" in result.output


def test_a_call_id_is_used_once(bench: Bench) -> None:
    assert bench.call("write_file", {"path": "x", "content": "1"}, call_id="c1").success
    again = bench.call("write_file", {"path": "x", "content": "2"}, call_id="c1")
    assert again.error.code == "CONFLICT" and (bench.root / "x").read_text() == "1"
    bench.assert_every_call_has_one_finish()


@pytest.mark.parametrize("call_id", ["", "x" * 300, 7])
def test_a_call_id_that_is_none_is_refused_on_record(bench: Bench, call_id: int | str) -> None:
    result = bench.call("read_file", {"path": "notes.txt"}, call_id=call_id)
    assert result.error.code == "INVALID_ARGUMENTS"
    bench.assert_every_call_has_one_finish()


def test_200_calls_at_once(bench: Bench) -> None:
    async def main() -> list[ToolResult]:
        results = []

        async def one(n: int) -> None:
            kind = n % 4
            if kind == 0:
                results.append(await bench.acall("read_file", {"path": "notes.txt"}))
            elif kind == 3:
                results.append(await bench.acall("read_file", {"path": "missing"}))
            else:
                path = f"d{n % 7}/f{n}"
                results.append(await bench.acall("write_file", {"path": path, "content": str(n)}))

        async with anyio.create_task_group() as group:
            for n in range(200):
                group.start_soon(one, n)
        return results

    results = anyio.run(main)
    assert len(results) == 200
    assert sum(result.success for result in results) == 150
    for n in range(200):
        if n % 4 in (1, 2):
            assert (bench.root / f"d{n % 7}/f{n}").read_text() == str(n)
    bench.assert_every_call_has_one_finish()
    bench.assert_log_agrees_with_disk()
    seqs = [event.seq for event in bench.events()]
    assert seqs == list(range(1, len(seqs) + 1))


def test_without_a_workspace_a_tool_that_needs_one_says_so(bench: Bench) -> None:
    async def main() -> ToolResult:
        return await call_tool(bench.registry, AllowAll(), None, "read_file", {"path": "x"})

    assert anyio.run(main).error.code == "NO_WORKSPACE"


def test_of_several_calls_at_once_with_one_id_one_happens(bench: Bench) -> None:
    results = []

    async def one(n: int) -> None:
        arguments = {"path": f"f{n}", "content": str(n)}
        results.append(await bench.acall("write_file", arguments, call_id="same"))

    async def main() -> None:
        async with anyio.create_task_group() as group:
            for n in range(6):
                group.start_soon(one, n)

    anyio.run(main)
    codes = [result.error.code for result in results if result.error]
    assert codes == ["CONFLICT"] * 5 and len([*bench.root.glob("f*")]) == 1
    bench.assert_every_call_has_one_finish()
    bench.assert_log_agrees_with_disk()


def test_calls_are_logged_for_debugging(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "loom_audit.tools.call"):
        bench.call("read_file", {"path": "notes.txt"}, call_id="one")
        bench.call("read_file", {"path": "missing.txt"}, call_id="two")
    lines = [r.getMessage() for r in caplog.records if r.name == "loom_audit.tools.call"]
    assert len(lines) == 4
    assert lines[0] == "call one: read_file begins"
    assert re.fullmatch(r"call one: read_file ends ok after \d+\.\d{3} s", lines[1])
    assert lines[2] == "call two: read_file begins"
    assert re.fullmatch(r"call two: read_file ends FILE_NOT_FOUND after \d+\.\d{3} s", lines[3])


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (errors.FileNotFound, "FILE_NOT_FOUND"),
        (errors.InvalidPath, "INVALID_PATH"),
        (errors.IsADirectory, "IS_A_DIRECTORY"),
        (errors.NotADirectory, "NOT_A_DIRECTORY"),
        (errors.NotEmpty, "NOT_EMPTY"),
        (errors.PermissionDenied, "PERMISSION_DENIED"),
        (errors.ToolTimeout, "TIMEOUT"),
        (errors.ExecutionFailed, "EXECUTION_ERROR"),
        (errors.InvalidArguments, "INVALID_ARGUMENTS"),
        (errors.NotFound, "NOT_FOUND"),
        (errors.StorageFailed, "IO"),
        (errors.NotSerializable, "SERIALIZATION"),
    ],
)
def test_each_kind_of_error_reaches_the_model_with_code_message_and_details(
    bench: Bench, kind: type[errors.AuditError], code: str
) -> None:
    class Failing(Tool):
        name = "failing"
        description = "fails"

        async def execute(self, args: Any, ctx: ToolContext) -> ToolResult:
            raise kind("it went wrong", hint="try again", details={"where": "here"})

    bench.registry.register(Failing())
    result = bench.call("failing", {})
    assert not result.ok and result.value is None
    assert (result.error.code, str(result.error)) == (code, "it went wrong")
    assert result.error.details == {"where": "here"}
    assert result.output == "Error: it went wrong\ntry again"
    assert bench.last().result["error"]["code"] == code
