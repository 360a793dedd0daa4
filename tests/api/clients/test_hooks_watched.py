"""What an agent does while somebody watches its workspace is never told as a person's."""

from pathlib import Path

import pytest

from loom_audit.api.agents.clients import Hooks
from loom_audit.model.events import ChangesAttributed
from loom_audit.ports import EventFilter
from tests.given.ticks import tick
from tests.given.watched import Watched
from tests.given.watched import watched as watched
from tests.processes.hooked import HookedClaude


@pytest.fixture
def claude(hooks: Hooks, watched: Watched, root: Path, tmp_path: Path) -> HookedClaude:
    one = HookedClaude(lambda data: hooks.answer("claude-code", data), root, tmp_path / "s1.jsonl")
    one.hook("SessionStart", source="startup")
    return one


def test_what_its_calls_do_is_theirs(claude: HookedClaude, watched: Watched) -> None:
    claude.bash("c1", "touch b", (watched.root / "b").touch)
    claude.writes("c2", watched.root / "a.txt", "by the agent\n")
    watched.rest()
    assert watched.facts() == []
    calls = watched.workspace.timeline.calls()
    assert [call.paths for call in calls] == [("a.txt",), ("b",)]


def test_a_call_that_no_hook_told_is_added_to_what_changed_meanwhile(
    claude: HookedClaude, watched: Watched
) -> None:
    claude.asks("c1", "Bash", {"command": "make d"})
    tick(watched.root)
    (watched.root / "d").touch()
    watched.until(lambda: "d" in watched.paths())
    assert watched.facts()[0].causes == ()
    claude.told("c1", {"stdout": "", "stderr": ""})
    claude.hook("Stop", stop_hook_active=False)
    [call] = watched.workspace.timeline.calls()
    kinds = EventFilter(kinds=(ChangesAttributed.kind,))
    [told] = [event.fact for event in watched.workspace.log.read(kinds)]
    assert isinstance(told, ChangesAttributed)
    assert (told.call, told.paths) == (call.requested, ("d",))
    assert told.event == watched.told[0].seq
    plan = watched.workspace.plan_rollback(watched.told[0].seq - 1)
    assert plan.changes == () and "d" in {note.path for note in plan.kept}


def test_what_changed_before_such_a_call_began_stays_as_it_is(
    claude: HookedClaude, watched: Watched
) -> None:
    (watched.root / "mine").touch()
    watched.until(lambda: "mine" in watched.paths())
    tick(watched.root)
    claude.asks("c1", "Bash", {"command": "make d"})
    claude.told("c1", {"stdout": "", "stderr": ""})
    claude.hook("Stop", stop_hook_active=False)
    assert [*watched.workspace.log.read(EventFilter(kinds=(ChangesAttributed.kind,)))] == []
