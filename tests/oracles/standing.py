"""What stands of calls that edit and calls that take back: plain sets of lines, and no log.

A file is a name of its own, wherever it was moved. Each edit owns one line of each file that it
changed, so that what stands is just what is on disk.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field


@dataclass
class Done:
    """A call: which files it is about, and of which older calls it took back which files."""

    number: int
    requested: int
    session: str
    kind: str
    paths: Mapping[str, tuple[str, ...]]
    """By file the paths at which the call changed it."""
    takes: Mapping[int, Collection[str]] = field(default_factory=dict)

    @property
    def files(self) -> frozenset[str]:
        """The files at which it makes a difference whether the call stands."""
        taken = (file for files in self.takes.values() for file in files)
        return frozenset((*self.paths, *taken))


class Standing:
    """All calls in the order in which they were made."""

    def __init__(self) -> None:
        self.calls: list[Done] = []

    def by(self, number: int, file: str, more: Iterable[Done] = ()) -> int | None:
        """The newest call that stands at a file and took this one back there; None for none."""
        for one in reversed([*self.calls, *more]):
            if one.number <= number:
                break
            if file in one.takes.get(number, ()) and self.by(one.number, file, more) is None:
                return one.number
        return None

    def stands(self, number: int, file: str) -> bool:
        """Whether a call is in effect at a file."""
        return self.by(number, file) is None

    def is_in_effect(self, one: Done) -> bool:
        """Whether a call is in effect at any file."""
        return any(self.stands(one.number, file) for file in one.files)

    def taking(self, wanted: Iterable[Done], within: Mapping[int, Collection[str]]) -> Done:
        """What taking these calls back takes: of each, newest first, where it is in effect then.

        `within` has by the number of a call the files that are asked for. One of which no
        other change is left is taken back as a whole: what it took back elsewhere made no
        difference there. One that changed none leaves only what it took back, file by file.
        """
        takes: dict[int, set[str]] = {}
        new = Done(1 << 60, 0, "", "", {}, takes)
        for one in sorted(wanted, key=lambda one: one.number, reverse=True):
            asked = one.files & {*within[one.number]}
            left = {file for file in one.paths if self.by(one.number, file, (new,)) is None}
            whole = asked and one.paths and asked >= left
            for file in one.files if whole else asked:
                if self.by(one.number, file, (new,)) is None:
                    takes.setdefault(one.number, set()).add(file)
        return new

    def newest(self, session: str | None, *, redo: bool) -> Done | None:
        """The call that an undo or a redo takes back."""
        for one in reversed(self.calls):
            wanted = one.kind == "undo" if redo else one.kind not in ("undo", "redo")
            if wanted and session in (None, one.session) and self.is_in_effect(one):
                return one
        return None
