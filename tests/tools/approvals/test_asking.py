"""Calls that somebody is asked about: what is on record, who is first, what an answer holds for."""

import os
import threading
from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from loom_audit.api import builtin_registry, open_store
from loom_audit.api.gates import default_gate
from loom_audit.errors import AuditError, Conflict, InvalidArguments
from loom_audit.history import approvals
from loom_audit.model.events import ApprovalRequested, CallDecided
from loom_audit.tools.approvals.asking import AskingGate
from loom_audit.tools.approvals.policy import read_policy
from loom_audit.tools.calls.function import tool
from loom_audit.tools.calls.gate import AllowAll, Decision
from loom_audit.tools.calls.result import ToolResult
from loom_audit.tools.calls.tool import Tool

OVERWRITE = {"path": "notes.txt", "content": "new\n"}
YES = Decision("allowed", "person:me")
NO = Decision("denied", "person:me", "not that file")


class Person:
    """Answers each question with the next of these, and remembers what was asked."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.asked = []

    async def __call__(self, request):
        self.asked.append(request)
        answer = self.answers.pop(0)
        return answer(request) if callable(answer) else answer


def call_kinds(bench):
    return [e.kind for e in bench.events() if getattr(e.fact, "call_id", None)]


def questions(bench):
    return [e.fact for e in bench.events("approval.requested")]


def answers(bench):
    return [e.fact for e in bench.events("call.decided")]


def test_the_question_is_on_record_before_the_answer_and_the_answer_before_the_effect(bench):
    seen = []

    def look(request):
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


def test_a_no_is_a_refusal_the_model_can_read(bench):
    before = bench.tree()
    result = bench.call("write_file", OVERWRITE, gate=AskingGate(ask=Person(NO)))
    assert (result.error.code, result.error.details) == ("APPROVAL_DENIED", {"by": "person:me"})
    assert "not that file" in result.output and result.error.hint in result.output
    assert bench.tree() == before and bench.last().status == "denied"
    assert len(answers(bench)) == 1


def test_what_the_tool_does_not_ask_about_runs_unasked_and_leaves_no_decision(bench):
    gate = AskingGate(ask=Person())
    assert bench.call("write_file", {"path": "new", "content": "x"}, gate=gate).success
    assert bench.call("read_file", {"path": "notes.txt"}, gate=gate).success
    assert bench.events("call.decided", "approval.requested") == []


def test_nobody_to_ask_and_nobody_in_time_are_refusals(bench):
    for gate, by in (
        (AskingGate(wait=False), "gate:nobody"),
        (AskingGate(wait=False, ask=Person(None)), "gate:nobody"),
        (AskingGate(timeout=0.3), "gate:timeout"),
        (AskingGate(timeout=0.3, ask=Person(None)), "gate:timeout"),
    ):
        result = bench.call("write_file", OVERWRITE, gate=gate)
        assert (result.error.code, result.error.details["by"]) == ("APPROVAL_DENIED", by)
        assert answers(bench)[-1].by == by
    assert approvals.pending(bench.session.recorder.attachment) == []
    bench.assert_every_call_has_one_finish()


@pytest.mark.parametrize("plain", [True, False], ids=["a function", "a coroutine function"])
def test_a_callback_may_be_plain_or_async_and_its_trouble_is_a_no(bench, plain):
    def answer(request):
        raise RuntimeError("no display")

    async def later(request):
        return answer(request)

    result = bench.call("write_file", OVERWRITE, gate=AskingGate(ask=answer if plain else later))
    assert result.error.code == "APPROVAL_DENIED" and "no display" in result.output
    assert bench.call("write_file", OVERWRITE, gate=AskingGate(ask=lambda request: YES)).success


def test_a_plain_callback_does_not_hold_up_the_event_loop(bench):
    asked, go = threading.Event(), threading.Event()

    def answer(request):
        asked.set()
        assert go.wait(20)
        return YES

    async def main():
        async with anyio.create_task_group() as group:
            group.start_soon(bench_call)
            while not asked.is_set():
                await anyio.sleep(0.01)
            go.set()

    async def bench_call():
        done = await bench.acall("write_file", OVERWRITE, gate=AskingGate(ask=answer))
        assert done.success

    anyio.run(main)


def from_elsewhere(bench, *said, **more):
    """Answers every question from outside of the process's gate, as soon as it is on record."""

    async def answer(request):
        attachment = bench.session.recorder.attachment
        [found] = await anyio.to_thread.run_sync(approvals.pending, attachment)
        assert found == request
        approvals.answer(attachment, found, *said, **more)

    return answer


