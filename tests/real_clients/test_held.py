"""A person holds the session of a client that works, lets it go on, and goes back beside it."""

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from tests.real_clients.clients import CLIENTS
from tests.real_clients.runs import Run, running
from tests.real_clients.script import Step
from tests.real_clients.sessions import Hands
from tests.real_clients.workspaces import difference, manifest

pytestmark = pytest.mark.timeout(300)
HELD, RELEASED, BEGUN, BACK = (f".git/{name}" for name in ("held", "released", "begun", "back"))
DONE = (0, 7)
"""All was taken back, or what came from outside, as opencode puts into its settings, was kept."""
LONG = (
    f"echo one > long.txt; touch {BEGUN}; until test -e {BACK}; do sleep 0.1; done;"
    " echo two > long.txt"
)


def held_twice(hands: Hands) -> Sequence[Step]:
    return [
        Step("first", [hands.create("call_01", "first.txt", "first\n")]),
        Step("held", [hands.shell("call_02", "touch never.txt")], waits_for=HELD),
        Step("released", [hands.shell("call_03", "echo on > on.txt")], waits_for=RELEASED),
        Step("long", [hands.shell("call_04", LONG)]),
        Step("gone back", [hands.shell("call_05", "touch never.txt")]),
        Step("end", text="Done."),
    ]


@pytest.mark.parametrize("name", CLIENTS)
def test_a_held_client_is_denied_until_it_is_released_and_a_rollback_holds_it_in_an_open_call(
    name: str,
) -> None:
    client = CLIENTS[name]
    with running(client, held_twice) as run:
        run.ours("connect", name)
        begun = manifest(run.workspace)

        def changed() -> dict[str, str]:
            found = difference(begun, manifest(run.workspace))
            return {
                path: how
                for path, how in found.items()
                if not path.startswith(tuple(client.settings))
            }

        with at_work(run):
            in_time(lambda: "call_01" in run.model.told)
            in_time(lambda: client.id_of(run.model.asked[0]) in run.calls())
            session = run.session()
            run.ours("hold", session, "--reason", "the tests come first")
            (run.workspace / HELD).touch()

            in_time(lambda: "call_02" in run.model.told)
            run.ours("release", session)
            (run.workspace / RELEASED).touch()

            in_time((run.workspace / BEGUN).exists)
            back = run.ours("rollback", f"session:{session}", "--hold", "--yes", code=None)
            assert back.returncode in DONE, back.stdout + back.stderr
            assert "still open" in back.stdout + back.stderr
            assert not changed()

        ids = [client.id_of(call) for call in run.model.asked]
        found = run.calls()
        assert [found[id]["status"] for id in ids] == ["ok", "denied", "ok", "ok", "denied"]
        assert "the tests come first" in run.model.told["call_02"].text
        assert "rolled back" in run.model.told["call_05"].text
        assert changed() == {"long.txt": "new"}
        assert found[ids[3]]["paths"] == ["long.txt"]
        run.ours("revert", str(found[ids[3]]["seq"]), "--yes")
        assert not changed()
        run.ours("verify")


@contextmanager
def at_work(run: Run) -> Iterator[None]:
    """While the client follows its script, which it ends when nobody holds it up any more."""
    with ThreadPoolExecutor(1) as beside:
        working = beside.submit(run.work, run.client.once("please do all"))
        try:
            yield
        finally:
            for mark in (HELD, RELEASED, BACK):
                (run.workspace / mark).touch()
        working.result()


def in_time(there: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not there():
        assert time.monotonic() < deadline, "the client did not get there"
        time.sleep(0.05)
