"""Imports transcripts of other programs: puts them on record in a log of their own.

The log is of no folder, so nothing of what is told is looked for on disk, and the calls have ended
long since: they need no lifecycle. Every event has an id that follows from what is told. So it is
on record once, however often the transcript is imported: again after a crash, or when it has grown.
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
    begin_from_end,
    merged_session,
    requested,
    safe_id,
    started,
    text_fact,
    tool_name,
)
from loom_audit.history.told.reported_tree import ReportedChanges, ReportedTree
from loom_audit.model.actors import OUTSIDE
from loom_audit.model.coverage import FULL, Coverage, Status
from loom_audit.model.events import (
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
"""Events after which a transaction ends, about: a report may make a few more."""

STAGED = 8 << 20
"""Bytes of lines and contents after which a transaction ends earlier, so that memory is bounded."""

REMEMBERED = 10_000
"""Ended calls that are remembered, so that memory is bounded; others are looked for in the log.

It has to be more than one transaction has, whose calls the log does not have yet.
"""

Key = tuple[str, str]
"""The ids of a session and of a call in it, as the log holds them."""

_DEEPEST = 60
"""Levels of lists and objects in arguments and results; what lies deeper is left out."""

_LONGEST_OUTPUT = 1 << 20
"""Characters of an output; of a longer one the middle is left out."""

_NAMED = 5
"""Paths that a reason of the coverage lists."""

_NAMELESS = sha256().hexdigest()[:32]
"""The id on record of a session or a call to which the client gives none."""


class ImportTarget(Struct, frozen=True):
    """The log that a transcript is imported into, with its tables and the store's contents.

    `root` is the folder that the transcript names, which need not exist here.
    """

    log: EventLog
    blobs: BlobStore
    projections: Projections
    root: str


class Importing:
    """The import of one transcript: give it the reports in order by `take`, then `finish` it."""

    def __init__(self, target: ImportTarget, client: str, session: str) -> None:
        """`session` is the id that the file stands for, for damaged lines that name no session."""
        self._target = target
        self._client = client
        self._fallback = session
        self._actor = f"agent:{client}"
        self._may_be_on_record = target.log.head() > 2  # a new log begins with two events
        """Whether calls that are not remembered here may be on record: then the log is asked."""
        states = dict(target.projections.tree())
        self._tree = ReportedTree(target.blobs, target.root, states)
        self._drafts: list[Draft] = []
        self._read = 0
        """Bytes of lines that were read since the last transaction."""
        self._empty_sessions: dict[str, SessionTold] = {}
        """The sessions that were told, and nothing that happened in them, which begin later."""
        self._reports: dict[str, int] = {}
        """How many reports there were of each session that has begun."""
        self._open: dict[Key, CallBegan] = {}
        """The calls whose end was not told yet, without their arguments."""
        self._ended = OrderedDict[Key, int]()
        """The calls that ended last, and how often their end was told once more."""
        self.calls = 0
        """How many calls this import has put on record that were not there before."""

    def take(self, reports: Iterable[Report], size: int) -> None:
        """Put on record what a line of `size` bytes tells, unless it is there.

        It is durable once its transaction has ended, at the latest when `finish` returns.
        AuditUnavailable where the log cannot be written.
        """
        self._read += size
        for report in reports:
            if isinstance(report, SessionTold):
                self._learn_session(report)
                continue
            session = self._session_id(report.session)
            if session not in self._reports:
                self._start(session)
            self._reports[session] += 1
            if isinstance(report, CallBegan):
                self._begin(report)
            elif isinstance(report, CallEnded):
                self._end(report)
            elif isinstance(report, PromptTold | MessageTold):
                self._add_text(session, report)
            self._flush_many()

    def finish(self) -> Sequence[str]:
        """Put the ends of open calls and of sessions on record, and make everything durable.

        Returns the ids of the sessions that were told. A call of which no end was told has the
        status `unknown`.
        """
        for key, begun in [*self._open.items()]:
            untold = CallEnded(*key, begun.tool, None, {"data": {}})
            why = Coverage("none", ("its end is not in the transcript",))
            self._finish(key, "open", begun, untold, why)
            self._flush_many()
        for session in self._empty_sessions.copy():
            self._start(session)
        for session, count in self._reports.items():
            self._add(session, SessionEnded(), ("ended", str(count)), None)
        self._flush()
        return [*self._reports]

    # --- sessions -------------------------------------------------------------------------

    def _learn_session(self, report: SessionTold) -> None:
        """Keep what is told of a session until the first report of something in it begins it.

        A client tells what a session is in several records, some without its directory or title.
        """
        session = self._session_id(report.session)
        if session not in self._reports:
            before = self._empty_sessions.get(session)
            self._empty_sessions[session] = merged_session(before, report) if before else report

    def _start(self, session: str) -> None:
        told = self._empty_sessions.pop(session, None) or SessionTold(session)
        self._reports[session] = 0
        self._add(session, started(self._client, told), ("session",), told.at)

    def _add_text(self, session: str, report: PromptTold | MessageTold) -> None:
        """Put a prompt or a message on record.

        Its event's id follows from the client's id of the text and from the text: a client may give
        one id to several texts, and tell the same one twice.
        """
        if isinstance(report, PromptTold):
            name, report = report.prompt_id, replace(report, prompt_id=report.prompt_id[:MAX_ID])
        else:
            name, report = report.message_id, replace(report, message_id=report.message_id[:MAX_ID])
        fact, named = text_fact(report), name or f"{self._reports[session]}"
        self._add(session, fact, (fact.kind, named, fact.text), report.at)

    # --- calls ----------------------------------------------------------------------------

    def _begin(self, report: CallBegan) -> None:
        """Put the request of a call on record, unless it was told before."""
        key = (self._session_id(report.session), _id(report.call_id))
        if key in self._open or key in self._ended:
            return
        self._open[key] = replace(report, arguments=None)
        if self._may_be_on_record and self._is_on_record(key):
            return
        self.calls += 1
        paths = None
        if report.paths is not None:
            found = [self._tree.relative(path, report.cwd) for path in report.paths]
            paths = tuple(sorted(path for path in found if path is not None))
        known = replace(report, arguments=shallow(report.arguments))
        self._add(key[0], requested(known, key[1], paths), ("call", key[1]), report.at)

    def _end(self, report: CallEnded) -> None:
        """Put the end of a call on record: what it changed and its finish, or another report."""
        key = (self._session_id(report.session), _id(report.call_id))
        if key in self._ended:
            self._report_again(key, report)
            return
        reasons: tuple[str, ...] = ()
        if key not in self._open:
            self._begin(replace(begin_from_end(report), at=report.at))
            reasons = ("its request is not in the transcript",)
        begun = self._open[key]
        if self._may_be_on_record and self._is_on_record(key, ended=True):
            self._remember_ended(key)
            if self._target.projections.call(*key).status != (report.status or "unknown"):
                self._report_again(key, report)
            return
        changes = self._tree.follow(report.files, begun.cwd)
        self._record_changes(key, changes, report.at)
        coverage = _coverage(begun, report, changes).lowered(*reasons)
        self._finish(key, "end", begun, report, coverage, [one.path for one in changes.made])

    def _record_changes(self, key: Key, changes: ReportedChanges, at: datetime | None) -> None:
        """Put on record what a call changed, and what must have been changed before it."""
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
        """Put the finish of a call on record.

        `what` is part of the event's id: "end" for an end that was told, "open" for one that was
        not, so that a later import can put the told one on record.
        """
        self._remember_ended(key)
        if what == "open" and self._may_be_on_record and self._is_on_record(key, ended=True):
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

    def _remember_ended(self, key: Key) -> None:
        """Remember a call as ended, and forget the one that ended longest ago if there are many."""
        del self._open[key]
        self._ended[key] = 0
        if len(self._ended) > REMEMBERED:
            self._ended.popitem(last=False)
            self._may_be_on_record = True

    def _report_again(self, key: Key, report: CallEnded) -> None:
        """Put on record what is told of a call that has its finish already."""
        self._ended[key] += 1
        status = report.status or "unknown"
        result = _result(status, report.result)
        fact = CallReported(key[1], tool_name(report.tool), status, result)
        self._add(key[0], fact, ("reported", key[1], str(self._ended[key])), report.at)

    def _is_on_record(self, key: Key, *, ended: bool = False) -> bool:
        """Whether the log has a call, and with `ended` its finish."""
        with suppress(NotFound):
            known = self._target.projections.call(*key)
            return not ended or known.seq is not None
        return False

    # --- writing --------------------------------------------------------------------------

    def _session_id(self, session: str) -> str:
        """The id on record of a session: the file's, where the report names none."""
        return _id(session or self._fallback)

    def _draft(self, session: str, fact: Fact, what: tuple[str, ...], at: datetime | None) -> Draft:
        """A fact with the event's id that follows from client, session and `what` the fact is."""
        text = "\0".join((self._client, session, *what))
        digits = sha256(text.encode("utf-8", "replace")).hexdigest()
        # marked as a UUID of version 5, since the ids that the log makes are of version 7
        id = f"{digits[:12]}5{digits[13:32]}"
        return Draft(fact, session, self._actor, id, at, SOURCE)

    def _add(self, session: str, fact: Fact, what: tuple[str, ...], at: datetime | None) -> None:
        self._drafts.append(self._draft(session, fact, what, at))

    def _flush_many(self) -> None:
        """Append what was gathered, once it is enough for a transaction."""
        if len(self._drafts) >= AT_ONCE or self._read + self._tree.staged >= STAGED:
            self._flush()

    def _flush(self) -> None:
        """Append what was gathered, in one transaction, each event once."""
        drafts, self._drafts = self._drafts, []
        self._read = self._tree.staged = 0
        once: dict[str | None, Draft] = {}
        for draft in drafts:  # a transcript may tell the same thing twice
            once.setdefault(draft.id, draft)
        self._append([*once.values()])

    def _append(self, drafts: Sequence[Draft]) -> None:
        """Append those of the drafts that are not on record, in one transaction."""
        log = self._target.log
        try:
            log.append(drafts)
        except Conflict as error:
            seqs = error.details.get("known")
            if not seqs:
                raise
            known = {event.id for seq in seqs for event in log.read(EventFilter.only(seq))}
            log.append([draft for draft in drafts if draft.id not in known])