def test_an_answer_in_the_log_is_enough(bench):
    gate = AskingGate(ask=from_elsewhere(bench, "allowed", "person:other", reason="fine"))
    assert bench.call("write_file", OVERWRITE, gate=gate).success
    (said,) = answers(bench)
    assert (said.by, said.reason, said.lasting) == ("person:other", "fine", False)


def test_of_two_answers_the_first_counts_and_the_other_is_told_whose(bench):
    attachment = bench.session.recorder.attachment
    told = []

    async def both(request):
        barrier = threading.Barrier(2)

        def one(by, decision):
            barrier.wait()
            try:
                approvals.answer(attachment, request, decision, by)
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


def test_a_call_that_was_cancelled_takes_no_answer_any_more(bench):
    attachment = bench.session.recorder.attachment
    asked = []

    async def main():
        async with anyio.create_task_group() as group:

            async def ask(request):
                asked.append(request)
                group.cancel_scope.cancel()
                await anyio.sleep_forever()

            await bench.acall("write_file", OVERWRITE, gate=AskingGate(ask=ask))

    anyio.run(main)
    assert bench.last().status == "cancelled" and approvals.pending(attachment) == []
    with pytest.raises(Conflict, match="nobody waits"):
        approvals.answer(attachment, asked[0], "allowed", "person:me")
    bench.assert_every_call_has_one_finish()


def test_modified_arguments_are_what_runs_and_both_are_on_record(bench):
    other = OVERWRITE | {"content": "x"}
    person = Person(Decision("allowed", "person:me", "", other))
    assert bench.call("write_file", OVERWRITE, gate=AskingGate(ask=person)).success
    assert (bench.root / "notes.txt").read_text() == "x"
    assert bench.requested()[-1].arguments == OVERWRITE
    assert answers(bench)[0].arguments == other


def test_modified_arguments_that_make_what_was_not_shown_are_asked_about_again(bench):
    other = {"path": "other.txt", "content": "x"}
    modified = Decision("allowed", "person:me", "", other)
    refused = bench.call("write_file", OVERWRITE, gate=AskingGate(ask=Person(modified, NO)))
    assert not refused.success and not (bench.root / "other.txt").exists()
    assert questions(bench)[1].arguments == other and "+x" in questions(bench)[1].preview
    assert bench.call("write_file", OVERWRITE, gate=AskingGate(ask=Person(modified, YES))).success
    assert (bench.root / "other.txt").read_text() == "x"


@pytest.mark.parametrize(("answer", "success"), [(True, True), (False, False)])
def test_a_callback_may_answer_true_or_false(bench, answer, success):
    gate = AskingGate(ask=lambda request: answer)
    assert bench.call("write_file", OVERWRITE, gate=gate).success == success
    assert answers(bench)[0].by == "gate:callback"


@pytest.mark.parametrize("answer", ["yes", 1, {"decision": "allowed"}])
def test_another_answer_of_a_callback_is_a_no_that_says_what_is_expected(bench, answer, caplog):
    result = bench.call("write_file", OVERWRITE, gate=AskingGate(ask=lambda request: answer))
    assert result.error.code == "APPROVAL_DENIED"
    assert f"gave {type(answer).__name__}; expected are a Decision, True" in result.output
    assert "Traceback" not in caplog.text


def test_a_rule_is_named_with_its_number_what_it_is_about_and_its_reason(bench):
    rules = [{"command": "sudo *", "action": "deny", "reason": "runs as another user"}]
    rules += [{"path": "*.txt", "action": "ask"}]
    gate = AskingGate(read_policy({"rule": rules}), ask=Person(NO))
    refused = bench.call("shell_execute", {"command": "sudo true"}, gate=gate)
    assert "rule 1 (sudo *): runs as another user" in refused.output
    bench.call("write_file", OVERWRITE, gate=gate)
    assert questions(bench)[-1].reason == "rule 2 (*.txt)"


