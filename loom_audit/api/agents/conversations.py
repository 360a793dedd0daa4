"""Hands what the hooks and the transcript of one session tell to the workspaces that it is about.

A hook comes while its client waits, so the transcript is waited for only as long as a person does
not notice. What it tells later is read by the next hook, by `settle` of `clients.py`, or by `undo`,
`rollback` and `hold`, which ask it before they do anything.
"""

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from time import monotonic

from msgspec import UNSET, Struct
from msgspec.structs import replace

from loom_audit.api.agents.connect import was_connected
from loom_audit.api.foreign import changed_paths
from loom_audit.api.ground.held import follow
from loom_audit.api.workspace import AuditedWorkspace
from loom_audit.clients.reports import (
    BackgroundEnded,
    CallBegan,
    CallEnded,
    Client,
    Hook,
    MessageTold,
    PromptTold,
    Report,
    SessionOver,
    SessionTold,
    TurnEnded,
)
from loom_audit.errors import (
    AuditError,
    AuditUnavailable,
    Corrupt,
    InvalidPath,
    NotFound,
    NoWorkspace,
    StorageFailed,
)
from loom_audit.history.told.ingest import Ingest
from loom_audit.history.told.reported import merged_session, started
from loom_audit.history.told.unread_transcripts import transcript_name
from loom_audit.model.events import LEASE_SECONDS, Lease
from loom_audit.model.values import nearest_json
from loom_audit.ports import TranscriptFile

TRANSCRIPT_WAIT = 0.2
"""Seconds for which a hook waits until the transcript has what is told just now."""

QUIET_WAIT = 0.05
"""Seconds without a new line after which the transcript of an ended session is complete."""

SILENT_AFTER = 3
"""After so many vain waits the transcript is not waited for: it is not written meanwhile."""

OUTCOME_WAIT = 1.0
"""Seconds after which a call that ended, nobody says how, is on record with status unknown."""

OpenFile = Callable[[str], TranscriptFile]
OwnerOf = Callable[[str], "AuditedWorkspace | None"]
"""The workspace that holds a path; None when there is none."""


def _nobody() -> bool:
    """Say that no client waits: no hook is being answered."""
    return False


class Container(Struct, frozen=True):
    """The call of ours that runs a client: its session, and in which workspace."""

    workspace: str
    session: str


def _request_in(container: Container | None, workspace: AuditedWorkspace) -> int | None:
    """The request of the call that contains the client's in this workspace."""
    if container is None or container.workspace != workspace.id:
        return None
    calls = workspace.attachment.stored.tables.open_calls()
    return next((one.requested for one in calls if one.session == container.session), None)


