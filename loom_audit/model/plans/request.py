"""What a person asks to be taken back: one request, for the terminal, the page and Python."""

from collections.abc import Mapping, Sequence
from typing import Literal

from msgspec import Struct, field

Verb = Literal["undo", "redo", "revert", "rollback"]
Choice = Literal["current", "old", "merge"]
"""Per path: keep what is there, take the old state, or write a merge with conflict markers."""


class PlanRequest(Struct, frozen=True):
    """What a person asked for, kept with the plan so that it can be made again.

    `targets` are call numbers, seqs, a point or `session:ID`; `session` is where an undo or a redo
    looks for its call. `paths` limit a rollback or a revert; `outside` also takes back what came
    from outside, and `running` what calls that are open now may have done until now. `no_git`
    leaves git as it is, `with_git` lets a revert take git along, and `git_config` also git's hooks
    and settings. A choice for a folder counts for the conflicts below it for which nothing nearer
    is chosen; "" is the whole workspace.
    """

    verb: Verb
    targets: tuple[int | str, ...] = ()
    session: str | None = None
    paths: tuple[str, ...] = ()
    choices: Mapping[str, Choice] = field(default_factory=dict)
    outside: bool = False
    running: bool = False
    no_git: bool = False
    with_git: bool = False
    git_config: bool = False

    @property
    def flags(self) -> Sequence["Flag"]:
        """The flags that are set."""
        return [flag for flag in FLAGS if getattr(self, flag.field)]


class Flag(Struct, frozen=True):
    """A yes or no that a plan of some verbs is asked with, as the ways in offer it.

    `field` is that of the request. Under its `name` the terminal has an option, of which `help`
    tells, and the address of a plan's page a field; `box` stands beside the box on that page. A
    flag without a box is offered there in another way.
    """

    field: str
    name: str
    help: str
    box: str = ""
    verbs: tuple[Verb, ...] = ("rollback",)


OUTSIDE = Flag(
    "outside",
    "outside",
    help="Take back what came from outside, too.",
    box="Also take back everything that came from outside",
)
HOLD = Flag("running", "hold", help="Now, while agents run: hold their sessions first.")
NO_GIT = Flag(
    "no_git",
    "no-git",
    help="Leave git as it is: HEAD, branches, the index and stashes.",
    box="Leave git as it is: HEAD, branches, the index and stashes",
    verbs=("undo", "redo", "rollback"),
)
WITH_GIT = Flag(
    "with_git",
    "git",
    help="Take back what it did to git, too.",
    box="Also take back what it did to git",
    verbs=("revert",),
)
GIT_CONFIG = Flag(
    "git_config",
    "git-config",
    help="Take back hooks and settings of git, too: they can run code as you.",
    box="Also take back hooks and settings of git, which can run code as you",
    verbs=("undo", "redo", "revert", "rollback"),
)
FLAGS = (OUTSIDE, HOLD, NO_GIT, WITH_GIT, GIT_CONFIG)
