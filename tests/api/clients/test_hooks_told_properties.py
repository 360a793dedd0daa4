"""What is told raises no coverage: hooks, transcripts and looks in any order, beside an account."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from loom_audit import open_store
from tests.api.clients.test_hooks_missed import CLIENT
from tests.given.examples import examples
from tests.oracles.told import Play, Step
from tests.places.made_store import lay_store

SESSIONS, IDS, PATHS, CONTENTS = ("s", "s", "t"), ("a", "b", "c"), ("x", "y"), ("1", "2")
TOOLS = ("Write", "named", "unnamed")
RARELY = (False, False, False, True)
MOSTLY = (True, True, True, False)
sometimes, mostly = st.sampled_from(RARELY), st.sampled_from(MOSTLY)
paths, contents = st.sampled_from(PATHS), st.sampled_from(CONTENTS)
spreads = st.sampled_from([0, 2, 8, 30])


def step(name: str, *given: st.SearchStrategy[object]) -> st.SearchStrategy[Step]:
    return st.tuples(st.just(name), *given)


others = st.one_of(
    step("write", paths, contents),
    step("delete", paths),
    step("look"),
    step("look"),
    step("beside", st.booleans()),
    step("reads"),
    step("reads"),
    step("esc", st.sampled_from(SESSIONS)),
    step("stop", st.sampled_from(SESSIONS)),
    step("end", st.sampled_from(SESSIONS)),
    step("another"),
    step("gone"),
    step("settles"),
)
"""What happens beside a call: by others, to the client, or to who answers its hooks."""


@st.composite
def calls(draw: st.DrawFn) -> list[Step]:
    """One call as it goes, of which some may be missing, late, told twice, or told otherwise."""
    session, id = draw(st.sampled_from(SESSIONS)), draw(st.sampled_from(IDS))
    tool, path, content = draw(st.sampled_from(TOOLS)), draw(paths), draw(contents)
    told = content if tool == "Write" else "ok"
    hows = st.sampled_from([told, told, told, "path", "ok", *CONTENTS])
    ends = st.one_of(hows, st.sampled_from(["error", "denied"]))
    beside, hooked = draw(sometimes), draw(mostly)
    whole: list[tuple[Step, bool]] = [
        (("asks", session, id, tool, path), draw(mostly)),
        (("beside", True), beside),
        (("before", session, id, tool, path, draw(mostly)), hooked),
        (("does", path, content), draw(mostly)),
        (("look",), draw(sometimes if hooked else mostly)),
        (("after", session, id, draw(hows), path, draw(mostly)), hooked and draw(mostly)),
        (("beside", False), beside),
        (("stop", session), draw(sometimes)),
        (("tells", session, id, draw(ends), path), draw(mostly)),
        (("reads",), draw(sometimes)),
        (("tells", session, id, draw(ends), path), draw(sometimes)),
    ]
    return [one for one, kept in whole if kept]


@st.composite
def stories(draw: st.DrawFn) -> list[Step]:
    """Some calls and what happens beside them, more or less one after the other."""
    spread = draw(spreads)
    told = [one for call in draw(st.lists(calls(), min_size=1, max_size=4)) for one in call]
    places = st.integers(0, len(told))
    placed = [(float(number), one) for number, one in enumerate(told)]
    placed += [(draw(places) - 0.5, one) for one in draw(st.lists(others, max_size=7))]
    moved = [(place + draw(st.integers(0, spread)), one) for place, one in placed]
    return [one for _, one in sorted(moved, key=lambda one: one[0])]


@pytest.fixture(autouse=True, scope="module")
def nothing_is_waited_for() -> Iterator[None]:
    """All is told before it is asked for; what nobody tells in time is so at once."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("TRANSCRIPT_WAIT", "QUIET_WAIT", "OUTCOME_WAIT"):
            patch.setattr(f"loom_audit.api.agents.conversations.{name}", 0.0)
        patch.setattr("loom_audit.history.told.pending_calls._HOOK_SECONDS", 0.0)
        yield


def play(steps: list[Step]) -> Play:
    runs, pipe = [sys.executable, "-I", "-S", "-c", CLIENT], subprocess.PIPE
    with (
        TemporaryDirectory() as folder,
        subprocess.Popen(runs, stdout=pipe, stdin=pipe) as client,
    ):
        assert client.stdout is not None
        hook = int(client.stdout.readline())
        root = Path(folder) / "root"
        root.mkdir()
        lay_store(Path(folder) / "home")
        try:
            with open_store(f"sqlite:///{folder}/home/audit.db") as store:
                found = Play(store, root, Path(folder), hook, client)
                for one in steps:
                    found.carry_out(one)
                found.finish()
        finally:
            client.kill()
    return found


@examples(3, 30)
@given(stories())
@example(
    [("asks", "s", "a", "Write", "x"), ("does", "x", "1"), ("look",), ("tells", "s", "a", "2", "x")]
)
@example(
    [("asks", "s", "a", "Write", "x"), ("does", "x", "1"), ("look",), ("tells", "s", "a", "1", "x")]
)
def test_what_is_told_in_any_order_raises_no_coverage_and_records_nothing_a_second_time(
    told: list[Step],
) -> None:
    play(told)
