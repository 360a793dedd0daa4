"""What this process knows of one workspace between its calls: all of it is lost when it ends."""

from collections.abc import Collection

from msgspec import Struct, field

from loom_audit.history.ground.session_state import SessionState
from loom_audit.model.coverage import Coverage
from loom_audit.model.scope import Scope
from loom_audit.ports import LeftOutFiles, StampedPaths, Stamps, Watch

CallKey = tuple[str, str]
"""The session and the id of a call."""


class LastSeen(Struct):
    """What this process last saw of the workspace, kept between scans.

    It is changed under the workspace lock, on any thread; without it only where the store may be
    read and not written.
    `head` is the seq up to which `stamps` reflect the log's tree; -1 before the first load, and
    again when another scope was accepted or the index could not be written. `followed` is the one
    up to which this process wrote the index without them.
    `scope` is the accepted one, None before it was read; `listed`: opaque entries are on record;
    `looked` is when the whole workspace was last looked at, in ns, None when that is not known, and
    `left_out` are the files that were out of scope then, `created` the paths that were new.
    `commands` counts those that were run, `watch` tells what may have changed since the last look
    with it, and `told` is what that look told. `unchecked` are the requests of the calls after
    which only that was looked at, since the last look at everything.
    """

    stamps: Stamps = field(default_factory=Stamps)
    head: int = -1
    followed: int = 0
    scope: Scope | None = None
    listed: bool = False
    last_look: int | None = None
    left_out: LeftOutFiles = field(default_factory=dict)
    created: set[str] = field(default_factory=set)
    commands: int = 0
    watch: Watch | None = None
    differing: StampedPaths = field(default_factory=StampedPaths)
    unchecked: set[int] = field(default_factory=set)


class ProcessState(Struct, frozen=True):
    """The state of this process: of one attachment, never stored, and shared by all its threads.

    What is kept of a call is written and dropped by the thread that carries the call out.
    `sessions` are the states of sessions as far as the log was read: each is carried on from there,
    so that none becomes invalid. `unfinished` are the calls whose end could not be recorded, with
    when that was, in ns; they leave it when their end is on record. `running` are the pids there
    were when each block began that is under way. `looked` are the open calls of clients that have
    ended, with what a look then found, their coverage and the paths that they changed, until it is
    told how they ended.
    """

    last_seen: LastSeen = field(default_factory=LastSeen)
    sessions: dict[str, SessionState] = field(default_factory=dict)
    unfinished: dict[CallKey, int] = field(default_factory=dict)
    running: dict[CallKey, Collection[int]] = field(default_factory=dict)
    ended_calls: dict[CallKey, tuple[Coverage, tuple[str, ...]]] = field(default_factory=dict)
