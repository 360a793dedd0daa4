"""Whether the change index, which is a cache, hides anything: the disk is read anew."""

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
"""How many files are read before a session's second call."""


def find_missing(attachment: Attachment) -> list[Finding]:
    """That the index has followed more events than there are."""
    seen, size = attachment.on_disk.index.most_seen(), attachment.stored.log.head()
    if seen <= size:
        return []
    said = (
        f"the change index has followed {seen} events, the log has {size}: the last"
        f" {seen - size} are missing. {SHORTER}"
    )
    return [Finding(size, "log.short", said)]


def find_hidden(checked: Attachment) -> tuple[list[Finding], int]:
    """What the index hides, and how many paths were read.

    `checked` has projections that are read from the log. NoWorkspace.
    """
    with checked.exclusive_if_possible():
        # anew first: what is changed between the two is then seen by the second
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


def doubt_index(attachment: Attachment) -> bool:
    """Read some files of which the index says that they are as they were; whether one was not.

    Then the index is emptied, and the next look reads every file. Without the lock: a file that is
    changed meanwhile has another stamp.
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


def _is_hidden(on_disk: OnDisk, path: str, entry: IndexEntry) -> bool:
    """Whether a file has the stamp of the index and not its content."""
    try:
        if on_disk.workspace.stamp(path) != entry.stamp:
            return False
        content, after, *_ = on_disk.workspace.read_and_stamp(path, entry.stamp.size)
    except AuditError:
        return False  # a look says what is the matter with it
    return after == entry.stamp and hashlib.sha256(content).hexdigest() != entry.blob
