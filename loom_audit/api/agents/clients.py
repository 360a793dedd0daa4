"""Hooks of other programs' agents: each is answered, and what it tells is put on record."""

import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from time import monotonic

from loom_audit.api.agents.client_approvals import (
    OpenQuestion,
    decide_call,
    follow_answer,
    restriction,
    wait_for_answer,
)
from loom_audit.api.agents.conversations import Container, Conversation, innermost, real_path
from loom_audit.api.agents.failed_hooks import FailedSession, by_session, is_of, record_failed
from loom_audit.api.agents.finding import own_transcripts
from loom_audit.api.agents.reading import read_gone
from loom_audit.api.store import AuditStore
from loom_audit.api.workspace import AuditedWorkspace
from loom_audit.clients.known import CLIENTS
from loom_audit.clients.reports import CallBegan, Client, Hook, SessionTold, Verdict
from loom_audit.errors import ApprovalDenied, AuditError, InvalidArguments, NoWorkspace
from loom_audit.history.record.watching import end_watch
from loom_audit.history.told.unread_transcripts import unread_transcripts
from loom_audit.wiring.files import Spool

SECONDS = 600.0
"""Seconds that a hook waits where it does not say how long."""

_MOMENT, _LONGEST = timedelta(seconds=3), timedelta(seconds=60)
"""How long after its last and its first failed hook a session's next hook is awaited."""

QUIET = 5.0
"""Seconds after a hook for which its session's transcript is read without another one."""


