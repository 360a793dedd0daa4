"""What came of changes on disk: what they displaced, and what is there now."""

from collections.abc import Mapping, Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from loom_audit.errors import AuditError, Conflict, InvalidPath, PermissionDenied, TooLarge
from loom_audit.history.ground.attachment import STALE, Attachment
from loom_audit.history.look.links import settled
from loom_audit.history.look.observation import observe
from loom_audit.model.files import FileChange, FileState
from loom_audit.model.plans.links import without_group
from loom_audit.model.plans.opening import UNREADABLE
from loom_audit.model.text.display import count_text
from loom_audit.ports import Displaced, IndexEntry, Stamp

Seen = Mapping[str, tuple[FileState | None, IndexEntry | None]]


class Outcome(Struct):
    """What the steps changed, and the reasons and the error if that is not what was intended.

    `displaced` is what was at a path before and is still on disk under a temporary name,
    `arrived` are paths whose content existed before where it is not recorded,
    `foreign` is what somebody else wrote before a change, `later` what they wrote after it. The
    changes `looked_for` were tried, and what is on disk now is still to be seen. `names` are how
    many names each group of hard links has in the workspace that are not replaced yet.
    """

    changes: list[FileChange] = field(default_factory=list)
    foreign: list[FileChange] = field(default_factory=list)
    later: list[FileChange] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    error: AuditError | None = None
    arrived: list[str] = field(default_factory=list)
    displaced: list[tuple[str, Displaced]] = field(default_factory=list)
    looked_for: list[FileChange] = field(default_factory=list)
    entries: dict[str, IndexEntry | None] = field(default_factory=dict)
    names: dict[int, int] = field(default_factory=dict)

    def add_broken_links(self, change: FileChange, links: int) -> None:
        """Say that what was displaced, which had so many names, has more outside the workspace."""
        group = change.before.group if change.before else None
        inside = self.names.get(group, 1) if group is not None else 1
        if links > inside:
            more = count_text(links - inside, "name")
            self.reasons.append(f"hard link broken: {change.path} ({more} outside the workspace)")

    def add_error(self, error: AuditError) -> None:
        """Keep the first error, which is raised to the caller."""
        self.error = self.error or error


def check_displaced(
    attachment: Attachment, change: FileChange, displaced: Displaced, outcome: Outcome
) -> None:
    """Accept a replacement, or put back what somebody else had written in between."""
    try:
        found = displaced.state
        if found != without_group(change.before):
            change = _put_back(attachment, change, found, displaced, outcome)
        else:
            outcome.add_broken_links(change, displaced.links)
            outcome.displaced.append((change.path, displaced))
    except AuditError as error:
        outcome.add_error(error)
    outcome.looked_for.append(change)


def _put_back(
    attachment: Attachment,
    change: FileChange,
    found: FileState | None,
    displaced: Displaced,
    outcome: Outcome,
) -> FileChange:
    """Keep the version that was found, somebody else's, in the store and at its path.

    Returns the change with that version before it, as it was stored: it may be written still.
    """
    outcome.add_error(
        Conflict(
            f"{change.path} was changed by somebody else, unseen until now; it is as they left it",
            hint="Read it again and repeat the change.",
            details={"path": change.path},
        )
    )
    outcome.entries[change.path] = IndexEntry(STALE, None)
    try:
        if found and found.blob:
            with displaced.open() as stream:
                blob = attachment.blobs.put(stream)
            found = replace(found, blob=blob, size=attachment.blobs.size(blob))
    except AuditError:
        displaced.put_back()
        raise
    outcome.foreign.append(FileChange(change.path, change.before, found))
    try:
        displaced.put_back()
    except Conflict:
        # written once more since: that version stays, and this one is in the store
        outcome.displaced.append((change.path, displaced))
    except AuditError as error:
        outcome.add_error(error)  # such as its folder being gone: what is there now is still seen
    return FileChange(change.path, found, change.after)


def look_for_results(attachment: Attachment, outcome: Outcome) -> None:
    """Add what is on disk now to the outcome, which need not be what was intended."""
    wanted = {change.path: change.after for change in outcome.looked_for}
    first: dict[str, tuple[FileState | None, IndexEntry | None]] = {}
    for change, stamp in zip(outcome.looked_for, _stamps(attachment, outcome), strict=True):
        path, before = change.path, change.before
        try:
            first[path] = observe(attachment, path, before, keep=False, seen=stamp)
        except AuditError as error:
            _not_seen(outcome, change, error)
    seen = _settled(attachment, first, wanted)
    for change in outcome.looked_for:
        if change.path in seen:
            try:
                _add_result(attachment, outcome, change, *seen[change.path])
            except AuditError as error:
                _not_seen(outcome, change, error)


def _stamps(attachment: Attachment, outcome: Outcome) -> Sequence[Stamp | None]:
    """The stamps at the paths to be looked at; None too where they are to be asked one by one."""
    paths = [change.path for change in outcome.looked_for]
    try:
        return attachment.workspace.stamps(paths)
    except AuditError:
        return [None for _ in paths]


def _not_seen(outcome: Outcome, change: FileChange, error: AuditError) -> None:
    outcome.add_error(error)
    outcome.reasons.append(f"not seen: {change.path}")
    outcome.entries[change.path] = IndexEntry(STALE, None)


def _add_result(
    attachment: Attachment,
    outcome: Outcome,
    change: FileChange,
    now: FileState | None,
    entry: IndexEntry | None,
) -> None:
    if now == change.before:
        return
    if now != change.after:
        found = {change.path: observe(attachment, change.path, change.after)}
        now, entry = _settled(attachment, found, {change.path: change.after})[change.path]
        change = as_left_out(change, now)
    outcome.entries[change.path] = entry
    if now == change.after:
        outcome.changes.append(change)
    elif outcome.error is None:
        outcome.changes.append(change)
        outcome.later.append(FileChange(change.path, change.after, now))
    else:
        outcome.later.append(FileChange(change.path, change.before, now))


def as_left_out(change: FileChange, now: FileState | None) -> FileChange:
    """The change; of a folder that was made and is left out that of the opaque entry it is."""
    made = change.before is None and change.after is not None and change.after.kind == "directory"
    return replace(change, after=now) if made and now and now.kind == "opaque" else change


def observe_all(
    attachment: Attachment, changes: Sequence[FileChange], *, keep: bool = True
) -> tuple[Seen, dict[str, str]]:
    """The states at the changes' paths now, with their contents stored or with `keep` false hashed,
    and why the others cannot be seen; for recovery.
    """
    found: dict[str, tuple[FileState | None, IndexEntry | None]] = {}
    unseen: dict[str, str] = {}
    for change in changes:
        try:
            found[change.path] = observe(attachment, change.path, change.after, keep=keep)
        except PermissionDenied:
            unseen[change.path] = UNREADABLE
        except (InvalidPath, TooLarge) as error:
            unseen[change.path] = error.message
    wanted = {change.path: change.after for change in changes}
    return _settled(attachment, found, wanted), unseen


def _settled(attachment: Attachment, found: Seen, wanted: Mapping[str, FileState | None]) -> Seen:
    states = settled(
        attachment,
        {path: state for path, (state, _) in found.items()},
        wanted=lambda path: wanted.get(path) or attachment.projections.state(path),
    )
    return {path: (states[path], entry) for path, (_, entry) in found.items()}
