"""Where a log ends, compared with what is known of its end: by its tables, and by kept heads."""

from loom_audit.errors import Corrupt
from loom_audit.ports import EventLog, Heads, Projections


class LogEnd:
    """The end of one log, which its tables do not know to be a later one."""

    def __init__(self, log: EventLog, tables: Projections) -> None:
        self._log = log
        self._tables = tables
        self._compared = -1
        """The end with which the tables were compared last."""

    def head(self) -> int:
        """The seq of the last event. Corrupt where the tables tell of a later one."""
        head = self._log.head()
        if head != self._compared:
            head = self._compared = check_end(self._log, self._tables)
        return head


def last_kept(log: EventLog, heads: Heads) -> int:
    """How many events the last head that was kept of a log is over; 0 without one."""
    return max((one.size for one in heads.kept() if one.log == log.id), default=0)


def check_end(log: EventLog, tables: Projections, known: int = 0) -> int:
    """The seq of the last event. Corrupt where the tables tell of a later one, or it was `known`.

    What was known is read before this is called, and the tables before the log, which others may
    be writing.
    """
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
    """The error for a log that was known to be longer."""
    return Corrupt(
        f"the log has {head} events, and was known to have {known}: its end is gone",
        hint="Run `loom-audit verify`. Who has put back an older copy of the store moves its file "
        "of heads away and runs `loom-audit db rebuild`.",
        details={"head": head, "known": known},
    )
