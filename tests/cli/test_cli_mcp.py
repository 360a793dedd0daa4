"""`loom-audit mcp` with the protocol's own client, over a real process's streams."""

import json
import os
import signal
import subprocess
import sys
from base64 import b64decode
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.shared.exceptions import MCPError

from loom_audit import ToolResult, open_store
from loom_audit.api.agents.clients import Hooks
from loom_audit.mcp_server.server import _answer
from tests.cli.shells import ROOT, Shell
from tests.given.pictures import PNG
from tests.processes.forked import begun_by
from tests.processes.hooked import HookedClaude

NAMED = types.Implementation(name="tester", version="1")
ERAS = ("legacy", "auto")


@asynccontextmanager
async def client(
    shell: Shell, *words: str, mode: str = "auto", child: bool = False, **more: Any
) -> AsyncIterator[Client]:
    """A client and its server, which is a child of this process where it has to be."""
    command, *arguments = [sys.executable, "-m", "loom_audit"] if child else begun_by()
    server = StdioServerParameters(
        command=command,
        args=[*arguments, "mcp", *words],
        cwd=str(shell.workspace),
        env=shell.environment | {"PYTHONPATH": str(ROOT)},
    )
    made = Client(stdio_client(server), mode=mode, client_info=NAMED, **more)
    async with made as connected:
        yield connected


@pytest.mark.few(1)
@pytest.mark.parametrize("mode", ERAS)
def test_calls_are_on_record_under_the_clients_name_and_it_is_told_that_they_go_on(
    audited: Shell, mode: str
) -> None:
    async def work() -> None:
        async with client(audited, mode=mode) as asked:
            tools = {tool.name: tool for tool in (await asked.list_tools()).tools}
            assert {"read_file", "write_file", "shell_execute"} <= tools.keys()
            assert "rollback" not in tools
            hints = tools["read_file"].annotations, tools["shell_execute"].annotations
            assert hints[0] and hints[0].read_only_hint and not hints[0].destructive_hint
            assert hints[1] and hints[1].destructive_hint and hints[1].open_world_hint
            made = await asked.call_tool("write_file", {"path": "m.txt", "content": "hi\n"})
            assert made.structured_content == {"path": "m.txt", "size": 3, "created": True}
            failed = await asked.call_tool("read_file", {"path": "none"})
            assert failed.is_error and "File not found: none" in failed.content[0].text
            assert failed.structured_content["error"]["code"] == "FILE_NOT_FOUND"
            told = list[float]()

            async def note(progress: float, total: float | None, message: str | None) -> None:
                told.append(progress)

            waiting = {"command": "sleep 1.5"}
            await asked.call_tool("shell_execute", waiting, progress_callback=note)
            assert told and told == [n + 1.0 for n in range(len(told))]
            many = [{"path": f"p{n}", "content": str(n)} for n in range(4)]
            async with anyio.create_task_group() as together:
                for arguments in many:
                    together.start_soon(asked.call_tool, "write_file", arguments)

    anyio.run(work)
    calls = audited.records("log", "--oldest-first")
    assert [(call["tool"], call["status"]) for call in calls] == [
        ("write_file", "ok"),
        ("read_file", "error"),
        ("shell_execute", "ok"),
        *[("write_file", "ok")] * 4,
    ]
    assert {call["actor"] for call in calls} == {"agent:tester"}
    [session] = audited.records("session")
    assert (session["agent"], session["status"]) == ("tester", "completed")
    assert (audited.workspace / "p3").read_text() == "3"


def test_a_picture_is_given_as_a_picture_and_a_long_text_bounded(audited: Shell) -> None:
    (audited.workspace / "a.png").write_bytes(PNG)
    (audited.workspace / "long.txt").write_text("one line\n" * 100_000)

    async def look() -> None:
        async with client(audited) as asked:
            said, shown = (await asked.call_tool("read_file", {"path": "a.png"})).content
            assert said.text.startswith("[PNG image, 1 × 1, ")
            assert (shown.mime_type, b64decode(shown.data)) == ("image/png", PNG)
            long = await asked.call_tool("read_file", {"path": "long.txt"})
            data = long.structured_content
            assert len(long.content[0].text.encode()) <= 10 * 1024
            assert len(json.dumps(data)) <= 64 * 1024
            assert data["content"].startswith("one line\n" * (data["next_line"] - 1))
            assert (data["truncated"], data["size"], data["next_line"]) == (True, 900_000, 430)

    anyio.run(look)


