"""Verification: whether what is stored is what was recorded, and all of it.

Everything is recomputed from the stored bytes: leaf hashes, order, Merkle nodes, commitments,
contents, projections. It is compared with tree heads kept outside the store; without them a log
that was rewritten from some event on, cut off at its end or started over looks sound.
"""

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from msgspec import Struct

from loom_audit.errors import AuditError
from loom_audit.history.check.content_check import ContentChecker
from loom_audit.history.check.log_check import Finding, Findings, Grade, LogChecker
from loom_audit.model.events import TreeHead
from loom_audit.ports import EventRow, Evidence, OnProgress, PayloadRow, Progress

OK, TAMPERED, INCOMPLETE, UNREADABLE = 0, 1, 3, 4
_ATTEMPTS = 16


class Verification(Struct, frozen=True):
    """What verifying found. `root` is that of all `size` events as they are stored.

    The first `anchored` events are those under a matching head that was kept elsewhere;
    `checked` counts what was checked, by name; what is not in it was not checked.
    """

    log: str
    size: int
    root: bytes
    findings: tuple[Finding, ...]
    anchored: int
    checked: Mapping[str, int]

    @property
    def unanchored(self) -> int:
        """How many events are not under a head kept elsewhere."""
        return self.size - self.anchored

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong; events may still be unanchored."""
        return not self._grades

    @property
    def _grades(self) -> set[Grade]:
        return {one.grade for one in self.findings if one.grade != "harmless"}

    @property
    def exit_code(self) -> int:
        """0 ok, 1 tampered, 3 inconsistent, incomplete or unanchored, 4 cannot be read."""
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
    report: OnProgress | None = None,
) -> Verification:
    """Check one log and list every finding; never raises for what is wrong with it.

    `heads` are those kept elsewhere: each must be this log's, and its root that of the first
    `size` events. `quick` stops at leaves, order and tree. `sample` then also reads the
    payloads and contents of so many events chosen at random, and nothing else.
    Memory grows with findings, calls (some 60 bytes each) and the tree, not with contents.
    """
    findings = Findings()
    tell = report or _no_report
    contents = ContentChecker(evidence, evidence.blobs, findings)
    full = not quick and sample is None
    checked: dict[str, int] = {}
    checker = LogChecker(evidence.log, evidence.node_levels, heads, findings)
    with _report_unreadable(findings, "tree.unreadable", "the tree's nodes"):
        checker.expect_nodes(evidence.nodes())
    _check_events(checker, contents if full else None, evidence, findings, tell)
    root = checker.finish()
    checked |= {"events": checker.size, "nodes": checker.nodes_checked}
    if sample is not None and not quick:
        with _report_unreadable(findings, "payload.unreadable", "the payloads"):
            checked["sampled"] = _check_sample(contents, evidence, sample, checker.size)
    if not quick:
        with _report_unreadable(findings, "blob.unreadable", "the list of contents"):
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
        with _report_unreadable(findings, "projection.unreadable", "the projections"):
            for seq, message in evidence.differences(report):
                findings.add(seq, "projection", message)
        with _report_unreadable(findings, "tree.listed", "the listings of the tree"):
            contents.check_listings()
        with _report_unreadable(findings, "database", "the database"):
            for message in evidence.damage():
                findings.add(None, "database", message)
        with _report_unreadable(findings, "database", "the list of logs"):
            for other in evidence.empty_logs():
                message = (
                    f"log {other} of this store has no events: making it was interrupted,"
                    " or they were removed"
                )
                findings.add(None, "log.empty", message, "incomplete")
    return Verification(
        evidence.log, checker.size, root, tuple(findings.found), checker.anchored, checked
    )


def _check_events(
    checker: LogChecker,
    contents: ContentChecker | None,
    evidence: Evidence,
    findings: Findings,
    tell: OnProgress,
) -> None:
    """Give every event to both checkers, past what cannot be read."""
    for after in _restart_points(checker):
        try:
            parts = evidence.payloads(after)
            for rows in evidence.events(after):
                checker.add(rows)
                if contents is not None and not _check_contents(contents, rows, parts, findings):
                    contents = None
                tell(Progress("events", checker.size, unit="events"))
            if contents is not None:
                contents.finish(parts)
            return
        except AuditError as error:
            checker.broken = True
            findings.add(
                checker.size + 1,
                "event.unreadable",
                f"events from {checker.size + 1} on cannot be read: {error}",
                "unreadable",
            )


def _restart_points(checker: LogChecker) -> Iterator[int]:
    """Where to begin reading, and to go on after each failure: each time further behind it."""
    yield 0
    for step in range(_ATTEMPTS):
        yield checker.size + (1 << step)


def _check_contents(
    contents: ContentChecker,
    rows: Sequence[EventRow],
    parts: Iterator[PayloadRow],
    findings: Findings,
) -> bool:
    try:
        contents.check(rows, parts)
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
    """Check so many random events, and the first, which has the limit for recorded content."""
    chosen = random.SystemRandom().sample(range(1, size + 1), min(wanted, size))
    for seq in sorted({1, *chosen} if size else ()):
        parts = evidence.payloads(seq - 1, seq)
        for rows in evidence.events(seq - 1, seq):
            contents.check(rows, parts, calls=False)
    return len(chosen)


@contextmanager
def _report_unreadable(findings: Findings, code: str, what: str) -> Iterator[None]:
    try:
        yield
    except AuditError as error:
        findings.add(None, code, f"{what} cannot be read: {error}", "unreadable")


def _no_report(_: Progress) -> None:
    return None
