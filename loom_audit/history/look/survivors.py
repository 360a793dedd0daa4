"""What calls that have ended left running, and which of it ran between two looks.

Kept on the machine that the processes are on, beside the looks before foreign calls.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import count
from time import monotonic, sleep
from typing import Any

from msgspec import Struct

from loom_audit.errors import AuditError
from loom_audit.history.ground.attachment import Attachment
from loom_audit.history.look.attribution import request_event
from loom_audit.history.look.doers import Candidate
from loom_audit.model.records import Call

Activity = Mapping[str, Any]
"""By task what it did until then; see `ports.Processes.activity`."""

_READINGS = 3
_READING_SECONDS = 0.02
_BETWEEN_READINGS = 0.0005
_WAITING = 0.006
"""Seconds between two readings while something is waited for."""

_KEPT = "survivors"
_CLIENT = "client"
"""The task of a call that its client says goes on, where no process of it is known.

One that has "ended" goes on until the next look, whatever it stands beside.
"""


class Window(Struct):
    """The time from the last look to the one that is made; the workspace lock is held.

    `since` is what survivors had done at the last look, by the request of their call, and
    `until` what they have done now, before anything is looked at.
    """

    attachment: Attachment
    since: Mapping[int, Activity]
    until: Mapping[int, Activity]

    @classmethod
    def begin(cls, attachment: Attachment) -> "Window":
        """The window that ends with a look that is about to be made."""
        since = _kept(attachment)
        return cls(attachment, since, _activity(attachment, since))

    def with_survivors(self, among: Sequence[Candidate]) -> list[Candidate]:
        """These candidates, and the ended calls of which something ran since the last look.

        To be asked once the look was made: what changed during it was changed by what ran then.
        """
        now = _activity(self.attachment, self.since)
        known = {one.requested for one in among}
        ran = [
            requested
            for requested, before in sorted(self.since.items())
            if requested not in known and _ran(before, now.get(requested, {}))
        ]
        return [*among, *(_candidate(self.attachment, requested) for requested in ran)]

    def end(self) -> None:
        """The next window begins; to be called once what was found is on record."""
        if self.since:
            added = {
                one: left for one, left in _kept(self.attachment).items() if one not in self.since
            }
            _keep(self.attachment, {**self.until, **added})


def settled_tasks_left(
    attachment: Attachment,
    before: Collection[int],
    tasks: Collection[str],
    *,
    by: int | None = None,
    beside: Collection[Collection[int]],
    reporting: Callable[[], Collection[int]] = tuple,
    patience: float = 0.0,
) -> tuple[Activity, bool]:
    """What a call leaves running: these tasks, and what a program started since; is it known?

    `before` are the pids of then, and `beside` those of when other calls of the program began
    that are open still: what was started since then is left to them, and to calls that have ended
    what their survivors started. What is `reporting` of calls is none of it. To be asked before
    the last look of the call.

    It is known where readings agree: what ends leaves its children without a line to it, and what
    ends while it is read may have left some. For what ends by itself in a moment there is
    `patience`, in seconds.
    """
    until = monotonic() + patience
    known = {*before}
    agreed, last = 0, None
    for reading in count(1):
        known.update(reporting())
        left, seen = _reading(attachment, known, tasks, by, beside)
        agreed = agreed + 1 if last == (left.keys(), seen) else 1
        last = left.keys(), seen
        now = monotonic()
        if agreed >= _READINGS and (now >= until or not left):
            return left, True
        # on a machine that is busy the time may be over before there were readings to compare
        if now >= until + _READING_SECONDS and reading >= 2 * _READINGS:
            break
        sleep(_WAITING if left and now < until else _BETWEEN_READINGS)
    return left, False


def _reading(
    attachment: Attachment,
    before: Collection[int],
    tasks: Iterable[str],
    by: int | None,
    beside: Collection[Collection[int]],
) -> tuple[Activity, Collection[str]]:
    """What is left at this moment, and all that was seen of it, also what ended meanwhile."""
    processes = attachment.processes
    started, gone = processes.left_behind(before, attachment.workspace.root, by=by)
    own = [task for task in started if all(int(task) in others for others in beside)]
    if own:
        of_others = _activity(attachment, _kept(attachment)).values()
        known = {task for done in of_others for task in done}
        own = [task for task in own if task not in known]
    return processes.activity([*tasks, *own]), {*own, *map(str, gone)}


def add_survivors(attachment: Attachment, requested: int, left: Activity) -> None:
    """Let what a call left running be a candidate from now on; the workspace lock is held."""
    if left:
        _keep(attachment, {**_kept(attachment), requested: left})


def add_goes_on(attachment: Attachment, requested: int) -> None:
    """Let a call be a candidate until its client reports its end, or has ended itself."""
    add_survivors(attachment, requested, {_CLIENT: None})


def end_goes_on(attachment: Attachment, requested: int) -> None:
    """Let such a call be a candidate up to the next look only."""
    kept = _kept(attachment)
    if _CLIENT in kept.get(requested, {}):
        _keep(attachment, {**kept, requested: {_CLIENT: "ended"}})


def add_hooks(attachment: Attachment, requested: int, hooks: Activity) -> None:
    """Let a call be a candidate up to the next look, for what hooks of its client's go on to do."""
    if hooks:
        add_survivors(attachment, requested, {_CLIENT: "ended", **hooks})


