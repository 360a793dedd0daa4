"""How far logs are signed, as lines and records."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from loom_audit.cli.shared.output import Line
from loom_audit.model.text.display import visible

if TYPE_CHECKING:
    from loom_audit.api.upkeep.signing import SignedLog


def signed_record(one: "SignedLog") -> dict[str, Any]:
    """A log as JSON values, with how far it was signed or why not."""
    return {
        "id": one.id,
        "root": one.root,
        "size": one.signed.head.size if one.signed else None,
        "error": one.error.to_dict() if one.error else None,
    }


def signed_lines(key: str, logs: "Iterable[SignedLog]") -> Iterator[Line]:
    """By which key heads are signed, and each log with how far."""
    yield ((f"heads are signed by {key}", "green"),)
    yield from map(_line, logs)


def _line(one: "SignedLog") -> Line:
    """A log in a line, with how far it was signed or why not."""
    if one.signed is not None:
        return (f"  to {one.signed.head.size:,}  {visible(one.root)}",)
    return (("  not signed", "red"), f"  {visible(one.root)}: {one.error}")
