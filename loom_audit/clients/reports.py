"""What a client's hooks and transcripts are read as, whichever client it is.

Each input of a hook and each line of a transcript gives reports; they are paired and put on record
elsewhere. Ids are the client's own; `session` is "" in what a damaged transcript tells before it
names its session: it is the session of the file. Paths are as the client wrote them: absolute, or
relative to the `cwd` that comes with them. Times are the client's, None where it does not tell one.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, Protocol, TypeAlias

from msgspec import UNSET, Struct, UnsetType

from loom_audit.model.coverage import Effect, Status


class SessionTold(Struct, frozen=True):
    """Tells that a session began, or goes on; `parent` is the session whose subagent it is.

    `transcript` is the path of the file in which the client writes down what happens in the
    session.
    """

    session: str
    at: datetime | None = None
    cwd: str = ""
    transcript: str = ""
    version: str = ""
    title: str = ""
    parent: str = ""


class FileTold(Struct, frozen=True):
    """A file as the client says that it was before a call and after it.

    None for an absent file, UNSET where the client does not say. `diff` is a unified diff that
    leads from one to the other, where it says only that; for a file that was moved it leads from
    what was at `source`. Line ends may be told as LF where the file has others.
    """

    path: str
    before: str | UnsetType | None = UNSET
    after: str | UnsetType | None = UNSET
    diff: str = ""
    source: str = ""


class CallBegan(Struct, frozen=True):
    """Tells that a call was asked for.

    `paths` are all that the call can change; None when that is not known. `call_id` is "" where the
    client gives none.
    """

    session: str
    call_id: str
    tool: str
    arguments: Any
    effect: Effect
    at: datetime | None = None
    cwd: str = ""
    paths: tuple[str, ...] | None = None


class CallEnded(Struct, frozen=True):
    """Tells that a call has ended; `arguments` are those it ran with, UNSET where that is not told.

    `background` are the client's names of what the call left running, `duration` is in
    microseconds. A `status` of None says nothing about how the call ended: another report will, or
    nobody knows. `result` holds `output`, a text, and `data`, an object: there `exit_code` and
    `background` where the client tells them. `tool` is "" where that is not told. A call may be
    told to have begun or ended more than once, by a hook and by the transcript. One that did not
    run at all has `ran` False, where the client leaves no doubt of it; one that is not `final` is
    told by the transcript as well, and how it ended there holds.
    """

    session: str
    call_id: str
    tool: str
    status: Status | None
    result: Mapping[str, Any]
    arguments: Any = UNSET
    at: datetime | None = None
    duration: int | None = None
    files: tuple[FileTold, ...] = ()
    background: tuple[str, ...] = ()
    ran: bool = True
    final: bool = True


class BackgroundEnded(Struct, frozen=True):
    """Tells that what a call left running under this name has ended."""

    session: str
    name: str
    at: datetime | None = None


class PromptTold(Struct, frozen=True):
    """Tells what a person said to the agent."""

    session: str
    text: str
    prompt_id: str = ""
    at: datetime | None = None


class MessageTold(Struct, frozen=True):
    """Tells what the agent said, `thinking` when it said it to itself; or a `notice`, which the
    client gave the agent by itself.
    """

    session: str
    text: str
    message_id: str = ""
    at: datetime | None = None
    thinking: bool = False
    notice: bool = False


class TurnEnded(Struct, frozen=True):
    """Tells that the agent has stopped and waits; `background` is what it says still runs.

    `interrupted` when a person stopped the agent: calls still open were cancelled.
    """

    session: str
    at: datetime | None = None
    background: tuple[str, ...] = ()
    interrupted: bool = False


class SessionOver(Struct, frozen=True):
    """Tells that a session is over, and why, where the client says so."""

    session: str
    at: datetime | None = None
    reason: str = ""


Report: TypeAlias = (
    SessionTold
    | CallBegan
    | CallEnded
    | BackgroundEnded
    | PromptTold
    | MessageTold
    | TurnEnded
    | SessionOver
)


Moment = Literal["session", "prompt", "before", "after", "permission", "stop", "end", "other"]
"""When a hook is called: `before` and `after` a call, at a `stop` of the agent."""


class Hook(Struct, frozen=True):
    """One call of a hook as it was read. `session` is "" where it names none.

    `unread` names what in it was not understood.
    """

    name: str
    moment: Moment
    session: str
    reports: tuple[Report, ...] = ()
    transcript: str = ""
    cwd: str = ""
    unread: tuple[str, ...] = ()


class Verdict(Struct, frozen=True):
    """What somebody decided about a call; nothing is ever decided by default."""

    decision: Literal["allow", "deny"]
    reason: str = ""
    arguments: Any = UNSET


class Transcript(Protocol):
    """A reader of one session's transcript, fed with its lines in order, never with one twice.

    `read` takes one line without its end and gives its reports; it raises nothing. `unread` counts
    by kind what was not understood: records and fields unknown to it, torn and strange lines.
    """

    unread: Counter[str]

    def read(self, line: bytes) -> Sequence[Report]:
        """The reports of one line, given without its end; raises nothing."""


class Place(Struct, frozen=True, kw_only=True):
    """Where a client keeps its settings and its transcripts.

    `folder` is the client's own folder in the user's home; the variable `home` names another one.
    `user` are the settings in it, and `transcripts` the patterns of the files in it; there are none
    where the client has to be asked for a transcript. `local` are the settings below a project's
    folder: where they are `personal` nobody commits them, and a client that `reads_below` reads
    them also when it is started in a folder below; one that does not `reads_worktrees` looks for
    those of a linked worktree of git elsewhere. `plugin` is our file that lies there; without it
    our hooks are written into an object of JSON, with their longest time in `per_second`ths of a
    second, and `shown` is what the client shows of a hook that runs, which else is its command.
    """

    folder: str
    user: str
    local: str
    home: str = ""
    transcripts: tuple[str, ...] = ()
    plugin: str = ""
    per_second: int = 1
    shown: str = ""
    personal: bool = False
    reads_below: bool = True
    reads_worktrees: bool = True


class Client(Struct, frozen=True, kw_only=True):
    """All that this program knows of one client.

    `moments` are the client's hooks, by name. `read_hook` raises InvalidArguments for what is not
    the input of a hook of this client. `answer` gives the bytes for the hook's standard output;
    None, for nothing decided, is b"". `wrote` says whether a record is of one of its transcripts;
    each of these is one object where they are `whole`, else a line holds an object. `untold` is
    what the client does not tell, and `trust` what its user must do before it runs our hook.
    `hooked_by` is how the client takes our hooks for one run:
    by settings on its command line, by flags, by a plugin in a variable, or not at all. `brief` are
    the hooks for which it waits no longer than so many seconds, whatever its settings say.
    """

    name: str
    title: str
    moments: Mapping[str, Moment]
    read_hook: Callable[[bytes], Hook]
    answer: Callable[[Hook, Verdict | None], bytes]
    transcript: Callable[[], Transcript]
    wrote: Callable[[Mapping[str, Any]], bool]
    place: Place
    untold: str
    trust: str = ""
    whole: bool = False
    brief: Mapping[str, int] = {}
    hooked_by: Literal["settings", "flags", "plugin", ""] = ""

    @property
    def events(self) -> Sequence[str]:
        """The hooks that our settings ask for: a rule is asked before a call, and not twice."""
        return [name for name, moment in self.moments.items() if moment != "permission"]
