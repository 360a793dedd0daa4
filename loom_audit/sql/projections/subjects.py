"""What follows the log: one module for each subject, and this list of them.

A subject's module names its tables, the facts they are made from (none: every event), and its
statements. `apply` says with which values an event runs these. All events of a commit are applied
first; then each statement runs once, with all its values, in the order of this list. So a
statement must not rely on another one having run for an earlier event of the same commit, only on
those before it in the list, and what it looks up it bounds by its own event's seq.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, get_args

from loom_audit.model.events import Fact
from loom_audit.sql.ground.statements import Prepared
from loom_audit.sql.projections import (
    calls,
    changes,
    checkpoints,
    coverage,
    keyframes,
    outcomes,
    reverts,
    sessions,
    spoken,
    tree,
    workspaces,
)
from loom_audit.sql.projections.paths import numbers, steps
from loom_audit.sql.projections.rows import FollowedEvent, Rows


class Subject(Protocol):
    """A module that follows the log: its tables, the facts they are made from, its statements."""

    @property
    def TABLES(self) -> Sequence[str]:
        """The tables that a rebuild empties."""
        ...

    @property
    def FACTS(self) -> Sequence[type[Any]]:
        """The types of facts that change the tables; () for every event."""
        ...

    @property
    def STATEMENTS(self) -> Sequence[Prepared]:
        """The statements in the order in which they run."""
        ...

    def apply(self, event: FollowedEvent, rows: Rows, /) -> None:
        """Add the values with which an event runs the statements."""
        ...


SUBJECTS: tuple[Subject, ...] = (
    workspaces,
    sessions,
    spoken,
    calls,
    outcomes,
    coverage,
    reverts,
    numbers,
    changes,
    steps,
    tree,
    keyframes,
    checkpoints,
)

PROJECTIONS = tuple(table for subject in SUBJECTS for table in subject.TABLES)
"""The tables that can be made from the log, which a rebuild empties and `verify` compares."""

STATEMENTS = tuple(statement for subject in SUBJECTS for statement in subject.STATEMENTS)

STREAMED: tuple[Subject, ...] = (calls, numbers, changes, tree, spoken)
"""Subjects with rows for nearly every call, which `verify` reads back while it reads events."""

READ_BACK = (*calls.READ_BACK, *changes.READ_BACK, *spoken.READ_BACK)
AGREEMENTS = (calls.agrees, changes.agrees, keyframes.agrees)
"""Whether what is made of several events, and so cannot be read back, agrees with the rest."""

FOLLOWING: Mapping[type[Any], Sequence[Subject]] = {
    fact: [subject for subject in SUBJECTS if not subject.FACTS or fact in subject.FACTS]
    for fact in (*get_args(Fact), type(None))
}
"""Which subjects an event is applied to, by the type of its fact."""
