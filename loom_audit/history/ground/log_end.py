"""Where a log ends, compared with what its tables and the heads kept outside the store say of it.

A log from whose end events were cut looks whole in itself: only what was kept beside it tells.
"""

from loom_audit.errors import Corrupt
from loom_audit.ports import EventLog, Heads, Projections


class LogEnd:
    """Gives the end of one log, compared with its tables each time it has moved."""

    def __init__(self, log: EventLog, tables: Projections) -> None:
        self._log = log
        self._tables = tables
        self._compared = -1
        """The end at which the tables were compared last."""

    def head(self) -> int:
        """The seq of the last event. Corrupt where the tables have followed a later one."""
        head = self._log.head()
        if head != self._compared:
            head = self._compared = check_end(self._log, self._tables)
        return head


def last_kept(log: EventLog, heads: Heads) -> int:
    """The size, in events, of the largest head that was kept of a log; 0 without a head."""
    return max((one.size for one in heads.kept() if one.log == log.id), default=0)


def check_end(log: EventLog, tables: Projections, known: int = 0) -> int:
    """The seq of the last event. Corrupt where the tables have followed a later one, or where the
    log was `known` to be longer.
    """
    # the log is read last: what other processes append meanwhile only makes it longer
    followed = tables.followed()
    head = log.head()
    if head < followed:
        raise Corrupt(
            f"the log has {head} events, and its tables tell of event {followed}: its end is gone, "
            "or they were altered",
            hint="Keep a copy of the store and run `loom-audit verify`. `loom-audit db rebuild` "
            "makes the tables anew from what is there, and then they tell of no more.",
            details={"head": head, "known": followed},
        )
    if head < known:
        raise cut_error(head, known)
    return head


def cut_error(head: int, known: int) -> Corrupt:
    """The error for a log that ends at `head` and was known to end later, at `known`."""
    return Corrupt(
        f"the log has {head} events, and was known to have {known}: its end is gone",
        hint="Run `loom-audit verify`. Who has put back an older copy of the store moves its file "
        "of heads away and runs `loom-audit db rebuild`.",
        details={"head": head, "known": known},
    )
