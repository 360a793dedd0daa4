"""A session of each real client, call by call, against what its model asked and saw."""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from tests.real_clients import sessions
from tests.real_clients.clients import CLIENTS
from tests.real_clients.runs import Run, running
from tests.real_clients.script import Call, Step
from tests.real_clients.sessions import EXPECTED, LATE, MAY_CONFLICT, MEANWHILE, SOON
from tests.real_clients.workspaces import difference, manifest

pytestmark = pytest.mark.timeout(600)

FORMATTED = "shared: client hooks"
"""Why an edit is not certain that the person's own hook formatted."""
UNCERTAIN = ("background", "meanwhile", "soon")
"""Steps in which something runs that nobody can tell from the rest."""
DONE = (0, 7)
"""Exit codes of what was carried out, the second one of what says that not all was captured."""


@pytest.fixture(scope="module", params=CLIENTS)
def run(request: pytest.FixtureRequest) -> Iterator[Run]:
    """A session that has ended; the tests only look at it, or bring back what they change."""
    client = CLIENTS[request.param]
    with running(client, sessions.whole) as run:
        run.ours("connect", client.name)
        run.work(client.once("please do all of it"))
        yield run


def steps(run: Run) -> list[tuple[Step, Step]]:
    """Each step that asks for something, and the step after it."""
    return [*zip(run.model.steps, run.model.steps[1:], strict=False)]


def recorded(run: Run, step: Step) -> list[Mapping[str, Any]]:
    found = run.calls()
    return [found[run.client.id_of(call)] for call in step.calls]


def test_the_client_follows_the_script_and_does_what_it_says(run: Run) -> None:
    """What the other tests rest on: without it they would compare nothing with nothing."""
    assert run.model.asked == [call for step in run.model.steps for call in step.calls]
    assert set(run.model.told) == {call.id for call in run.model.asked}
    for step, after in steps(run):
        found = difference(run.before[step.name], run.before[after.name])
        expected = set(EXPECTED[step.name].paths)
        assert set(found) == expected, step.name
        for call in step.calls:
            status = run.client.status(run.model.told[call.id])
            assert status in (None, EXPECTED[step.name].status), call


def test_every_call_that_the_model_asked_for_is_on_record_once_with_its_id(run: Run) -> None:
    found = [call["call_id"] for call in run.listed("log", "-n", "0", "--oldest-first")]
    assert sorted(found) == sorted(run.client.id_of(call) for call in run.model.asked)


def test_arguments_are_those_that_the_model_gave(run: Run) -> None:
    shown = run.calls()
    for call in run.model.asked:
        seq = shown[run.client.id_of(call)]["seq"]
        (record,) = run.listed("show", str(seq), "--no-diff")
        assert says(record["arguments"], call), (call, record["arguments"])


def says(arguments: Any, call: Call) -> bool:
    """Whether what is on record says all that the model asked for; clients add defaults."""
    if call.custom is not None:
        return call.custom in arguments.values()
    given = dict(call.arguments)
    if "cmd" in given:  # a hook of Codex is told the command alone
        return bool(given["cmd"] == arguments.get("cmd", arguments.get("command")))
    return bool(given.items() <= arguments.items())


def test_statuses_are_those_that_the_model_was_told(run: Run) -> None:
    for step, _ in steps(run):
        for call, record in zip(step.calls, recorded(run, step), strict=True):
            told = run.client.status(run.model.told[call.id])
            expected = told or run.client.unsaid.get(step.name, EXPECTED[step.name].status)
            assert record["status"] == expected, (step.name, run.model.told[call.id])


def test_each_call_has_what_the_workspace_saw_change_and_reads_have_nothing(run: Run) -> None:
    for step, _ in steps(run):
        found = {path for record in recorded(run, step) for path in record["paths"]}
        assert found | {SOON} == {*EXPECTED[step.name].paths, SOON}, step.name


def test_what_is_certain_is_full_and_what_is_shared_says_so(run: Run) -> None:
    for step, _ in steps(run):
        for record in recorded(run, step):
            why = [one for one in record["coverage_reasons"] if one != FORMATTED]
            # no hook of Codex tells that a patch failed, so the look after it comes late
            late = ("failing edit",) if run.client.name == "codex" else ()
            if step.name not in (*UNCERTAIN, *late):
                assert why == [], (step.name, record["coverage_reasons"])
            assert (record["coverage"] == "full") == (not record["coverage_reasons"])
    (edit,) = recorded(run, named(run, "edit"))
    told = run.client.name in ("claude-code", "gemini")  # Codex tells a patch, not what it left
    assert (FORMATTED in edit["coverage_reasons"]) == told
    (meanwhile,) = recorded(run, named(run, "meanwhile"))
    assert meanwhile["coverage"] == "partial"
    assert any("shared" in reason for reason in meanwhile["coverage_reasons"])


@pytest.mark.parametrize(("step", "path"), [("background", LATE), ("soon", SOON)])
def test_what_ran_in_the_background_may_own_what_it_wrote_later(
    run: Run, step: str, path: str
) -> None:
    (background,) = recorded(run, named(run, step))
    events = run.listed("log", "--events", "-n", "0", "--oldest-first")
    change = next(event for event in events if path in event["paths"])
    owners = {*change["fact"]["causes"], change["call_id"]}
    assert {background["requested"], background["call_id"]} & owners


def named(run: Run, name: str) -> Step:
    return next(step for step in run.model.steps if step.name == name)


def test_verify_finds_nothing(run: Run) -> None:
    run.ours("verify")


def test_rollback_gives_the_workspace_that_the_session_found(run: Run) -> None:
    """Bytes, modes, links, empty folders and what git ignores, without a choice.

    Also what a command in the background made between two calls, since it names it.
    """
    done = run.ours("rollback", f"session:{run.session()}", "--yes", code=None)
    left = difference(run.before["read"], manifest(run.workspace))
    if done.returncode in DONE:
        run.ours("undo", "--yes", code=None)
    assert not left, (done.stdout, done.stderr)
    assert not difference(run.before["end"], manifest(run.workspace))


def test_rollback_of_all_gives_the_workspace_that_the_session_found(run: Run) -> None:
    """Bytes, modes, links, empty folders and what git ignores; but for the settings of the client.

    `connect` wrote them after the baseline, so they came from outside and are taken back, too.
    """
    done = run.ours("rollback", f"session:{run.session()}", "--outside", "--yes", code=None)
    found = difference(run.before["read"], manifest(run.workspace))
    left = [path for path in found if path.split("/")[0] not in run.client.settings]
    if done.returncode in DONE:
        run.ours("undo", "--yes", code=None)
    assert not left, (done.stdout, done.stderr)
    assert not difference(run.before["end"], manifest(run.workspace))
    run.ours("verify")


def test_each_call_is_reverted_to_the_exact_bytes_before_it_newest_first(run: Run) -> None:
    """It is the last test of its session: it leaves the workspace as it was before it."""
    apart: set[str] = set()
    table = {}
    for step, _ in reversed(steps(run)):
        for record in reversed(recorded(run, step)):
            done = run.ours("revert", str(record["seq"]), "--yes", code=None)
            table[step.name] = done.returncode
            if done.returncode not in DONE:
                assert step.name in MAY_CONFLICT, (step.name, done.stdout, done.stderr)
                said = done.stdout + done.stderr
                assert any(path in said for path in record["paths"] or (LATE, MEANWHILE, SOON))
                apart |= set(record["paths"])
        left = set(difference(run.before[step.name], manifest(run.workspace)))
        assert left <= apart | {LATE, MEANWHILE, SOON}, (step.name, left, table)
    run.ours("verify")
