"""Some files as lists of lines with their authors, changed at random; nothing is of the package.

Files are written, moved, moved over others, swapped and deleted on disk; no two lines are equal.
"""

import os
import random
from collections.abc import Mapping
from pathlib import Path

Pair = tuple[str, str]
"""A line, and who wrote it."""

NAMES = (*"abcefgh", "d/x", "d/y")


class World:
    """Files by name, and of each line that is gone who wrote it and who removed it."""

    def __init__(self, root: Path, seed: int) -> None:
        self.root = root
        self.random = random.Random(seed)
        self.count = 0
        self.files: dict[str, list[Pair]] = {}
        self.gone: dict[str, tuple[str, str]] = {}
        for name in "abc":
            self._write(name, self._made("nobody", 4))

    def state(self) -> tuple[dict[str, list[Pair]], dict[str, tuple[str, str]]]:
        """What is there now, to be set again."""
        return dict(self.files), dict(self.gone)

    def set(self, state: tuple[Mapping[str, list[Pair]], Mapping[str, tuple[str, str]]]) -> None:
        """Take it that what was there once is there again; the disk is not touched."""
        self.files, self.gone = dict(state[0]), dict(state[1])

    def change(self, who: str) -> None:
        """Let somebody change one or two files."""
        names = sorted(self.files)
        free = [name for name in NAMES if name not in self.files]
        kinds = ["new"] * bool(free) + ["edit", "edit", "replace", "delete"] * bool(names)
        kinds += ["move"] * bool(free and names) + ["over", "swap"] * (len(names) > 1)
        one, *others = self.random.sample(names, min(2, len(names))) or [""]
        match self.random.choice(kinds):
            case "new":
                self._write(self.random.choice(free), self._made(who, self.random.randint(1, 5)))
            case "edit":
                self._edit(one, who)
            case "replace":
                self._remove(self.files[one], who)
                self._write(one, self._made(who, 3))
            case "delete":
                os.unlink(self.root / one)
                self._remove(self.files.pop(one), who)
            case "move":
                self._move(one, self.random.choice(free))
            case "over":
                self._remove(self.files[others[0]], who)
                self._move(one, others[0])
            case "swap":
                for source, target in ((one, "t"), (others[0], one), ("t", others[0])):
                    self._move(source, target)

    def wrote(self, who: str) -> list[str]:
        """The lines that stand and that somebody wrote."""
        return sorted(
            text for lines in self.files.values() for text, author in lines if author == who
        )

    def removed(self, who: str) -> list[str]:
        """The lines of others that are gone by somebody."""
        return sorted(text for text, by in self.gone.items() if by[1] == who != by[0])

    def _made(self, who: str, count: int) -> list[Pair]:
        self.count += count
        return [(f"line {self.count - n}\n", who) for n in range(count)]

    def _write(self, name: str, lines: list[Pair]) -> None:
        (self.root / name).parent.mkdir(exist_ok=True)
        (self.root / name).write_text("".join(text for text, _ in lines))
        self.files[name] = lines

    def _edit(self, name: str, who: str) -> None:
        lines = [*self.files[name]]
        at = self.random.randint(0, len(lines))
        end = min(len(lines), at + self.random.randint(0, 2))
        self._remove(lines[at:end], who)
        lines[at:end] = self._made(who, self.random.randint(1, 3))
        self._write(name, lines)

    def _move(self, source: str, target: str) -> None:
        (self.root / target).parent.mkdir(exist_ok=True)
        os.rename(self.root / source, self.root / target)
        self.files[target] = self.files.pop(source)

    def _remove(self, lines: list[Pair], who: str) -> None:
        self.gone.update((text, (author, who)) for text, author in lines)
