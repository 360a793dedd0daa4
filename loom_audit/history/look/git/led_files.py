"""Says of changed files of the workspace that settings of git lead to them."""

from collections.abc import Collection, Iterable, Iterator

from msgspec.structs import replace

from loom_audit.history.ground.attachment import Attachment
from loom_audit.history.ground.process_state import LastRepository
from loom_audit.history.look.git.changes import read_states
from loom_audit.model.events import Draft, FilesChanged
from loom_audit.model.files import FileChange, parents
from loom_audit.model.git.record import GitChanged

MOST_SAID = 100
"""The number of files of one change that are named: one is enough to look at the call."""


def with_led_files(attachment: Attachment, drafts: Iterable[Draft]) -> list[Draft]:
    """The drafts, each of files that a call changed with one behind it that says to which of them
    settings or hooks of a repository lead, as these are now; the lock is held.
    """
    drafts = [*drafts]
    if attachment.on_disk.git is None or not any(map(_is_by_call, drafts)):
        return drafts
    led = [*_led_to(attachment)]
    return [one for draft in drafts for one in (draft, *_said(draft, led))]


def is_about_led_files(draft: Draft) -> bool:
    """Whether a draft says only that of files which another draft is of."""
    return isinstance(draft.fact, GitChanged) and not draft.fact.is_of_git


def _is_by_call(draft: Draft) -> bool:
    return isinstance(draft.fact, FilesChanged) and draft.fact.call_id is not None


def _led_to(attachment: Attachment) -> Iterator[tuple[str, LastRepository, Collection[str]]]:
    """The repositories that lead into the workspace, by folder, and the paths."""
    top, known = attachment.on_disk.git, attachment.process.last_seen.git
    if top is None:
        return
    if not known.repositories:
        known.repositories[""] = LastRepository()
        read_states(attachment)
    for folder, last in known.repositories.items():
        if last.git is None:
            last.git = top.nested(folder) if folder else top
        if paths := last.git.led_to():
            yield folder, last, frozenset(paths)


def _said(
    draft: Draft, led: Iterable[tuple[str, LastRepository, Collection[str]]]
) -> Iterator[Draft]:
    fact = draft.fact
    if not (isinstance(fact, FilesChanged) and _is_by_call(draft)):
        return
    for folder, last, paths in led:
        if found := [one.path for one in fact.changes if _is_led_to(one, paths)]:
            said = GitChanged(
                last.state.identity,
                (),
                (),
                fact.origin,
                last.state.names.get("HEAD", ""),
                fact.call_id,
                tuple(one for one in fact.causes if isinstance(one, int)),
                folder,
                led_to=tuple(found[:MOST_SAID]),
            )
            yield replace(draft, fact=said)


def _is_led_to(change: FileChange, paths: Collection[str]) -> bool:
    kinds = {one.kind for one in (change.before, change.after) if one is not None}
    if kinds == {"directory"} or change.path in paths:
        return kinds != {"directory"}
    is_hook = any(f"{one}/" in paths for one in parents(change.path))
    return is_hook and not change.path.endswith(".sample")