def test_modified_arguments_that_are_not_valid_are_refused_and_asked_about_again(bench):
    wrong = Decision("allowed", "person:me", "", {"path": 1})
    gone = Decision("allowed", "person:me", "", {"path": "src", "content": ""})
    person = Person(wrong, gone, NO)
    assert not bench.call("write_file", OVERWRITE, gate=AskingGate(ask=person)).success
    asked = questions(bench)
    assert [fact.number for fact in asked] == [1, 2, 3]
    assert "not valid" in asked[1].reason and "path" in asked[1].reason
    assert "cannot work" in asked[2].reason
    assert [fact.decision for fact in answers(bench)] == ["allowed", "allowed", "denied"]


def test_modified_arguments_that_touch_what_was_not_shown_are_asked_about_again(bench):
    elsewhere = {"path": "src/main.py", "content": "x"}
    person = Person(Decision("allowed", "person:me", "", elsewhere), YES)
    assert bench.call("write_file", OVERWRITE, gate=AskingGate(ask=person)).success
    assert questions(bench)[1].arguments == elsewhere
    assert "print('one')" in questions(bench)[1].preview
    assert (bench.root / "src/main.py").read_text() == "x"


def test_what_moved_since_it_was_shown_is_asked_about_again(bench):
    notes = bench.root / "notes.txt"

    def edit_first(request):
        notes.write_text("edited in between\n")
        return YES

    person = Person(edit_first, NO)
    assert not bench.call("write_file", OVERWRITE, gate=AskingGate(ask=person)).success
    one, two = questions(bench)
    assert "edited in between" in two.preview and "edited in between" not in one.preview
    assert "changed since it was shown" in two.reason and one.state != two.state
    assert two.reason.startswith(one.reason)
    assert notes.read_text() == "edited in between\n"


def test_one_that_moves_every_time_is_denied_in_the_end(bench):
    def edit_first(request):
        (bench.root / "notes.txt").write_text(f"{request.seq}")
        return YES

    result = bench.call("write_file", OVERWRITE, gate=AskingGate(ask=Person(*[edit_first] * 9)))
    assert result.error.code == "APPROVAL_DENIED" and len(questions(bench)) == 5
    assert answers(bench)[-1].by == "gate:asking"
    bench.assert_every_call_has_one_finish()


def test_a_file_is_not_made_in_another_folder_than_was_shown(bench, monkeypatch):
    wait = AskingGate.decide

    async def decide(self, *args, **options):
        answer = await wait(self, *args, **options)
        (bench.root / "new").rmdir()
        os.symlink("src", bench.root / "new")
        return answer

    (bench.root / "new").mkdir()
    monkeypatch.setattr(AskingGate, "decide", decide)
    gate = AskingGate(read_policy({"default": "ask"}), ask=Person(YES))
    result = bench.call("write_file", {"path": "new/a.py", "content": "x"}, gate=gate)
    assert result.error.code == "CONFLICT" and result.files_changed == []
    assert os.listdir(bench.root / "src") == ["main.py"]


@pytest.mark.parametrize("more", ["", "-more"])
def test_a_number_means_a_call_s_number_whatever_ids_agents_choose(bench, more):
    """An id that an agent chose, or a random one that begins so, is no number of another call."""
    person = Person(YES)
    assert bench.call("write_file", OVERWRITE, gate=AskingGate(ask=person)).success
    number = str(person.asked[0].requested)

    def look(request):
        with pytest.raises(Conflict, match="already"):
            approvals.find(bench.session.recorder.attachment, number)
        return YES

    again = {"path": "notes.txt", "content": "again"}
    gate = AskingGate(ask=Person(look))
    assert bench.call("write_file", again, gate=gate, call_id=number + more).success


def test_a_preview_that_is_cut_says_how_much_would_change(bench):
    for number in range(1500):
        (bench.root / "src" / f"{number:04}{'x' * 60}").write_text("")
    person = Person(NO)
    bench.call("delete_file", {"path": "src", "recursive": True}, gate=AskingGate(ask=person))
    [request] = person.asked
    assert "1502 paths would change in all" in request.preview.splitlines()[-1]
    assert len(request.preview.encode()) <= 64 * 1024


