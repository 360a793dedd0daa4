"""A plan in words: what its lists are called, on the terminal, on the page and in JSON."""

from collections.abc import Sequence

from msgspec import Struct

from loom_audit.model.plans.planning import Plan
from loom_audit.model.plans.verdicts import Note


class PlanList(Struct, frozen=True):
    """A list of a plan: the field `name` of the plan, and of the JSON.

    The terminal says the `title` above it, the page the `heading`, with what it is `about`.
    """

    name: str
    title: str
    heading: str
    about: str = ""

    def notes(self, plan: Plan) -> Sequence[Note]:
        """The notes of a plan that this list is of."""
        found: Sequence[Note] = getattr(plan, self.name)
        return found


MERGED = PlanList(
    "merged",
    "will be merged with later changes, which are kept:",
    "Merged",
    about="These will change, too, and what later changes did to them is kept in them.",
)
KEPT = PlanList(
    "kept", "kept as it is:", "Kept as it is", about="These stay unless you choose otherwise."
)
BLOCKED = PlanList(
    "blocked",
    "conflict, choose with --choose PATH=current|old|merge:",
    "Needs a decision",
    about="Later changes, or what is not on record, are in the way. Nothing is carried out until "
    "each is decided: to take old is to lose what came later, to keep current is to take nothing "
    "back here.",
)
DECIDED = PlanList("decided", "", "Decided")
"""What was chosen, and is in no other list then; on the page alone."""

TOLD = (
    PlanList("irreversible", "cannot be undone:", "Cannot be undone"),
    PlanList("ran_long", "may be the work of others, too:", "May be the work of others"),
    PlanList("inexact", "not exactly as it was:", "Not exactly as it was"),
    PlanList(
        "passed_over",
        "passed over, of later calls:",
        "Passed over",
        about="Later calls may have changed this, too. Only a choice takes it back: on the page "
        "of the call.",
    ),
)
"""The lists about which nothing can be chosen here."""

LISTS = (MERGED, KEPT, BLOCKED, *TOLD)
