"""The system's clock, and times as integers."""

from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


class SystemClock:
    """The system's clock."""

    def now(self) -> datetime:
        """The present in UTC; it may go back when the system's clock is set."""
        return datetime.now(UTC)


def to_micros(moment: datetime) -> int:
    """The microseconds from 1970 UTC to a moment."""
    return (moment - _EPOCH) // _MICROSECOND


def from_micros(micros: int) -> datetime:
    """The moment that `to_micros` was given, in UTC."""
    return _EPOCH + timedelta(microseconds=micros)
