"""The strip: what stands out in a session or in a week, in numbers that lead to their lists."""

from collections.abc import Callable, Mapping

from msgspec import Struct

from loom_audit.api.control.flagged import MASS

STANDS_OUT: Mapping[str, tuple[str, str, str]] = {
    "failed": ("failed", "failed", "Calls that failed"),
    "denied": ("of them denied", "of them denied", "Calls that were denied"),
    "allowed": ("allowed by a person", "allowed by a person", "Calls that a person allowed"),
    "deletions": (
        "mass deletion",
        "mass deletions",
        f"Calls that deleted {MASS} files or more",
    ),
    "modes": ("mode change", "mode changes", "Calls that changed permission bits"),
    "network": (
        "network was allowed",
        "network was allowed",
        "Calls that were allowed the network: tools of the network, and commands that ran "
        "unconfined",
    ),
    "programs": (
        "names a network program",
        "name a network program",
        "Commands that name a program of the network",
    ),
    "code": (
        "changed what git runs",
        "changed what git runs",
        "Calls that changed hooks or settings of git, which can run code as you",
    ),
    "git": ("changed git", "changed git", "Calls that changed git"),
    "outside": (
        "change from outside",
        "changes from outside",
        "Changes without a call while the session ran",
    ),
    "coverage": ("not fully covered", "not fully covered", "Calls whose coverage is not full"),
}
"""What stands out: one, several, and the heading of their list."""

STYLES = {"failed": "stop", "denied": "stop", "code": "stop", "outside": "warn", "coverage": "warn"}


class Mark(Struct, frozen=True):
    """A number of the strip, with its words and the list that it leads to."""

    count: str
    words: str
    where: str
    style: str


def strip_of(
    counts: Mapping[str, int], most: Mapping[str, int], where: Callable[[str], str]
) -> tuple[Mark, ...]:
    """The numbers of what stands out, none that is zero; `most` has up to where each is counted,
    `where` gives the address of its list.
    """
    return tuple(
        Mark(_shown(counts[name], most.get(name)), words[counts[name] != 1], where(name), style)
        for name, words in STANDS_OUT.items()
        if counts.get(name)
        for style in [STYLES.get(name, "")]
    )


def _shown(count: int, most: int | None) -> str:
    return f"{count:,}" if most is None or count <= most else f"{most:,}+"
