"""The system's clock, times as integers, and ids that sort by time."""

import os
from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


class SystemClock:
    """The present as the system tells it."""

    def now(self) -> datetime:
        return datetime.now(UTC)


def to_micros(moment: datetime) -> int:
    """Microseconds since 1970 UTC."""
    return (moment - _EPOCH) // _MICROSECOND


def from_micros(micros: int) -> datetime:
    """The moment that `to_micros` was given, in UTC."""
    return _EPOCH + timedelta(microseconds=micros)


def new_id(moment: datetime) -> str:
    """A UUIDv7 (RFC 9562 §5.7) as 32 hex digits: the milliseconds, then 74 random bits."""
    millis = (to_micros(moment) // 1000) & ((1 << 48) - 1)
    random = int.from_bytes(os.urandom(10), "big")
    high = (random >> 62) & 0xFFF
    low = random & ((1 << 62) - 1)
    return f"{millis << 80 | 0x7 << 76 | high << 64 | 0b10 << 62 | low:032x}"
