"""However our hooks come to a real client, each of its calls is one record."""

from collections.abc import Sequence

import pytest

from loom_audit.clients import known
from tests.real_clients.clients import CLIENTS, TRUSTING
from tests.real_clients.runs import Run, running
from tests.real_clients.script import Step
from tests.real_clients.sessions import Hands

pytestmark = pytest.mark.timeout(300)


def two_calls(hands: Hands) -> Sequence[Step]:
    return [
        Step("create", (hands.create("call_01", "told.txt", "told\n"),)),
        Step("shell", (hands.shell("call_02", "echo hi"),)),
        Step("end", text="done"),
    ]


def a_command(hands: Hands) -> Sequence[Step]:
    return [Step("shell", (hands.shell("call_01", "touch made"),)), Step("end", text="done")]


def assert_each_is_one_record(run: Run) -> None:
    found = [one for one in run.listed("log", "-n", "0") if one["tool"] != "run"]
    assert len(found) == len(run.model.asked) == 2
    assert [one["paths"] for one in found if one["paths"]] == [["told.txt"]]
    assert {one["status"] for one in found} == {"ok"}
    run.ours("verify")


@pytest.mark.parametrize("name", CLIENTS)
def test_connected_for_the_folder_and_for_all_folders(name: str) -> None:
    client = CLIENTS[name]
    with running(client, two_calls) as run:
        run.ours("connect", name)
        run.ours("connect", "--user", name)
        run.work(client.once("please"))
        assert_each_is_one_record(run)
        run.ours("connect", "--user", "--remove", name)
        run.ours("connect", "--remove", name)
        assert b"hook_client.py" not in b"".join(
            path.read_bytes() for path in run.workspace.rglob("*.js*") if path.is_file()
        )


@pytest.mark.parametrize("name", CLIENTS)
def test_started_in_a_folder_below_each_call_is_on_record(name: str) -> None:
    client = CLIENTS[name]
    with running(client, a_command) as run:
        run.ours("init")
        run.ours("connect", *(() if known.CLIENTS[name].place.reads_below else ("--user",)), name)
        run.work(client.once("please"), folder="src")
        (call,) = run.calls().values()
        assert (call["coverage"], call["paths"]) == ("full", ["src/made"])


@pytest.mark.parametrize("name", [name for name in CLIENTS if name != "gemini"])
def test_for_one_run_without_a_change_of_settings(name: str) -> None:
    client = CLIENTS[name]
    words = [word for word in client.once("please") if word != TRUSTING]
    with running(client, two_calls) as run:
        run.ours("init")
        done = run.ours("run", "--", *words)
        assert "one call" not in done.stderr, done.stderr
        assert_each_is_one_record(run)
        shown = [one for one in run.listed("log", "-n", "0") if one["tool"] == "run"]
        assert len(shown) == 1 and "told.txt" not in shown[0]["paths"]


def test_gemini_is_one_call_and_the_run_says_so() -> None:
    client = CLIENTS["gemini"]
    with running(client, two_calls) as run:
        run.ours("init")
        done = run.ours("run", "--", *client.once("please"))
        assert "this run is one call: `loom-audit connect gemini`" in done.stderr
        (call,) = run.listed("log", "-n", "0")
        assert call["tool"] == "run" and "told.txt" in call["paths"]
