"""Each kind of event is in the union of facts, on the page of the format, and in the tests."""

import re
from pathlib import Path
from typing import get_args

import pytest

from loom_audit.cli.shared import lines
from loom_audit.model import events
from loom_audit.model.events import Fact, UnknownFact

ROOT = Path(__file__).parents[2]
FACTS = [fact for fact in get_args(Fact) if fact is not UnknownFact]

SHOWN_BY_THEIR_KIND = {
    "ScopeAccepted",
    "RulesChanged",
    "PromptSubmitted",
    "MessageReceived",
    "CallReported",
    "CoverageLowered",
    "TreeListed",
}
"""Of which `log --events` says no more than the kind."""


def read(path: str) -> str:
    return (ROOT / path).read_text("utf-8")


def test_every_class_with_a_kind_is_one_of_the_facts() -> None:
    made = [one for one in vars(events).values() if isinstance(getattr(one, "kind", None), str)]
    assert {one.__name__ for one in made} == {fact.__name__ for fact in FACTS}
    assert len({fact.kind for fact in FACTS}) == len(FACTS)


def test_every_kind_is_on_the_page_of_the_format() -> None:
    rows = re.findall(r"^\| (`[a-z.`, ]+`) \|", read("docs/store-format.md"), re.MULTILINE)
    listed = {kind for row in rows for kind in re.findall(r"`([a-z.]+)`", row)}
    assert {fact.kind for fact in FACTS} <= listed


@pytest.mark.parametrize("path", ["tests/model/test_codec.py", "tests/contracts/test_event_log.py"])
def test_every_fact_is_written_and_read_back(path: str) -> None:
    made = {*re.findall(r"st\.builds\(\s*(\w+)|^ {8}(\w+)\(", read(path), re.MULTILINE)}
    named = {name for pair in made for name in pair}
    assert {fact.__name__ for fact in FACTS} <= named


def test_every_fact_is_shown_in_words() -> None:
    text = Path(lines.__file__).read_text("utf-8").partition("def fact_text")[2]
    shown = {*re.findall(r"(?:case|\|) (\w+)\(", text.partition("\ndef ")[0])}
    assert shown | SHOWN_BY_THEIR_KIND == {fact.__name__ for fact in FACTS}