@pytest.mark.parametrize("count", [500, 2_600])
def test_a_long_listing_is_as_its_schema_says_and_whole_or_said_to_be_cut(
    audited: Shell, count: int
) -> None:
    names = [f"n{n:04}" for n in range(count)]
    for name in names:
        (audited.workspace / name).touch()

    async def look() -> None:
        async with client(audited) as asked:
            await asked.list_tools()  # from here on the client compares what is given with it
            given = (await asked.call_tool("list_files", {})).structured_content
            listed = [one["path"] for one in given["files"] if one["path"][0] == "n"]
            assert listed == names[: len(listed)]
            assert given["truncated"] is (len(listed) < count) is (count > 500)

    anyio.run(look)


def test_what_is_given_structured_and_is_too_long_is_said_to_be_cut(audited: Shell) -> None:
    result = ToolResult(True, "done", {"items": ["é" * 500] * 4_000, "n": 4_000})
    given = _answer(result).structured_content
    assert given is not None and given["truncated"] is True and given["n"] == 4_000
    assert 10 < len(given["items"]) < 4_000 and {*given["items"]} == {"é" * 500}


def test_what_is_on_record_can_be_read_as_resources(audited: Shell) -> None:
    audited.call("write_file", path="a b.txt", content="one\n")
    audited.call("write_file", path="a b.txt", content="two\n")
    (audited.workspace / "raw").write_bytes(b"\xff\0")
    audited("run", "--", "true")
    calls = audited.records("log", "--oldest-first")

    async def read(asked: Client, name: str) -> Any:
        return (await asked.read_resource(f"loom-audit:///{name}")).contents[0]

    async def work() -> None:
        async with client(audited) as asked:
            listed = json.loads((await read(asked, "timeline")).text)
            assert [one["number"] for one in listed] == [call["seq"] for call in reversed(calls)]
            event = json.loads((await read(asked, f"event/{calls[0]['seq']}")).text)
            assert event["arguments"]["content"] == "one\n"
            first, second = (call["seq"] for call in calls[:2])
            assert "-one\n+two\n" in (await read(asked, f"diff/{first}/{second}")).text
            assert (await read(asked, f"file/{first}/a%20b.txt")).text == "one\n"
            assert (await read(asked, "file/head/raw")).blob == "/wA="
            templates = await asked.list_resource_templates()
            assert len(templates.resource_templates) == 7
            for name in ("file/head/none", "event/999999", "file/@none/a", "nothing", "event/x"):
                with pytest.raises(MCPError) as refused:
                    await read(asked, name)
                assert refused.value.error.data["code"] in ("NOT_FOUND", "INVALID_ARGUMENTS")

    anyio.run(work)


def test_who_wrote_lines_and_the_own_change_of_a_session_can_be_read(audited: Shell) -> None:
    long = "".join(f"{n}\n" for n in range(1, 701))
    audited.call("write_file", path="a b.txt", content=long)
    audited.call("write_file", path="a b.txt", content=long.replace("\n2\n", "\ntwo\r\n"))
    second, first = audited.records("log")[:2]

    async def work() -> None:
        async with client(audited) as asked:

            async def read(name: str) -> str:
                text: str = (await asked.read_resource(f"loom-audit:///{name}")).contents[0].text
                return text

            told = json.loads(await read("blame/head/1-9999/a%20b.txt"))
            assert [run["by"]["call"] for run in told["runs"]] == [
                first["seq"],
                second["seq"],
                first["seq"],
            ]
            assert told["runs"][1]["lines"] == ["two\\r"]
            assert (told["runs"][-1]["last"], told["next"]) == (300, "301-600")
            rest = json.loads(await read("blame/head/601-700/a%20b.txt"))
            assert rest["next"] is None and rest["runs"][0]["lines"][-1] == "700"
            before = json.loads(await read(f"blame/{first['seq']}/2-2/a%20b.txt"))
            assert [run["lines"] for run in before["runs"]] == [["2"]]
            own = await read(f"own/{second['session']}")
            assert f"+#{second['seq']}: two\\r\n" in own and "+1 -1" in own
            many = await read(f"own/{first['session']}")
            assert "+700 -0" in many and len(many) < 70_000
            for name, words in (("", ("--own",)), ("/all", ())):
                patch = await read(f"patch/{second['session']}{name}")
                words = ("diff", "--session", second["session"], *words, "--patch")
                assert patch.encode() == audited(*words).stdout and "+two" in patch
            for name in ("own/none", "patch/none", "blame/head/x/a%20b.txt", "blame/head/1-2/none"):
                with pytest.raises(MCPError) as refused:
                    await read(name)
                assert refused.value.error.data["code"] in ("NOT_FOUND", "INVALID_ARGUMENTS")

    anyio.run(work)


