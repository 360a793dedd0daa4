"""Makes changes that contradict the log's tree applicable to it, or leaves them out.

That happens where somebody changed the disk while it was looked at or changed: what was seen of one
path then contradicts what was seen of another, or what is on record.
"""

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from loom_audit.errors import AuditError
from loom_audit.history.ground.attachment import STALE, Attachment
from loom_audit.history.ground.continuous_log import DoesNotApply
from loom_audit.history.ground.writer import Writer
from loom_audit.history.look.attribution import attributed_drafts, outside_draft
from loom_audit.history.look.batches import Batch
from loom_audit.history.look.doers import Candidate
from loom_audit.history.look.git.led_files import is_about_led_files, with_led_files
from loom_audit.history.record.preconditions import Preconditions
from loom_audit.model.applicable import in_applicable_order
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
from loom_audit.ports import IndexEntry

OTHERS = -1
"""Stands for a draft, in the place of its number, where a change is in none of them."""


class Fitted(Struct):
    """Drafts that apply one after the other, and lead to what is on disk now.

    That holds at their paths, above and below them. `entries` are for the index. `lost` are paths
    at which a call made a change that cannot be recorded, since it is not there any more.
    """

    drafts: list[Draft] = field(default_factory=list)
    entries: dict[str, IndexEntry | None] = field(default_factory=dict)
    lost: list[str] = field(default_factory=list)


def fitted(
    attachment: Attachment, drafts: Sequence[Draft], others: Iterable[Candidate] = ()
) -> Fitted:
    """The drafts as far as they apply, with drafts of what else is on disk now; the lock is held.

    A path that is on disk as a draft has it stays with that draft. Other changes are from outside,
    with the calls in `others` as candidates.
    """
    result = Fitted()
    fold = _Trial(attachment.stored.reading.tree(), attachment.stored.reading.untracked())
    said: dict[str, tuple[int, FileChange]] = {}
    paths: set[str] = set()
    for number, draft in enumerate(drafts):
        fact = draft.fact
        if not isinstance(fact, FilesChanged):
            fold.follow(fact)
        else:
            paths.update(change.path for change in fact.changes)
            applying = fold.follow_applying(fact)
            paths_applying = {change.path for change in applying.changes}
            said.update((c.path, (number, c)) for c in fact.changes if c.path not in paths_applying)
            if not paths_applying:
                continue
            draft = draft if applying is fact else replace(draft, fact=applying)
        result.drafts.append(draft)
    # what does not apply was seen at different moments, so the disk is asked once more
    seen = _seen(attachment, paths, fold.states, result)
    by_owner: dict[int, list[FileChange]] = {}
    for path, state in seen.items():
        if state != fold.states.get(path):
            number, change = said.get(path, (OTHERS, None))
            owner = number if change is not None and change.after == state else OTHERS
            by_owner.setdefault(owner, []).append(FileChange(path, fold.states.get(path), state))
    for owner, part in in_applicable_order(by_owner):
        result.drafts.append(
            outside_draft(part, survivors=others)
            if owner == OTHERS
            else _part_of(drafts[owner], part)
        )
    result.lost = [
        path
        for path, (number, change) in said.items()
        if seen.get(path) != change.after and _is_owned(drafts[number])
    ]
    return result


def append_or_fit(
    attachment: Attachment,
    drafts: Sequence[Draft],
    entries: dict[str, IndexEntry | None],
    others: Iterable[Candidate] = (),
) -> Sequence[Event]:
    """Append drafts of what a look found; where they do not apply, drafts of what is there now.

    `entries`, which are for the index, are then changed to what is there now.
    """
    try:
        return attachment.stored.log.append(drafts)
    except DoesNotApply:
        plain = [one for one in drafts if not is_about_led_files(one)]
        result = fitted(attachment, plain, others)
        entries.update(result.entries)
        return attachment.stored.log.append(with_led_files(attachment, result.drafts))


