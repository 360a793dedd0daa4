"""Transcripts of other programs put on record, in a log of their own.

Every event has an id that follows from what is told, so that it is on record once however often a
transcript is imported. Nothing of what is told is looked for on disk.
"""

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from hashlib import sha256
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from loom_audit.clients.reports import (
    CallBegan,
    CallEnded,
    MessageTold,
    PromptTold,
    Report,
    SessionTold,
)
from loom_audit.errors import Conflict, NotFound
from loom_audit.history.told.reported import (
    MAX_ID,
    begun_of,
    requested,
    safe_id,
    started,
    text_fact,
    told_twice,
    tool_name,
)
from loom_audit.history.told.told_files import ToldChanges, ToldTree
from loom_audit.model.coverage import FULL, Coverage, Status
from loom_audit.model.events import (
    OUTSIDE,
    CallFinished,
    CallReported,
    Draft,
    Fact,
    FilesChanged,
    PathsUntracked,
    SessionEnded,
    Untracked,
)
from loom_audit.model.results import result_record, told_error
from loom_audit.ports import BlobStore, EventFilter, EventLog, Projections

SOURCE = "import"
AT_ONCE = 256
"""Events of one transaction."""

STAGED = 8 << 20
"""Bytes of lines and contents after which one ends earlier."""

REMEMBERED = 10_000
"""Calls that ended, many more than one transaction has; others are looked for in the log."""

Key = tuple[str, str]
"""The ids of a session and of a call in it, as the log holds them."""

_DEEPEST = 60
_LONGEST_OUTPUT = 1 << 20
_NAMED = 5
_NAMELESS = sha256().hexdigest()[:32]


class Target(Struct, frozen=True):
    """The log that is imported into, what is derived from it, and the folder it is of."""

    log: EventLog
    blobs: BlobStore
    projections: Projections
    root: str


