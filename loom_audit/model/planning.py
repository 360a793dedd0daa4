"""Plans: what an undo would do, what it leaves alone, what stops it, each with its reason."""

from dataclasses import dataclass
from typing import Literal

from loom_audit.model.files import FileChange, Move

Verb = Literal["undo", "redo", "revert", "rollback"]
Choice = Literal["current", "old", "merge"]
"""Per path: keep what is there, take the old state, or write a merge with conflict markers."""


@dataclass(frozen=True, slots=True)
class Note:
    """A path with the reason it is listed, and the numbers of the calls that cause it."""

    path: str
    reason: str
    calls: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    """What taking something back would do, made at `head`.

    `changes` lead from what is on disk to what will be; `reverts` are the numbers of the calls
    (and seqs of the events) taken back; `already` are paths that need nothing; `kept` are left
    as they are (an edit from outside, a folder that is not empty); `blocked` need a choice;
    `irreversible` cannot be taken back at all. Nothing is written while `blocked` is not empty.
    """

    verb: Verb
    head: int
    target: str
    changes: tuple[FileChange, ...] = ()
    reverts: tuple[int, ...] = ()
    moves: tuple[Move, ...] = ()
    already: tuple[str, ...] = ()
    kept: tuple[Note, ...] = ()
    blocked: tuple[Note, ...] = ()
    irreversible: tuple[Note, ...] = ()
