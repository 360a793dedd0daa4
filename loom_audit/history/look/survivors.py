"""Which processes of which calls run: what ran when calls began, what ended calls left running.

A process that an ended call left running may change files while another call is open, or between
calls. Then the ended call must be a candidate for the change: else it would pass for the other
call's, or for a person's. The account is kept on the machine that the processes are on.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import count
from time import monotonic, sleep
from typing import Any

from msgspec import Struct, ValidationError, convert
from msgspec.structs import asdict

from loom_audit.errors import AuditError
from loom_audit.history.ground.attachment import Attachment
from loom_audit.history.look.attribution import request_event, writable_by
from loom_audit.history.look.doers import Candidate
from loom_audit.model.records import Call

Activity = Mapping[str, Any]
"""What each task had done at some moment, by task; see `ports.Processes.activity`."""

_READINGS = 3
"""The number of readings, in which nothing ended, that must agree."""

_READING_SECONDS = 0.25
"""How long such readings are tried for, beside the patience for what ends by itself."""

_BETWEEN_READINGS = 0.0005
"""Seconds between two readings."""

_WAITING = 0.006
"""Seconds between two readings while something is waited for that ends by itself."""

_ENDING_SECONDS = 0.06
"""How long the end is awaited of what a client's call started and what ends by itself."""

_KEPT = "survivors"
"""The name by which the account of ended calls is kept."""

_CLIENT = "client"
"""Stands among a call's tasks for its client, where the client says that the call goes on and no
process of it is known. With the value "ended" the call is a candidate up to the next look only."""


class LeftRunning(Struct, frozen=True):
    """What a call leaves running: `tasks` of its own, and `hooks` of its client.

    `settled` says whether readings agreed, so that all of it is known.
    """

    tasks: Activity = {}
    hooks: Activity = {}
    settled: bool = True


class _KeptLook(Struct, frozen=True):
    """What was seen when a foreign call began, as a file keeps it until the call ends.

    `looked` is when the look began, in ns since 1970, and `ticked` the earliest time of what was
    made since. `left_out` are the files that were out of
    scope then, each with folder, reason, count and bytes. `running` are the pids that there were.
    The look was `late` where the call may have begun meanwhile.
    """

    looked: int | None = None
    ticked: int | None = None
    left_out: list[tuple[str, str, int, int]] = []
    running: list[int] = []
    late: bool = False


