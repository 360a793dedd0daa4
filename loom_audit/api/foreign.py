"""Sessions of other programs, whose calls they report: a hook, a client, a transcript."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, get_args

from msgspec import Struct

from loom_audit.clients.reports import CallBegan
from loom_audit.errors import AuditError, InvalidArguments, InvalidPath
from loom_audit.history.ground.attachment import Attachment, check_effect
from loom_audit.history.ground.writer import Writer
from loom_audit.history.told import foreign
from loom_audit.history.told.reported import MAX_ID, requested, safe_id
from loom_audit.model.coverage import Effect, Status
from loom_audit.model.events import Event, Lease, SessionStarted
from loom_audit.model.results import told_error
from loom_audit.model.text.display import visible
from loom_audit.model.values import nearest_json
from loom_audit.ports import Workspace
from loom_audit.tools.calls.result import ToolResult

MAX_SECONDS = 31 * 24 * 3600

REPORTED = tuple(status for status in get_args(Status) if status != "interrupted")
"""The statuses that a client may report: that a call was interrupted is found out here."""


class ForeignSession(Struct, frozen=True):
    """A session that another program reports. It holds nothing: any process may have one like it.

    While the client's process runs its calls are open until their end is reported. Where the
    process cannot be seen, a deadline counts, which every report extends.
    """

    id: str
    actor: str
    attachment: Attachment

    def begin_call(
        self,
        call_id: str,
        tool: str,
        arguments: Any = None,
        effect: Effect = "execute",
        *,
        at: datetime | None = None,
        cwd: str = "",
        paths: Sequence[str] | None = None,
        within: int | None = None,
        look: bool = True,
    ) -> Event:
        """Put on record that a call begins: the event of its request; told again it is the same.

        With a `look` what changed until now is recorded as that of others. `paths` are the only
        ones that the call changes, with what is below them; the root means any. `within` is the
        seq of the request of the call that contains it; `at` is when it began, when that is not
        now. Conflict for an id used for something
        else, or when the session is not open; InvalidArguments, InvalidPath.
        """
        _check_id(call_id, "call")
        check_effect(effect)
        named = None if paths is None else changed_paths(self.attachment.on_disk.workspace, paths)
        began = CallBegan(self.id, call_id, tool, nearest_json(arguments), effect, at, cwd)
        request = requested(began, call_id, named, within)
        return foreign.begin(self._writer(at), request, look=look)

    def end_call(
        self,
        call_id: str,
        status: Status = "ok",
        result: Any = None,
        *,
        at: datetime | None = None,
        look: bool = True,
    ) -> Event:
        """Put on record how a call ended, and by a `look` what it changed: the event of its finish.

        Told again it is the same event; what is told differently, or after it was closed, is an
        event `call.reported`. NotFound for a call that was not begun; Conflict for one that is
        ours; InvalidArguments for what is not a status that is reported.
        """
        if status not in REPORTED:
            raise InvalidArguments(
                f"{status!r:.100} is not a status that a client reports",
                hint=f"There are: {', '.join(REPORTED)}.",
            )
        error = told_error(status, result if isinstance(result, str) else "")
        kept = ToolResult.of(result, error).to_record()
        return foreign.end(self._writer(at), call_id, status, kept, look=look)

    def end(self) -> Event:
        """Put on record that the session has ended; calls still open are closed as `unknown`."""
        return foreign.end_session(self._writer(None))

    def _writer(self, at: datetime | None) -> Writer:
        if at is not None and at.tzinfo is None:
            raise InvalidArguments(f"{at} has no time zone", hint="Give a time with its zone.")
        return Writer(self.attachment, self.id, self.actor, occurred_at=at)


def lease_of(attachment: Attachment, pid: int | None, seconds: int) -> Lease:
    """A lease for a client. InvalidArguments for the seconds, NotFound when it does not run."""
    if not isinstance(seconds, int) or not 1 <= seconds <= MAX_SECONDS:
        raise InvalidArguments(
            f"a session cannot be silent for {seconds!r:.100} seconds",
            hint=f"Give 1 to {MAX_SECONDS}, which is 31 days.",
        )
    return attachment.on_disk.processes.lease(pid, seconds)


def start_session(session: ForeignSession, started: SessionStarted) -> None:
    """Put a foreign session on record, or that it goes on. InvalidArguments, Conflict."""
    _check_id(session.id, "session")
    foreign.start_session(Writer(session.attachment, session.id, session.actor), started)


def changed_paths(workspace: Workspace, paths: Sequence[str]) -> tuple[str, ...] | None:
    """Declared paths as changes on record name them; None when the root is one of them."""
    found = {one for path in paths for one in _behind_links(workspace, workspace.relative(path))}
    return None if "" in found else tuple(sorted(found))


def _behind_links(workspace: Workspace, path: str) -> Iterator[str]:
    """A path behind the links in its folder, and where it leads when it is a link itself.

    InvalidPath when its folder lies outside.
    """
    folder, _, name = path.rpartition("/")
    try:
        folder = workspace.resolve(folder)
    except InvalidPath:
        raise
    except AuditError:
        pass  # the folder cannot be read: as it is written
    yield f"{folder}/{name}" if folder else name
    with suppress(AuditError):  # where it leads outside, only the link is on record
        yield workspace.resolve(path)


def _check_id(id: str, what: str) -> None:
    if not id or safe_id(id) != id:
        raise InvalidArguments(
            f"not an id for a {what}: {visible(id[:50]) or 'an empty text'}",
            hint=f"An id is 1 to {MAX_ID} bytes of visible text.",
        )
