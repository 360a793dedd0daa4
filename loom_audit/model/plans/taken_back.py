"""What is taken back by what: computed from the chain of all that took back, as it is in effect."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache

from msgspec import Struct

from loom_audit.model.plans.lineage import PathStep


def taken_back(newest_first: Iterable[tuple[int, int]]) -> dict[int, int]:
    """Number of what was taken back → number of the call that did, while that one stands.

    From pairs of the call that took back and what it did, those of the newest call first: whether
    one stands depends on later ones only.
    """
    found: dict[int, int] = {}
    for number, target in newest_first:
        if number not in found:
            found.setdefault(target, number)
    return found


class TakingBack(Struct, frozen=True):
    """What the call with a number took back: calls and events as a whole, and paths of calls.

    Of a call that is in both the paths are all that was left to take back.
    """

    number: int
    whole: tuple[int, ...]
    in_part: Mapping[int, Sequence[str]]


def taken_back_by_path(
    newest_first: Sequence[TakingBack], changed: Mapping[int, Collection[str]]
) -> dict[tuple[int, str], int]:
    """The number of the call that took a path of a call back, while that stands at the path.

    By the number of what was taken back, and the path. `changed` has the paths that calls and
    events changed, by their numbers.
    """
    by_number = {doing.number: doing for doing in newest_first}

    @cache
    def reach(number: int) -> frozenset[str]:
        """The paths at which it makes a difference to take something back."""
        paths = frozenset(changed.get(number, ()))
        if doing := by_number.get(number):
            for target in (*doing.whole, *doing.in_part):
                paths |= taken(doing, target)
        return paths

    def taken(doing: TakingBack, target: int) -> frozenset[str]:
        if target in doing.in_part:
            return frozenset(doing.in_part[target])
        return reach(target) if target < doing.number else frozenset()

    found: dict[tuple[int, str], int] = {}
    for doing in newest_first:
        for target in dict.fromkeys((*doing.whole, *doing.in_part)):
            for path in taken(doing, target):
                if (doing.number, path) not in found:
                    found.setdefault((target, path), doing.number)
    return found


def takes_anything_back(numbers: Collection[int], already: Mapping[int, int]) -> bool:
    """Whether it makes a difference to take these back, besides what is taken back `already`.

    It makes none to take back what is taken back, nor what did that together with all that it did.
    """
    standing = set(already.values())
    for number in numbers:
        if number in already:
            continue
        if number not in standing:
            return True
        if any(by == number and target not in numbers for target, by in already.items()):
            return True
    return False


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