class Importing:
    """One transcript on its way into a log: give it the reports in order, then `finish`."""

    def __init__(self, target: Target, client: str, session: str) -> None:
        """`session` is the file's, for what a damaged transcript does not say."""
        self._target = target
        self._client = client
        self._fallback = session
        self._actor = f"agent:{client}"
        self._again = target.log.head() > 2
        """Whether a call that is not known here may be on record."""
        states = dict(target.projections.tree())
        self._tree = ToldTree(target.blobs, target.root, states)
        self._drafts: list[Draft] = []
        self._read = 0
        """Bytes of lines since the last transaction."""
        self._untold: dict[str, SessionTold] = {}
        """Sessions that nothing was told of but that they are."""
        self._told: dict[str, int] = {}
        """How much was told of each session."""
        self._open: dict[Key, CallBegan] = {}
        """Calls whose end was not told yet, without their arguments."""
        self._ended = OrderedDict[Key, int]()
        """The last calls that ended, and how often their end was told since."""
        self.calls = 0
        """Calls that were not on record before."""

    def take(self, reports: Iterable[Report], size: int) -> None:
        """Put on record what a line of `size` bytes tells, unless it is on record already."""
        self._read += size
        for report in reports:
            if isinstance(report, SessionTold):
                self._session_told(report)
                continue
            session = self._name(report.session)
            if session not in self._told:
                self._start(session)
            self._told[session] += 1
            if isinstance(report, CallBegan):
                self._began(report)
            elif isinstance(report, CallEnded):
                self._end(report)
            elif isinstance(report, PromptTold | MessageTold):
                self._say(session, report)
            self._flush_many()

    def finish(self) -> Sequence[str]:
        """End calls and sessions, and make all durable; the sessions that were told of."""
        for key, begun in [*self._open.items()]:
            untold = CallEnded(*key, begun.tool, None, {"data": {}})
            why = Coverage("none", ("its end is not in the transcript",))
            self._finish(key, "open", begun, untold, why)
            self._flush_many()
        for session in self._untold.copy():
            self._start(session)
        for session, count in self._told.items():
            self._add(session, SessionEnded(), ("ended", str(count)), None)
        self._flush()
        return [*self._told]

    # --- sessions -------------------------------------------------------------------------

    def _session_told(self, report: SessionTold) -> None:
        session = self._name(report.session)
        if session not in self._told:
            before = self._untold.get(session)
            self._untold[session] = told_twice(before, report) if before else report

    def _start(self, session: str) -> None:
        told = self._untold.pop(session, None) or SessionTold(session)
        self._told[session] = 0
        self._add(session, started(self._client, told), ("session",), told.at)

    def _say(self, session: str, report: PromptTold | MessageTold) -> None:
        """Put a text on record; one name may stand for several, and the same be told twice."""
        if isinstance(report, PromptTold):
            name, report = report.prompt_id, replace(report, prompt_id=report.prompt_id[:MAX_ID])
        else:
            name, report = report.message_id, replace(report, message_id=report.message_id[:MAX_ID])
        fact, named = text_fact(report), name or f"{self._told[session]}"
        self._add(session, fact, (fact.kind, named, fact.text), report.at)

    # --- calls ----------------------------------------------------------------------------

    def _began(self, report: CallBegan) -> None:
        key = (self._name(report.session), _id(report.call_id))
        if key in self._open or key in self._ended:
            return
        self._open[key] = replace(report, arguments=None)
        if self._again and self._is_known(key):
            return
        self.calls += 1
        paths = None
        if report.paths is not None:
            found = [self._tree.relative(path, report.cwd) for path in report.paths]
            paths = tuple(sorted(path for path in found if path is not None))
        known = replace(report, arguments=shallow(report.arguments))
        self._add(key[0], requested(known, key[1], paths), ("call", key[1]), report.at)

    def _end(self, report: CallEnded) -> None:
        key = (self._name(report.session), _id(report.call_id))
        if key in self._ended:
            self._report(key, report)
            return
        reasons: tuple[str, ...] = ()
        if key not in self._open:
            self._began(replace(begun_of(report), at=report.at))
            reasons = ("its request is not in the transcript",)
        begun = self._open[key]
        if self._again and self._is_known(key, ended=True):
            self._over(key)
            if self._target.projections.call(*key).status != (report.status or "unknown"):
                self._report(key, report)
            return
        changes = self._tree.follow(report.files, begun.cwd)
        self._record_changes(key, changes, report.at)
        coverage = _coverage(begun, report, changes).lowered(*reasons)
        self._finish(key, "end", begun, report, coverage, [one.path for one in changes.made])

    def _record_changes(self, key: Key, changes: ToldChanges, at: datetime | None) -> None:
        facts: list[tuple[str, Fact]] = []
        if changes.before:
            facts.append(("before", FilesChanged(tuple(changes.before), "outside")))
        if changes.made:
            facts.append(("files", FilesChanged(tuple(changes.made), "tool", key[1])))
        if changes.unknown:
            lost = tuple(Untracked(path, "content not told") for path in changes.unknown)
            facts.append(("untracked", PathsUntracked(lost)))
        for what, fact in facts:
            draft = self._draft(key[0], fact, (what, key[1]), at)
            if what != "files":
                draft = replace(draft, session="", actor=OUTSIDE)
            self._drafts.append(draft)

    def _finish(
        self,
        key: Key,
        what: str,
        begun: CallBegan,
        ended: CallEnded,
        coverage: Coverage,
        files: Sequence[str] = (),
    ) -> None:
        self._over(key)
        if what == "open" and self._again and self._is_known(key, ended=True):
            return
        duration = ended.duration
        if duration is None and ended.at is not None and begun.at is not None:
            duration = max(0, round((ended.at - begun.at).total_seconds() * 1_000_000))
        status = ended.status or "unknown"
        fact = CallFinished(
            call_id=key[1],
            tool=tool_name(begun.tool),
            effect=begun.effect,
            status=status,
            result=_result(status, ended.result, files),
            coverage=coverage,
            duration=duration or 0,
        )
        self._add(key[0], fact, (what, key[1]), ended.at)

    def _over(self, key: Key) -> None:
        """Know it as ended, and forget the one that ended longest ago."""
        del self._open[key]
        self._ended[key] = 0
        if len(self._ended) > REMEMBERED:
            self._ended.popitem(last=False)
            self._again = True

    def _report(self, key: Key, report: CallEnded) -> None:
        """What is told of a call that has ended already."""
        self._ended[key] += 1
        status = report.status or "unknown"
        result = _result(status, report.result)
        fact = CallReported(key[1], tool_name(report.tool), status, result)
        self._add(key[0], fact, ("reported", key[1], str(self._ended[key])), report.at)

    def _is_known(self, key: Key, *, ended: bool = False) -> bool:
        with suppress(NotFound):
            known = self._target.projections.call(*key)
            return not ended or known.seq is not None
        return False

    # --- writing --------------------------------------------------------------------------

    def _name(self, session: str) -> str:
        return _id(session or self._fallback)

    def _draft(self, session: str, fact: Fact, what: tuple[str, ...], at: datetime | None) -> Draft:
        text = "\0".join((self._client, session, *what))
        digits = sha256(text.encode("utf-8", "replace")).hexdigest()
        id = f"{digits[:12]}5{digits[13:32]}"  # another version than ids that the log makes
        return Draft(fact, session, self._actor, id, at, SOURCE)

    def _add(self, session: str, fact: Fact, what: tuple[str, ...], at: datetime | None) -> None:
        self._drafts.append(self._draft(session, fact, what, at))

    def _flush_many(self) -> None:
        """Make durable what is enough for a transaction."""
        if len(self._drafts) >= AT_ONCE or self._read + self._tree.staged >= STAGED:
            self._flush()

    def _flush(self) -> None:
        drafts, self._drafts = self._drafts, []
        self._read = self._tree.staged = 0
        once: dict[str | None, Draft] = {}
        for draft in drafts:  # what one transcript tells twice is on record once
            once.setdefault(draft.id, draft)
        self._append([*once.values()])

    def _append(self, drafts: Sequence[Draft]) -> None:
        """Append what of this is not on record yet, at once."""
        log = self._target.log
        try:
            log.append(drafts)
        except Conflict as error:
            seqs = error.details.get("known")
            if not seqs:
                raise
            known = {event.id for seq in seqs for event in log.read(EventFilter.only(seq))}
            log.append([draft for draft in drafts if draft.id not in known])


