"""Which of the paths that changed are looked at when: once they rest, and restless ones seldom."""

from collections.abc import Iterable, Iterator

from msgspec import Struct, field

RESTED = 0.3
"""Seconds after the last thing that happened at a path."""

LATEST = 5.0
"""Seconds after the first one, where it does not rest."""

MOST_A_MINUTE = 10
"""A path that changed more often within a minute is restless: it is looked at once a minute."""

MINUTE = 60.0
"""Seconds; a path at which nothing happens for so long is restless no more."""


class _Waiting(Struct):
    """A path at which something happened: when first, when last, and whether a folder came."""

    first: float
    last: float
    renewed: bool


class _Known(Struct):
    """A path that was looked at: when, newest last, when something happened there last."""

    times: list[float]
    last: float
    restless: bool = False


class Resting(Struct):
    """The paths at which something happened that were not looked at since; times are in seconds.

    The clock is that of whoever asks, and never goes back.
    """

    _waiting: dict[str, _Waiting] = field(default_factory=dict)
    _known: dict[str, _Known] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self._waiting)

    def __contains__(self, path: object) -> bool:
        return path in self._waiting

    def __iter__(self) -> Iterator[str]:
        return iter([*self._waiting])

    def note(self, path: str, now: float, *, renewed: bool = False) -> None:
        """Something happened at a path; it is `renewed` where a folder came or went."""
        one = self._waiting.get(path)
        if one is None:
            self._waiting[path] = _Waiting(now, now, renewed)
        else:
            one.last, one.renewed = now, one.renewed or renewed
        known = self._known.get(path)
        if known is not None:
            known.restless = known.restless and known.last > now - MINUTE
            known.last = now

    def is_renewed(self, path: str) -> bool:
        """Whether a folder came or went at a path that waits."""
        return path in self._waiting and self._waiting[path].renewed

    def due(self, now: float) -> list[str]:
        """The paths that are to be looked at by now."""
        return [path for path, one in self._waiting.items() if self._due_at(path, one) <= now]

    def next_due(self) -> float | None:
        """When the next path is to be looked at; None where none waits."""
        return min((self._due_at(path, one) for path, one in self._waiting.items()), default=None)

    def drop(self, paths: Iterable[str]) -> None:
        """Wait no more for paths of which nothing is to be recorded."""
        for path in paths:
            self._waiting.pop(path, None)

    def looked_at(self, paths: Iterable[str], now: float) -> None:
        """Wait no more for paths that were looked at, each of which had changed."""
        for path in paths:
            one = self._waiting.pop(path, None)
            known = self._known.setdefault(path, _Known([], now if one is None else one.last))
            known.times = [*(at for at in known.times if at > now - MINUTE), now]
            known.restless = known.restless or len(known.times) > MOST_A_MINUTE
        for path in [path for path, known in self._known.items() if known.last <= now - MINUTE]:
            if path not in self._waiting:
                del self._known[path]

    def _due_at(self, path: str, one: _Waiting) -> float:
        rested = min(one.last + RESTED, one.first + LATEST)
        known = self._known.get(path)
        return max(rested, known.times[-1] + MINUTE) if known and known.restless else rested
