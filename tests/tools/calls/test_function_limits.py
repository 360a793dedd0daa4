"""A function at its limit: what goes on is on record as that, what is isolated is killed."""

import asyncio
import subprocess
import sys
import threading
import time
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import pytest

from loom_audit.errors import Conflict, InvalidArguments
from loom_audit.tools.calls.context import ToolContext
from loom_audit.tools.calls.function import tool
from loom_audit.tools.calls.tool import Tool
from tests.crash.programs.faults import working_in
from tests.tools.calls import functions
from tests.tools.conftest import Bench


def offered(bench: Bench, *tools: Tool) -> Bench:
    for one in tools:
        bench.registry.register(one)
    return bench


def test_a_function_that_never_ends_returns_at_its_limit_as_still_running(bench: Bench) -> None:
    go_on = threading.Event()

    @tool(timeout_seconds=0.3, effect="execute")
    def waits() -> str:
        """Waits for the test."""
        (bench.root / "made").touch()
        go_on.wait(60)
        return "too late"

    try:
        result = offered(bench, waits).call("waits", {})
        assert result.error.code == "TIMEOUT" and result.files_changed == ["made"]
        assert result.error.message == "waits did not end within 0.3 seconds and is still running"
        assert "isolate" in result.error.hint
        assert bench.last().status == "running"
        bench.assert_every_call_has_one_finish()
        bench.assert_log_agrees_with_disk()
    finally:
        go_on.set()


def test_a_function_that_is_cancelled_is_not_waited_for(bench: Bench) -> None:
    began, go_on = threading.Event(), threading.Event()

    @tool(effect="execute")
    def waits() -> None:
        """Waits for the test."""
        began.set()
        go_on.wait(60)

    offered(bench, waits)

    async def main() -> None:
        task = asyncio.ensure_future(bench.acall("waits", {}))
        while not began.is_set():
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    try:
        asyncio.run(main())
        assert bench.last().status == "cancelled"
        bench.assert_every_call_has_one_finish()
    finally:
        go_on.set()


def test_a_program_ends_though_a_function_of_it_never_does() -> None:
    program = (
        "import asyncio\nfrom loom_audit import ToolRegistry\n"
        "from tests.tools.calls.functions import spins\n"
        "registry = ToolRegistry()\nregistry.register(spins)\n"
        "print(asyncio.run(registry.execute('spins', {'seconds': 1000})).error.message)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=100
    )
    assert ended.stdout == "spins did not end within 0.5 seconds and is still running\n"
    assert (ended.returncode, ended.stderr) == (0, "")


def test_a_function_sees_the_context_variables_of_its_caller(bench: Bench) -> None:
    who: ContextVar[str] = ContextVar("who", default="nobody")

    @tool
    def asks() -> str:
        """Asks who calls."""
        return who.get()

    offered(bench, asks)

    async def main() -> str:
        who.set("me")
        return (await bench.acall("asks", {})).output

    assert asyncio.run(main()) == "me"


def test_an_isolated_function_is_killed_at_its_limit_with_what_it_started(
    bench: Bench, tmp_path: Path
) -> None:
    folder = tmp_path / "here"
    folder.mkdir()
    began = time.monotonic()
    functions.loops.timeout_seconds = 5  # for a slow machine to begin in
    result = offered(bench, functions.loops).call("loops", {"folder": str(folder)})
    assert time.monotonic() - began < 25
    assert result.error.message == "loops was stopped after 5 seconds"
    assert bench.last().status == "timeout"
    assert (folder / "began").exists() and working_in(folder) == []


def test_an_isolated_function_gives_what_it_would_give_here(bench: Bench) -> None:
    result = offered(bench, functions.adds).call("adds", {"one": 1, "two": {"value": 2}})
    assert result.success, result.error
    assert (result.output, result.data) == ('{"value": 3}', {"value": 3})


