"""The own net change of some steps of random histories, compared with what is known."""

from collections import Counter
from collections.abc import Sequence

import pytest

from loom_audit.model.authorship.net import FileSteps, NetFile, net_file
from loom_audit.model.files import FileState
from loom_audit.model.text.textdiff import diff_lines
from tests.model.test_authorship import state_of, versions_of
from tests.oracles.authors import RandomFile, Step


def told(steps: Sequence[Step], begin: int, own: set[int], *, everyone: bool = False) -> NetFile:
    """The net change since the step `begin`, of the steps `own`."""
    versions = tuple(versions_of(steps))
    contents = {state_of(step.content): step.content for step in steps}

    def read(state: FileState | None) -> Sequence[bytes]:
        return (contents[state] or b"").splitlines(keepends=True)

    indices = frozenset(n - 1 for n in own)
    asked = FileSteps(versions, begin - 1, indices, everyone=everyone)
    return net_file(asked, read)


def known(steps: Sequence[Step], begin: int, own: set[int]) -> tuple[set[bytes], set[bytes]]:
    """The texts that these steps wrote and that stand, and those of others that are gone by them.

    A text is gone by the step that removed it last; where one of these steps had brought it back
    before, by the one that had removed it then.
    """
    at = [dict(step.lines or ()) for step in steps]
    wrote = {text for text, author in at[-1].items() if author in own}
    gone = set()
    for text in {text for lines in at[begin:] for text in lines} - at[-1].keys():
        author = next(lines[text] for lines in at if text in lines)
        turns = [n for n in range(1, len(at)) if (text in at[n]) != (text in at[n - 1])]
        turns = [n for n in turns if n > author]
        while len(turns) > 2 and turns[-1] in own and turns[-2] in own:
            turns = turns[:-2]
        if turns[-1] in own and author not in own:
            gone.add(text)
    return wrote, gone


def unlike_lines(seed: int, count: int) -> tuple[int, int]:
    """How many lines of a history's net changes are told, and how many otherwise than is known."""
    file = RandomFile(seed)
    for _ in range(count):
        file.grow()
    steps = file.steps
    stood: Counter[bytes] = Counter()
    for step in steps:
        counts = Counter(text for text, _ in step.lines or ())
        stood |= counts
    authors: dict[bytes, set[int]] = {}
    for step in steps:
        for text, author in step.lines or ():
            authors.setdefault(text, set()).add(author)
    alone = {text for text, most in stood.items() if most == 1 and len(authors[text]) == 1}
    lines = unlike = 0
    for _ in range(5):
        begin = file.random.randrange(count)
        later = [n for n in range(begin + 1, count + 1) if not steps[n].outside]
        own = {n for n in later if file.random.random() < 0.5}
        found = told(steps, begin, own)
        shown = [line for hunk in found.hunks for line in hunk.lines]
        check_numbers(steps, begin, found)
        plus = {line.content for line in shown if line.kind == "+" and not line.brought_back}
        minus = {line.content for line in shown if line.kind == "-"}
        wrote, gone = known(steps, begin, own)
        for ours, right in ((plus, wrote), (minus, gone)):
            lines += len(right & alone)
            unlike += len((ours ^ right) & alone)
    return lines, unlike


def check_numbers(steps: Sequence[Step], begin: int, found: NetFile) -> None:
    """Each line of the hunks stands at both ends where it says."""
    ends = [[text for text, _ in steps[n].lines or ()] for n in (begin, -1)]
    for line in (line for hunk in found.hunks for line in hunk.lines):
        assert line.old is None or ends[0][line.old - 1] == line.content
        assert line.new is None or ends[1][line.new - 1] == line.content
        assert (line.new is None) == (line.kind == "-")


def check_own(seeds: range) -> None:
    sums = [unlike_lines(seed, 40) for seed in seeds]
    lines, unlike = (sum(column) for column in zip(*sums, strict=True))
    assert lines > 50 * len(seeds)
    assert unlike < 0.002 * lines


def test_a_line_that_a_step_wrote_or_removed_is_its_own() -> None:
    check_own(range(1000, 1010))


@pytest.mark.deep
def test_many_lines_that_steps_wrote_or_removed_are_their_own() -> None:
    check_own(range(2000, 2400))


@pytest.mark.parametrize("seed", range(10))
def test_the_change_of_everyone_is_the_difference_of_the_two_states(seed: int) -> None:
    file = RandomFile(seed)
    for _ in range(40):
        file.grow()
    steps, begin = file.steps, file.random.randrange(40)
    found = told(steps, begin, set(range(begin + 1, 41)), everyone=True)
    check_numbers(steps, begin, found)
    plain = diff_lines(steps[begin].content, steps[-1].content)
    assert (found.added, found.removed) == (plain.added, plain.removed)
    shown = [[(one.kind, one.old, one.new) for one in hunk.lines] for hunk in found.hunks]
    assert shown == [[(one.kind, one.old, one.new) for one in hunk.lines] for hunk in plain.hunks]
    heads = [(one.old_start, one.old_count, one.new_start, one.new_count) for one in found.hunks]
    assert heads == [
        (one.old_start, one.old_count, one.new_start, one.new_count) for one in plain.hunks
    ]


def test_a_line_that_comes_back_between_other_lines_is_neither_gone_nor_new() -> None:
    texts = [(b"x\n", 1), (b"D\n", 1), (b"y\n", 1)]
    steps = [
        Step([], "f"),
        Step(texts, "f"),
        Step([texts[0], texts[2]], "f"),
        Step([(b"y\n", 3), texts[0]], "f"),
        Step([(b"y\n", 3), texts[1], texts[0]], "f", took_back=(2,)),
    ]
    found = told(steps, 1, {4})
    assert found.hunks == () and (found.added, found.removed, found.brought_back) == (0, 0, 0)
    found = told(steps, 1, {2, 3, 4})
    shown = [line for hunk in found.hunks for line in hunk.lines]
    assert [line.new for line in shown if line.new] == [1, 2, 3]
    assert [line.content for line in shown if line.kind != " "] == [b"x\n", b"x\n"]