@pytest.mark.parametrize("how", ["content", "mode", "deleted", "symlink"])
def test_an_edit_between_the_last_look_and_the_write_is_a_conflict(bench, monkeypatch, how):
    """The gate has looked for the last time: only the write itself can find it."""
    notes, wait = bench.root / "notes.txt", AskingGate.decide

    async def decide(self, *args, **options):
        answer = await wait(self, *args, **options)
        if how == "content":
            notes.write_bytes(b"FIRST\r\nsecond\r\nthird")
        elif how == "mode":
            notes.chmod(0o600)
        elif how == "deleted":
            notes.unlink()
        else:
            notes.unlink()
            os.symlink("src/main.py", notes)
        return answer

    monkeypatch.setattr(AskingGate, "decide", decide)
    result = bench.call("write_file", OVERWRITE, gate=AskingGate(ask=Person(YES)))
    assert result.error.code == "CONFLICT" and result.files_changed == []
    assert (bench.root / "src/main.py").read_text().startswith("import os")
    assert not notes.exists() or b"new" not in notes.read_bytes()
    bench.assert_every_call_has_one_finish()
    assert bench.call("list_directory", {}).success


def test_a_folder_is_deleted_as_it_was_shown_or_not_at_all(bench):
    def add_first(request):
        (bench.root / "src" / "late.py").write_text("late")
        return YES

    person = Person(add_first, NO)
    arguments = {"path": "src", "recursive": True}
    assert not bench.call("delete_file", arguments, gate=AskingGate(ask=person)).success
    one, two = questions(bench)
    assert "late.py" in two.preview and "late.py" not in one.preview
    assert "delete directory src" in one.preview and "-print('one')" in one.preview
    assert bench.call("delete_file", arguments, gate=AskingGate(ask=Person(YES))).success
    assert not (bench.root / "src").exists()
    bench.assert_log_agrees_with_disk()


def test_overwriting_by_moving_asks_with_what_would_be_lost(bench):
    move = {"from": "src/main.py", "to": "notes.txt", "overwrite": True}
    assert bench.call("move_file", move, gate=AskingGate(ask=Person(YES))).success
    (asked,) = questions(bench)
    assert "rename src/main.py to notes.txt" in asked.preview and "-first" in asked.preview
    assert asked.arguments == move


def test_the_scratch_directory_is_named_and_the_workspace_stays(bench):
    write = {"path": "scratch://a.txt", "content": "one"}
    assert bench.call("write_file", write, gate=AskingGate(wait=False)).success
    gate = AskingGate(ask=Person(YES, YES))
    assert bench.call("write_file", write | {"content": "two"}, gate=gate).success
    assert bench.call("delete_file", {"path": "scratch://a.txt"}, gate=gate).success
    assert all("scratch directory" in fact.preview for fact in questions(bench))
    bench.assert_log_agrees_with_disk()


def test_a_call_that_cannot_work_asks_nobody(bench):
    result = bench.call("delete_file", {"path": "none"}, gate=AskingGate(ask=Person()))
    assert result.error.code == "FILE_NOT_FOUND"
    assert bench.events("approval.requested", "call.decided") == []
    bench.assert_every_call_has_one_finish()


def test_an_answer_for_the_session_holds_for_the_same_reason_only(bench):
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


def test_an_answer_for_the_session_holds_when_it_was_given_to_the_second_question(bench):
    def edit_first(request):
        (bench.root / "notes.txt").write_text("edited in between\n")
        return YES

    gate = AskingGate(ask=Person(edit_first, Decision("allowed", "person:me", lasting=True)))
    for _ in range(2):
        assert bench.call("write_file", OVERWRITE, gate=gate).success
    assert len(questions(bench)) == 2


def test_an_answer_for_the_session_holds_for_all_that_the_same_rule_asks_about(bench):
    policy = read_policy({"rule": [{"tool": "write_file", "action": "ask", "reason": "careful"}]})
    person = Person(Decision("allowed", "person:me", lasting=True))
    gate = AskingGate(policy, ask=person)
    for name in ("one", "two"):
        assert bench.call("write_file", {"path": name, "content": ""}, gate=gate).success
    assert len(person.asked) == 1 and questions(bench)[0].rule == "policy:approvals.toml#1"