def _coverage(begun: CallBegan, ended: CallEnded, changes: ReportedChanges) -> Coverage:
    """How completely the effects of a call are known, of which nothing was looked at.

    `full` only for a call that cannot change anything.
    """
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
    """A result as the log keeps it; only status `ok` is a success."""
    output = told.get("output")
    text = output if isinstance(output, str) else ""
    if len(text) > _LONGEST_OUTPUT:
        half = _LONGEST_OUTPUT // 2
        text = f"{text[:half]}\n[… {len(text) - 2 * half} characters left out …]\n{text[-half:]}"
    error = told_error(status, text)
    failed = {"code": error.code, "message": error.message} if error else None
    return result_record(status == "ok", text, shallow(told.get("data")), files, failed)


def shallow(value: Any, depth: int = 0) -> Any:
    """A JSON value in which `<left out>` stands for what lies deeper than 60 levels.

    The log refuses what is nested too deeply, and one call must not stop an import.
    """
    if depth > _DEEPEST:
        return "<left out>"
    if isinstance(value, list):
        return [shallow(item, depth + 1) for item in value]
    if isinstance(value, dict):
        return {name: shallow(item, depth + 1) for name, item in value.items()}
    return value


def _id(id: str) -> str:
    """An id as the log can have it, also for a session or a call without one."""
    return safe_id(id) or _NAMELESS
