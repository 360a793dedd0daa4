"""Hooks of other programs' agents: each is answered, and what it tells is put on record."""

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from time import monotonic

from loom_audit.api.conversations import Conversation, real_path, transcript_name
from loom_audit.api.store import AuditStore
from loom_audit.api.workspace import AuditedWorkspace
from loom_audit.clients.known import CLIENTS
from loom_audit.clients.reports import Client, Hook, SessionTold, Verdict
from loom_audit.errors import ApprovalDenied, AuditError, InvalidArguments, NotFound, NoWorkspace
from loom_audit.history.watching import end_watch

QUIET = 5.0
"""Seconds after a hook for which its session's transcript is read without another one."""


class Hooks:
    """Answers hooks of several clients, sessions and workspaces at once. Safe from any thread.

    `outside` are the directories of hooks that no workspace holds, each told once.
    """

    def __init__(self, store: AuditStore) -> None:
        self.outside: set[str] = set()
        self._store = store
        self._workspaces: dict[str, AuditedWorkspace] = {}
        self._conversations: dict[tuple[str, str], Conversation] = {}
        self._locks: dict[str, threading.RLock] = {}
        self._here = threading.RLock()

    def answer(self, client: str, data: bytes, *, pid: int | None = None) -> bytes:
        """What the hook is to print; empty when nobody decided anything.

        `pid` is the client's process. InvalidArguments for what is not the input of a hook.
        """
        known = _client(client)
        hook = known.read_hook(data)
        if not hook.session:
            return known.answer(hook, None)
        told = next((one for one in hook.reports if isinstance(one, SessionTold)), None)
        with self._lock(told.parent if told and told.parent else hook.session):
            conversation = self._conversation(known, hook)
            if conversation is None:
                return known.answer(hook, None)
            if told is not None:
                conversation.learn(told)
            begins = hook.moment in ("session", "prompt", "before", "after")
            if not begins and not conversation.is_open:
                return known.answer(hook, None)
            try:
                if begins:
                    conversation.go_on(pid)
                conversation.hear(hook)
            except ApprovalDenied as denied:
                return known.answer(hook, Verdict("deny", denied.message))
            if hook.moment == "end":
                self._end(conversation)
            return known.answer(hook, None)

    def settle(self) -> None:
        """Put on record what transcripts tell by now of the sessions that were heard lately."""
        for key, conversation in list(self._conversations.items()):
            lately = monotonic() - conversation.heard < QUIET
            if lately or conversation.has_open_calls:
                with self._lock(conversation.parent or key[1]):
                    conversation.settle()

    @property
    def is_idle(self) -> bool:
        """Whether no session is open that was heard here."""
        return not any(one.is_open for one in list(self._conversations.values()))

    def close(self) -> None:
        """Read no more, and look at everything that was watched."""
        for conversation in self._conversations.values():
            conversation.close_file()
        self._conversations.clear()
        for workspace in self._workspaces.values():
            end_watch(workspace.attachment)

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
                client, hook.session, self._owner_of, self._store.adapters.transcript
            )
            known = [one for one in self._all() if _has_session(one, hook.session)]
            names_others = any(getattr(report, "paths", None) for report in hook.reports)
            if not found.find_home(hook.cwd, known) and not names_others:
                self.outside.add(hook.cwd)
                return None
            self._conversations[key] = found
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
            return self._workspaces[id]

    def _owner_of(self, path: str) -> AuditedWorkspace | None:
        """The innermost workspace that holds a path, if there is one."""
        real = real_path(path)
        roots = {entry.root: entry.id for entry in self._store.workspaces()}
        while real not in roots:
            real, last = os.path.dirname(real), real
            if real == last:
                return None
        try:
            return self._open(roots[real])
        except NoWorkspace:
            return None


def settle(workspace: AuditedWorkspace) -> Sequence[str]:
    """Put on record how open calls of clients' sessions ended, as their transcripts tell it.

    The sessions of those that are open still, because nobody tells.
    """
    found = [
        call.session
        for call in workspace.timeline.open_calls()
        if workspace.attachment.lease(call.session) is not None
    ]
    left = []
    for session in dict.fromkeys(found):
        kept = workspace.attachment.looks.get(transcript_name(session))
        if isinstance(kept, list) and len(kept) == 2 and kept[0] in CLIENTS:
            conversation = Conversation(
                CLIENTS[kept[0]],
                session,
                lambda _: workspace,
                workspace.adapters.transcript,
            )
            conversation.find_home("", [workspace])
            conversation.follow_file(str(kept[1]))
            conversation.read(calls_only=True)
            conversation.close_file()
            if not conversation.has_open_calls:
                continue
        left.append(session)
    return left


def _has_session(workspace: AuditedWorkspace, session: str) -> bool:
    with suppress(NotFound):
        return bool(workspace.timeline.projections.session(session))
    return False


def _client(name: str) -> Client:
    if name not in CLIENTS:
        raise InvalidArguments(
            f"{name!r:.50} is not a client whose hooks are known",
            hint=f"There are: {', '.join(CLIENTS)}.",
        )
    return CLIENTS[name]