def test_an_agent_takes_back_its_own_call_and_more_only_where_that_is_allowed(
    audited: Shell,
) -> None:
    async def work() -> None:
        async with client(audited) as asked:
            names = {tool.name for tool in (await asked.list_tools()).tools}
            assert {"undo", "history"} <= names and "rollback" not in names
            await asked.call_tool("write_file", {"path": "m.txt", "content": "hi\n"})
            done = await asked.call_tool("undo", {})
            assert not done.is_error and "1 path changed" in done.content[0].text
            told = await asked.call_tool("history", {"path": "m.txt"})
            assert told.content[0].text.count("agent:tester") == 2
            refused = await asked.call_tool("rollback", {"point": "head~1"})
            assert refused.structured_content["error"]["code"] == "UNKNOWN_TOOL"
        async with client(audited, "--allow-undo") as asked:
            assert (await asked.call_tool("undo", {})).is_error  # of the session before
            refused = await asked.call_tool("rollback", {"point": "@none"})
            assert refused.is_error and refused.structured_content["error"]["code"] == "NOT_FOUND"
            await asked.call_tool("write_file", {"path": "m.txt", "content": "hi\n"})
            assert not (await asked.call_tool("rollback", {"point": "head~1"})).is_error

    anyio.run(work)
    assert not (audited.workspace / "m.txt").exists()
    assert "taken back by the agent, " in audited("log").text


@contextmanager
def hooked(shell: Shell, transcript: Path) -> Iterator[HookedClaude]:
    """A client with hooks that is this process, which starts servers too."""
    with (
        subprocess.Popen(["sleep", "1000"]) as hook,
        open_store(f"sqlite:///{shell.database}") as store,
        closing(Hooks(store)) as hooks,
    ):
        yield HookedClaude(
            lambda data: hooks.answer("claude-code", data, hook=hook.pid),
            shell.workspace,
            transcript,
        )
        hook.kill()


@pytest.mark.few(1)
@pytest.mark.parametrize("id_is_told", [True, False])
def test_a_call_seen_by_hooks_and_by_the_server_is_one_within_the_clients_session(
    audited: Shell, tmp_path: Path, id_is_told: bool
) -> None:
    tool, arguments = "mcp__loom-audit__write_file", {"path": "m.txt", "content": "1"}

    async def serve(claude: HookedClaude) -> None:
        async with client(audited, child=True) as asked:
            for id in ("t1", "t2"):
                claude.asks(id, tool, arguments)
                assert claude.before(id, tool, arguments) == b""
                meta: Any = {"claudecode/toolUseId": id} if id_is_told else None
                made = await asked.call_tool("write_file", arguments, meta=meta)
                assert not made.is_error
                claude.after(id, tool, arguments, {"content": []})
                claude.told(id, {}, "done")

    with hooked(audited, tmp_path / "s1.jsonl") as claude:
        claude.hook("SessionStart", source="startup")
        anyio.run(serve, claude)
        claude.asks("t3", tool, arguments)
        claude.told("t3", {}, "the server is gone", error=True)
        claude.hook("SessionEnd", reason="exit")
    calls = audited.records("log", "--oldest-first")
    assert [(call["tool"], call["status"]) for call in calls] == [
        ("write_file", "ok"),
        ("write_file", "ok"),
        (tool, "error"),
    ]
    if id_is_told:
        assert [call["call_id"] for call in calls] == ["t1", "t2", "t3"]
    audited("rollback", "session:s1", "--yes", code=7)
    assert not (audited.workspace / "m.txt").exists()


