"""Who wrote each line: random histories, compared with what is known of each of their lines."""

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from itertools import pairwise

import pytest

from loom_audit.model.authorship.blame import writer_of
from loom_audit.model.authorship.versions import TookBack, Version, Writer
from loom_audit.model.authorship.walk import walked
from loom_audit.model.files import BlobId, FileState
from tests.oracles.authors import RandomFile, Step

AT = datetime(2026, 1, 1, tzinfo=UTC)


def state_of(content: bytes | None) -> FileState | None:
    if content is None:
        return None
    return FileState("file", BlobId(sha256(content).hexdigest()), 0o644, len(content))


def versions_of(steps: Sequence[Step]) -> Iterator[Version]:
    for number, (before, step) in enumerate(pairwise(steps), 1):
        kind = Writer("outside", number, AT) if step.outside else Writer("call", number, AT, number)
        yield Version(
            seq=number,
            path=step.path,
            after=state_of(step.content),
            old_path=before.path,
            before=state_of(before.content),
            writer=kind,
            taken_back=TookBack(frozenset(step.took_back)) if step.took_back else None,
        )


class Compared:
    """Counts the lines, and those of which another writer was told than is known: of equal lines
    any may have been written by any of their writers.
    """

    def __init__(self, steps: Sequence[Step]) -> None:
        self.steps = steps
        self.lines = self.ambiguous = 0
        self.authors: dict[bytes, set[int]] = {}
        self.repeated: set[bytes] = set()
        for step in steps:
            for text, author in step.lines or ():
                self.authors.setdefault(text, set()).add(author)
            counts = Counter(text for text, _ in step.lines or ())
            self.repeated |= {text for text, count in counts.items() if count > 1}

    def compare(self, number: int, texts: Sequence[bytes], writers: Sequence[int]) -> None:
        known = self.steps[number].lines or []
        assert [text for text, _ in known] == [*texts]
        for (text, author), writer in zip(known, writers, strict=True):
            self.lines += 1
            if writer != author:
                # the text stood before and after in another order, or several lines are equal
                equal = text in self.repeated or len(self.authors[text]) > 1
                known_one = equal and writer in self.authors[text]
                assert known_one or self.crossed(text, writer), (number, text)
                self.ambiguous += 1

    def crossed(self, text: bytes, writer: int) -> bool:
        """Whether a line stood before a step and after it, and on another side of some other."""
        before, after = (
            [one for one, _ in self.steps[n].lines or ()] for n in (writer - 1, writer)
        )
        if text not in before or text not in after:
            return False
        old, new = before.index(text), after.index(text)
        sides = ((before[:old], after[new + 1 :]), (before[old + 1 :], after[:new]))
        return any(not {*was}.isdisjoint(now) for was, now in sides)


def compare_history(seed: int, count: int, *, woven: bool) -> Compared:
    file = RandomFile(seed)
    for _ in range(count):
        file.grow()
    versions = [*versions_of(file.steps)]
    contents = {state_of(step.content): step.content for step in file.steps}
    compared = Compared(file.steps)

    def read(state: FileState | None) -> Sequence[bytes]:
        return (contents[state] or b"").splitlines(keepends=True)

    for n, done in walked(versions, read, woven=woven):
        writers = [writer_of(done.unknown, versions, line.writer).event for line in done.lines]
        compared.compare(n + 1, [line.text for line in done.lines], writers)
    return compared


@pytest.mark.parametrize("woven", [False, True])
def test_a_random_history_names_who_wrote_each_line(woven: bool) -> None:
    runs = [compare_history(seed, 60, woven=woven) for seed in range(5)]
    lines, ambiguous = sum(one.lines for one in runs), sum(one.ambiguous for one in runs)
    assert lines > 1_000
    assert ambiguous < 0.02 * lines


@pytest.mark.deep
@pytest.mark.parametrize("woven", [False, True])
def test_ten_thousand_steps_name_who_wrote_each_line(woven: bool) -> None:
    runs = [compare_history(seed, 500, woven=woven) for seed in range(100, 120)]
    lines, ambiguous = sum(one.lines for one in runs), sum(one.ambiguous for one in runs)
    assert lines > 100_000
    assert ambiguous < 0.02 * lines
