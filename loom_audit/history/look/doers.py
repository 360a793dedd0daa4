"""Which calls may have made a change that a look found, by what they said and when it was made.

A look is timely for a call when it was taken directly before or after the call, by our own hooks or
our own runner: then what changed between the two looks is the call's. What a late look finds is a
call's only where the call says the path, and the change can be dated or is as the client told it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence, Set

from msgspec import Struct

from loom_audit.history.look.named import names
from loom_audit.model.files import FileChange, parents

UNKNOWN = 0
"""Stands among the causes of a change for somebody who is not on record and may have made it."""

A_TICK = 10_000_000
"""Nanoseconds by which the time of a file's change may be behind the clock: the kernel dates files
by its last tick."""


class Told(Struct, frozen=True):
    """What a client told of a call: when it began and was over, in ns since 1970, and its changes.

    `paths` are those that it changed; `same` are those of them at which the content that the client
    told is there now. None stands for a time that was not told.
    """

    begun: int | None = None
    over: int | None = None
    paths: frozenset[str] = frozenset()
    same: frozenset[str] = frozenset()


class Candidate(Struct, frozen=True):
    """A call that may have changed files.

    `requested` is the seq of its request. `paths` are the only ones that it says it changes, None
    where it does not say. One that has `ended` owns nothing that is found later. A survivor is an
    ended call that left something running: it may share a change, or have made one from outside,
    and `number` is its number. `named` are the paths that its command names. `begun` is when it
    began, in ns since 1970, None where that is not known. `told` is what its client told of its
    end. One that was not `seen` to begin is known only by what was told, and owns nothing.
    `writes` are the folders that a background command can write, None for any other call. Of one
    that is only `assumed` to have left something running nothing was seen to run.
    """

    requested: int
    call_id: str
    session: str
    actor: str
    paths: tuple[str, ...] | None = None
    ended: bool = False
    is_survivor: bool = False
    number: int | None = None
    named: tuple[str, ...] = ()
    begun: int | None = None
    told: Told = Told()
    seen: bool = True
    writes: tuple[str, ...] | None = None
    assumed: bool = False

    @property
    def key(self) -> tuple[str, str]:
        """The session and the id that the call is named by."""
        return (self.session, self.call_id)

    def owns(self, change: FileChange) -> bool:
        """Whether the call said that it changes this path: it named the path or a folder above it,
        or, where the change creates a folder, a path below that folder.
        """
        if self.paths is None:
            return False
        if not {change.path, *parents(change.path)}.isdisjoint(self.paths):
            return True
        made = change.before is None and change.after and change.after.kind == "directory"
        return bool(made) and any(change.path in parents(path) for path in self.paths)

    def can_have_made(self, change: FileChange) -> bool:
        """Whether it was able to: in its folders, or by another name that the file has there."""
        if self.writes is None:
            return True
        names = (state.group for state in (change.before, change.after) if state is not None)
        inside = not {change.path, *parents(change.path)}.isdisjoint(self.writes)
        return inside or bool(self.writes and any(group is not None for group in names))

    def says(self, change: FileChange) -> bool:
        """Whether the call says that it changes this path: as declared, by its command, or as its
        client told later.
        """
        told = change.path in self.told.paths
        return told or names(self.named, change.path) or self.owns(change)


class Look(Struct, frozen=True):
    """How far a look can say which call made a change that it finds.

    A `late` look was not taken directly after a call. `alive` are the calls, by their requests,
    whose clients are there; `running` are those that go on, as far as is known. `changed_at` gives
    when the state of a path last changed, in ns since 1970, or None. `now` is when the look was
    made, None where the clock was set since a client's session began: then no change is dated. The
    paths in `missed` changed before the previous look, which did not see it: one of the `unchecked`
    calls changed them, or somebody outside.
    """

    late: bool = False
    alive: frozenset[int] = frozenset()
    running: frozenset[int] = frozenset()
    changed_at: Callable[[FileChange], int | None] = lambda _: None
    now: int | None = None
    missed: Set[str] = frozenset()
    unchecked: tuple[Candidate, ...] = ()

    def dates(self, change: FileChange) -> int | None:
        """When the change was made, in ns since 1970; None where that cannot be said."""
        at = self.changed_at(change) if self.now is not None else None
        return at if at is not None and self.now is not None and at <= self.now else None

    def ran(self, one: Candidate, at: int | None) -> bool:
        """Whether a call is known to have run at a time: it had begun then and had not ended."""
        over = one.told.over
        if over is None and one.requested in self.running and not one.ended:
            over = self.now
        if at is None or one.begun is None or over is None or self.now is None:
            return False
        return one.begun - A_TICK <= at <= over <= self.now

    def may_have_run(self, one: Candidate, at: int | None) -> bool:
        """Whether a call may have run at a time: nothing that was told of it says otherwise."""
        if at is None or (one.is_survivor and one.told.over is None):
            return True
        over = one.told.over
        return (one.begun is None or one.begun - A_TICK <= at) and (over is None or at <= over)


TIMELY = Look()
"""A look in time, whose changes need not be dated."""


class Doers(Struct, frozen=True):
    """The calls that may have made a change, and under which of them it is listed.

    It is listed under the first of `among`, or, from `outside`, under none. With `own` it is the
    first call's, though the others may have had a part in it. With `unknown` somebody who is not on
    record may have made it. With `missed` the look after these calls did not find it.
    """

    among: tuple[Candidate, ...] = ()
    own: bool = False
    unknown: bool = False
    outside: bool = False
    missed: bool = False

    @property
    def causes(self) -> tuple[int, ...]:
        """The causes that the fact names: the calls where there are several, but for one that owns
        the change; one call alone only from outside; and UNKNOWN for somebody not on record.
        """
        listed = tuple(one.requested for one in self.among)
        if self.own:
            return listed[1:]
        if self.unknown and listed:
            return (*listed, UNKNOWN)
        return listed if self.outside or len(listed) > 1 else ()


def doers_of(change: FileChange, among: Sequence[Candidate], look: Look) -> Doers:
    """Which candidates may have made a change that a look found.

    A path that a call declared is that call's until the call ends. Where no running call declared
    a path, all calls that declared none may have changed it; but where just one call's command
    names the path, and it changed while that call ran, the change is that call's own. Where only
    survivors are left, the change is from outside, and maybe a person's where one of them is only
    assumed and none says that it changes the path. A path that the look before missed goes to the
    calls that this look did not check, and a late look has a rule of its own: `_of_late_look`.
    """
    if change.path in look.missed:
        return Doers(look.unchecked, outside=True, missed=True)
    among = [one for one in among if one.can_have_made(change)]
    if look.late and not all(one.is_survivor for one in among):
        return _of_late_look(change, among, look)
    saying = [one for one in among if one.owns(change)]
    shared = all(one.ended for one in saying)
    owners = tuple(one for one in among if one in saying or (shared and one.paths is None))
    if all(one.is_survivor for one in owners):
        assumed = not saying and any(one.assumed for one in owners)
        return Doers(owners, outside=True, unknown=assumed)
    naming = [one for one in owners if not one.is_survivor and names(one.named, change.path)]
    if shared and len(owners) > 1 and len(naming) == 1 and look.ran(naming[0], look.dates(change)):
        return Doers((*naming, *(one for one in owners if one != naming[0])), own=True)
    return Doers(owners)


def _of_late_look(change: FileChange, among: Sequence[Candidate], look: Look) -> Doers:
    """As `doers_of`, for a late look: by what calls said, what clients told, and when it changed.

    A change that is not a call's by that is from outside: an undo leaves it alone unless it is
    chosen.
    """
    at = look.dates(change)
    saying = [one for one in among if one.says(change)]
    possible = saying or [one for one in among if one.paths is None]
    if len(saying) == 1:
        [one] = saying
        if one.seen and (change.path in one.told.same or look.ran(one, at)):
            others = (other for other in among if other.paths is None and other != one)
            return Doers((one, *(o for o in others if look.may_have_run(o, at))), own=True)
    ran = tuple(one for one in possible if look.may_have_run(one, at))
    there = any(one.requested in look.alive | look.running for one in among)
    return Doers(ran or tuple(possible), unknown=True, outside=not ran or not there)


def by_doers(
    changes: Iterable[FileChange], among: Sequence[Candidate], look: Look
) -> Mapping[Doers, list[FileChange]]:
    """The changes, grouped by the calls that may have made them."""
    found: dict[Doers, list[FileChange]] = {}
    for change in changes:
        found.setdefault(doers_of(change, among, look), []).append(change)
    return found
