"""The projections computed a second way, in memory, and compared while the events are read.

It only says whether all rows are as they should be, never which are not: what it cannot decide
counts as a difference, and the comparison with a rebuild then finds out which. So it may
know less than `fold`, but must never accept what `fold` would not have written.

Memory: the tree, open calls, sessions, and the paths that each session changed.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from loom_audit.model.codec import parse_time
from loom_audit.model.events import (
    BaselineFinished,
    CallFinished,
    CallRequested,
    CheckpointMarked,
    Fact,
    FilesChanged,
    ScopeAccepted,
    SessionEnded,
    SessionStarted,
    WorkspaceAttached,
)
from loom_audit.sql.clock import to_micros
from loom_audit.sql.packing import pack_id
from loom_audit.sql.projections import states
from loom_audit.sql.projections.keyframes import KEYFRAME_EVENTS, unpack
from loom_audit.sql.projections.rows import json_list
from loom_audit.sql.projections.summaries import failure, plain_text, summarize

_HOUR = 3_600_000_000

# A number that leads nowhere, or to another log, is shown as it is: it equals no id and no hash.
_CHANGE_SETS = (
    "SELECT c.seq, c.at, coalesce(s.id, c.session), c.actor, c.origin, c.call, c.causes "
    "FROM change_set c LEFT JOIN session s ON s.number = c.session AND s.log = c.log "
    "WHERE c.log = ? ORDER BY c.seq"
)
_CHANGES = (
    "SELECT f.seq, f.n, p.path, f.old_mode, f.old_size, coalesce(a.sha256, f.old_blob), "
    "f.new_mode, f.new_size, coalesce(b.sha256, f.new_blob), f.path, f.new_blob "
    "FROM file_change f LEFT JOIN path p ON p.number = f.path AND p.log = f.log "
    "LEFT JOIN blob a ON a.number = f.old_blob LEFT JOIN blob b ON b.number = f.new_blob "
    "WHERE f.log = ? ORDER BY f.seq, f.n"
)
_CALLS = (
    "SELECT c.requested, coalesce(s.id, c.session), c.call_id, c.at, c.actor, c.tool, "
    "c.effect, c.summary, c.finished, c.status, c.coverage, c.reasons, c.error, c.reverts, "
    "c.duration, c.sandbox, c.changed FROM call c "
    "LEFT JOIN session s ON s.number = c.session AND s.log = c.log "
    "WHERE c.log = ? ORDER BY c.requested"
)
_CALL_CHANGES = "SELECT seq, requested, own FROM call_change WHERE log = ? ORDER BY seq, requested"
_SESSIONS = (
    "SELECT id, agent, actor, title, parent, started, started_at, last, ended, ended_at, status, "
    "calls, errors, files FROM session WHERE log = ?"
)
_WORKSPACE = (
    "SELECT root, ignore, max_file_bytes, attached, attached_at, baseline "
    "FROM workspace WHERE log = ?"
)
_TREE = "SELECT path, mode, size, blob FROM tree_entry WHERE log = ?"
_KEYFRAMES = "SELECT count(*) FROM keyframe WHERE log = ?"
_KEYFRAME = "SELECT latest, listing FROM keyframe WHERE log = ? AND seq = ?"
_CHECKPOINTS = "SELECT seq, name, point, at, note FROM checkpoint WHERE log = ?"
_ROLLUP = "SELECT hour, tool, status, n FROM rollup WHERE log = ?"
_REVERTS = "SELECT number, target FROM revert WHERE log = ?"
_REACH = "SELECT latest FROM reach WHERE log = ?"


class IncrementalCheck:
    """Follows the events of one log in order; `agrees` tells whether all projections fit."""

    def __init__(self, store: Any, log: int) -> None:
        """`store` is a driver's connection, in a transaction."""
        self._store = store
        self._log = log
        self._good = True
        self._last = 0
        self._latest = 0
        self._keyframes = 0
        self._sessions: dict[str, list[Any]] = {}
        self._changed_in: dict[str, set[int]] = {}
        self._open: dict[bytes, tuple[int, list[Any], set[int]]] = {}
        self._tree: dict[int, tuple[int, int, int | None]] = {}
        self._workspace: list[Any] | None = None
        self._checkpoints: list[tuple[Any, ...]] = []
        self._rollup: dict[tuple[int, str, str], int] = {}
        self._reverts: list[tuple[int, int]] = []
        self._change_sets = self._rows(_CHANGE_SETS)
        self._changes = self._rows(_CHANGES)
        self._call_changes = self._rows(_CALL_CHANGES)
        self._calls = self._rows(_CALLS)
        self._call: Any = None
        self._ended: dict[int, tuple[Any, ...]] = {}
        self._writers: Mapping[type[Any], Callable[[int, int, str, str, Any], None]] = {
            WorkspaceAttached: self._attached,
            BaselineFinished: self._baseline,
            ScopeAccepted: self._scope,
            SessionStarted: self._session_started,
            SessionEnded: self._session_ended,
            CallRequested: self._requested,
            CallFinished: self._finished,
            CheckpointMarked: self._checkpoint,
            FilesChanged: self._files_changed,
        }

    def follow(self, seq: int, envelope: Mapping[str, Any], fact: Fact | None) -> None:
        """Take the next event in, and compare the rows that it alone makes."""
        if not self._good or seq != self._last + 1:
            self._good = False
            return
        self._last = seq
        at = to_micros(parse_time(envelope["at"]))
        self._latest = max(self._latest, at)
        session, actor = envelope.get("session", ""), envelope["actor"]
        if session:
            known = self._sessions.get(session)
            if known is None:
                self._sessions[session] = [
                    "", plain_text(actor), "", None, seq, at, seq, None, None, "open", 0, 0, 0
                ]  # fmt: skip
            else:
                known[6] = seq
        if fact is not None:
            write = self._writers.get(type(fact))
            if write is not None:
                write(seq, at, session, actor, fact)
        if seq % KEYFRAME_EVENTS == 0:
            self._keyframe(seq)

    def agrees(self, size: int) -> bool:
        """Whether every projection of a log of `size` events is as it should be."""
        if self._last != size:
            return False
        for requested, row, changed in self._open.values():
            self._expect_call(
                requested, [*row, None, "open", None, None, "", None, 0, "", len(changed)]
            )
        return (
            self._good
            and next(self._change_sets, None) is None
            and next(self._changes, None) is None
            and next(self._call_changes, None) is None
            and not self._ended
            and self._call is None
            and next(self._calls, None) is None
            and self._same(_KEYFRAMES, [(self._keyframes,)])
            and self._same(_SESSIONS, ((id, *row) for id, row in self._sessions.items()))
            and self._same(_WORKSPACE, [] if self._workspace is None else [tuple(self._workspace)])
            and self._same(_TREE, ((path, *entry) for path, entry in self._tree.items()))
            and self._same(_CHECKPOINTS, self._checkpoints)
            and self._same(_ROLLUP, ((*key, n) for key, n in self._rollup.items()))
            and self._same(_REVERTS, self._reverts)
            and self._same(_REACH, [(self._latest,)] if size else [])
        )

    # --- one for each fact ----------------------------------------------------------------

    def _attached(self, seq: int, at: int, _: str, __: str, fact: WorkspaceAttached) -> None:
        root = fact.root.encode("utf-8", "surrogateescape")
        said = [root, plain_text(fact.ignore), fact.max_file_bytes]
        if self._workspace is None:
            self._workspace = [*said, seq, at, None]
        else:
            self._workspace[:3] = said

    def _baseline(self, seq: int, _: int, __: str, ___: str, ____: BaselineFinished) -> None:
        if self._workspace is not None:
            self._workspace[5] = seq

    def _scope(self, _: int, __: int, ___: str, ____: str, fact: ScopeAccepted) -> None:
        if self._workspace is not None:
            self._workspace[1] = plain_text(fact.ignore)

    def _session_started(
        self, _: int, __: int, session: str, ___: str, fact: SessionStarted
    ) -> None:
        if session:
            row = self._sessions[session]
            row[0], row[2], row[3] = plain_text(fact.agent), plain_text(fact.title), fact.parent
            row[7:10] = [None, None, "open"]

    def _session_ended(self, seq: int, at: int, session: str, _: str, fact: SessionEnded) -> None:
        if session:
            self._sessions[session][7:10] = [seq, at, fact.status]

    def _requested(self, seq: int, at: int, session: str, actor: str, fact: CallRequested) -> None:
        call_id = pack_id(fact.call_id)
        if call_id in self._open:
            self._good = False
            return
        shown: str | None = plain_text(actor)
        if session:
            row = self._sessions[session]
            row[10] += 1
            shown = None if row[1] == shown else shown
        about = plain_text(fact.tool), fact.effect, summarize(fact.arguments)
        self._open[call_id] = (seq, [session or None, call_id, at, shown, *about], set())

    def _finished(self, seq: int, at: int, session: str, _: str, fact: CallFinished) -> None:
        requested, row, changed = self._open.pop(pack_id(fact.call_id), (0, [], set()))
        if not requested or row[0] != (session or None):
            self._good = False
            return
        coverage = fact.coverage
        outcome = [
            seq,
            fact.status,
            None if coverage.level == "full" else coverage.level,
            json_list(coverage.reasons),
            failure(fact.status, fact.result),
            json_list(fact.reverts),
            fact.duration,
            plain_text(fact.sandbox),
            len(changed),
        ]
        self._expect_call(requested, [*row, *outcome])
        if fact.status == "ok":
            self._reverts += [(seq, target) for target in dict.fromkeys(fact.reverts)]
        elif session:
            self._sessions[session][11] += 1
        key = at // _HOUR, plain_text(fact.tool), fact.status
        self._rollup[key] = self._rollup.get(key, 0) + 1

    def _checkpoint(self, seq: int, at: int, _: str, __: str, fact: CheckpointMarked) -> None:
        name, note = plain_text(fact.name), plain_text(fact.note)
        self._checkpoints.append((seq, name, fact.point, at, note))

    def _files_changed(
        self, seq: int, at: int, session: str, actor: str, fact: FilesChanged
    ) -> None:
        call = pack_id(fact.call_id) if fact.call_id else None
        causes = json_list(fact.causes)
        row = (seq, at, session or None, plain_text(actor), fact.origin, call, causes)
        if next(self._change_sets, None) != row:
            self._good = False
            return
        paths: set[int] = set()
        for n, change in enumerate(fact.changes):
            path = change.path.encode("utf-8", "surrogateescape")
            found = next(self._changes, None)
            expected = (seq, n, path, *states.columns(change.before), *states.columns(change.after))
            if found is None or found[:9] != expected:
                self._good = False
                return
            number = found[9]
            paths.add(number)
            if change.after is None:
                self._tree.pop(number, None)
            else:
                self._tree[number] = (found[6], found[7], found[10])
        self._attribute(seq, session, fact, paths)

    def _attribute(self, seq: int, session: str, fact: FilesChanged, paths: set[int]) -> None:
        named = []
        for call_id in dict.fromkeys(([fact.call_id] if fact.call_id else []) + list(fact.causes)):
            requested, row, changed = self._open.get(pack_id(call_id), (0, [None], set()))
            own = call_id == fact.call_id
            if not requested or (own and row[0] != (session or None)):
                self._good = False
                return
            named.append((seq, requested, int(own)))
            if own:
                changed |= paths
        for expected in sorted(named):
            self._good = self._good and next(self._call_changes, None) == expected
        if fact.call_id and session:
            changed_in = self._changed_in.setdefault(session, set())
            changed_in |= paths
            self._sessions[session][12] = len(changed_in)

    def _keyframe(self, seq: int) -> None:
        found = self._store.execute(_KEYFRAME, (self._log, seq)).fetchone()
        self._keyframes += 1
        if found is None or found[0] != self._latest:
            self._good = False
            return
        listing = {path: (mode, size, blob) for path, mode, size, blob in unpack(found[1])}
        self._good = self._good and listing == self._tree

    # --- rows -----------------------------------------------------------------------------

    def _expect_call(self, requested: int, row: Sequence[Any]) -> None:
        """Compare a call's row, once those of all earlier calls have been."""
        self._ended[requested] = (requested, *row)
        if self._call is None:
            self._call = next(self._calls, None)
        while self._call is not None and (due := self._ended.pop(self._call[0], None)) is not None:
            self._good = self._good and due == self._call
            self._call = next(self._calls, None)

    def _rows(self, sql: str) -> Iterator[Any]:
        """The rows of the log; the query is begun when the first is asked for."""
        cursor = self._store.execute(sql, (self._log,))
        while batch := cursor.fetchmany(256):
            yield from batch

    def _same(self, sql: str, expected: Iterable[tuple[Any, ...]]) -> bool:
        """Whether a query gives exactly these rows, each once, in whatever order."""
        left = dict.fromkeys(expected)
        for row in self._rows(sql):
            if row not in left:
                return False
            del left[row]
        return not left