class Running(Struct, frozen=True):
    """The account of which processes of which calls run in one workspace.

    For each open call it has the pids that there were when the call began; for each ended call,
    what it left running. What changes the account is called under the workspace lock. Where the
    account cannot be written or read no error is raised: a call goes on, and less is known of it.
    """

    attachment: Attachment

    # --- when a call begins ---------------------------------------------------------------

    def begin_block(self, call: tuple[str, str]) -> None:
        """Note what runs before a block of ours begins whose processes no runner watches."""
        self.attachment.process.running[call] = self.attachment.on_disk.processes.running()

    def forget_block(self, call: tuple[str, str]) -> None:
        """Drop what was noted of a block, since nobody asks any more what it started."""
        self.attachment.process.running.pop(call, None)

    def keep_look(self, session: str, call_id: str, *, late: bool = False) -> None:
        """Keep what runs, and what the look before a foreign call saw, until the call ends.

        Another process may be told of that end. The look was `late` where the call may have begun
        meanwhile.
        """
        seen = self.attachment.process.last_seen
        with suppress(AuditError):  # then nothing is known to be left running or to have arrived
            left_out = [(*key, *counted) for key, counted in seen.left_out.items()]
            running = sorted(self.attachment.on_disk.processes.running())
            kept = _KeptLook(seen.last_look, seen.last_tick, left_out, running, late)
            self.attachment.on_disk.looks.keep(_look_name(session, call_id), asdict(kept))

    def was_late(self, call: Call) -> bool:
        """Whether it is known that the look before a foreign call came too late."""
        return self._look(call).late

    def recall_looks(self, calls: Iterable[Call]) -> None:
        """Take the newest look before these calls for the last one, unless this process made a
        later look.
        """
        seen = self.attachment.process.last_seen
        for kept in map(self._look, calls):
            if (kept.looked or 0) > (seen.last_look or 0):
                seen.last_look, seen.last_tick, seen.created = kept.looked, kept.ticked, set()
                seen.left_out = {
                    (folder, why): (files, size) for folder, why, files, size in kept.left_out
                }

    def discard_look(self, call: Call) -> None:
        """Forget what was kept for the end of a foreign call."""
        with suppress(AuditError):  # a file that stays is written over or does no harm
            self.attachment.on_disk.looks.discard(_look_name(call.session, call.call_id))

    def _look(self, call: Call) -> _KeptLook:
        # a file that is not as it was written says nothing
        with suppress(AuditError, ValidationError):
            kept = self.attachment.on_disk.looks.get(_look_name(call.session, call.call_id))
            return _KeptLook() if kept is None else convert(kept, _KeptLook)
        return _KeptLook()

    # --- when it ends ---------------------------------------------------------------------

    def left_running_by_block(self, call: tuple[str, str], tasks: Iterable[str]) -> LeftRunning:
        """What a block of ours leaves running: these tasks, and what else it started.

        What else it started is not asked where a runner watched its processes.
        """
        began = self.attachment.process.running.pop(call, None)
        if began is None:
            return LeftRunning(self.attachment.on_disk.processes.activity(tasks))
        beside = [*self.attachment.process.running.values()]
        left, settled = self.tasks_left_running(began, [*tasks], beside=beside)
        return LeftRunning(left, settled=settled)

    def left_running_by_client(
        self, call: Call, asking: Callable[[], Collection[int]], *, goes_on: bool
    ) -> LeftRunning:
        """What a foreign call leaves running below its client's process, as far as can be seen.

        `asking` gives the pids of the hook that reports the end: it is not work of the call. What
        ends by itself in a moment, as another hook beside ours does, is waited for.
        Where the call runs no command, all that still runs counts as hooks: what the client starts
        meanwhile is not work of the call. Where the client says that the call `goes_on`, nothing
        counts as a hook.
        """
        attachment, lease = self.attachment, self.attachment.lease(call.session)
        running = self._look(call).running
        if lease is None or not running or not attachment.on_disk.processes.is_alive(lease):
            return LeftRunning()
        others = (
            self._look(other).running
            for other in attachment.stored.tables.open_calls()
            if other.session == call.session and other.requested != call.requested
        )
        left, settled = self.tasks_left_running(
            running,
            (),
            by=lease.pid,
            beside=[*filter(None, others)],
            reporting=asking,
            patience=_ENDING_SECONDS,
        )
        if call.effect == "write" and not goes_on:
            return LeftRunning(hooks=left)
        if goes_on or not left:
            return LeftRunning(left, settled=settled)
        beside = attachment.on_disk.processes.beside(left, asking())
        own = {task: done for task, done in left.items() if task not in beside}
        hooks = {task: done for task, done in left.items() if task in beside}
        return LeftRunning(own, hooks, settled)

    def tasks_left_running(
        self,
        before: Collection[int],
        tasks: Collection[str],
        *,
        by: int | None = None,
        beside: Collection[Collection[int]],
        reporting: Callable[[], Collection[int]] = tuple,
        patience: float = 0.0,
    ) -> tuple[Activity, bool]:
        """What a call leaves running, and whether that is known: these tasks, and what a program,
        by default ours, started since the call began.

        `before` are the pids that there were then. `beside` has, for each other call of the program
        that is still open, the pids that there were when that one began: what was started after it
        began is counted as its own. What the survivors of ended calls started is theirs. The
        processes that `reporting` gives, which report calls, are nobody's. This is asked before the
        last look of the call, so that what ends before the answer was at work before that look.

        It is known where several readings agree in which nothing ended that may be the program's:
        what ends during a reading may have started others after these were listed, and leaves
        children that do not name it any more. Other readings say nothing, since on a busy machine
        other programs' processes end at any moment; what had ended before does no harm. `patience`
        is for how many seconds what ends by itself is waited for.
        """
        until = monotonic() + patience
        known = {*before}
        agreed, last, ended = 0, None, set[int]()
        for reading in count(1):
            known.update(reporting())
            left, gone = self._reading(known, tasks, by, beside)
            if ended.issuperset(gone):
                agreed = agreed + 1 if last == left.keys() else 1
                last = left.keys()
            ended.update(gone)
            now = monotonic()
            if agreed >= _READINGS and (now >= until or not left):
                return left, True
            # on a busy machine the time may be over before there were enough readings to compare
            if now >= until + _READING_SECONDS and reading >= 2 * _READINGS:
                break
            sleep(_WAITING if left and now < until else _BETWEEN_READINGS)
        return left, False

    def _reading(
        self,
        before: Collection[int],
        tasks: Iterable[str],
        by: int | None,
        beside: Collection[Collection[int]],
    ) -> tuple[Activity, Collection[int]]:
        """What runs at this moment; and what ended meanwhile that may be of the program."""
        attachment, processes = self.attachment, self.attachment.on_disk.processes
        started, ended = processes.left_running(before, attachment.on_disk.workspace.root, by=by)
        own = [task for task in started if all(int(task) in others for others in beside)]
        if own:
            of_others = self.activity(self.kept()).values()
            known = {task for done in of_others for task in done}
            own = [task for task in own if task not in known]
        left = processes.activity([*tasks, *own])
        return left, {*ended, *(int(task) for task in own if task not in left)}

    # --- after it has ended ---------------------------------------------------------------

    def add(self, requested: int, tasks: Activity) -> None:
        """Make an ended call a candidate while these tasks, which it left running, run."""
        if tasks:
            self.keep({**self.kept(), requested: tasks})

    def add_client(self, requested: int) -> None:
        """Make a call a candidate until its client reports its end, or until the client's session
        ends.
        """
        self.add(requested, {_CLIENT: None})

    def end_client(self, requested: int) -> None:
        """Keep a call of `add_client` a candidate up to the next look only."""
        if _CLIENT in self.kept().get(requested, {}):
            self.add(requested, {_CLIENT: "ended"})

    def add_hooks(self, requested: int, hooks: Activity) -> None:
        """Make a call a candidate up to the next look, for what its client's hooks still do."""
        if hooks:
            self.add(requested, {_CLIENT: "ended", **hooks})

    def hooks(self) -> Activity | None:
        """What the hooks that still run have done; None where no call is a candidate for hooks."""
        kept = self.kept().values()
        known = [
            task for of in kept if of.get(_CLIENT) == "ended" for task in of if task != _CLIENT
        ]
        return self.attachment.on_disk.processes.activity(known) if known else None

    def activity(self, since: Mapping[int, Activity]) -> dict[int, Activity]:
        """What those tasks that still run, and what they started, have done until now, by request.

        A call of which nothing runs any more is left out.
        """
        found: dict[int, Activity] = {}
        for requested, before in since.items():
            if _CLIENT not in before:
                done = self.attachment.on_disk.processes.activity(before)
            else:
                goes_on = before[_CLIENT] is None and self._is_session_open(requested)
                done = {_CLIENT: None} if goes_on else {}
            if done:
                found[requested] = done
        return found

    def _is_session_open(self, requested: int) -> bool:
        reading = self.attachment.stored.reading
        session = reading.session(reading.call_at(requested).session)
        return session.ended is None and self.attachment.is_session_alive(session.id)

    def kept(self) -> Mapping[int, Activity]:
        """What the tasks that each ended call left running had done at the last look, by request.

        Nothing is kept over a boot, nor in another namespace: there a pid is another process.
        """
        # a file that is not as it was written says nothing
        with suppress(AuditError, AttributeError, KeyError, TypeError, ValueError):
            kept = self.attachment.on_disk.looks.get(_KEPT)
            if kept and kept["place"] == self.attachment.on_disk.processes.place:
                return {int(requested): tasks for requested, tasks in kept["calls"].items()}
        return {}

    def keep(self, calls: Mapping[int, Activity]) -> None:
        """Keep this account in the place of the one that was kept."""
        with suppress(AuditError):  # an old account only makes calls candidates for longer
            if calls:
                tasks = {str(requested): done for requested, done in calls.items()}
                place = self.attachment.on_disk.processes.place
                self.attachment.on_disk.looks.keep(_KEPT, {"place": place, "calls": tasks})
            else:
                self.attachment.on_disk.looks.discard(_KEPT)


