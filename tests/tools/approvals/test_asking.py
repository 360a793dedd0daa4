"""Calls that somebody is asked about: what is on record, who is first, what an answer holds for."""

import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Literal

import anyio
import pytest

from loom_audit.api.face import AuditedWorkspace, Session, open_store
from loom_audit.errors import Conflict, InvalidArguments
from loom_audit.history.ground.questions import ApprovalRequest, Questions
from loom_audit.model.events import ApprovalRequested, CallDecided
from loom_audit.tools.approvals.asking_gate import POLL, AskingGate
from loom_audit.tools.approvals.policy import read_policy
from loom_audit.tools.calls.call import call_tool
from loom_audit.tools.calls.context import ToolContext
from loom_audit.tools.calls.function import tool
from loom_audit.tools.calls.gate import Decision
from loom_audit.tools.calls.result import ToolResult
from loom_audit.tools.calls.tool import Tool
from tests.tools.approvals.person import NO, OVERWRITE, YES, Person, answers, call_kinds, questions
from tests.tools.conftest import Bench


def test_the_question_is_on_record_before_the_answer_and_the_answer_before_the_effect(
    bench: Bench,
) -> None:
    seen = []

    def look(request: ApprovalRequest) -> Decision:
        seen.extend(call_kinds(bench))
        assert (bench.root / "notes.txt").read_bytes().startswith(b"first")
        return YES

    person = Person(look)
    assert bench.call("write_file", OVERWRITE, gate=AskingGate(ask=person)).success
    assert seen == ["call.requested", "approval.requested"]
    assert call_kinds(bench)[1:] == [
        "approval.requested",
        "call.decided",
        "change.intended",
        "files.changed",
        "call.finished",
    ]
    (asked,) = questions(bench)
    assert (asked.tool, asked.reason, asked.number) == ("write_file", "overwrites notes.txt", 1)
    assert asked.arguments == OVERWRITE and len(asked.state) == 64
    assert "-first" in asked.preview and "+new" in asked.preview
    assert answers(bench)[0].by == "person:me"
    bench.assert_every_call_has_one_finish()
    bench.assert_log_agrees_with_disk()


def test_a_no_is_a_refusal_the_model_can_read(bench: Bench) -> None:
    before = bench.tree()
    result = bench.call("write_file", OVERWRITE, gate=AskingGate(ask=Person(NO)))
    assert (result.error.code, result.error.details) == ("APPROVAL_DENIED", {"by": "person:me"})
    assert "not that file" in result.output and result.error.hint in result.output
    assert bench.tree() == before and bench.last().status == "denied"
    assert len(answers(bench)) == 1


def test_what_the_tool_does_not_ask_about_runs_unasked_and_leaves_no_decision(bench: Bench) -> None:
    gate = AskingGate(ask=Person())
    assert bench.call("write_file", {"path": "new", "content": "x"}, gate=gate).success
    assert bench.call("read_file", {"path": "notes.txt"}, gate=gate).success
    assert bench.events("call.decided", "approval.requested") == []


def test_nobody_to_ask_and_nobody_in_time_are_refusals(bench: Bench) -> None:
    for gate, by in (
        (AskingGate(wait=False), "gate:nobody"),
        (AskingGate(wait=False, ask=Person(None)), "gate:nobody"),
        (AskingGate(timeout=0.3), "gate:timeout"),
        (AskingGate(timeout=0.3, ask=Person(None)), "gate:timeout"),
    ):
        result = bench.call("write_file", OVERWRITE, gate=gate)
        assert (result.error.code, result.error.details["by"]) == ("APPROVAL_DENIED", by)
        assert answers(bench)[-1].by == by
    assert Questions(bench.session.writer.attachment).pending() == []
    bench.assert_every_call_has_one_finish()


@pytest.mark.parametrize("plain", [True, False], ids=["a function", "a coroutine function"])
def test_a_callback_may_be_plain_or_async_and_its_trouble_is_a_no(
    bench: Bench, plain: bool
) -> None:
    def answer(request: ApprovalRequest) -> None:
        raise RuntimeError("no display")

    async def later(request: ApprovalRequest) -> None:
        return answer(request)

    result = bench.call("write_file", OVERWRITE, gate=AskingGate(ask=answer if plain else later))
    assert result.error.code == "APPROVAL_DENIED" and "no display" in result.output
    assert bench.call("write_file", OVERWRITE, gate=AskingGate(ask=lambda request: YES)).success