class Hooks:
    """Answers hooks of several clients, sessions and workspaces at once. Safe from any thread.

    `outside` are the directories of hooks that no workspace holds, each told once.
    """

    def __init__(self, store: AuditStore, container: Container | None = None) -> None:
        self.outside: set[str] = set()
        self._store = store
        self._container = container
        self.has_heard = False
        self._workspaces: dict[str, AuditedWorkspace] = {}
        self._unread: list[AuditedWorkspace] = []
        self._conversations: dict[tuple[str, str], Conversation] = {}
        self._locks: dict[str, threading.RLock] = {}
        self._asking: dict[int, Sequence[int]] = {}
        self._known_roots: Mapping[str, str] = {}
        self._here = threading.RLock()
        self._spool = Spool(store.adapters.settings.hooks)

    def answer(
        self,
        client: str,
        data: bytes,
        *,
        hook: int | None = None,
        seconds: float = SECONDS,
        prompts: bool = True,
        is_there: Callable[[], bool] = lambda: True,
        asked: Callable[[], object] = lambda: None,
    ) -> bytes:
        """What the hook is to print; empty when nobody decided anything.

        `hook` is its process, of which the client's is found. It waits for `seconds`, as long as
        it `is_there`; `asked` is called where a call may not run without an answer. Without
        `prompts` what people and the model say is not recorded. InvalidArguments for what is not
        the input of a hook.
        """
        known = _client(client)
        read = known.read_hook(data)
        if not read.session:
            return known.answer(read, None)
        told = next((one for one in read.reports if isinstance(one, SessionTold)), None)
        whose = told.parent if told and told.parent else read.session
        until = monotonic() + seconds

        def waits() -> bool:
            """Whether the client has not gone on without an answer."""
            return monotonic() < until and is_there()

        with self._asked_by(hook):
            with self._lock(whose):
                decided = self._hear(known, read, told, hook, asked, waits, prompts=prompts)
            # a hook that is ended meanwhile decides nothing: its client may run the call or not
            verdict = self._verdict(whose, decided, seconds, is_there)
            return known.answer(read, verdict)

    def _hear(
        self,
        client: Client,
        read: Hook,
        told: SessionTold | None,
        hook: int | None,
        asked: Callable[[], object],
        waits: Callable[[], bool],
        *,
        prompts: bool,
    ) -> Verdict | OpenQuestion | None:
        """Put on record what a hook tells; what is decided of its call, or to be asked."""
        conversation = self._conversation(client, read)
        if conversation is None:
            return None
        conversation.prompts = prompts
        if told is not None:
            conversation.learn(told)
        begins = read.moment in ("session", "prompt", "before", "after")
        if not begins and not conversation.is_open:
            return None
        why = self._restriction(conversation, read) if read.moment == "before" else ""
        if why:  # before anything is done that might be the last
            asked()
        # a client that goes on in another process says so before its next call
        known = read.moment in ("before", "after") and conversation.pid is not None
        try:
            # the end of a call goes on record also when its session has ended
            if begins and not (known and read.moment == "after"):
                conversation.go_on(None if known else self._client_of(hook))
            conversation.take_hook(read, waits)
            if read.moment == "before":
                decided = self._decide(conversation, read, waits)
                if isinstance(decided, OpenQuestion) and not why:  # of another workspace's path
                    asked()
                return decided
        except ApprovalDenied as denied:
            return Verdict("deny", denied.message)
        except AuditError as error:
            if not why:
                raise
            return Verdict("deny", f"{why}; it could not be recorded: {error}")
        if read.moment == "end":
            self._end(conversation)
        if read.moment == "stop":
            self._keep_heads(conversation)
        return None

    def _keep_heads(self, conversation: Conversation) -> None:
        """Keep a head of each log: some clients never tell the end of a session."""
        for ingest in conversation.ingests.values():
            self._store.adapters.keep_head(ingest.attachment.stored.log.tree_head())

    def settle(self, *, last: bool = False) -> Sequence[Exception]:
        """Put on record what transcripts tell by now of the sessions that were heard lately.

        At the `last` time of all sessions. One that is heard no more ends with the process of its
        client. Returned is what went wrong with some; the others go on record all the same.
        """
        failed = self._read_gone()
        for key, conversation in list(self._conversations.items()):
            lately = not last and monotonic() - conversation.last_hook < QUIET
            try:
                if not lately and conversation.has_gone:
                    with self._lock(conversation.about.parent or key[1]):
                        conversation.end()
                        self._end(conversation)
                elif last or lately or conversation.is_busy:
                    with self._lock(conversation.about.parent or key[1]):
                        conversation.record_known()
            except Exception as error:  # noqa: BLE001 - whatever it is, it is of this one
                failed.append(error)
        return failed

    def _read_gone(self) -> list[Exception]:
        """Read what clients told that went while no process like this one was there."""
        failed = list[Exception]()
        while self._unread:
            workspace = self._unread.pop()
            try:
                for session in unread_transcripts(workspace.attachment):
                    with self._lock(session):
                        if not any(session == heard for _, heard in [*self._conversations]):
                            read_gone(workspace, session)
            except (AuditError, OSError) as error:
                failed.append(error)
        return failed

    @property
    def is_idle(self) -> bool:
        """Whether no call is open of the sessions that were heard here."""
        return not any(one.has_open_calls for one in list(self._conversations.values()))

    def reserve(self) -> None:
        """Make space on disk for notes of hooks that cannot be handed over."""
        self._spool.reserve()

    def take_up(self, *, last: bool = False) -> None:
        """Put on record which hooks failed, and what the transcripts of their sessions tell.

        A session of which one failed just now is waited for, unless this is the `last` time. What
        cannot be recorded now waits, and the first error of it is raised.
        """
        if self._spool.is_empty:
            return
        now = datetime.now(UTC)
        for one in () if last else by_session(self._spool.waiting(), now):
            if now - one.last < _MOMENT and now - one.first < _LONGEST:
                return
        errors = list[Exception]()
        with self._spool.taken() as (lines, again):
            for one in by_session(lines, now):
                try:
                    self._take_up(one)
                except (AuditError, OSError) as error:  # the others do not wait for this one
                    again += one.lines
                    errors.append(error)
        if errors:
            raise errors[0]

    def _take_up(self, failed: FailedSession) -> None:
        told = [*own_transcripts(failed)]
        known = [one for one in self._all() if is_of(one, failed.session)]
        roots = self._read_roots()
        folders = (*(origin.cwd for _, origin in told), *failed.folders)
        owners = (innermost(roots, real_path(one)) for one in folders if "\0" not in one)
        owner = next(filter(None, owners), None)
        if not known and owner is None:
            return
        record_failed(known[0] if known else self._open(owner or ""), failed)
        for transcript, origin in told:
            if innermost(roots, real_path(origin.cwd)) is not None:
                with self._lock(failed.session):
                    self._recall(failed, transcript, origin.cwd, known)

    def _recall(
        self,
        failed: FailedSession,
        transcript: str,
        cwd: str,
        known: Sequence[AuditedWorkspace],
    ) -> None:
        """Put on record what the transcript of a session tells that no hook told."""
        client = CLIENTS[failed.client]
        found = self._conversations.get((client.name, failed.session))
        if found is not None:
            found.read()
            return
        found = Conversation(
            client, failed.session, self._owner_of, self._store.adapters.transcript
        )
        found.prompts = failed.prompts
        if found.find_home(cwd, known):
            found.follow_file(transcript)
            found.read_alone()

    def close(self) -> None:
        """Read no transcript any more, and look at every workspace that was watched."""
        for conversation in self._conversations.values():
            conversation.close_file()
        self._conversations.clear()
        for workspace in self._workspaces.values():
            end_watch(workspace.attachment)

    def _restriction(self, conversation: Conversation, hook: Hook) -> str:
        """Why the call that a hook tells to begin may not run without an answer; "" if it may."""
        settings = self._store.adapters.settings
        found = (
            restriction(ingest, told, settings)
            for told in hook.reports
            if isinstance(told, CallBegan)
            for ingest in conversation.ingests.values()
        )
        return next(filter(None, found), "")

    def _decide(
        self, conversation: Conversation, hook: Hook, waits: Callable[[], bool]
    ) -> Verdict | OpenQuestion | None:
        """What the rules say of the call that a hook tells to begin."""
        settings = self._store.adapters.settings
        for told in hook.reports:
            if isinstance(told, CallBegan):
                for ingest in conversation.ingests.values():
                    if (decided := decide_call(ingest, told, settings, waits)) is not None:
                        return decided
        return None

    def _verdict(
        self,
        session: str,
        decided: Verdict | OpenQuestion | None,
        seconds: float,
        is_there: Callable[[], bool],
    ) -> Verdict | None:
        """The verdict, once a question is answered; others of the session go on meanwhile."""
        if not isinstance(decided, OpenQuestion):
            return decided
        answer = wait_for_answer(decided, seconds, is_there)
        with self._lock(session):
            return follow_answer(decided, answer)

    @contextmanager
    def _asked_by(self, hook: int | None) -> Iterator[None]:
        """What runs to report of calls is not what they left running."""
        with self._here:
            if hook is not None:
                self._asking[hook] = ()
        try:
            yield
        finally:
            with self._here:
                self._asking.pop(hook or 0, None)

    def _client_of(self, hook: int | None) -> int | None:
        if hook is None:
            return None
        client, line = self._store.adapters.processes.asker(hook)
        with self._here:
            self._asking[hook] = line
        return client

    def _asking_now(self) -> Collection[int]:
        with self._here:
            for hook, line in self._asking.items():
                if not line:
                    self._asking[hook] = self._store.adapters.processes.asker(hook)[1]
            return {pid for line in self._asking.values() for pid in line}

    def _lock(self, session: str) -> threading.RLock:
        with self._here:
            return self._locks.setdefault(session, threading.RLock())

    def _conversation(self, client: Client, hook: Hook) -> Conversation | None:
        """The session's, in the workspaces that it is in; None when it is in none."""
        with self._here:
            key = (client.name, hook.session)
            found = self._conversations.get(key)
            if found is not None:
                return found
            found = Conversation(
                client,
                hook.session,
                self._owner_of,
                self._store.adapters.transcript,
                self._asking_now,
                self._container,
            )
            known = [one for one in self._all() if is_of(one, hook.session)]
            names_others = any(getattr(report, "paths", None) for report in hook.reports)
            if not found.find_home(hook.cwd, known) and not names_others:
                self.outside.add(hook.cwd)
                return None
            self._conversations[key] = found
            self.has_heard = True
            return found

    def _end(self, conversation: Conversation) -> None:
        conversation.close_file()
        self._conversations.pop((conversation.client.name, conversation.session), None)

    def _all(self) -> Iterator[AuditedWorkspace]:
        for entry in self._store.workspaces():
            with suppress(AuditError):
                yield self._open(entry.id)

    def _open(self, id: str) -> AuditedWorkspace:
        with self._here:
            if id not in self._workspaces:
                self._workspaces[id] = self._store.workspace(id)
                self._unread.append(self._workspaces[id])
            return self._workspaces[id]

    def _owner_of(self, path: str) -> AuditedWorkspace | None:
        """The innermost workspace that holds a path, if there is one."""
        real = real_path(path)
        for roots in (self._roots, self._read_roots):
            owner = innermost(roots(), real)
            if owner is not None and not self._store.adapters.database.is_forgotten(owner):
                with suppress(NoWorkspace):
                    return self._open(owner)
        return None

    def _roots(self) -> Mapping[str, str]:
        return self._known_roots

    def _read_roots(self) -> Mapping[str, str]:
        self._known_roots = {entry.root: entry.id for entry in self._store.workspaces()}
        return self._known_roots


def _client(name: str) -> Client:
    if name not in CLIENTS:
        raise InvalidArguments(
            f"{name!r:.50} is not a client whose hooks are known",
            hint=f"There are: {', '.join(CLIENTS)}.",
        )
    return CLIENTS[name]
