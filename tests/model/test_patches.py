"""Diffs that others made: what they lead to, and what they are not of."""

import random
from difflib import unified_diff

from loom_audit.model.text.patches import inverted, patched


def diff_of(old: list[str], new: list[str], context: int) -> str:
    parts = [*unified_diff(old, new, n=context)][2:]
    return "".join(p if p.endswith("\n") else f"{p}\n\\ No newline at end of file\n" for p in parts)


def lines(chance: random.Random) -> list[str]:
    found = [chance.choice("abc") + "\n" for _ in range(chance.randrange(8))]
    if found and chance.random() < 0.3:
        found[-1] = found[-1][:-1]
    return found


def test_a_diff_leads_to_what_it_was_made_of_and_back(seed: str) -> None:
    chance = random.Random(seed)
    led = 0
    for _ in range(2000):
        old, new = lines(chance), lines(chance)
        if diff := diff_of(old, new, chance.choice([0, 1, 3])):
            assert patched("".join(old), diff) == "".join(new)
            assert patched("".join(new), inverted(diff)) == "".join(old)
            led += 1
    assert led > 1000


def test_a_diff_of_something_else_leads_nowhere() -> None:
    assert patched("a\nb\n", "@@ -1,1 +1,1 @@\n-x\n+y\n") is None
    assert patched("a\n", "@@ -5,1 +5,1 @@\n-a\n+y\n") is None
    assert patched("a\n", "") is None
    assert patched("a\n", "@@ -1 +1 @@\n?\n") is None


def test_a_file_that_a_diff_has_whole_is_made_of_nothing() -> None:
    assert patched("", "@@ -1,0 +1,2 @@\n+one\n+two\n") == "one\ntwo\n"
    assert patched("", inverted("@@ -1,2 +1,0 @@\n-one\n-two\n")) == "one\ntwo\n"
