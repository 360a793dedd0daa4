"""Which statements a writer's connection refuses: those that no code of ours makes.

It is against mistakes, not against forgery. SQLite asks about each statement as it compiles it
(https://www.sqlite.org/c3ref/set_authorizer.html).
"""

APPEND_ONLY = frozenset({"log", "event", "tree_node", "dictionary"})

_DROP_TABLE, _DROP_TRIGGER, _ATTACH, _ALTER_TABLE, _DELETE, _UPDATE = 11, 16, 24, 26, 9, 23
_OK, _DENY = 0, 1


def answer(action: int, first: str | None, *_: str | None) -> int:
    """Whether SQLite may do an action, as it wants that said; `first` is the table for most."""
    refused = action in (_DROP_TABLE, _DROP_TRIGGER, _ATTACH, _ALTER_TABLE) or (
        action in (_DELETE, _UPDATE) and first in APPEND_ONLY
    )
    return _DENY if refused else _OK