def test_what_an_isolated_function_writes_is_on_record(bench: Bench) -> None:
    path = bench.root / "made"
    result = offered(bench, functions.writes).call("writes", {"path": str(path)})
    assert result.output == "MainThread" and result.files_changed == ["made"]
    assert bench.last().coverage.level == "full"
    bench.assert_log_agrees_with_disk()


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("how", "code", "said"),
    [
        ("conflict", "CONFLICT", "somebody was first"),
        ("bug", "EXECUTION_ERROR", "one / zero"),
        ("unreadable", "EXECUTION_ERROR", "Unreadable: 1 and 2"),
        ("unsendable", "EXECUTION_ERROR", "cannot be sent back"),
        ("exit", "EXECUTION_ERROR", "exit code 7 and no result: last words"),
    ],
)
def test_an_isolated_function_that_fails_says_why(
    bench: Bench, how: str, code: str, said: str
) -> None:
    result = offered(bench, functions.ends).call("ends", {"how": how})
    assert result.error.code == code and said in result.error.message
    if how == "conflict":
        assert (result.error.hint, result.error.details) == ("Wait.", {"who": "you"})
    bench.assert_every_call_has_one_finish()


def test_a_result_object_of_an_isolated_function_is_its_result(bench: Bench) -> None:
    result = offered(bench, functions.ends).call("ends", {"how": "result"})
    assert (result.success, result.output) == (False, "mine")


def test_a_function_of_a_script_is_found_there(bench: Bench, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import asyncio, sys\n"
        "from loom_audit import ToolRegistry, open_store, tool\n"
        "@tool(isolate=True)\n"
        "def which() -> str:\n    'Says it.'\n    return __name__\n"
        "if __name__ == '__main__':\n"
        "    with open_store(sys.argv[1]) as store:\n"
        "        registry = ToolRegistry()\n"
        "        registry.register(which)\n"
        "        with store.attach(sys.argv[2]).session('s', registry=registry) as session:\n"
        "            print(asyncio.run(session.call('which', {})).output)\n"
    )
    (tmp_path / "ws").mkdir()
    (tmp_path / "store").mkdir()
    arguments = [str(tmp_path / "store/audit.db"), str(tmp_path / "ws")]
    ended = subprocess.run(
        [sys.executable, script, *arguments], capture_output=True, text=True, timeout=100
    )
    assert (ended.stdout, ended.stderr) == ("__mp_main__\n", "")


def test_what_cannot_be_called_in_another_process_is_not_isolated() -> None:
    def inside() -> None:
        """Defined here."""

    async def waits() -> None:
        """Stops by itself."""

    def uses(ctx: ToolContext) -> None:
        """Uses the context."""

    def plain() -> None:
        """Nothing special."""

    for made in (waits, uses, plain):
        made.__qualname__ = made.__name__
    cases: list[tuple[Any, Any, str]] = [
        (inside, "read", "another function"),
        (waits, "read", "coroutine"),
        (uses, "read", "parameter ctx"),
        (plain, "write", "effect write"),
    ]
    for function, effect, why in cases:
        with pytest.raises(InvalidArguments, match=why):
            tool(isolate=True, effect=effect)(function)


def test_a_function_that_goes_on_cannot_write_by_its_finished_call(bench: Bench) -> None:
    go_on, done = threading.Event(), threading.Event()
    said: list[Exception] = []

    @tool(timeout_seconds=0.3, effect="write")
    def waits(ctx: ToolContext) -> None:
        """Waits for the test."""
        go_on.wait(60)
        try:
            ctx.call.edit("late", b"1")
        except Conflict as error:
            said.append(error)
        finally:
            done.set()

    assert offered(bench, waits).call("waits", {}).error.code == "TIMEOUT"
    go_on.set()
    assert done.wait(60)
    assert "finished already" in str(said[0]) and not (bench.root / "late").exists()
    bench.assert_every_call_has_one_finish()
