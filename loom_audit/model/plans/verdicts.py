"""One verdict per path: what is said about each in a plan, with its reasons put together."""

from collections.abc import Collection, Iterable, Mapping
from typing import Literal

from msgspec import Struct

Category = Literal["blocked", "irreversible", "merged", "kept", "already"]
"""What is said about a path beside its change: of a `merged` one there is a change, too."""

_PRECEDENCE: tuple[Category, ...] = ("blocked", "irreversible", "kept", "already")


class Note(Struct, frozen=True):
    """A path with the reason it is listed, and the numbers of the calls that cause it."""

    path: str
    reason: str
    calls: tuple[int, ...] = ()


def one_verdict_each(
    notes: Iterable[tuple[Category, Note]], changed: Collection[str]
) -> Mapping[Category, tuple[Note, ...]]:
    """The notes by category, at most one per path, ordered by path.

    A blocked path is only blocked. At another `changed` path what is kept is merged into it, and
    what is irreversible is said of the whole plan, by a note without a path. At a path that is not
    changed the first of blocked, irreversible, kept and already there counts, with all its reasons.
    """
    at: dict[str, dict[Category, list[Note]]] = {}
    for category, note in notes:
        at.setdefault(note.path, {}).setdefault(category, []).append(note)
    verdicts: dict[Category, list[Note]] = {}
    for path in sorted(at):
        if path not in changed or "blocked" in at[path]:
            category = next(one for one in _PRECEDENCE if one in at[path])
            verdicts.setdefault(category, []).append(_joined(path, at[path][category]))
            continue
        if kept := at[path].get("kept"):
            verdicts.setdefault("merged", []).append(_joined(path, kept))
        # another file takes the place of one that cannot come back, as was chosen
        for note in at[path].get("irreversible", ()):
            lost = Note("", f"{path}: {note.reason}", note.calls)
            verdicts.setdefault("irreversible", []).append(lost)
    return {category: tuple(notes) for category, notes in verdicts.items()}


def _joined(path: str, notes: Collection[Note]) -> Note:
    reasons = dict.fromkeys(note.reason for note in notes if note.reason)
    calls = dict.fromkeys(call for note in notes for call in note.calls)
    return Note(path, "; ".join(reasons), tuple(calls))
