"""Which clients are heard: when a hook came last, and whether one runs whose hooks are silent."""

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path

from loom_audit.api.agents.finding import find_transcripts
from loom_audit.api.agents.importing import told_in
from loom_audit.api.workspace import AuditedWorkspace
from loom_audit.clients.known import CLIENTS
from loom_audit.clients.reports import CallBegan
from loom_audit.errors import AuditError
from loom_audit.model.records import Session
from loom_audit.ports import EventFilter

SESSIONS = 100
"""The number of the newest sessions that are looked at."""

INTERVAL = 0.5
"""Seconds between two looks. A hook comes before its call, so that a call seen twice had none."""


def heard_clients(workspace: AuditedWorkspace) -> Mapping[str, datetime]:
    """The clients whose hooks were heard in a workspace's newest sessions, and when last."""
    found: dict[str, datetime] = {}
    for session in workspace.timeline.sessions(limit=SESSIONS):
        known, ended = found.get(session.agent), session.ended_at
        if session.agent not in CLIENTS or (known and ended and ended <= known):
            continue
        # that of `run --agent codex`, or an imported one, was reported by no hook
        if workspace.attachment.lease(session.id) is not None:
            at = _last(workspace, session)
            found[session.agent] = max(at, known or at)
    return found


def _last(workspace: AuditedWorkspace, session: Session) -> datetime:
    """When the newest event of the client itself was recorded; a person may have held it since."""
    newest = EventFilter(session=session.id, newest_first=True)
    for event in workspace.timeline.events(newest):
        if event.actor == session.actor:
            return event.at
    return session.started_at


def session_of_client(workspace: AuditedWorkspace, told: Sequence[object]) -> str | None:
    """The open session whose hooks are of the client that started this process; None for none.

    The session is found by the ids that the client told, else by the client's process; it is not
    that of a subagent.
    """
    attachment = workspace.attachment
    leases = {
        one.id: lease
        for one in attachment.stored.tables.open_sessions()
        if (lease := attachment.lease(one.id)) is not None and lease.pid is not None
    }
    for id in told:
        if isinstance(id, str) and id in leases:
            return id
    client, _ = attachment.on_disk.processes.asker(os.getpid())
    mine = [id for id, lease in leases.items() if lease.pid == client]
    return next((id for id in mine if not attachment.session_state(id).parent), None)


@contextmanager
def telling_when_silent(
    client: str, root: str, has_heard: Callable[[], bool], tell: Callable[[], object]
) -> Iterator[None]:
    """Calls `tell` once, during the block, when the client has made a call and no hook came."""
    ended, began = threading.Event(), time.time()

    def watch() -> None:
        seen = False
        while not ended.wait(INTERVAL) and not has_heard():
            if has_called(client, root, began):
                if seen:
                    tell()
                    return
                seen = True

    watching = threading.Thread(target=watch, daemon=True, name="telling_when_silent")
    watching.start()
    try:
        yield
    finally:
        ended.set()
        watching.join()


def has_called(client: str, root: str, since: float) -> bool:
    """Whether a transcript in this folder tells a call that the client asked for `since`.

    `since` is in seconds of 1970.
    """
    for found in find_transcripts(Path(root), since=since).found:
        if found.client != client:
            continue
        with suppress(AuditError, OSError):
            for report in told_in(Path(found.file), client):
                is_call = isinstance(report, CallBegan)
                if is_call and (report.at is None or report.at.timestamp() >= since):
                    return True
    return False
