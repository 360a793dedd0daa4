"""Changes that do not apply to the tree, since somebody changed the disk while they were made."""

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from loom_audit.errors import AuditError
from loom_audit.history.ground.attachment import STALE, Attachment
from loom_audit.history.ground.continuous_log import DoesNotApply
from loom_audit.history.look.attribution import attributed_drafts, outside_draft
from loom_audit.history.look.batches import Batch
from loom_audit.history.look.doers import Candidate
from loom_audit.history.record.preconditions import Preconditions
from loom_audit.model.continuity import TreeFold
from loom_audit.model.events import Draft, Event, FilesChanged
from loom_audit.model.files import (
    FileChange,
    FileState,
    is_directory,
    is_opaque,
    moves_among,
    parents,
)
from loom_audit.model.plans.applicable import in_applicable_order
from loom_audit.ports import IndexEntry

OTHERS = -1
"""Stands for the draft of what nobody said."""


class Fitted(Struct):
    """Drafts that apply, one after the other, and lead to what is on disk at, above and below
    their paths. `lost` are paths at which what was said to be made cannot be recorded.
    """

    drafts: list[Draft] = field(default_factory=list)
    entries: dict[str, IndexEntry | None] = field(default_factory=dict)
    lost: list[str] = field(default_factory=list)


def fitted(
    attachment: Attachment, drafts: Sequence[Draft], others: Iterable[Candidate] = ()
) -> Fitted:
    """The drafts, as far as they apply, and what else is on disk now; the lock is held.

    What is there as a draft says it is that draft's. The rest is from outside, where these others
    may have made it.
    """
    found = Fitted()
    fold = _Trial(attachment.stored.reading.tree(), attachment.stored.reading.untracked())
    said: dict[str, tuple[int, FileChange]] = {}
    paths: set[str] = set()
    for number, draft in enumerate(drafts):
        fact = draft.fact
        if not isinstance(fact, FilesChanged):
            fold.follow(fact)
        else:
            paths.update(change.path for change in fact.changes)
            kept = fold.kept(fact)
            left = {change.path for change in kept.changes}
            said.update((c.path, (number, c)) for c in fact.changes if c.path not in left)
            if not left:
                continue
            draft = draft if kept is fact else replace(draft, fact=kept)
        found.drafts.append(draft)
    seen = _seen(attachment, paths, fold.states, found)
    parts: dict[int, list[FileChange]] = {}
    for path, state in seen.items():
        if state != fold.states.get(path):
            number, change = said.get(path, (OTHERS, None))
            owner = number if change is not None and change.after == state else OTHERS
            parts.setdefault(owner, []).append(FileChange(path, fold.states.get(path), state))
    for owner, part in in_applicable_order(parts):
        found.drafts.append(
            outside_draft(part, survivors=others)
            if owner == OTHERS
            else _part_of(drafts[owner], part)
        )
    found.lost = [
        path
        for path, (number, change) in said.items()
        if seen.get(path) != change.after and _is_owned(drafts[number])
    ]
    return found


def append_found(
    attachment: Attachment,
    drafts: Sequence[Draft],
    entries: dict[str, IndexEntry | None],
    others: Iterable[Candidate] = (),
) -> Sequence[Event]:
    """Append what a look found, or what is there now; the entries are then of that."""
    try:
        return attachment.stored.log.append(drafts)
    except DoesNotApply:
        found = fitted(attachment, drafts, others)
        entries.update(found.entries)
        return attachment.stored.log.append(found.drafts)


def append_batch(
    attachment: Attachment, found: Batch, among: Sequence[Candidate]
) -> Sequence[Event]:
    """Append what a look between calls found, of the candidates or from outside."""
    drafts = attributed_drafts(attachment, found, among)
    return append_found(attachment, drafts, found.entries, among)


def _is_owned(draft: Draft) -> bool:
    return isinstance(draft.fact, FilesChanged) and draft.fact.origin != "outside"


def _part_of(draft: Draft, changes: Sequence[FileChange]) -> Draft:
    assert isinstance(draft.fact, FilesChanged)
    return replace(draft, fact=_narrowed(draft.fact, changes))


def _narrowed(fact: FilesChanged, changes: Sequence[FileChange]) -> FilesChanged:
    paths = {change.path for change in changes}
    return replace(
        fact,
        changes=tuple(changes),
        moves=moves_among(changes, fact.moves),
        arrived=tuple(path for path in fact.arrived if path in paths),
        intention=None,  # which is told of as a whole only
    )


class _Trial(TreeFold):
    """A tree that takes of each fact what applies."""

    def __init__(self, states: Mapping[str, FileState], untracked: Iterable[str]) -> None:
        super().__init__(states, untracked)
        self._unfit: set[str] = set()

    def kept(self, fact: FilesChanged) -> FilesChanged:
        """Follow the part of the fact that applies, and return it."""
        while fact.changes:
            self._unfit = set()
            try:
                with self.attempt():
                    self.follow(fact)
                    self._unfit |= self.left_out
                    if self._unfit:
                        raise _DoesNotFitError
                return fact
            except _DoesNotFitError:
                unfit = self._unfit
                fact = _narrowed(fact, [one for one in fact.changes if one.path not in unfit])
        return fact

    def _break(self, path: str, why: str) -> None:
        super()._break(path, why)
        self._unfit.add(path)


class _DoesNotFitError(Exception):
    pass


def _seen(
    attachment: Attachment, paths: Iterable[str], tree: Mapping[str, FileState], found: Fitted
) -> dict[str, FileState | None]:
    """What is at the paths, in the folders above, and below those that are none any more.

    The outermost come first: in what is no folder is nothing, whatever comes there meanwhile.
    """
    look = Preconditions(attachment)
    seen: dict[str, FileState | None] = {}
    gone: set[str] = set()
    for path in sorted({*paths, *(above for one in paths for above in parents(one))}):
        above = path.rpartition("/")[0]
        folder = seen.get(above)
        if above and (is_opaque(folder) or (above not in seen)):
            continue  # the inside of an opaque entry is in no tree
        if above and not is_directory(folder):
            state = None
        else:
            state = _look(look, path, tree.get(path), found)
        seen[path] = state
        if not is_directory(state):
            found.entries.setdefault(path, None if state is None else _STALE_ENTRY)
            if not is_opaque(state):
                gone.add(path)
    for path in tree:
        if path not in seen and not gone.isdisjoint(parents(path)):
            seen[path] = found.entries[path] = None
    return seen


_STALE_ENTRY = IndexEntry(STALE, None)


def _look(
    look: Preconditions, path: str, recorded: FileState | None, found: Fitted
) -> FileState | None:
    """The state of a path, or the recorded one where it cannot be seen or is not recorded."""
    try:
        state = look.at(path)
    except AuditError:
        found.entries[path] = _STALE_ENTRY
        return recorded
    if not look.is_recorded(path, state or recorded):
        return recorded
    found.entries[path] = None if state is None else look.entries.get(path, _STALE_ENTRY)
    return state