def test_a_plain_callback_does_not_hold_up_the_event_loop(bench: Bench) -> None:
    asked, go = threading.Event(), threading.Event()

    def answer(request: ApprovalRequest) -> Decision:
        asked.set()
        assert go.wait(20)
        return YES

    async def main() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(bench_call)
            while not asked.is_set():
                await anyio.sleep(0.01)
            go.set()

    async def bench_call() -> None:
        done = await bench.acall("write_file", OVERWRITE, gate=AskingGate(ask=answer))
        assert done.success

    anyio.run(main)


def from_elsewhere(
    bench: Bench, *said: Any, **more: Any
) -> Callable[[ApprovalRequest], Awaitable[None]]:
    """Answers every question from outside of the process's gate, as soon as it is on record."""

    async def answer(request: ApprovalRequest) -> None:
        attachment = bench.session.writer.attachment
        [found] = await anyio.to_thread.run_sync(Questions(attachment).pending)
        assert found == request
        Questions(attachment).answer(found, *said, **more)

    return answer


def test_an_answer_in_the_log_is_enough(bench: Bench) -> None:
    gate = AskingGate(ask=from_elsewhere(bench, "allowed", "person:other", reason="fine"))
    assert bench.call("write_file", OVERWRITE, gate=gate).success
    (said,) = answers(bench)
    assert (said.by, said.reason, said.lasting) == ("person:other", "fine", False)


def test_of_two_answers_the_first_counts_and_the_other_is_told_whose(bench: Bench) -> None:
    attachment = bench.session.writer.attachment
    told = []

    async def both(request: ApprovalRequest) -> Decision:
        barrier = threading.Barrier(2)

        def one(by: str, decision: Literal["allowed", "denied"]) -> None:
            barrier.wait()
            try:
                Questions(attachment).answer(request, decision, by)
            except Conflict as error:
                told.append(error)

        async with anyio.create_task_group() as group:
            group.start_soon(anyio.to_thread.run_sync, one, "person:a", "allowed")
            group.start_soon(anyio.to_thread.run_sync, one, "person:b", "denied")
        return Decision("allowed", "person:late")

    for _ in range(5):
        told.clear()
        result = bench.call("write_file", OVERWRITE, gate=AskingGate(ask=both))
        said = answers(bench)[-1]
        assert result.success == (said.decision == "allowed")
        assert [error.details["by"] for error in told] == [said.by]
        assert said.by in told[0].message and said.decision in told[0].message
    assert len(answers(bench)) == 5


def test_a_call_that_was_cancelled_takes_no_answer_any_more(bench: Bench) -> None:
    attachment = bench.session.writer.attachment
    asked = []

    async def main() -> None:
        async with anyio.create_task_group() as group:

            async def ask(request: ApprovalRequest) -> None:
                asked.append(request)
                group.cancel_scope.cancel()
                await anyio.sleep_forever()

            await bench.acall("write_file", OVERWRITE, gate=AskingGate(ask=ask))

    anyio.run(main)
    assert bench.last().status == "cancelled" and Questions(attachment).pending() == []
    with pytest.raises(Conflict, match="nobody waits"):
        Questions(attachment).answer(asked[0], "allowed", "person:me")
    bench.assert_every_call_has_one_finish()