def test_an_answer_for_the_session_cannot_change_arguments(bench):
    attachment = bench.session.recorder.attachment

    async def ask(request):
        with pytest.raises(InvalidArguments):
            approvals.answer(
                attachment, request, "allowed", "p", arguments={"path": "x"}, lasting=True
            )
        return NO

    assert not bench.call("write_file", OVERWRITE, gate=AskingGate(ask=ask)).success


@pytest.mark.parametrize(
    ("rule", "allowed"),
    [({"action": "allow", "path": "*.txt"}, True), ({"action": "deny", "effect": "write"}, False)],
)
def test_the_policy_decides_first_and_its_decision_is_on_record(bench, rule, allowed):
    gate = AskingGate(read_policy({"rule": [{"tool": "none", "action": "ask"}, rule]}))
    result = bench.call("write_file", OVERWRITE, gate=gate)
    assert result.success == allowed
    (said,) = answers(bench)
    assert said.by == "policy:approvals.toml#2" and questions(bench) == []


def test_arguments_put_in_place_must_pass_the_policy_too(bench):
    deny = {"path": "src/", "action": "deny"}
    gate = AskingGate(
        read_policy({"rule": [deny]}),
        ask=Person(Decision("allowed", "p", "", {"path": "src/new", "content": ""})),
    )
    result = bench.call("write_file", OVERWRITE, gate=gate)
    assert result.error.details["by"] == "policy:approvals.toml#1"
    assert not (bench.root / "src/new").exists()


@pytest.mark.parametrize(
    "call",
    [
        ("delete_file", {"path": "src", "recursive": True}),
        ("move_file", {"from": "src", "to": "elsewhere"}),
        ("write_file", {"path": "a/../link", "content": ""}),
        ("edit_file", {"path": "link", "old_str": "one", "new_str": "two"}),
    ],
)
def test_a_path_is_denied_however_it_is_reached(bench, call):
    (bench.root / "link").symlink_to("src/main.py")
    gate = AskingGate(read_policy({"rule": [{"path": "src/main.py", "action": "deny"}]}))
    result = bench.call(*call, gate=gate)
    assert result.error.code == "APPROVAL_DENIED", result


def test_folders_that_are_only_made_do_not_stand_in_the_way_of_an_allowed_path(bench):
    rules = [{"path": "new/**/*.txt", "action": "allow"}, {"action": "deny"}]
    gate = AskingGate(read_policy({"rule": rules}))
    assert bench.call("write_file", {"path": "new/a/b.txt", "content": ""}, gate=gate).success
    assert not bench.call("write_file", {"path": "new/a/b.py", "content": ""}, gate=gate).success


def test_an_answer_that_cannot_be_put_on_record_is_a_no(bench):
    person = Person(Decision("allowed", "p", "", {"path": "x", "content": object()}))
    result = bench.call("write_file", OVERWRITE, gate=AskingGate(ask=person))
    assert result.error.code == "APPROVAL_DENIED" and "not a JSON value" in result.output
    assert approvals.pending(bench.session.recorder.attachment) == []
    bench.assert_every_call_has_one_finish()


def test_the_default_of_the_policy_stands_where_no_rule_matches(bench):
    for default, code in (("deny", "APPROVAL_DENIED"), ("ask", "APPROVAL_DENIED"), ("allow", None)):
        gate = AskingGate(read_policy({"default": default}), wait=False)
        result = bench.call("read_file", {"path": "notes.txt"}, gate=gate)
        assert (result.error and result.error.code) == code


class Always(Tool):
    name = "always"
    description = "Asks always."
    requires_approval = True
    effect = "network"

    async def execute(self, args, ctx):
        return ToolResult(True, "ran")


def test_a_tool_may_say_that_it_always_asks(bench):
    bench.registry.register(Always())
    person = Person(NO, YES)
    assert not bench.call("always", {}, gate=AskingGate(ask=person)).success
    assert bench.call("always", {}, gate=AskingGate(ask=person)).output == "ran"
    assert questions(bench)[0].reason == "always asks first"


def test_a_function_may_say_when_it_asks(bench):
    @tool(requires_approval=lambda args, ctx: f"spends {args.euros}" if args.euros > 5 else False)
    def spend(euros: int) -> str:
        """Spend money."""
        return f"spent {euros}"

    bench.registry.register(spend)
    person = Person(NO)
    assert bench.call("spend", {"euros": 1}, gate=AskingGate(ask=person)).output == "spent 1"
    assert not bench.call("spend", {"euros": 9}, gate=AskingGate(ask=person)).success
    assert [request.reason for request in person.asked] == ["spends 9"]


