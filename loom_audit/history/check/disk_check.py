"""Checks whether the change index, which is a cache, hides changes: files are read anew."""

import hashlib
import random
import stat

from loom_audit.errors import AuditError
from loom_audit.history.check.log_check import SHORTER, Finding
from loom_audit.history.ground.attachment import Attachment, OnDisk
from loom_audit.history.ground.contents import MAX_READ_AT_ONCE
from loom_audit.history.look.capture import look_once
from loom_audit.ports import IndexEntry

SAMPLE = 32
"""How many files are read anew before a session's second call."""


def find_missing(attachment: Attachment) -> list[Finding]:
    """A finding where the index has followed more events than the log has; else none.

    The index lies beside the workspace, so a store that was cut off shows here.
    """
    seen, size = attachment.on_disk.index.most_seen(), attachment.stored.log.head()
    if seen <= size:
        return []
    said = (
        f"the change index has followed {seen} events, the log has {size}: the last"
        f" {seen - size} are missing. {SHORTER}"
    )
    return [Finding(size, "log.short", said)]


def find_hidden(checked: Attachment) -> tuple[list[Finding], int]:
    """A finding for each path whose change the index hides, and how many recorded paths were read.

    The tree of `checked` has to be read from the log, not from tables. NoWorkspace.
    """
    with checked.exclusive_if_possible():
        # anew first: what somebody changes in between is seen by the second look, and is then
        # not taken for hidden
        anew = look_once(checked, anew=True).changes
        told = look_once(checked).changes
        read = len(checked.stored.reading.tree())
    findings = [
        Finding(
            None,
            "index",
            f"{path!a} is not as the log says, and the change index hides it: it was changed, or"
            " was written through mapped memory",
            "incomplete",
        )
        for path in sorted({one.path for one in anew} - {one.path for one in told})
    ]
    return findings, read


def clear_index_if_wrong(attachment: Attachment) -> bool:
    """Read a random sample of files anew, and empty the index where it is wrong about one.

    Returns whether it was emptied: the next look then reads every file. No lock is needed, since a
    file that is changed meanwhile has another stamp.
    """
    known = [
        (path, entry)
        for path, entry in attachment.on_disk.index.load().items()
        if entry.blob and stat.S_ISREG(entry.stamp.mode) and entry.stamp.size <= MAX_READ_AT_ONCE
    ]
    chosen = random.SystemRandom().sample(known, min(SAMPLE, len(known)))
    if not any(_is_hidden(attachment.on_disk, path, entry) for path, entry in chosen):
        return False
    attachment.on_disk.index.clear()
    attachment.process.last_seen.head = -1
    return True


def _is_hidden(on_disk: OnDisk, path: str, index_entry: IndexEntry) -> bool:
    """Whether a file has the stamp that the index has, and another content."""
    try:
        if on_disk.workspace.stamp(path) != index_entry.stamp:
            return False
        content, after, *_ = on_disk.workspace.read_and_stamp(path, index_entry.stamp.size)
    except AuditError:
        return False  # what is wrong with it is said by the next look
    return after == index_entry.stamp and hashlib.sha256(content).hexdigest() != index_entry.blob