@pytest.mark.few(0)
def test_two_hundred_open_questions_hold_no_thread_others_go_on_and_each_ends_alone(
    bench: Bench,
) -> None:
    attachment, many = bench.session.writer.attachment, 200
    ended: list[str] = []

    async def main() -> None:
        gate = AskingGate()
        threads = anyio.to_thread.current_default_thread_limiter()
        assert threads.total_tokens < many / 2, "questions that held one would leave none"

        async def one(number: int, scope: anyio.CancelScope) -> None:
            with scope:
                result = await bench.acall(
                    "write_file", OVERWRITE | {"content": f"{number}"}, gate=gate
                )
                ended.append(f"{number} {result.success}")

        async with anyio.create_task_group() as group:
            scopes = [anyio.CancelScope() for _ in range(many)]
            for number, scope in enumerate(scopes):
                group.start_soon(one, number, scope)
            while len(Questions(attachment).pending()) < many:
                await anyio.sleep(0.2)
            while threads.statistics().borrowed_tokens > 2:
                await anyio.sleep(0.01)  # the last of them comes back from its thread
            for _ in range(5):
                assert (await bench.acall("read_file", {"path": "notes.txt"})).success
                # one look for all of them, by a task that takes turns with this one
                assert threads.statistics().borrowed_tokens <= 2
                await anyio.sleep(POLL)
            assert not ended
            scopes[0].cancel()
            while len(waiting := Questions(attachment).pending()) == many:
                await anyio.sleep(0.01)
            assert not ended and len(waiting) == many - 1
            answer = waiting[7]
            Questions(attachment).answer(answer, "denied", "person:me")
            while not ended:
                await anyio.sleep(0.01)
            assert len(ended) == 1 and ended[0].endswith("False")
            group.cancel_scope.cancel()

    anyio.run(main)
    bench.assert_every_call_has_one_finish()


def test_a_gate_asks_in_a_store_that_was_closed_and_opened_again(
    home: Path, tmp_path: Path
) -> None:
    gate, root = AskingGate(timeout=10.0), tmp_path / "work"
    root.mkdir()

    async def call(workspace: AuditedWorkspace, session: Session) -> None:
        async def answer() -> None:
            while not (waiting := workspace.questions.pending()):
                await anyio.sleep(0.01)
            await anyio.sleep(3 * POLL)
            workspace.questions.answer(waiting[0], "allowed", "person:me")

        async with anyio.create_task_group() as group:
            group.start_soon(answer)
            result = await call_tool(
                session.registry, gate, session.writer, "write_file", OVERWRITE
            )
        assert result.success, result.output

    for _ in range(2):
        (root / "notes.txt").write_text("first")
        with open_store() as store:
            workspace = store.attach(root)
            with workspace.session("tester") as session:
                anyio.run(call, workspace, session)


def test_modified_arguments_are_what_runs_and_both_are_on_record(bench: Bench) -> None:
    other = OVERWRITE | {"content": "x"}
    person = Person(Decision("allowed", "person:me", "", other))
    assert bench.call("write_file", OVERWRITE, gate=AskingGate(ask=person)).success
    assert (bench.root / "notes.txt").read_text() == "x"
    assert bench.requested()[-1].arguments == OVERWRITE
    assert answers(bench)[0].arguments == other


@pytest.mark.parametrize(("answer", "success"), [(True, True), (False, False)])
def test_a_callback_may_answer_true_or_false(bench: Bench, answer: bool, success: bool) -> None:
    gate = AskingGate(ask=lambda request: answer)
    assert bench.call("write_file", OVERWRITE, gate=gate).success == success
    assert answers(bench)[0].by == "gate:callback"


@pytest.mark.parametrize("answer", ["yes", 1, {"decision": "allowed"}])
def test_another_answer_of_a_callback_is_a_no_that_says_what_is_expected(
    bench: Bench, answer: Any, caplog: pytest.LogCaptureFixture
) -> None:
    result = bench.call("write_file", OVERWRITE, gate=AskingGate(ask=lambda request: answer))
    assert result.error.code == "APPROVAL_DENIED"
    assert f"gave {type(answer).__name__}; expected are a Decision, True" in result.output
    assert "Traceback" not in caplog.text


def test_modified_arguments_that_are_not_valid_are_refused_and_asked_about_again(
    bench: Bench,
) -> None:
    wrong = Decision("allowed", "person:me", "", {"path": 1})
    gone = Decision("allowed", "person:me", "", {"path": "src", "content": ""})
    person = Person(wrong, gone, NO)
    assert not bench.call("write_file", OVERWRITE, gate=AskingGate(ask=person)).success
    asked = questions(bench)
    assert [fact.number for fact in asked] == [1, 2, 3]
    assert "not valid" in asked[1].reason and "path" in asked[1].reason
    assert "cannot work" in asked[2].reason
    assert [fact.decision for fact in answers(bench)] == ["allowed", "allowed", "denied"]