def test_a_held_session_is_denied_also_what_goes_to_the_server(
    audited: Shell, tmp_path: Path
) -> None:
    tool, arguments = "mcp__loom-audit__write_file", {"path": "m.txt", "content": "1"}

    async def serve(claude: HookedClaude) -> None:
        async with client(audited, child=True) as asked:
            assert not (await asked.call_tool("read_file", {"path": "a.txt"})).is_error
            audited("hold", "s1")
            assert b"deny" in claude.before("t1", tool, arguments)
            assert (await asked.call_tool("write_file", arguments)).is_error

    with hooked(audited, tmp_path / "s1.jsonl") as claude:
        claude.hook("SessionStart", source="startup")
        anyio.run(serve, claude)
    assert [call["status"] for call in audited.records("log", "--oldest-first")] == [
        "ok",
        "denied",
        "denied",
    ]
    assert not (audited.workspace / "m.txt").exists()


def test_after_esc_in_another_agent_rollback_as_a_tool_takes_back_what_it_had_done(
    audited: Shell, tmp_path: Path
) -> None:
    before = audited.tree()
    answers: list[types.CallToolResult] = []

    async def work() -> None:
        async with client(audited, "--allow-undo") as asked:
            answers.append(await asked.call_tool("rollback", {"point": "session:s1"}))

    with hooked(audited, tmp_path / "s1.jsonl") as claude:
        claude.hook("SessionStart", source="startup")
        claude.asks("c1", "Bash", {"command": "touch made; sleep 9"})
        claude.before("c1", "Bash", {"command": "touch made; sleep 9"})
        (audited.workspace / "made").touch()
        claude.write("user", {"type": "text", "text": "[Request interrupted by user]"})
        anyio.run(work)
    assert not answers[0].is_error and "changed 1 path" in str(answers[0].content)
    assert audited.tree() == before and "cancelled" in audited("log").text


def test_rollback_as_a_tool_leaves_what_nobody_saw_being_done(
    audited: Shell, tmp_path: Path
) -> None:
    answers: list[types.CallToolResult] = []

    async def work() -> None:
        async with client(audited, "--allow-undo") as asked:
            answers.append(await asked.call_tool("rollback", {"point": "session:s1"}))

    with hooked(audited, tmp_path / "s1.jsonl") as claude:
        claude.hook("SessionStart", source="startup")
        claude.asks("c1", "Bash", {"command": "make"})
        claude.before("c1", "Bash", {"command": "make"})
        (audited.workspace / "made").touch()
        claude.write("user", {"type": "text", "text": "[Request interrupted by user]"})
        before = audited.tree()
        anyio.run(work)
    [answer] = answers
    assert answer.is_error and "would change nothing" in str(answer.content), answer
    assert audited.tree() == before and "cancelled" in audited("log").text


def test_a_call_that_is_cancelled_is_on_record_as_that(audited: Shell) -> None:
    async def work() -> None:
        async with client(audited, mode="legacy") as asked:
            with anyio.move_on_after(2):
                await asked.call_tool("shell_execute", {"command": "touch begun; sleep 60"})
            with anyio.fail_after(20):
                while not any(call["seq"] for call in audited.records("log")):
                    await anyio.sleep(0.1)
            await asked.call_tool("read_file", {"path": "begun"})

    anyio.run(work)
    calls = audited.records("log", "--oldest-first")
    assert [call["status"] for call in calls] == ["cancelled", "ok"]


