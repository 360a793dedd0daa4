"""What other programs' JSON holds, read without trust: a wrong type is as if it were not there."""

import json
import math
import re
from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from loom_audit.errors import InvalidArguments

TORN = "torn line"
STRANGE = "line that is not an object"
OTHERS = "of other kinds"
_ALWAYS = (TORN, STRANGE, OTHERS)
KINDS = 1000
"""How many kinds of what was not understood are named."""

REMEMBERED = 100_000
"""How much of one kind a reader remembers of a transcript."""

_SHOWN = 60
_LONGEST_TIME = 10 * 365 * 86_400 * 1_000_000


def decode(raw: bytes) -> dict[str, Any]:
    """The object that a text of JSON is. ValueError for another, TypeError for another value.

    What is not UTF-8, and half a surrogate pair, is replaced: such a text is still told.
    """
    try:
        value = msgspec.json.decode(raw)
    except (ValueError, RecursionError):
        value = _decode_leniently(raw)
    if not isinstance(value, dict):
        raise TypeError(STRANGE)
    return value


def _decode_leniently(raw: bytes) -> Any:
    try:
        value = json.loads(raw.decode("utf-8", "replace"), parse_constant=lambda name: name)
        return _as_json(value)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def _as_json(value: Any) -> Any:
    """The value without what JSON cannot hold: half characters, numbers without end."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [_as_json(item) for item in value]
    if isinstance(value, dict):
        return {_as_json(name): _as_json(item) for name, item in value.items()}
    return value


def hook_input(raw: bytes, client: str) -> dict[str, Any]:
    """The input of a hook. InvalidArguments when it is not an object."""
    try:
        return decode(raw)
    except (ValueError, TypeError) as error:
        raise InvalidArguments(
            f"not the input of a hook of {client}: {error}",
            hint="The input of a hook is one JSON object.",
        ) from error


def line_of(raw: bytes, unread: Counter[str]) -> dict[str, Any]:
    """The object that a line of a transcript is; an empty one, counted, for another line."""
    if len(unread) > KINDS + len(_ALWAYS):
        _merge_others(unread)
    try:
        return decode(raw)
    except ValueError:
        if raw.strip():
            unread[TORN] += 1
    except TypeError:
        unread[STRANGE] += 1
    return {}


def _merge_others(unread: Counter[str]) -> None:
    """Count together the kinds that came after so many that they are not named."""
    for kind in [*unread][KINDS:]:
        if kind not in _ALWAYS:
            unread[OTHERS] += unread.pop(kind)


def text(source: Mapping[str, Any], *names: str) -> str:
    """The first text under one of the names, or ""."""
    for name in names:
        value = source.get(name)
        if isinstance(value, str):
            return value
    return ""


def mapping(source: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The object under a name; an empty one for another value."""
    value = source.get(name)
    return value if isinstance(value, dict) else {}


def mappings(value: Any) -> Iterator[dict[str, Any]]:
    """The objects in a list; nothing of another value."""
    if isinstance(value, list):
        yield from (item for item in value if isinstance(item, dict))


def whole(value: Any) -> int | None:
    """A whole number, also where it was told as a float; None for any other value."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return int(value)
    except (ValueError, OverflowError):
        return None


def microseconds(value: Any, each: int) -> int | None:
    """How long something took in microseconds, of a number in units of `each` microseconds.

    None where it is not a number, is negative, or is longer than a call can have taken.
    """
    took = whole(value)
    return took * each if took is not None and 0 <= took * each <= _LONGEST_TIME else None


def time(value: Any) -> datetime | None:
    """A time with its zone, from ISO 8601 or milliseconds since 1970; None for another value.

    And for one that no session can have been at, which not every zone can show.
    """
    try:
        if isinstance(value, str):
            found = datetime.fromisoformat(value)
        elif (number := whole(value)) is not None:
            found = datetime.fromtimestamp(number / 1000, UTC)
        else:
            return None
        if found.tzinfo is None:
            return None
        found = found.astimezone(UTC)
    except (ValueError, OverflowError, OSError):
        return None
    return found if 1970 <= found.year < 3000 else None


def plain(value: Any) -> str:
    """The text in a value of the model's protocol: a text, or blocks of which some hold text."""
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        return ""
    parts = [item if isinstance(item, str) else _text_of(item) for item in value]
    return "\n".join(part for part in parts if part)


def _text_of(block: Any) -> str:
    return text(block, "text") if isinstance(block, dict) else ""


def result(output: str, data: Mapping[str, Any]) -> dict[str, Any]:
    """The result of a call as reports hold it, of a text and of what else the client tells."""
    return {"output": output, "data": dict(data)}


def exit_code(output: str, pattern: re.Pattern[str]) -> int | None:
    """The exit code that a text tells in the pattern's first group; None where it tells none."""
    found = pattern.search(output)
    return int(found[1]) if found else None


def unknown(fields: Iterable[str], known: frozenset[str], where: str) -> list[str]:
    """The names of fields that are not known, shortened, each with the place where it was."""
    return [f"{where}.{name[:_SHOWN]}" for name in fields if name not in known]


def label(kind: str, name: Any) -> str:
    """What is counted as unread: a kind of thing and its name, shortened."""
    return f"{kind} {name[:_SHOWN] if isinstance(name, str) else '?'}"


def remember(known: OrderedDict[str, str], name: str, value: str = "") -> None:
    """Keep what a transcript told by its name, and forget the name that it told first."""
    known[name] = value
    if len(known) > REMEMBERED:
        known.popitem(last=False)


def hunks(patch: Any) -> str:
    """A unified diff without its head, from hunks told as numbers and lines; "" for others."""
    parts: list[str] = []
    for hunk in mappings(patch):
        lines = hunk.get("lines")
        numbers = [whole(hunk.get(name)) for name in _NUMBERS]
        if not isinstance(lines, list) or not all(isinstance(line, str) for line in lines):
            return ""
        if None in numbers:
            return ""
        parts.append("@@ -{},{} +{},{} @@".format(*numbers))
        parts.extend(lines)
    return "\n".join([*parts, ""]) if parts else ""


_NUMBERS = ("oldStart", "oldLines", "newStart", "newLines")


def answer(value: Mapping[str, Any]) -> bytes:
    """An answer of a hook as bytes for its standard output: a line of JSON."""
    return msgspec.json.encode(value)


def words(names: str) -> frozenset[str]:
    """The words of a text, as a set."""
    return frozenset(names.split())


def paths_of_patch(patch: Any) -> tuple[str, ...] | None:
    """The paths that a patch of the form `*** Update File: PATH` names, in their order, or None."""
    named = _PATCHED.findall(patch) if isinstance(patch, str) else []
    return as_paths([name.rstrip("\r") for name in named]) or None


_PATCHED = re.compile(r"^\*\*\* (?:Add File|Delete File|Update File|Move to): (.+)$", re.MULTILINE)


def as_paths(values: Sequence[str]) -> tuple[str, ...]:
    """The paths without empty ones and without doubles, in their order."""
    return tuple(dict.fromkeys(value for value in values if value))
