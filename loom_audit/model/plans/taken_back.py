"""What is taken back by what: computed from the chain of all that took back, as it is in effect."""

from collections.abc import Collection, Iterable, Mapping

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
