"""Verifies that what is stored is what was recorded, and all of it.

Everything is recomputed from the stored bytes: leaf hashes, order, Merkle nodes, commitments,
contents, projections. The result is compared with tree heads that were kept outside the store.
Without such heads a log looks sound that was rewritten from some event on to its end, cut off at
its end, or started over.
"""

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from msgspec import Struct

from loom_audit.errors import AuditError
from loom_audit.history.check.content_check import ContentChecker
from loom_audit.history.check.log_check import Finding, Findings, Grade, LogChecker
from loom_audit.history.check.signed_check import SignedTo
from loom_audit.model.events import TreeHead
from loom_audit.ports import EventRow, Evidence, OnProgress, PayloadRow, Progress

OK, TAMPERED, INCOMPLETE, UNREADABLE = 0, 1, 3, 4
"""The exit codes of `loom-audit verify`."""

_ATTEMPTS = 16
"""How often reading goes on behind events that cannot be read, each time further behind."""


class Verification(Struct, frozen=True):
    """What was found by verifying a log.

    `root` is the Merkle root of all `size` events as they are stored. The first `anchored` events
    are covered by a matching head that was kept elsewhere. `checked` has the numbers of things that
    were checked, by name; a kind of thing that is not in it was not checked. `signed` says by which
    keys, of those known here, heads are signed that match, and how far each.
    """

    log: str
    size: int
    root: bytes
    findings: tuple[Finding, ...]
    anchored: int
    checked: Mapping[str, int]
    signed: tuple[SignedTo, ...] = ()

    @property
    def isolation(self) -> str:
        """From whom what vouches for the log is kept: from nobody who runs as this user."""
        return "same user"

    @property
    def unanchored(self) -> int:
        """How many events are not covered by a head kept elsewhere."""
        return self.size - self.anchored

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong; some events may still be unanchored."""
        return not self._grades

    @property
    def _grades(self) -> set[Grade]:
        """The grades of the findings that matter."""
        return {one.grade for one in self.findings if one.grade != "harmless"}

    @property
    def exit_code(self) -> int:
        """The exit code of `loom-audit verify` for this.

        0 ok, 1 tampered, 3 inconsistent, incomplete or unanchored, 4 cannot be read.
        """
        grades = self._grades
        if "tampered" in grades:
            return TAMPERED
        if "unreadable" in grades:
            return UNREADABLE
        return INCOMPLETE if grades or self.unanchored else OK


def verify(
    evidence: Evidence,
    *,
    heads: Iterable[TreeHead] = (),
    quick: bool = False,
    sample: int | None = None,
    progress: OnProgress | None = None,
) -> Verification:
    """Check one log and return every finding; nothing that is wrong with it is raised.

    `heads` are those that were kept elsewhere: each has to be of this log, with the root of its
    first `size` events. With `quick` only leaves, order and Merkle nodes are checked. With `sample`
    the payloads and contents of so many events, chosen at random, are checked besides these, and
    nothing else. `progress` is told now and then how many events and contents were checked.
    Memory grows with findings, calls (some 60 bytes each) and the tree, not with contents.
    """
    findings = Findings()
    tell = progress or _tell_nothing
    contents = ContentChecker(evidence, evidence.blobs, findings)
    forgotten = evidence.is_forgotten
    full = not quick and sample is None and not forgotten
    checked: dict[str, int] = {}
    checker = LogChecker(evidence.log, evidence.node_levels, heads, findings)
    with _note_unreadable(findings, "tree.unreadable", "the tree's nodes"):
        checker.expect_nodes(evidence.nodes())
    _check_events(checker, contents if full else None, evidence, findings, tell)
    root = checker.finish()
    checked |= {"events": checker.size, "nodes": checker.nodes_checked}
    if forgotten:
        _check_forgotten(contents, evidence, findings, checker.size)
    elif sample is not None and not quick:
        with _note_unreadable(findings, "payload.unreadable", "the payloads"):
            checked["sampled"] = _check_sample(contents, evidence, sample, checker.size)
    if not quick:
        with _note_unreadable(findings, "blob.unreadable", "the list of contents"):
            for count, blob in enumerate(evidence.references(), 1):
                contents.check_blob(blob)
                if not count % 1000:
                    tell(Progress("contents", count, unit="contents"))
        checked |= {
            "payloads": contents.payloads_checked,
            "files": contents.files_checked,
            "contents": contents.contents_read,
            "by_hash": contents.hash_only,
        }
    if full:
        with _note_unreadable(findings, "projection.unreadable", "the projections"):
            for seq, message in evidence.differences(progress):
                findings.add(seq, "projection", message)
        with _note_unreadable(findings, "tree.listed", "the listings of the tree"):
            contents.check_listings()
    if full or (forgotten and not quick):
        with _note_unreadable(findings, "database", "the database"):
            for message in evidence.damage():
                findings.add(None, "database", message)
        with _note_unreadable(findings, "database", "the list of logs"):
            for other in evidence.empty_logs():
                message = (
                    f"log {other} of this store has no events: making it was interrupted,"
                    " or they were removed"
                )
                findings.add(None, "log.empty", message, "incomplete")
    return Verification(
        evidence.log, checker.size, root, tuple(findings.all), checker.anchored, checked
    )


def _check_events(
    checker: LogChecker,
    contents: ContentChecker | None,
    evidence: Evidence,
    findings: Findings,
    tell: OnProgress,
) -> None:
    """Give every event to both checkers, and go on behind events that cannot be read."""
    for after in _restart_points(checker):
        try:
            payloads = evidence.payloads(after)
            for rows in evidence.events(after):
                checker.check(rows)
                if contents is not None and not _check_contents(contents, rows, payloads, findings):
                    contents = None
                tell(Progress("events", checker.size, unit="events"))
            if contents is not None:
                contents.finish(payloads)
            return
        except AuditError as error:
            checker.broken = True
            findings.add(
                checker.size + 1,
                "event.unreadable",
                f"events from {checker.size + 1} on cannot be read: {error}",
                "unreadable",
            )


def _check_forgotten(
    contents: ContentChecker, evidence: Evidence, findings: Findings, last: int
) -> None:
    """Check the event that says that the log is forgotten, and that all it says has gone."""
    with _note_unreadable(findings, "payload.unreadable", "the payloads"):
        parts = evidence.payloads(last - 1, last)
        for rows in evidence.events(last - 1, last):
            contents.check(rows, parts, calls=False)
        message = "the workspace is forgotten: what the events before this one say is erased"
        findings.add(last, "log.forgotten", message, "harmless")
        for left in evidence.remains():
            message = f"{left} is to be erased: `loom-audit workspaces forget` again finishes it"
            findings.add(last, "forget.unfinished", message, "incomplete")


def _restart_points(checker: LogChecker) -> Iterator[int]:
    """After which event to begin reading, and to go on after each failure, further behind it."""
    yield 0
    for step in range(_ATTEMPTS):
        yield checker.size + (1 << step)


def _check_contents(
    contents: ContentChecker,
    rows: Sequence[EventRow],
    payloads: Iterator[PayloadRow],
    findings: Findings,
) -> bool:
    """Check the payloads of these events; false with a finding where they cannot be read."""
    try:
        contents.check(rows, payloads)
    except AuditError as error:
        findings.add(
            rows[0].seq,
            "payload.unreadable",
            f"payloads from event {rows[0].seq} on cannot be read: {error}",
            "unreadable",
        )
        return False
    return True


def _check_sample(contents: ContentChecker, evidence: Evidence, wanted: int, size: int) -> int:
    """Check so many random events, and the first, which has the limit for recorded content.

    Returns how many random events there were.
    """
    chosen = random.SystemRandom().sample(range(1, size + 1), min(wanted, size))
    for seq in sorted({1, *chosen} if size else ()):
        payloads = evidence.payloads(seq - 1, seq)
        for rows in evidence.events(seq - 1, seq):
            contents.check(rows, payloads, calls=False)
    return len(chosen)


@contextmanager
def _note_unreadable(findings: Findings, code: str, what: str) -> Iterator[None]:
    """Make a finding of an error in the block, since the other checks go on."""
    try:
        yield
    except AuditError as error:
        findings.add(None, code, f"{what} cannot be read: {error}", "unreadable")


def _tell_nothing(_: Progress) -> None:
    return None