@pytest.mark.parametrize("more", ["", "-more"])
def test_a_number_means_a_call_s_number_whatever_ids_agents_choose(bench: Bench, more: str) -> None:
    """An id that an agent chose, or a random one that begins so, is not a call's number."""
    person = Person(YES)
    assert bench.call("write_file", OVERWRITE, gate=AskingGate(ask=person)).success
    number = str(person.asked[0].requested)

    def look(request: ApprovalRequest) -> Decision:
        with pytest.raises(Conflict, match="already"):
            Questions(bench.session.writer.attachment).find(number)
        return YES

    again = {"path": "notes.txt", "content": "again"}
    gate = AskingGate(ask=Person(look))
    assert bench.call("write_file", again, gate=gate, call_id=number + more).success


def test_a_call_that_cannot_work_asks_nobody(bench: Bench) -> None:
    result = bench.call("delete_file", {"path": "none"}, gate=AskingGate(ask=Person()))
    assert result.error.code == "FILE_NOT_FOUND"
    assert bench.events("approval.requested", "call.decided") == []
    bench.assert_every_call_has_one_finish()


def test_an_answer_for_the_session_holds_for_the_same_reason_only(bench: Bench) -> None:
    person = Person(Decision("allowed", "person:me", lasting=True), NO)
    gate = AskingGate(ask=person)
    assert bench.call("write_file", OVERWRITE, gate=gate).success
    number = bench.workspace.timeline.calls()[0].seq
    assert bench.call("write_file", OVERWRITE | {"content": "again"}, gate=gate).success
    assert answers(bench)[-1].by == f"person:me (for this session, call {number})"
    other = {"path": "src/main.py", "content": "x"}
    assert not bench.call("write_file", other, gate=gate).success
    assert len(person.asked) == 2
    with bench.workspace.session("another") as session:
        late = AskingGate(wait=False)
        session.gate = late
        assert anyio.run(session.call, "write_file", OVERWRITE).error.code == "APPROVAL_DENIED"


def test_an_answer_for_the_session_holds_when_it_was_given_to_the_second_question(
    bench: Bench,
) -> None:
    def edit_first(request: ApprovalRequest) -> Decision:
        (bench.root / "notes.txt").write_text("edited in between\n")
        return YES

    gate = AskingGate(ask=Person(edit_first, Decision("allowed", "person:me", lasting=True)))
    for _ in range(2):
        assert bench.call("write_file", OVERWRITE, gate=gate).success
    assert len(questions(bench)) == 2


def test_an_answer_for_the_session_holds_for_all_that_the_same_rule_asks_about(
    bench: Bench,
) -> None:
    policy = read_policy({"rule": [{"tool": "write_file", "action": "ask", "reason": "careful"}]})
    person = Person(Decision("allowed", "person:me", lasting=True))
    gate = AskingGate(policy, ask=person)
    for name in ("one", "two"):
        assert bench.call("write_file", {"path": name, "content": ""}, gate=gate).success
    assert len(person.asked) == 1 and questions(bench)[0].rule == "policy:approvals.toml#1"


def test_an_answer_for_the_session_cannot_change_arguments(bench: Bench) -> None:
    attachment = bench.session.writer.attachment

    async def ask(request: ApprovalRequest) -> Decision:
        with pytest.raises(InvalidArguments):
            Questions(attachment).answer(
                request, "allowed", "p", arguments={"path": "x"}, lasting=True
            )
        return NO

    assert not bench.call("write_file", OVERWRITE, gate=AskingGate(ask=ask)).success


def test_an_answer_that_cannot_be_put_on_record_is_a_no(bench: Bench) -> None:
    person = Person(Decision("allowed", "p", "", {"path": "x", "content": object()}))
    result = bench.call("write_file", OVERWRITE, gate=AskingGate(ask=person))
    assert result.error.code == "APPROVAL_DENIED" and "not a JSON value" in result.output
    assert Questions(bench.session.writer.attachment).pending() == []
    bench.assert_every_call_has_one_finish()


class Always(Tool):
    name = "always"
    description = "Asks always."
    requires_approval = True
    effect = "network"

    async def execute(self, args: Any, ctx: ToolContext) -> ToolResult:
        return ToolResult(True, "ran")


