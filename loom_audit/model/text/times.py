"""Times as people type them: `10:32`, `yesterday 17:00`, `10 minutes ago`, RFC 3339."""

import re
from datetime import UTC, date, datetime, time, timedelta, tzinfo

from loom_audit.errors import InvalidArguments
from loom_audit.model.text.display import one_line

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_UNIT = "s|seconds?|secs?|m|minutes?|mins?|h|hours?|d|days?|w|weeks?"
_AGE = re.compile(rf"(\d{{1,9}}|an?(?=\s))\s*({_UNIT})(\s+ago)?", re.ASCII)
_CLOCK = r"([01]?\d|2[0-3]):[0-5]\d(:[0-5]\d)?"
_OF_DAY = re.compile(_CLOCK, re.ASCII)
_DAY = re.compile(rf"(today|yesterday)(\s+(at\s+)?(?P<clock>{_CLOCK}))?", re.ASCII)
_DATED = re.compile(r"\d{4,9}-\d{2}-\d{2}([T ].*)?", re.ASCII)
_FAR = re.compile(r"[1-9]\d{4,}-\d{2}-\d{2}([Tt ].*)?", re.ASCII | re.DOTALL)
_LEAP = re.compile(r".*:\d\d:6\d.*", re.DOTALL)
LAST_YEAR = 2300
"""After which no time is taken: filesystems and databases end soon behind it."""


def is_time(text: str) -> bool:
    """Return whether a text has the form of a time; of an age only where it says `ago`."""
    text = text.strip().lower()
    age = _AGE.fullmatch(text)
    if age:
        return age[3] is not None
    return any(form.fullmatch(text) for form in (_OF_DAY, _DAY)) or bool(
        _DATED.fullmatch(text.upper())
    )


def read_time(text: str, now: datetime, zone: tzinfo | None = None) -> datetime:
    """Return the moment that a text names, in UTC: a time, a day with a time, or an age (`2h`).

    A text without a zone is meant in `zone`, or where there is none in that of this machine. A time
    of day without a day is the last one that is not later than `now`. A day is its beginning.
    InvalidArguments.
    """
    typed = text.strip()
    try:
        found = _read(typed.lower(), now, zone)
        at = _zoned(datetime.fromisoformat(typed) if found is None else found, zone)
    except (ValueError, OverflowError):
        why = time_flaw(typed)
        raise InvalidArguments(
            f"not a time: {one_line(text, 80) or 'an empty text'}{why}",
            hint="Write 2026-01-31, 2026-01-31T14:05:00Z, 14:05, yesterday 17:00, or an age: "
            "30m, 2 hours ago.",
        ) from None
    check_year(at)
    return at


def time_flaw(text: str) -> str:
    """Return why a text is not a time: it has the second 60 or a year of more than four digits.

    Empty for any other text.
    """
    if _FAR.fullmatch(text):
        return f"; times go to the year {LAST_YEAR}"
    return "; a minute has the seconds 00 to 59" if _LEAP.fullmatch(text) else ""


def check_year(at: datetime) -> None:
    """Raise InvalidArguments for a time after the last year that is taken."""
    if at.year > LAST_YEAR:
        raise InvalidArguments(
            f"{at:%Y-%m-%d} is too late: times go to the year {LAST_YEAR}",
            hint="Name an earlier time; `head` is the end of the log.",
        )


def _read(text: str, now: datetime, zone: tzinfo | None) -> datetime | None:
    """The moment, in the zone where it has none; None for what is not of our own forms."""
    if age := _AGE.fullmatch(text):
        count = 1 if age[1].startswith("a") else int(age[1])
        return now - timedelta(**{_UNITS[age[2][0]]: count})
    today = now.astimezone(zone).date()
    if _OF_DAY.fullmatch(text):
        at = _on(today, text)
        return at if _zoned(at, zone) <= now else _on(today - timedelta(days=1), text)
    if day := _DAY.fullmatch(text):
        meant = today if day[1] == "today" else today - timedelta(days=1)
        return _on(meant, day["clock"] or "0:00")
    return None


def _on(day: date, clock: str) -> datetime:
    hours, _, rest = clock.partition(":")
    return datetime.combine(day, time.fromisoformat(f"{hours:>02}:{rest}"))


def _zoned(at: datetime, zone: tzinfo | None) -> datetime:
    if at.tzinfo is None and zone is not None:
        at = at.replace(tzinfo=zone)
    return at.astimezone(UTC)