def test_hostile_text_and_large_content_are_asked_about_whole_and_shown_bounded(bench):
    hostile = "\x1b[31m\u202e<script>\udcff"
    content = (hostile[:-1] + "\n") * 20_000
    arguments = {"path": "notes.txt", "content": content}
    assert not bench.call("write_file", arguments, gate=AskingGate(ask=Person(NO))).success
    (asked,) = questions(bench)
    assert asked.arguments["content"] == content
    assert len(asked.preview.encode("utf-8", "surrogatepass")) <= 64 * 1024
    assert bench.workspace.verify().findings == ()


def test_facts_of_questions_survive_a_rebuild_and_are_what_was_said(bench):
    assert not bench.call("write_file", OVERWRITE, gate=AskingGate(ask=Person(NO))).success
    before = [e.fact for e in bench.events()]
    bench.workspace.rebuild()
    assert [e.fact for e in bench.events()] == before
    assert isinstance(questions(bench)[0], ApprovalRequested)
    assert isinstance(answers(bench)[0], CallDecided)


def write_rules(home, text):
    folder = home / "config"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "approvals.toml").write_text(text)


@pytest.fixture
def own(home, tmp_path):
    """A workspace in a store of its own, and its rules' home."""
    root = tmp_path / "own"
    root.mkdir()
    (root / "a.txt").write_text("a")
    with open_store() as store:
        yield store.attach(root), home


DENY = '[[rule]]\ntool = "write_*"\naction = "deny"\nreason = "not here"\n'


def test_sessions_and_registries_follow_the_file_of_rules_when_there_is_one(own):
    workspace, home = own
    arguments = {"path": "a.txt", "content": "b"}
    with workspace.session("free") as session:
        assert anyio.run(session.call, "write_file", arguments).success
    write_rules(home, DENY)
    with workspace.session("bound") as session:
        result = anyio.run(session.call, "write_file", arguments)
    assert result.error.details["by"] == "policy:approvals.toml#1"
    registry = builtin_registry()
    result = anyio.run(registry.execute, "write_file", arguments, workspace.root)
    assert result.error.code == "APPROVAL_DENIED" and "not here" in result.output
    with workspace.session("given", gate=AllowAll()) as session:
        assert anyio.run(session.call, "write_file", arguments).success


@pytest.mark.parametrize(
    "text",
    ["[[rule]", '[[rule]]\naction = "yes"\n', "[[rule]]\ncolour = 1\n", "other = 1\n"],
)
def test_a_file_that_is_not_valid_lets_nothing_start(own, text):
    workspace, home = own
    arguments = {"path": "a.txt", "content": "b"}
    with workspace.session("before") as session:
        assert anyio.run(session.call, "write_file", arguments).success
    write_rules(home, text)
    with pytest.raises(InvalidArguments, match=r"approvals\.toml"):
        workspace.session("any")
    result = anyio.run(builtin_registry().execute, "write_file", arguments, workspace.root)
    assert result.error.code == "INVALID_ARGUMENTS"
    workspace.carry_out(workspace.plan_undo())  # a person takes back all the same
    assert (Path(workspace.root) / "a.txt").read_text() == "a"


def test_rules_behind_a_link_that_leads_nowhere_let_nothing_start(own, tmp_path):
    workspace, home = own
    write_rules(home, DENY)
    file = home / "config" / "approvals.toml"
    file.rename(tmp_path / "elsewhere.toml")
    file.symlink_to(tmp_path / "gone.toml")
    with pytest.raises(AuditError, match="cannot be read"):
        workspace.session("any")


def test_rules_that_lie_in_the_workspace_are_refused(own, monkeypatch, tmp_path):
    workspace, _ = own
    inside = tmp_path / "own" / "config"
    settings = replace(workspace.adapters.settings, configuration=inside)
    inside.mkdir()
    (inside / "approvals.toml").write_text("")
    with pytest.raises(InvalidArguments, match="lies in the workspace"):
        default_gate(settings, root=workspace.root)