@pytest.mark.parametrize("mode", ERAS)
def test_the_clients_user_is_asked_where_a_rule_asks(audited: Shell, mode: str) -> None:
    audited("approvals", "init")
    asked_for: list[str] = []

    async def answer(_: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        asked_for.append(params.message)
        if "gone.txt" in params.message:
            return types.ElicitResult(action="accept", content={"allow": True})
        return types.ElicitResult(action="decline")

    async def work() -> None:
        async with client(audited, mode=mode, elicitation_callback=answer) as asked:
            (audited.workspace / "gone.txt").write_text("x")
            done = await asked.call_tool("delete_file", {"path": "gone.txt"})
            kept = await asked.call_tool("delete_file", {"path": "a.txt"})
            assert not done.is_error and kept.is_error, (done, kept)

    anyio.run(work)
    assert ["delete_file" in asked for asked in asked_for] == [True, True]
    calls = audited.records("log", "--oldest-first")
    assert [call["status"] for call in calls] == ["ok", "denied"]


def test_an_answer_from_elsewhere_ends_what_the_clients_user_was_asked(audited: Shell) -> None:
    """Since 2026-07-28 the client shows the question on its own, and comes back with an answer."""
    audited("approvals", "init")

    async def answer(_: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        [waiting] = audited.records("approvals")
        audited("approve", str(waiting["requested"]))
        return types.ElicitResult(action="decline")

    async def work() -> None:
        async with client(audited, elicitation_callback=answer) as asked:
            (audited.workspace / "gone.txt").write_text("x")
            result = await asked.call_tool("delete_file", {"path": "gone.txt"})
            assert not result.is_error, result

    anyio.run(work)
    assert [call["status"] for call in audited.records("log")] == ["ok"]


def test_an_answer_to_no_question_is_refused_and_nothing_is_done(audited: Shell) -> None:
    async def work() -> None:
        async with client(audited) as asked:
            arguments = {"path": "a.txt"}
            told = await asked.call_tool("delete_file", arguments, request_state="made up")
            assert told.structured_content["error"]["code"] == "CONFLICT"

    anyio.run(work)
    assert audited.records("log") == [] and (audited.workspace / "a.txt").exists()


def test_a_server_that_is_killed_leaves_one_finish_for_its_call(audited: Shell) -> None:
    async def work() -> None:
        async with (
            client(audited, mode="legacy", child=True) as asked,
            anyio.create_task_group() as group,
        ):
            group.start_soon(_shell, asked)
            with anyio.fail_after(20):
                while not (audited.workspace / "begun").exists():
                    await anyio.sleep(0.05)
            for process in Path("/proc").glob("[0-9]*"):
                if _is_server_in(process, audited.workspace):
                    os.kill(int(process.name), signal.SIGKILL)
            group.cancel_scope.cancel()

    with suppress(Exception):  # its streams break as they like
        anyio.run(work)
    audited("recover")
    [call] = audited.records("log")
    assert (call["status"], call["paths"]) == ("interrupted", []), "nobody saw its end"
    [made] = audited.records("history", "begun")
    assert made["origin"] == "outside" and call["requested"] in made["causes"]
    [plan] = audited.records("revert", str(call["seq"]), "--dry-run", code=5)
    assert plan["changes"] == [], "it is taken back only where somebody chooses so"
    audited("verify")


async def _shell(asked: Client) -> None:
    await asked.call_tool("shell_execute", {"command": "touch begun; sleep 60"})


def _is_server_in(process: Path, folder: Path) -> bool:
    try:
        words = (process / "cmdline").read_bytes().split(b"\0")
        return b"mcp" in words and (process / "cwd").resolve() == folder.resolve()
    except OSError:
        return False


def test_what_cannot_be_read_is_answered_with_an_error_and_the_next_request_with_its_answer(
    audited: Shell,
) -> None:
    def call(id: Any, argument: str) -> str:
        head = f'{{"jsonrpc": "2.0", "method": "tools/call", "id": {id}, "params": '
        return head + f'{{"id": 1, "name": "read_file", "arguments": {{"path": {argument}}}}}}}'

    nested = "[" * 3_000 + '"]\\"",' + "]" * 3_000
    sent = [
        ("nope", None, -32700),
        ("{", None, -32700),
        (call(7, '"\\ud800"'), 7, -32600),
        (call('"a b"', nested.replace(",", "")), "a b", -32600),
        (call(8, "[" * 3_000), None, -32600),
        ("[]", None, -32600),
        ('{"id": 9, "method": "ping"}', 9, -32600),
        ('{"jsonrpc": "2.0", "id": 16, "method": "tools/call", "params": [1]}', 16, -32600),
        ('{"jsonrpc": "2.0", "id": 17, "method": 3}', 17, -32600),
        (call(18, "1" * 5_000), 18, -32600),
        (call(19, f"[{'1' * 5_000}, {nested}]"), 19, -32600),
        (call("1" * 5_000, "2"), None, -32600),
    ]
    ping = '{"jsonrpc": "2.0", "id": 10, "method": "ping"}'
    lines = "".join(line + "\n" for line in [*(line for line, _, _ in sent), ping])
    with subprocess.Popen(
        [sys.executable, "-m", "loom_audit", "mcp"],
        cwd=audited.workspace,
        env=audited.environment | {"PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as server:
        assert server.stdin is not None and server.stdout is not None
        server.stdin.write(lines.encode())
        server.stdin.flush()  # and open until all is answered: its end ends what goes on
        *refused, last = [json.loads(server.stdout.readline()) for _ in range(len(sent) + 1)]
        server.stdin.close()
    assert [(one["id"], one["error"]["code"]) for one in refused] == [
        (id, code) for _, id, code in sent
    ]
    assert last["id"] == 10
