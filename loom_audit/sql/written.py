"""Rows that do not hold what we write, as damage and other programs leave them."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from loom_audit.errors import Corrupt


@contextmanager
def as_written() -> Iterator[None]:
    """Corrupt where the block, which makes objects of rows, meets a value of another type."""
    try:
        yield
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:
        raise Corrupt(
            f"A row of the store is not as it was written: {error}",
            hint="Run `loom-audit verify`; the log itself may be whole.",
        ) from error


def texts(*values: Any) -> None:
    """TypeError unless each is a text or null."""
    for value in values:
        if not isinstance(value, str | None):
            raise TypeError(f"{value!a} is no text")


def numbers(*values: Any) -> None:
    """TypeError unless each is a whole number or null."""
    for value in values:
        if not isinstance(value, int | None):
            raise TypeError(f"{value!a} is no number")