def hooks_left(attachment: Attachment) -> Activity | None:
    """The hooks that run still; None where nobody waits for any until the next look."""
    kept = _kept(attachment).values()
    known = [task for one in kept if one.get(_CLIENT) == "ended" for task in one if task != _CLIENT]
    return attachment.processes.activity(known) if known else None


def _activity(attachment: Attachment, since: Mapping[int, Activity]) -> dict[int, Activity]:
    """What is still there of these did until now, with what it started."""
    found: dict[int, Activity] = {}
    for requested, before in since.items():
        if _CLIENT not in before:
            done = attachment.processes.activity(before)
        else:
            goes_on = before[_CLIENT] is None and _is_open(attachment, requested)
            done = {_CLIENT: None} if goes_on else {}
        if done:
            found[requested] = done
    return found


def _is_open(attachment: Attachment, requested: int) -> bool:
    session = attachment.projections.session(attachment.projections.call_at(requested).session)
    return session.ended is None and attachment.is_session_alive(session.id)


def _ran(before: Activity, now: Activity) -> bool:
    """Whether one of the tasks ran, began, ended, or cannot be seen."""
    return before.keys() != now.keys() or any(
        done is None or done != before[task] or any(running for *_, running in done.values())
        for task, done in now.items()
    )


def _candidate(attachment: Attachment, requested: int) -> Candidate:
    call: Call = attachment.projections.call_at(requested)
    _, request = request_event(attachment, call)
    return Candidate(
        requested=requested,
        call_id=call.call_id,
        session=call.session,
        actor=call.actor,
        paths=request.paths,
        ended=True,
        outlived=True,
        number=call.seq,
        named=request.names or (),
    )


def _kept(attachment: Attachment) -> Mapping[int, Activity]:
    # a file that is not as it was written says nothing
    with suppress(AuditError, AttributeError, KeyError, TypeError, ValueError):
        kept = attachment.looks.get(_KEPT)
        if kept and kept["place"] == attachment.processes.place:
            return {int(requested): tasks for requested, tasks in kept["calls"].items()}
    return {}


def _keep(attachment: Attachment, calls: Mapping[int, Activity]) -> None:
    with suppress(AuditError):  # what is kept from before makes them candidates for longer
        if calls:
            kept = {str(requested): tasks for requested, tasks in calls.items()}
            attachment.looks.keep(_KEPT, {"place": attachment.processes.place, "calls": kept})
        else:
            attachment.looks.discard(_KEPT)