def _coverage(begun: CallBegan, ended: CallEnded, changes: ToldChanges) -> Coverage:
    """How completely the effects of a call are known; what a client tells is never looked at."""
    if begun.effect == "read":
        return FULL
    reasons = ["as its transcript tells it"]
    if begun.effect == "network":
        reasons = ["outside the workspace: network"]
    if changes.unknown:
        reasons.append(f"content not told: {', '.join(changes.unknown[:_NAMED])}")
    if changes.outside:
        reasons.append("files outside the folder of the session")
    untold = begun.effect == "execute" or (begun.effect == "write" and ended.status == "ok")
    if untold and not ended.files:
        return Coverage("none", ("what it changed is not told",))
    return Coverage("partial", tuple(reasons))


def _result(status: Status, told: Mapping[str, Any], files: Sequence[str] = ()) -> dict[str, Any]:
    """A result as the log keeps it; of one that did not end well no success is told."""
    output = told.get("output")
    text = output if isinstance(output, str) else ""
    if len(text) > _LONGEST_OUTPUT:
        half = _LONGEST_OUTPUT // 2
        text = f"{text[:half]}\n[… {len(text) - 2 * half} characters left out …]\n{text[-half:]}"
    error = told_error(status, text)
    failed = {"code": error.code, "message": error.message} if error else None
    return result_record(status == "ok", text, shallow(told.get("data")), files, failed)


def shallow(value: Any, depth: int = 0) -> Any:
    """A JSON value without what lies deeper than the log keeps."""
    if depth > _DEEPEST:
        return "<left out>"
    if isinstance(value, list):
        return [shallow(item, depth + 1) for item in value]
    if isinstance(value, dict):
        return {name: shallow(item, depth + 1) for name, item in value.items()}
    return value


def _id(id: str) -> str:
    """An id as the log can hold it, also of what has none."""
    return safe_id(id) or _NAMELESS
