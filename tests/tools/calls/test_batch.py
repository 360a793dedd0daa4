"""Batches: order, concurrency where effects allow, one failure by itself, hooks once."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from loom_audit.errors import InvalidArguments
from loom_audit.model.coverage import Effect
from loom_audit.tools.calls import batch as batch_module
from loom_audit.tools.calls.batch import BatchOutcome, Caller, PostToolsHook, ToolBatch
from loom_audit.tools.calls.messages import ToolCall
from loom_audit.tools.calls.result import ToolResult
from tests.tools.conftest import Bench

EFFECTS: Mapping[str, Effect] = {
    "look": "read",
    "fetch": "network",
    "put": "write",
    "sh": "execute",
}


def effect_of(tool: str) -> Effect | None:
    return EFFECTS.get(tool)


class Recording:
    """Executes calls by name and keeps what ran beside what."""

    def __init__(self) -> None:
        self.running: list[str] = []
        self.seen: list[tuple[str, tuple[str, ...]]] = []

    async def __call__(self, call: ToolCall) -> ToolResult:
        self.running.append(call.id)
        for _ in range(10):
            await anyio.lowlevel.checkpoint()
        self.seen.append((call.id, tuple(sorted(self.running))))
        self.running.remove(call.id)
        if call.arguments == "raise":
            raise ValueError("boom")
        if isinstance(call.arguments, Exception):
            return ToolResult.failure(call.arguments)  # type: ignore[arg-type]
        return ToolResult(True, f"did {call.id}")


def calls(*names: str, arguments: object = None) -> list[ToolCall]:
    return [ToolCall(f"{number}", name, arguments) for number, name in enumerate(names)]


def run(
    wanted: list[ToolCall], hooks: Sequence[PostToolsHook] = ()
) -> tuple[ToolBatch, Recording, BatchOutcome]:
    recording = Recording()
    batch = ToolBatch(wanted, recording, effect_of, hooks)
    outcome = anyio.run(batch.run)
    return batch, recording, outcome


def test_reads_run_side_by_side_and_writes_alone_in_their_place() -> None:
    _, recording, outcome = run(calls("look", "fetch", "look", "put", "put", "look", "look", "sh"))
    beside = dict(recording.seen)
    assert beside["0"] == ("0", "1", "2")
    assert beside["3"] == ("3",) and beside["4"] == ("4",) and beside["7"] == ("7",)
    assert "5" in beside["6"] or "6" in beside["5"]
    order = [name for name, _ in recording.seen]
    assert set(order[:3]) == {"0", "1", "2"} and order[3:5] == ["3", "4"] and order[7] == "7"
    assert [result.output for result in outcome.results] == [f"did {n}" for n in range(8)]


def test_an_unknown_tool_is_called_too_so_that_it_is_on_record() -> None:
    _, recording, _ = run(calls("nothing"))
    assert [name for name, _ in recording.seen] == ["0"]


def test_one_failure_stops_none_of_the_others() -> None:
    wanted = [*calls("look", "look"), ToolCall("2", "put", "raise"), ToolCall("3", "put", None)]
    wanted[0] = ToolCall("0", "look", "raise")
    batch, _, outcome = run(wanted)
    assert [result.success for result in outcome.results] == [False, True, False, True]
    assert outcome.messages()[0] == {
        "role": "tool",
        "tool_call_id": "0",
        "content": "Error: look failed: ValueError: boom",
    }
    assert [*batch.status.values()] == ["done"] * 4


def test_status_goes_from_pending_to_running_to_done() -> None:
    seen = []

    async def main() -> None:
        async def execute(call: ToolCall) -> ToolResult:
            seen.append((call.id, batch.status))
            return ToolResult(True)

        batch = ToolBatch(calls("put", "put"), execute, effect_of)
        seen.append(("", batch.status))
        await batch.run()
        seen.append(("", batch.status))

    anyio.run(main)
    assert seen == [
        ("", {"0": "pending", "1": "pending"}),
        ("0", {"0": "running", "1": "pending"}),
        ("1", {"0": "done", "1": "running"}),
        ("", {"0": "done", "1": "done"}),
    ]


@pytest.mark.parametrize(
    ("names", "arguments", "mutated"),
    [
        (["look", "fetch", "nothing"], None, False),
        (["look", "put"], None, True),
        (["sh"], "raise", True),
        (["put"], InvalidArguments("no"), False),
    ],
)
def test_a_batch_says_whether_it_mutated(
    names: list[str], arguments: InvalidArguments | str | None, mutated: bool
) -> None:
    assert run(calls(*names, arguments=arguments))[2].mutated is mutated


Act = Callable[[BatchOutcome, Caller], Awaitable[str]]


class Hook:
    def __init__(self, name: str, act: Act) -> None:
        self.name, self.act, self.ran = name, act, 0

    async def __call__(self, outcome: BatchOutcome, call: Caller) -> str:
        self.ran += 1
        return await self.act(outcome, call)


def test_hooks_run_once_after_a_mutating_batch_and_their_failure_fails_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(batch_module, "MAX_HOOK_SECONDS", 0.05)

    async def count(outcome: BatchOutcome, call: Caller) -> str:
        made = await call("look", {})
        return f"{len(outcome.results)} calls, {made.success}"

    async def fail(outcome: BatchOutcome, call: Caller) -> str:
        raise ValueError("no")

    async def hang(outcome: BatchOutcome, call: Caller) -> str:
        await anyio.sleep_forever()
        raise AssertionError

    hooks = [Hook("count", count), Hook("fail", fail), Hook("hang", hang), Hook("again", count)]
    _, _, outcome = run(calls("put", "put"), hooks)
    assert [hook.ran for hook in hooks] == [1, 1, 1, 1]
    assert all(result.success for result in outcome.results)
    assert [(said.name, said.ok) for said in outcome.hooks] == [
        ("count", True),
        ("fail", False),
        ("hang", False),
        ("again", True),
    ]
    assert outcome.hooks[0].text == "2 calls, True"
    assert "no" in outcome.hooks[1].text


def test_a_hook_without_a_name_is_not_run_and_the_results_are_kept() -> None:
    ran = []

    async def plain(outcome: BatchOutcome, call: Caller) -> str:
        ran.append("plain")
        return ""

    class Numbered:
        name = 7

    class Raising:
        @property
        def name(self) -> str:
            raise ValueError("no name yet")

    async def count(outcome: BatchOutcome, call: Caller) -> str:
        return "counted"

    hooks: list[Any] = [plain, Numbered(), Raising(), Hook("count", count)]
    _, _, outcome = run(calls("put"), hooks)
    assert ran == [] and [result.output for result in outcome.results] == ["did 0"]
    assert [(said.name, said.ok) for said in outcome.hooks] == [
        ("plain", False),
        ("Numbered", False),
        ("Raising", False),
        ("count", True),
    ]
    assert "`name`" in outcome.hooks[0].text and "no name yet" in outcome.hooks[2].text


def test_hooks_do_not_run_after_a_batch_that_only_read() -> None:
    async def never(outcome: BatchOutcome, call: Caller) -> str:
        raise AssertionError

    hook = Hook("never", never)
    _, _, outcome = run(calls("look", "fetch"), [hook])
    assert hook.ran == 0 and outcome.hooks == ()


def test_two_calls_of_one_id_are_refused() -> None:
    with pytest.raises(InvalidArguments, match="one id"):
        ToolBatch([ToolCall("a", "look", {})] * 2, Recording(), effect_of)


def test_an_empty_batch_is_done_at_once() -> None:
    _, _, outcome = run([])
    assert outcome.results == () and not outcome.mutated


# --- recorded -----------------------------------------------------------------------------


def answer(*calls: tuple[str, str, str]) -> dict[str, object]:
    return {
        "role": "assistant",
        "tool_calls": [
            {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}
            for id, name, arguments in calls
        ],
    }


def test_a_models_answer_is_run_and_recorded_under_its_ids(bench: Bench) -> None:
    batch = bench.session.batch(
        answer(
            ("call_1", "read_file", '{"path": "notes.txt"}'),
            ("call_2", "read_file", '{"path": "missing.txt"}'),
            ("call_3", "write_file", '{"path": "new.txt", "content": "x"}'),
            ("call_4", "read_file", '{"path": "new.txt"}'),
            ("call_5", "fly", "{}"),
            ("call_6", "read_file", "{broken"),
        )
    )
    outcome = anyio.run(batch.run)
    assert [result.success for result in outcome.results] == [True, False, True, True, False, False]
    assert outcome.mutated
    assert {fact.call_id for fact in bench.finished()} == {f"call_{n}" for n in range(1, 7)}
    messages = outcome.messages()
    assert messages[1]["content"].startswith("Error: File not found: missing.txt")
    assert messages[3]["content"] == "     1\tx"
    assert [message["tool_call_id"] for message in messages] == [f"call_{n}" for n in range(1, 7)]
    assert "{broken" in [fact.arguments for fact in bench.requested()]


def test_the_registry_runs_a_batch_too(bench: Bench) -> None:
    batch = bench.registry.batch([{"id": "a", "name": "read_file", "arguments": {"path": "x"}}])
    outcome = anyio.run(batch.run)
    assert outcome.results[0].error.code == "NO_WORKSPACE"


def test_an_id_used_before_gets_a_number_on_record_and_the_message_keeps_the_models(
    bench: Bench,
) -> None:
    anyio.run(partial(bench.session.call, "list_directory", {}, call_id="call_0"))
    ids = ["call_0#2", "call_0#3", "call_0#4"]
    twice = answer(("call_0", "list_directory", "{}"), ("call_0", "list_directory", "{}"))
    for made in (twice["tool_calls"][:1], twice["tool_calls"]):
        outcome = anyio.run(bench.session.batch(made).run)
        assert all(result.success for result in outcome.results)
        assert {said["tool_call_id"] for said in outcome.messages()} == {"call_0"}
    assert sorted(fact.call_id for fact in bench.finished()) == ["call_0", *ids]


def test_a_call_made_under_a_used_id_is_refused(bench: Bench) -> None:
    anyio.run(bench.session.batch(answer(("same", "list_directory", "{}"))).run)
    assert bench.call("list_directory", {}, call_id="same").error.code == "CONFLICT"


def test_a_malformed_call_fails_on_record_and_the_others_run(bench: Bench) -> None:
    blocks = [
        {"type": "tool_use", "id": "x1", "name": "read_file", "input": {"path": "notes.txt"}},
        {"type": "tool_use", "id": "x2", "name": "read_file", "input": ["notes.txt"]},
        {"type": "tool_use", "id": "x3", "input": {}},
    ]
    outcome = anyio.run(bench.session.batch(blocks).run)
    good, shapeless, nameless = outcome.results
    assert good.success
    assert shapeless.error.code == "INVALID_ARGUMENTS"
    assert nameless.error.code == "UNKNOWN_TOOL" and "(no name)" in nameless.error.message
    assert sorted(fact.call_id for fact in bench.finished()) == ["x1", "x2", "x3"]
    (message,) = outcome.messages("anthropic")
    assert [block["is_error"] for block in message["content"]] == [False, True, True]


def test_an_error_goes_back_as_the_message_of_its_call_and_the_model_may_go_on(
    bench: Bench,
) -> None:
    first = [{"id": "call_123", "name": "read_file", "arguments": {"path": "missing.txt"}}]
    outcome = anyio.run(bench.session.batch(first).run)
    (message,) = outcome.messages()
    assert message["role"] == "tool" and message["tool_call_id"] == "call_123"
    assert message["content"].splitlines()[0] == "Error: File not found: missing.txt"
    again = [{"id": "call_124", "name": "read_file", "arguments": {"path": "notes.txt"}}]
    assert anyio.run(bench.session.batch(again).run).results[0].success


def test_a_models_answer_goes_all_the_way_to_the_hook(bench: Bench) -> None:
    answer = {
        "role": "assistant",
        "tool_calls": [
            {
                "id": "call_1",
                "type": "function",
                "function": {"name": "bash", "arguments": '{"command": "echo x > made"}'},
            },
            {
                "id": "call_2",
                "type": "function",
                "function": {"name": "read_file", "arguments": '{"path": "made"}'},
            },
        ],
    }
    ran = []

    class Hook:
        name = "commit"

        async def __call__(self, outcome: BatchOutcome, call: Caller) -> str:
            ran.append([result.files_changed for result in outcome.results])
            return "done"

    batch = bench.session.batch(answer, hooks=[Hook()])
    assert batch.status == {"call_1": "pending", "call_2": "pending"}
    outcome = anyio.run(batch.run)
    assert batch.status == {"call_1": "done", "call_2": "done"}
    assert outcome.mutated and ran == [[["made"], []]]
    told = [message["content"] for message in outcome.messages()]
    assert told == ["[no output]\n[changed: made]", "     1\tx\n"]
    reading = bench.session.batch(
        [{"id": "call_3", "name": "read_file", "arguments": {"path": "made"}}], hooks=[Hook()]
    )
    assert not anyio.run(reading.run).mutated and len(ran) == 1
