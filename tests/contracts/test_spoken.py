"""Where prompts and messages are on record, which sessions are parts, and what became of paths."""

import pytest

from loom_audit.model.conversation import MessageReceived, PromptSubmitted
from loom_audit.model.events import SessionStarted
from loom_audit.model.files import FileChange
from loom_audit.model.records import Spoken
from loom_audit.sql.projections.queries import SqlProjections
from tests.contracts.stores import Opened, draft, started


def rebuilt(opened: Opened) -> None:
    if isinstance(opened.projections, SqlProjections):
        opened.projections.rebuild()


def test_prompts_and_messages_are_listed_by_session_and_role(opened: Opened) -> None:
    opened.log.append([started("s"), started("t")])
    facts: list[tuple[PromptSubmitted | MessageReceived, str]] = [
        (PromptSubmitted("one"), "s"),
        (MessageReceived("assistant", "two"), "s"),
        (PromptSubmitted("other"), "t"),
        (MessageReceived("tool", "three"), "s"),
        (PromptSubmitted("four"), "s"),
        (PromptSubmitted("nobody's"), ""),
    ]
    for fact, session in facts:
        opened.log.append([draft(fact, session)])
    every = [
        Spoken(3, "prompt"),
        Spoken(4, "assistant"),
        Spoken(6, "tool"),
        Spoken(7, "prompt"),
    ]
    asked = opened.projections.spoken
    for _ in range(2):
        assert [*asked("s")] == every
        assert [*asked("s", newest_first=True)] == every[::-1]
        assert [*asked("s", after=3, before=7)] == every[1:3]
        assert [*asked("s", roles=("prompt",), newest_first=True, limit=1)] == every[3:]
        assert [*asked("s", roles=("prompt", "tool"))] == [every[0], every[2], every[3]]
        assert [*asked("t")] == [Spoken(5, "prompt")]
        assert [*asked("unknown")] == [*asked("\udcff")] == []
        rebuilt(opened)


def test_parts_are_the_sessions_that_name_a_session_as_theirs(opened: Opened) -> None:
    opened.log.append([started("s")])
    opened.log.append([draft(SessionStarted("sub", "first", parent="s"), "b")])
    opened.log.append([draft(SessionStarted("sub", "inner", parent="b"), "c")])
    opened.log.append([draft(SessionStarted("sub", "second", parent="s"), "a")])
    for _ in range(2):
        assert [one.id for one in opened.projections.sessions_within("s")] == ["b", "a"]
        assert [one.id for one in opened.projections.sessions_within("b")] == ["c"]
        assert (
            [*opened.projections.sessions_within("c")]
            == [*opened.projections.sessions_within("unknown")]
            == []
        )
        assert opened.projections.session("c").parent == "b"
        rebuilt(opened)


@pytest.mark.parametrize("many", [1, 700])
def test_the_first_and_last_change_of_each_path_after_an_event(opened: Opened, many: int) -> None:
    a, b, c = (opened.file(text) for text in (b"a", b"b", b"c"))
    names = [f"p{n}" for n in range(many)]
    first = opened.change(*(FileChange(name, None, a) for name in names))
    second = opened.change(FileChange("p0", a, b), FileChange("q", None, a))
    opened.change(FileChange("p0", b, c))
    third = opened.change(FileChange("p0", c, a))
    found = opened.projections.ends([*names, "q", "unknown"], first)
    assert {path: (one.seq, last.seq) for path, (one, last) in found.items()} == {
        "p0": (second, third),
        "q": (second, second),
    }
    assert found["p0"][1].change == FileChange("p0", c, a)
    assert opened.projections.ends(["p0"], third) == {}
    assert len(opened.projections.ends(names, 0)) == many
