"""What is taken back by what: computed from the chain of all that took back, as it is in effect."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cached_property

from msgspec import Struct

from loom_audit.model.plans.lineage import PathStep


class TakingBack(Struct, frozen=True):
    """The call with a number took back another call or an event: the `target`.

    With `paths` just these paths of it: all that was left of it where it is taken back as a `whole`
    all the same, and else some.
    """

    number: int
    target: int
    whole: bool = True
    paths: frozenset[str] | None = None

    def covers(self, path: str) -> bool:
        """Whether a path of the target was taken back."""
        return self.paths is None or path in self.paths


class UndoneBy(Struct, frozen=True):
    """What is taken back of one call or event.

    `whole` is the number of the call that did so, or did the last of it; None where the call is in
    effect at any path. Then `paths` has those of its paths at which it is not, each with the number
    of the call that took it back.
    """

    whole: int | None = None
    paths: Mapping[str, int] = {}


class TakenBack:
    """What calls took back, as it is in effect: what took back can be taken back itself."""

    def __init__(self, doings: Iterable[TakingBack]) -> None:
        known = (one for one in doings if one.number > one.target)
        self.doings = sorted(known, key=lambda one: (one.number, one.target), reverse=True)
        self._named = {path for one in self.doings for path in one.paths or ()}
        self._at: dict[str, Mapping[int, int]] = {}
        self._before: dict[int, TakenBack] = {}

    @cached_property
    def _by_number(self) -> Mapping[int, Sequence[TakingBack]]:
        return _grouped(self.doings, lambda one: one.number)

    @cached_property
    def _by_target(self) -> Mapping[int, Sequence[TakingBack]]:
        return _grouped(self.doings, lambda one: one.target)

    @cached_property
    def whole(self) -> Mapping[int, int]:
        """Number of what was taken back as a whole → number of the call that did, whatever was
        taken back or brought back in part.
        """
        return _in_effect(one for one in self.doings if one.whole)

    @cached_property
    def _elsewhere(self) -> Mapping[int, int]:
        """As `at`, for each path that nothing names."""
        return _in_effect(one for one in self.doings if one.paths is None)

    def at(self, path: str) -> Mapping[int, int]:
        """Number of what was taken back at a path → number of the call that did."""
        if path not in self._named:
            return self._elsewhere
        if path not in self._at:
            self._at[path] = _in_effect(one for one in self.doings if one.covers(path))
        return self._at[path]

    def never_took(self, numbers: Iterable[int]) -> bool:
        """Whether nothing took any of these back."""
        return not any(number in self._by_target for number in numbers)

    def before(self, number: int) -> "TakenBack":
        """What was in effect of it before the call with this number took anything back."""
        if number not in self._before:
            older = TakenBack(one for one in self.doings if one.number < number)
            self._before[number] = older
        return self._before[number]

    def without(self, numbers: Collection[int]) -> "TakenBack":
        """What would be taken back if the calls with these numbers had taken nothing back."""
        return TakenBack(one for one in self.doings if one.number not in numbers)

    def of(self, number: int, paths: Collection[str]) -> UndoneBy:
        """What is taken back of a call or event that changed these paths."""
        if not paths:
            return UndoneBy(self._whole_of_all(number))
        if not self._named:
            return UndoneBy(self.whole.get(number))
        found = {path: self.at(path)[number] for path in sorted(paths) if number in self.at(path)}
        return UndoneBy(max(found.values())) if len(found) == len(paths) else UndoneBy(None, found)

    def _whole_of_all(self, number: int) -> int | None:
        """By what a call that changed no path is taken back: at each path that is named of it."""
        named = {path for one in self._by_target.get(number, ()) for path in one.paths or ()}
        is_taken = all(number in self.at(path) for path in named)
        return self.whole.get(number) if is_taken else None

    def took(self, number: int) -> Sequence[TakingBack]:
        """What the call with this number took back."""
        return self._by_number.get(number, ())

    def targets(self, number: int, path: str) -> list[int]:
        """What the call with this number took back, where it may have been at a path."""
        return [one.target for one in self.took(number) if one.covers(path)]

    def names(self, number: int, target: int) -> bool:
        """Whether the call with this number took back paths of a target that are on record."""
        doings = self.took(number)
        return any(one.target == target and one.paths is not None for one in doings)

    def concerning(self, numbers: Collection[int]) -> "TakenBack":
        """What of it says whether these calls and events are taken back."""
        wanted = {*numbers}
        queue = [*wanted]
        for number in queue:
            new = {one.number for one in self._by_target.get(number, ())} - wanted
            wanted |= new
            queue += new
        return TakenBack(one for number in wanted for one in self._by_target.get(number, ()))

    def takers(self, numbers: Collection[int]) -> set[int]:
        """The calls that stand and took some of these back, at any path, and so on for them."""
        each = [self.whole, *(self.at(path) for path in self._named), self._elsewhere]
        found, asked = set[int](), {*numbers}
        while asked:
            new = {back[number] for back in each for number in asked & back.keys()}
            asked = new - found
            found |= new
        return found

    def by_path(self, numbers: Collection[int]) -> set[int]:
        """The calls and events, of these, that are taken back at some paths and not at others."""
        found: set[int] = set()
        for one in self.doings:  # the newest first, which can only have been taken back before
            if one.paths is not None or one.number in found:
                found.add(one.target)
        return found & {*numbers}

    def below(self, numbers: Collection[int]) -> set[int]:
        """These calls and events, those that they took back, and so on, down to the first ones."""
        found = {*numbers}
        for one in self.doings:  # the newest first, and each took back older ones only
            if one.number in found:
                found.add(one.target)
        return found

    def and_then(self, more: Iterable[TakingBack]) -> "TakenBack":
        """What is in effect once this has been done, too."""
        return TakenBack((*self.doings, *more))


def _grouped(
    doings: Iterable[TakingBack], key: Callable[[TakingBack], int]
) -> dict[int, list[TakingBack]]:
    found: dict[int, list[TakingBack]] = {}
    for one in doings:
        found.setdefault(key(one), []).append(one)
    return found


def _in_effect(newest_first: Iterable[TakingBack]) -> dict[int, int]:
    """By target the newest call that stands: whether one stands depends on later ones only."""
    found: dict[int, int] = {}
    for one in newest_first:
        if one.number not in found:
            found.setdefault(one.target, one.number)
    return found


def hidden_paths(steps: Iterable[PathStep]) -> set[str]:
    """The paths that calls changed which are kept, after those that are taken back."""
    taken: set[str] = set()
    hidden: set[str] = set()
    for step in steps:
        path = step.change.path
        if step.taken:
            taken.add(path)
        elif step.call is not None and path in taken:
            hidden.add(path)
    return hidden


def takes_anything_back(
    before: TakenBack,
    more: Sequence[TakingBack],
    changed: Callable[[Collection[int]], Mapping[int, Collection[str]]],
) -> bool:
    """Whether it makes a difference to take `more` back: then something that took nothing back
    itself is no longer in effect, or is again.

    `changed` is asked for the paths that calls and events changed, where it depends on these.
    """
    after = before.and_then(more)
    took = {one.number for one in after.doings}
    numbers = before.below({one.target for one in more}) - took
    paths = changed(after.by_path(numbers))

    def stands(back: TakenBack, number: int) -> object:
        undone = back.of(number, paths.get(number, ()))
        return undone.whole is None, undone.paths.keys()

    return any(stands(before, number) != stands(after, number) for number in numbers)
