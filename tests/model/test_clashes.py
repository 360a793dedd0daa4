"""Which stretches of a text were changed again, and where taking them back would ask."""

from random import Random

import pytest

from loom_audit.model.authorship.clashes import Clash, Stretch, clashes
from loom_audit.model.text.lines import edits
from loom_audit.model.text.merge import merge3

TEXT = [b"%d\n" % n for n in range(10)]


def changed(at: int, to: int, *lines: bytes, text: list[bytes] = TEXT) -> list[bytes]:
    return [*text[:at], *lines, *text[to:]]


@pytest.mark.parametrize(
    ("later", "expected"),
    [
        ([changed(4, 5, b"x\n")], Clash((0,), True)),
        ([changed(8, 9, b"x\n")], Clash((), False)),
        ([changed(0, 1, b"x\n", b"y\n"), changed(0, 0, b"z\n")], Clash((), False)),
        ([changed(3, 3, b"touches\n")], Clash((0,), True)),
        ([changed(2, 2, b"does not touch\n")], Clash((), False)),
        ([changed(4, 5, b"x\n"), TEXT], Clash((0, 1), False)),
        ([changed(3, 5, b"old\n")], Clash((0,), False)),
        ([[]], Clash((0,), True)),
    ],
)
def test_a_stretch_is_changed_again_where_later_lines_are_in_it_or_touch_it(
    later: list[list[bytes]], expected: Clash
) -> None:
    assert clashes(TEXT, later, [Stretch(3, 5, (b"old\n",))]) == [expected]


def test_a_stretch_is_followed_over_versions() -> None:
    moved = changed(0, 0, b"a\n", b"b\n")
    again = changed(5, 6, b"x\n", text=moved)
    elsewhere = changed(3, 4, b"x\n", text=moved)
    assert clashes(TEXT, [moved, again], [Stretch(3, 5)])[0].versions == (1,)
    assert clashes(TEXT, [moved, elsewhere], [Stretch(3, 5)])[0].versions == ()


def test_it_asks_where_a_merge_has_a_conflict() -> None:
    random = Random(7)
    seen = set[bool]()
    for _ in range(400):
        before = [b"%d\n" % random.randrange(30) for _ in range(12)]
        at = random.randrange(10)
        after = changed(at, at + random.randrange(3), b"mine\n", text=before)
        place = random.randrange(10)
        now = changed(place, place + random.randrange(3), b"theirs\n", text=after)
        [edit] = edits(before, after)
        stretch = Stretch(edit.new_start, edit.new_end, (*before[edit.old_start : edit.old_end],))
        [found] = clashes(after, [now], [stretch])
        merged = merge3(b"".join(after), b"".join(now), b"".join(before))
        assert merged is not None and found.asks == bool(merged.conflicts)
        seen.add(found.asks)
    assert seen == {True, False}
