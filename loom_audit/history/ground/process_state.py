"""What this process knows of one workspace between calls; it is lost when the process ends."""

from collections.abc import Collection
from typing import Literal

from msgspec import Struct, field

from loom_audit.history.ground.session_state import SessionState
from loom_audit.model.backgrounds import WritableFolder
from loom_audit.model.coverage import Coverage
from loom_audit.model.git.record import GitState
from loom_audit.model.scope import Scope
from loom_audit.ports import Background, Git, GitStamps, LeftOutFiles, StampedPaths, Stamps, Watch

CallKey = tuple[str, str]
"""The session and the id of a call."""


class ExpectedGit(Struct, frozen=True):
    """What git said at stamps, and what the log has once that is recorded.

    `since` is from when on the contents of what had changed are among the stamps, in ns since 1970.
    """

    stamps: GitStamps
    state: GitState
    since: int


class SaidGit(Struct, frozen=True):
    """What a look that `began` then found: the state, as the log has it once that is recorded.

    `asked` are the requests of the calls after which git was not asked, and is with this look.
    """

    state: GitState
    began: int
    asked: frozenset[int]


class LastRepository(Struct):
    """What this process last saw of one git repository, which is asked by `git`.

    `state` is that on record. `answer` is what git said at these `stamps`: what
    is on record, or that it cannot tell, or there was no repository, and none on record; "" where
    nothing is known. `expected` is what it said last and is not among that, as it was to be
    recorded, or what it is about had just changed. `why_failed` says why the looks since the last
    good one could not read it, or what of it is `untold`. `looked` is when the last look began all
    that was found by which is on record, in ns since 1970, and `said` is what
    a later one found, as long as that is not known to be on record. `unasked` are the
    requests of the calls after which git was not asked since its stamps were the same, or not all
    of it could be read.
    """

    state: GitState = field(default_factory=GitState)
    answer: Literal["", "recorded", "failed", "absent"] = ""
    stamps: str = ""
    why_failed: tuple[str, ...] = ()
    untold: tuple[str, ...] = ()
    expected: ExpectedGit | None = None
    looked: int = 0
    said: SaidGit | None = None
    unasked: set[int] = field(default_factory=set)
    git: Git | None = None


class LastGit(Struct):
    """What this process last saw of the workspace's git repositories.

    `repositories` are by folder, with their states on record after event `seq`. `seen_in` are the
    folders below in which scans saw a `.git`, with those of the stamps `read_from`. `is_read` says
    that calls before this process were asked whether git could be told.
    """

    repositories: dict[str, LastRepository] = field(default_factory=dict)
    seq: int = 0
    is_read: bool = False
    seen_in: set[str] = field(default_factory=set)
    read_from: Stamps | None = None

    def note_path(self, path: str) -> None:
        """Remember the folder of a path that is a `.git` below the top."""
        folder, _, name = path.rpartition("/")
        if name == ".git" and folder:
            self.seen_in.add(folder)


class LastSeen(Struct):
    """What this process last saw of the workspace, kept from one scan to the next.

    Any thread changes it under the workspace lock; without the lock only where the store may be
    read and not written.
    `stamps` are the last seen ones, and reflect the log's tree up to the seq `head`: -1 before they
    were loaded, and again when another scope was accepted or the index could not be written.
    `followed` is the seq up to which this process wrote the index without loading stamps.
    `scope` is the accepted one, None before it was read. `listed` says that opaque entries are on
    record.
    `last_look` is when the last look began, in ns since 1970, None where that is not known: what
    was made before has no later time; `last_tick` is the earliest time of what was made since.
    `left_out` are the files that were out of scope then, `created` the paths that were new then.
    `commands` counts the commands that were run. `watch` tells what may have changed since the last
    look, and `differing` is what that look saw, each path with its stamp. `unchecked` are the
    requests of the calls after which only what the watch told was looked at, since the last look at
    everything. `git` is what it saw of git.
    """

    stamps: Stamps = field(default_factory=Stamps)
    head: int = -1
    followed: int = 0
    scope: Scope | None = None
    listed: bool = False
    last_look: int | None = None
    last_tick: int | None = None
    left_out: LeftOutFiles = field(default_factory=dict)
    created: set[str] = field(default_factory=set)
    commands: int = 0
    watch: Watch | None = None
    differing: StampedPaths = field(default_factory=StampedPaths)
    unchecked: set[int] = field(default_factory=set)
    git: LastGit = field(default_factory=LastGit)


class KeptBackground(Struct):
    """A background command: its call, its name, and the folders that it can write.

    `how` is how it has ended, or would end now, and `is_recorded` whether that is on record;
    `shown` is how many bytes of its output were asked for.
    """

    call_id: str
    name: str
    command: Background
    writes: tuple[WritableFolder, ...] = ()
    how: Literal["exited", "stopped", "closed"] = "exited"
    is_recorded: bool = False
    shown: int = 0


class Backgrounds(Struct):
    """The background commands of a session, by name; `begun` counts those that were started."""

    known: dict[str, KeptBackground] = field(default_factory=dict)
    begun: int = 0


class ProcessState(Struct, frozen=True):
    """What this process keeps for one attachment: never stored, and shared by all threads.

    What is kept of a call is written and dropped by the thread that carries the call out.
    `sessions` are states of sessions, each as far as the log was read; a state never becomes
    invalid, since it is read on from there. `unfinished` are the calls whose end could not be
    recorded, each with when that was, in ns since 1970, until their end is on record. `running` has
    for each block under way the pids that there were when it began. `ended_calls` are calls of
    clients that have ended and are open on record, since it was not told yet how they ended: each
    with its coverage and the paths that it changed, as the look at its end found them.
    `backgrounds` are those of each session whose commands may go on between its calls. `moved_out`
    has for background commands, by the requests of their calls, the seq up to which the log was
    read, and where files are that were in the folders that the command can write.
    """

    last_seen: LastSeen = field(default_factory=LastSeen)
    sessions: dict[str, SessionState] = field(default_factory=dict)
    unfinished: dict[CallKey, int] = field(default_factory=dict)
    running: dict[CallKey, Collection[int]] = field(default_factory=dict)
    ended_calls: dict[CallKey, tuple[Coverage, tuple[str, ...]]] = field(default_factory=dict)
    backgrounds: dict[str, Backgrounds] = field(default_factory=dict)
    moved_out: dict[int, tuple[int, frozenset[str]]] = field(default_factory=dict)