def test_a_tool_may_say_that_it_always_asks(bench: Bench) -> None:
    bench.registry.register(Always())
    person = Person(NO, YES)
    assert not bench.call("always", {}, gate=AskingGate(ask=person)).success
    assert bench.call("always", {}, gate=AskingGate(ask=person)).output == "ran"
    assert questions(bench)[0].reason == "always asks first"


def test_a_function_may_say_when_it_asks(bench: Bench) -> None:
    @tool(requires_approval=lambda args, ctx: f"spends {args.euros}" if args.euros > 5 else False)
    def spend(euros: int) -> str:
        """Spend money."""
        return f"spent {euros}"

    bench.registry.register(spend)
    person = Person(NO)
    assert bench.call("spend", {"euros": 1}, gate=AskingGate(ask=person)).output == "spent 1"
    assert not bench.call("spend", {"euros": 9}, gate=AskingGate(ask=person)).success
    assert [request.reason for request in person.asked] == ["spends 9"]


def test_facts_of_questions_survive_a_rebuild_and_are_what_was_said(bench: Bench) -> None:
    assert not bench.call("write_file", OVERWRITE, gate=AskingGate(ask=Person(NO))).success
    before = [e.fact for e in bench.events()]
    bench.workspace.rebuild()
    assert [e.fact for e in bench.events()] == before
    assert isinstance(questions(bench)[0], ApprovalRequested)
    assert isinstance(answers(bench)[0], CallDecided)


def test_a_move_that_overwrites_nothing_and_a_reading_tool_ask_nobody(bench: Bench) -> None:
    gate = AskingGate(wait=False)
    for name, arguments in (
        ("list_directory", {}),
        ("list_files", {}),
        ("search_files", {"pattern": "x"}),
        ("read_file", {"path": "notes.txt"}),
        ("write_file", {"path": "fresh.txt", "content": ""}),
        ("move_file", {"from": "fresh.txt", "to": "moved.txt"}),
        ("shell_execute", {"command": "true"}),
        ("run_code", {"language": "bash", "code": "true"}),
    ):
        assert bench.call(name, arguments, gate=gate).success, name
    for name in ("web_search", "web_search_google", "web_search_serper"):
        assert bench.registry.get(name).requires_approval is False
    for name, overwriting in (
        ("write_file", {"path": "notes.txt", "content": ""}),
        ("delete_file", {"path": "notes.txt"}),
        ("move_file", {"from": "notes.txt", "to": "moved.txt", "overwrite": True}),
    ):
        assert bench.call(name, overwriting, gate=gate).error.code == "APPROVAL_DENIED"


def test_a_request_names_step_tool_arguments_and_reason_and_waits(bench: Bench) -> None:
    asked = []

    def person(request: ApprovalRequest) -> Decision:
        asked.append(request)
        assert (bench.root / "notes.txt").exists()
        return Decision("allowed", "person:me", arguments={"path": "src/main.py"})

    gate = AskingGate(ask=person)
    result = bench.call("delete_file", {"path": "notes.txt"}, gate=gate, call_id="step_1")
    assert (asked[0].call_id, asked[0].tool) == ("step_1", "delete_file")
    assert asked[0].arguments == {"path": "notes.txt"}
    assert asked[0].reason == "deletes notes.txt"
    # another path than the one shown: it is asked again, and then it is what is deleted
    assert asked[1].arguments == {"path": "src/main.py"} and len(asked) == 2
    assert result.data == {"deleted": ["src/main.py"]}
    assert (bench.root / "notes.txt").exists()


def test_a_tool_may_need_approval_only_where_something_is_overwritten(bench: Bench) -> None:
    class WriteFileTool(Tool):
        name = "write_once"
        description = "write a file"
        effect = "write"
        parameters = {"type": "object", "properties": {"path": {"type": "string"}}}  # noqa: RUF012

        def requires_approval(self, args: Any, ctx: ToolContext) -> bool:
            return ctx.exists(args["path"])

        async def execute(self, args: Any, ctx: ToolContext) -> ToolResult:
            await ctx.write(args["path"], b"once")
            return ToolResult(True, "written")

    bench.registry.register(WriteFileTool())
    gate = AskingGate(wait=False)
    assert bench.call("write_once", {"path": "fresh"}, gate=gate).success
    assert bench.call("write_once", {"path": "fresh"}, gate=gate).error.code == "APPROVAL_DENIED"