class Conversation:
    """One session of a client as this process knows it; one caller at a time uses it.

    `open_file` opens a transcript, `asking` gives the ids of the processes that only report, and
    `container` is the call of ours that runs the client, None for none.
    """

    def __init__(
        self,
        client: Client,
        session: str,
        owner_of: OwnerOf,
        open_file: OpenFile,
        asking: Callable[[], Collection[int]] = tuple,
        container: "Container | None" = None,
    ) -> None:
        self.client = client
        self.session = session
        self.pid: int | None = None
        self.about = SessionTold(session)
        """What is told of the session itself, with the directory of its first hook."""
        self.last_hook = monotonic()
        """When the last hook of the session came, in seconds of the monotonic clock."""
        self.is_busy = True
        self.prompts = True
        self.ingests: dict[str, Ingest] = {}
        self._workspaces: dict[str, AuditedWorkspace] = {}
        self._owner_of = owner_of
        self._open_file = open_file
        self._asking = asking
        self._container = container
        self._home: Ingest | None = None
        self._reader = client.transcript()
        self._file: TranscriptFile | None = None
        self._path = ""
        self._kept_source: Sequence[object] = ()
        self._leased: Lease | None = None
        self._vain_waits = 0
        self._due: float | None = None
        self._stopped = False
        self._is_there = _nobody

    # --- which workspaces -----------------------------------------------------------------

    def find_home(self, cwd: str, known: Iterable[AuditedWorkspace] = ()) -> bool:
        """Whether the session is of a workspace: of one of the `known` ones, or that of `cwd`."""
        for workspace in known:
            ingest = self._ingest(workspace)
            self._home = self._home or ingest
        self.about = replace(self.about, cwd=self.about.cwd or cwd)
        if self._home is None and (owner := self._owner_of(cwd)) is not None:
            self._home = self._ingest(owner)
        return self._home is not None

    def _ingest(self, workspace: AuditedWorkspace) -> Ingest:
        found = self.ingests.get(workspace.id)
        if found is None:
            name = self.client.name
            within = partial(_request_in, self._container, workspace)
            hooks = workspace.adapters.settings.hooks
            connected = partial(was_connected, hooks, name, workspace.root)
            found = Ingest(
                workspace.attachment,
                self.session,
                agent=name,
                asking=self._asking,
                within=within,
                connected=connected,
                is_there=lambda: self._is_there(),
            )
            self.ingests[workspace.id] = found
            self._workspaces[workspace.id] = workspace
        return found

    def _begin_in(self, workspace: AuditedWorkspace) -> Ingest:
        ingest = self._ingest(workspace)
        if ingest is not self._home and not ingest.is_open:
            self._start(ingest)
            follow(workspace.adapters, ingest.attachment, self.session)
        self._home = self._home or ingest
        return ingest

    def _start(self, ingest: Ingest) -> None:
        processes, about = ingest.attachment.on_disk.processes, self.about
        try:
            self._leased = processes.lease(self.pid, LEASE_SECONDS)
        except NotFound:  # it has ended meanwhile
            self._leased = processes.lease(None, LEASE_SECONDS)
        if self._container is not None:
            about = replace(about, parent=about.parent or self._container.session)
        ingest.start(started(self.client.name, about, self._leased))

    @property
    def is_open(self) -> bool:
        """Whether the session is on record and has not ended."""
        return any(ingest.is_open for ingest in self.ingests.values())

    def go_on(self, pid: int | None) -> None:
        """Put on record that the session begins, or goes on: after its end, or in process `pid`."""
        changed = pid is not None and pid != self.pid
        self.pid = pid if changed else self.pid
        if self._home is not None and (changed or not self._home.is_open):
            self._start(self._home)

    # --- what is told ---------------------------------------------------------------------

    def take_hook(self, hook: Hook, is_there: Callable[[], bool] = lambda: True) -> None:
        """Put on record what a hook tells, with what the transcript tells by then.

        `is_there` says whether the hook still waits for our answer. ApprovalDenied for a call of a
        session that is held.
        """
        self.last_hook, self.is_busy, self._is_there = monotonic(), True, is_there
        self._open_transcript(hook)
        if hook.moment == "before":
            self._catch_up(self._until_asked(hook))
        elif hook.moment in ("stop", "end"):
            self._catch_up(self._all_told)
        if hook.moment == "end":
            self._read_to_the_end()
        for report in hook.reports:
            self.take(report, by_hook=True)
        stopped = hook.moment == "stop" and self.has_open_calls
        if stopped or (hook.moment == "after" and self._awaits_outcomes):
            self.read(waits=not stopped)  # how a call ended may stand there already
            self._stopped = stopped
            self._due = monotonic() + OUTCOME_WAIT
        for ingest in self.ingests.values():
            ingest.look_at_ended()
        self._is_there = _nobody

    @property
    def has_gone(self) -> bool:
        """Whether the process of the client has ended; some never tell that a session ends."""
        if self._leased is None or self._home is None:
            return False
        return self._home.attachment.on_disk.processes.is_alive(self._leased) is False

    def end(self) -> None:
        """Put on record that the session is over since its client has ended, which no hook told."""
        self.read()
        self._read_to_the_end()
        self.take(SessionOver(self.session, reason="its client has ended"), by_hook=True)

    def read_gone(self) -> None:
        """Put all on record that the transcript of a client which has ended tells, and close it."""
        try:
            self.read()
            for ingest in [*self.ingests.values()]:
                ingest.record_transcript()
        finally:
            self.close_file()

    def read_alone(self) -> None:
        """Put on record what the transcript tells of a session whose hooks failed, and close it.

        A session that was not open begins for that, and ends again; one whose client has ended
        ends.
        """
        was_open = self.is_open
        try:
            if not was_open:
                self.go_on(None)
            self.read()
            if not was_open or self._is_dead:
                self.end()
        finally:
            self.close_file()

    @property
    def _is_dead(self) -> bool:
        """Whether the process under which the session is on record has ended."""
        if self._home is None:
            return False
        attachment = self._home.attachment
        lease = attachment.lease(self.session)
        return lease is not None and attachment.on_disk.processes.is_alive(lease) is False

    def take(self, report: Report, *, by_hook: bool) -> None:
        """Hand one report to the workspaces that it is about.

        `by_hook` says that a hook tells it, else the transcript. ApprovalDenied for a call of a
        session that is held.
        """
        match report:
            case PromptTold() | MessageTold() if not self.prompts:
                pass
            case SessionTold():
                self.learn(report)
            case CallBegan():
                for ingest, told in self._owners(report):
                    ingest.apply(told, by_hook=by_hook)
            case CallEnded():
                ended = self._with_paths(report)
                all_of_it = [*self.ingests.values()]
                one_only = len(all_of_it) == 1  # as usual; then no look into the log is needed
                knowing = all_of_it if one_only else [one for one in all_of_it if one.knows(ended)]
                for ingest in knowing or filter(None, [self._home]):
                    ingest.apply(ended, by_hook=by_hook)
            case _:
                everywhere = isinstance(report, TurnEnded | BackgroundEnded)
                to = self.ingests.values() if everywhere else filter(None, [self._home])
                for ingest in to:
                    ingest.apply(report, by_hook=by_hook)

    def learn(self, told: SessionTold) -> None:
        """Remember what is told of the session itself, for when it begins in a workspace.

        Its directory stays that of its first hook.
        """
        self.about = replace(merged_session(told, self.about), cwd=self.about.cwd)

    def _owners(self, told: CallBegan) -> Iterator[tuple[Ingest, CallBegan]]:
        """The call as each workspace sees it that holds one of its paths, or its directory."""
        told = replace(told, arguments=nearest_json(told.arguments))
        cwd = told.cwd or self.about.cwd
        if told.paths is None:
            owner = self._owner_of(cwd)
            if owner is not None:
                yield self._begin_in(owner), told
            elif self._home is not None:
                yield self._home, told
            return
        owned: dict[str, tuple[AuditedWorkspace, list[str]]] = {}
        elsewhere = False
        for path in (os.path.join(cwd, path) for path in told.paths):
            owner = self._owner_of(path)
            if owner is None:
                elsewhere = True
            else:
                owned.setdefault(owner.id, (owner, []))[1].append(path)
        if not owned and self._home is not None:
            yield self._home, replace(told, paths=())
        for owner, paths in owned.values():
            ingest = self._begin_in(owner)
            if elsewhere:
                ingest.note_elsewhere(told.call_id)
            yield ingest, replace(told, paths=_inside(owner, paths))

    def _with_paths(self, told: CallEnded) -> CallEnded:
        """The end of a call with absolute paths, and arguments that JSON can hold."""
        files = tuple(
            replace(one, path=os.path.join(self.about.cwd, one.path))
            for one in told.files
            if one.path
        )
        if told.arguments is UNSET:
            return replace(told, files=files)
        return replace(told, files=files, arguments=nearest_json(told.arguments))

    # --- the transcript -------------------------------------------------------------------

    def _open_transcript(self, hook: Hook) -> None:
        """Read the transcript that a hook names from now on, and keep its name on the machine."""
        if self._home is None or not hook.transcript:
            return
        if hook.transcript != self._path:
            self.close_file()
            self.follow_file(hook.transcript)
        # for processes that read it when this one is gone: which client, which file, prompts or not
        told = [self.client.name, hook.transcript, self.prompts]
        if hook.moment != "session" and told == self._kept_source:
            return
        with suppress(AuditError):
            self._home.attachment.on_disk.looks.keep(transcript_name(self.session), told)
            self._kept_source = told

    def follow_file(self, path: str) -> None:
        """Read this file from now on as the session's transcript."""
        self._path = path
        self._reader = self.client.transcript()
        self._file = self._open_file(path)

    def read(self, *, calls_only: bool = False, waits: bool = False) -> None:
        """Read what the transcript has by now, and put the calls on record whose end it tells.

        With `waits` not the calls after which a hook may come still, and with `calls_only` no
        texts. Where nothing can be recorded now the transcript is read from its beginning next
        time, so that nothing of it is lost; the error is raised: AuditUnavailable, Corrupt,
        NoWorkspace, OSError, StorageFailed.
        """
        if self._file is None:
            return
        try:
            for line in self._file.read():
                for report in self._reader.read(line) if line.strip() else ():
                    text = isinstance(report, PromptTold | MessageTold)
                    if report.session == self.session and not (text and calls_only):
                        self.take(report, by_hook=False)
            for ingest in self.ingests.values():
                ingest.record_ended(waits=waits)
        except (AuditUnavailable, Corrupt, NoWorkspace, OSError, StorageFailed):
            self._begin_again()
            raise

    def _begin_again(self) -> None:
        """Read the transcript from its beginning, and forget what was told and is not on record."""
        known, home = [*self._workspaces.values()], self._home
        self.close_file()
        self.ingests.clear()
        for workspace in known:
            ingest = self._ingest(workspace)
            if home is not None and ingest.attachment is home.attachment:
                self._home = ingest
        if self._path:
            self.follow_file(self._path)

    def _catch_up(self, done: Callable[[], bool]) -> None:
        """Read the transcript until it is `done`, for `TRANSCRIPT_WAIT` seconds at most.

        After some vain waits not at all: a client that writes later would be slowed at every call.
        """
        self.read()
        until = monotonic() + TRANSCRIPT_WAIT
        if done() or self._file is None or self._vain_waits >= SILENT_AFTER:
            return
        while not done():
            left = until - monotonic()
            if left <= 0:
                self._vain_waits += 1
                return
            if self._file.wait(left):
                self.read()
        self._vain_waits = 0

    def _read_to_the_end(self) -> None:
        """Read until the client writes no more, since it tells its last calls late.

        While it has not told how a call ended that it asked for, it writes still: for
        `TRANSCRIPT_WAIT` seconds at most.
        """
        until = monotonic() + TRANSCRIPT_WAIT
        while self._file is not None and (left := until - monotonic()) > 0:
            untold = any(ingest.awaits_ends for ingest in self.ingests.values())
            if not self._file.wait(left if untold else min(left, QUIET_WAIT)):
                return
            self.read()

    def _until_asked(self, hook: Hook) -> Callable[[], bool]:
        ids = [one.call_id for one in hook.reports if isinstance(one, CallBegan) and one.call_id]
        return lambda: all(
            any(ingest.has_request(id) for ingest in self.ingests.values()) for id in ids
        )

    def _all_told(self) -> bool:
        return not self.has_open_calls

    @property
    def has_open_calls(self) -> bool:
        """Whether a call of the session has not ended yet."""
        return any(ingest.open_calls for ingest in self.ingests.values())

    @property
    def _awaits_outcomes(self) -> bool:
        return any(ingest.awaits_outcomes for ingest in self.ingests.values())

    def record_known(self) -> None:
        """Put on record what is known by now, and close calls whose outcome nobody told in time."""
        self.read(waits=True)
        if self._due is not None and monotonic() >= self._due:
            for ingest in self.ingests.values():
                ingest.close(ended_only=not self._stopped)
            self._due = None
        over = [ingest.other_hooks.look() for ingest in self.ingests.values()]
        self.is_busy = self._due is not None or self.has_open_calls or not all(over)

    def close_file(self) -> None:
        """Close the transcript, which is read no more."""
        if self._file is not None:
            self._file.close()
            self._file = None


def _inside(workspace: AuditedWorkspace, paths: Sequence[str]) -> tuple[str, ...] | None:
    """Paths of a workspace as changes on record name them; None where any may be meant."""
    with suppress(InvalidPath):
        return changed_paths(workspace.attachment.on_disk.workspace, paths)
    return None


def real_path(path: str) -> str:
    """Return the path with the links in its folder resolved, and its last name as it is."""
    folder, name = os.path.split(os.path.normpath(path))
    return str(Path(os.path.realpath(folder)) / name)


def innermost(roots: Mapping[str, str], path: str) -> str | None:
    """The id of the workspace whose root is nearest above a path."""
    while path not in roots:
        path, last = os.path.dirname(path), path
        if path == last:
            return None
    return roots[path]