class Window(Struct):
    """The time between the last look and the one that is made; the workspace lock is held.

    `since` is what the survivors of each call had done at the last look, by the call's request.
    `until` is what they have done when this look begins.
    """

    running: Running
    since: Mapping[int, Activity]
    until: Mapping[int, Activity]

    @classmethod
    def begin(cls, attachment: Attachment) -> "Window":
        """The window up to a look that is about to be made."""
        running = Running(attachment)
        since = running.kept()
        return cls(running, since, running.activity(since))

    def with_survivors(self, among: Sequence[Candidate]) -> list[Candidate]:
        """These candidates, and the ended calls whose survivors ran since the last look.

        This is asked after the look: a survivor that ran during the look may have made what it
        found. NotFound, Corrupt.
        """
        now = self.running.activity(self.since)
        known = {one.requested for one in among}
        ran = [
            requested
            for requested, before in sorted(self.since.items())
            if requested not in known and _ran(before, now.get(requested, {}))
        ]
        return [
            *among,
            *(_candidate(self.running.attachment, requested) for requested in ran),
        ]

    def end(self) -> None:
        """Begin the next window; this is called once what the look found is on record.

        Calls that were added meanwhile are kept as they are.
        """
        if self.since:
            kept = self.running.kept().items()
            added = {one: left for one, left in kept if one not in self.since}
            self.running.keep({**self.until, **added})


def _ran(before: Activity, now: Activity) -> bool:
    """Whether a task ran, began, ended, or cannot be seen: in doubt the call is a candidate."""
    return before.keys() != now.keys() or any(
        done is None or done != before[task] or any(running for *_, running in done.values())
        for task, done in now.items()
    )


def _candidate(attachment: Attachment, requested: int) -> Candidate:
    stored = attachment.stored
    call: Call = stored.reading.call_at(requested)
    _, request = request_event(stored, call)
    return Candidate(
        requested=requested,
        call_id=call.call_id,
        session=call.session,
        actor=call.actor,
        paths=request.paths,
        ended=True,
        is_survivor=True,
        number=call.seq,
        named=request.names or (),
        writes=writable_by(attachment, call),
    )


def _look_name(session: str, call_id: str) -> str:
    return f"{session}\0{call_id}"
