"""A file as pairs of a text and its author, changed at random; nothing here is of the package.

Every change is one of a list of pairs, so who wrote a line is known and never computed by a diff.
"""

import random
from dataclasses import dataclass, field

Pair = tuple[bytes, int]
"""A line with its ending, and the number of the step that wrote it."""

WORDS = [b"", b"}", b"    return", b"pass", b"# --", b"a", b"b", b"x = 1"]


@dataclass
class Step:
    """One step: what the file was after it, where it was, and what it took back.

    `lines` is None while there is no file. `back_to` is the step whose state came back whole.
    """

    lines: list[Pair] | None
    path: str
    moved: bool = False
    outside: bool = False
    back_to: int | None = None
    took_back: tuple[int, ...] = ()

    @property
    def content(self) -> bytes | None:
        return None if self.lines is None else b"".join(text for text, _ in self.lines)


@dataclass
class RandomFile:
    """A random history of one file; step 0 is an empty one."""

    seed: int
    steps: list[Step] = field(default_factory=list)
    largest: int = 60

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.steps = [Step([], "f0")]
        self.ending = b"\n"
        self.fresh = 0

    def grow(self) -> Step:
        """Add a step, and return it."""
        now = self.steps[-1]
        kind = self.random.choices(
            ["edit", "undo", "revert", "move", "delete", "endings", "rewrite"],
            [60, 12, 8, 6, 2, 1, 3],
        )[0]
        if now.lines is None:
            kind = self.random.choice(["undo", "edit"])
        step: Step = getattr(self, f"_{kind}")(now)
        if step.content == now.content and step.path == now.path:
            step = self._edit(now)
        step.outside = not step.took_back and self.random.random() < 0.2
        self.steps.append(step)
        return step

    def _text(self) -> bytes:
        if self.random.random() < 0.2:
            return self.random.choice(WORDS) + self.ending
        self.fresh += 1
        return b"line %d" % self.fresh + self.ending

    def _edit(self, now: Step) -> Step:
        number = len(self.steps)
        lines = _ended(now.lines or [], number)
        for _ in range(self.random.randint(1, 4)):
            at = self.random.randint(0, len(lines))
            gone = 0 if self.random.random() < 0.5 else self.random.randint(1, 4)
            come = self.random.randint(0 if gone else 1, 5)
            if len(lines) > self.largest:
                come = 0
            lines[at : at + gone] = [(self._text(), number) for _ in range(come)]
        if lines and self.random.random() < 0.05:
            lines[-1] = lines[-1][0].rstrip(b"\r\n") or b"z", number
        return Step(lines, now.path)

    def _rewrite(self, now: Step) -> Step:
        number = len(self.steps)
        return Step([(self._text(), number) for _ in range(self.random.randint(0, 30))], now.path)

    def _endings(self, now: Step) -> Step:
        number = len(self.steps)
        self.ending = b"\n" if self.ending == b"\r\n" else b"\r\n"
        lines: list[Pair] = []
        for text, author in now.lines or []:
            ended = text.rstrip(b"\r\n") + self.ending
            lines.append((ended, author if ended == text else number))
        return Step(lines, now.path)

    def _move(self, now: Step) -> Step:
        return Step(now.lines, f"f{self.random.randint(0, 99)}", moved=True)

    def _delete(self, now: Step) -> Step:
        return Step(None, now.path)

    def _undo(self, now: Step) -> Step:
        """Take back all from a step on: the state before it is there again, whole."""
        number = len(self.steps)
        back_to = max(0, number - 1 - self.random.randint(1, 6))
        taken = tuple(range(back_to + 1, number))
        return Step(self.steps[back_to].lines, now.path, back_to=back_to, took_back=taken)

    def _revert(self, now: Step) -> Step:
        """Take back one earlier step and keep what came after it, where that touches none of it.

        A line that the step removed comes back before the line that stood below it; one that
        stands again already, since another step brought it back, does not come twice.
        """
        number = len(self.steps)
        one = self.random.randint(1, number)
        before, after = self.steps[one - 1].lines, self.steps[min(one, number - 1)].lines
        if before is None or after is None or now.lines is None or one >= number:
            return self._edit(now)
        removed = [pair for pair in before if pair not in after and pair not in now.lines]
        written = [pair for pair in after if pair not in before]
        unique = len({*before}) == len(before) and len({*now.lines}) == len(now.lines)
        if not unique or any(pair[1] != one for pair in written) or not removed + written:
            return self._edit(now)
        lines = [pair for pair in now.lines if pair not in written]
        for pair in reversed(removed):
            below = before[before.index(pair) + 1 :][:1]
            if below and below[0] in lines:
                lines.insert(lines.index(below[0]), pair)
            elif not below:
                lines = _ended(lines, number)
                lines.append(pair)
            else:
                return self._edit(now)
        return Step(lines, now.path, took_back=(one,))


def _ended(lines: list[Pair], number: int) -> list[Pair]:
    """The lines with an ending on the last one, which makes that another line."""
    if lines and not lines[-1][0].endswith(b"\n"):
        return [*lines[:-1], (lines[-1][0] + b"\n", number)]
    return [*lines]
