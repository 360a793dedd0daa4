"""Plans: what an undo would do, what it leaves alone, what stops it, each with its reason."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

from loom_audit.model.files import BlobId, FileChange, Move, Tree

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
class Request:
    """What a person asked for, kept with the plan so that it can be made again.

    `targets` are call numbers, seqs, a point or `session:ID`; `paths` limit a rollback;
    `outside` also takes back what came from outside.
    """

    verb: Verb
    targets: tuple[int | str, ...] = ()
    session: str | None = None
    paths: tuple[str, ...] = ()
    choices: Mapping[str, Choice] = field(default_factory=dict)
    outside: bool = False


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
    contents: Mapping[BlobId, bytes] = field(default_factory=dict, repr=False)
    """What the changes need and the blob store does not hold yet: merged texts."""
    request: Request | None = None


@dataclass(frozen=True, slots=True)
class PathStep:
    """One recorded change of one path; `taken` when it is to be taken back.

    `call` is the number of the call that made it, None for the outside and the baseline.
    """

    seq: int
    change: FileChange
    taken: bool
    call: int | None = None


class Contents(Protocol):
    """What a plan asks of the blob store."""

    def get(self, blob: BlobId) -> bytes: ...

    def __contains__(self, blob: BlobId) -> bool: ...


def plan_taking_back(
    *,
    verb: Verb,
    head: int,
    target: str,
    reverts: tuple[int, ...],
    steps: Iterable[PathStep],
    tree: Tree,
    blobs: Contents,
    moves: Mapping[int, Iterable[Move]] | None = None,
    choices: Mapping[str, Choice] | None = None,
    folds_case: bool = False,
) -> Plan:
    """The plan that takes back the taken steps and keeps all others.

    `steps` are the recorded changes in log order from the first taken one on, at least those
    of every path a taken one touches (giving all of them lets the plan follow renames, name
    the calls behind a folder that is not empty, and list outside edits of other paths as
    kept); `tree` is the tree at `head`; `moves` are the rename hints by seq of their event.
    """
    raise NotImplementedError