def append_batch(
    attachment: Attachment,
    batch: Batch,
    among: Sequence[Candidate],
    writer: Writer | None = None,
) -> Sequence[Event]:
    """Append a batch of a look between calls, as changes of the candidates or from outside.

    A `writer` is whoever made those that no candidate may have made.
    """
    drafts = attributed_drafts(attachment, batch, among)
    if writer is not None:
        drafts = [writer.draft(d.fact) if _is_of_nobody(d) else d for d in drafts]
    drafts = with_led_files(attachment, drafts)
    return append_or_fit(attachment, drafts, batch.entries, among)


def _is_of_nobody(draft: Draft) -> bool:
    """Whether a draft is of changes that no call may have made."""
    fact = draft.fact
    return isinstance(fact, FilesChanged) and fact.origin == "outside" and not fact.causes


def _is_owned(draft: Draft) -> bool:
    """Whether a draft is of changes that a call made."""
    return isinstance(draft.fact, FilesChanged) and draft.fact.origin != "outside"


def _part_of(draft: Draft, changes: Sequence[FileChange]) -> Draft:
    """The draft with these changes in the place of its own."""
    assert isinstance(draft.fact, FilesChanged)
    return replace(draft, fact=_only_changes(draft.fact, changes))


def _only_changes(fact: FilesChanged, changes: Sequence[FileChange]) -> FilesChanged:
    """The fact with these changes only, and with its moves and arrivals at their paths."""
    paths = {change.path for change in changes}
    return replace(
        fact,
        changes=tuple(changes),
        moves=moves_among(changes, fact.moves),
        arrived=tuple(path for path in fact.arrived if path in paths),
        intention=None,  # a fact names its intention only where exactly that happened
    )


class _Trial(TreeFold):
    """A fold of the tree that follows of each fact only the changes that apply."""

    def __init__(self, states: Mapping[str, FileState], untracked: Iterable[str]) -> None:
        super().__init__(states, untracked)
        self._unfit: set[str] = set()

    def follow_applying(self, fact: FilesChanged) -> FilesChanged:
        """Follow the changes of the fact that apply, and return the fact with these only.

        Leaving out one change may make another one not apply, so it is tried until all do.
        """
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
                fact = _only_changes(fact, [one for one in fact.changes if one.path not in unfit])
        return fact

    def _break(self, path: str, why: str) -> None:
        super()._break(path, why)
        self._unfit.add(path)


class _DoesNotFitError(Exception):
    """Ends an attempt to follow a fact, so that the fold takes back what it followed of it."""


def _seen(
    attachment: Attachment, paths: Iterable[str], tree: Mapping[str, FileState], result: Fitted
) -> dict[str, FileState | None]:
    """The states now at the paths, of the folders above them, and below folders that are gone.

    The outermost come first. In a folder that was seen to be gone everything counts as absent, also
    where somebody makes it anew meanwhile: the states fit together then.
    """
    preconditions = Preconditions(attachment)
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
            state = _state_now(preconditions, path, tree.get(path), result)
        seen[path] = state
        if not is_directory(state):
            result.entries.setdefault(path, None if state is None else _STALE_INDEX_ENTRY)
            if not is_opaque(state):
                gone.add(path)
    for path in tree:
        if path not in seen and not gone.isdisjoint(parents(path)):
            seen[path] = result.entries[path] = None
    return seen


_STALE_INDEX_ENTRY = IndexEntry(STALE, None)


def _state_now(
    preconditions: Preconditions, path: str, recorded: FileState | None, result: Fitted
) -> FileState | None:
    """The state of a path now, or the recorded one where it cannot be read or is out of scope."""
    try:
        state = preconditions.state_now(path)
    except AuditError:
        result.entries[path] = _STALE_INDEX_ENTRY
        return recorded
    if not preconditions.is_recorded(path, state or recorded):
        return recorded
    result.entries[path] = (
        None if state is None else preconditions.entries.get(path, _STALE_INDEX_ENTRY)
    )
    return state
