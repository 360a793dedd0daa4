"""Who may have made a change that a look found: what calls said, and when the change was made.

A look is timely for a call when it was taken directly before or after it, by our own hooks or our
own runner: then what changed between the two is the call's. What any other look finds is a call's
only where the call says the path and the change can be dated, or is as the client told it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence, Set

from msgspec import Struct

from loom_audit.history.look.named import names
from loom_audit.model.files import FileChange, parents

UNKNOWN = 0
"""Among the causes of a change: also somebody who is not on record may have made it."""


A_TICK = 10_000_000
"""Nanoseconds by which a file's time of change may be behind the clock."""


class Told(Struct, frozen=True):
    """What a client told of a call: when it began and was over, in ns, and what it changed.

    `same` are those of the paths of which the content that it told is what is there now.
    """

    begun: int | None = None
    over: int | None = None
    paths: frozenset[str] = frozenset()
    same: frozenset[str] = frozenset()


class Candidate(Struct, frozen=True):
    """A call that may be changing files; `paths` are the only ones, None when it does not say.

    `requested` is the seq of its request. One that has `ended` cannot own what is found later;
    one that has `outlived` its end may share it, or else have done what came from outside, and
    has a `number`. `named` are the paths that its command names, `begun` is when it began, in ns,
    None where that is not known, and `told` what its client told of its end. One that was not
    `seen` to begin is known by what was told alone, and owns nothing.
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

    @property
    def key(self) -> tuple[str, str]:
        """The session and the id that the call is named by."""
        return (self.session, self.call_id)

    def owns(self, change: FileChange) -> bool:
        """Whether it said that it changes this path: named, below one, or a folder made for one."""
        if self.paths is None:
            return False
        if not {change.path, *parents(change.path)}.isdisjoint(self.paths):
            return True
        made = change.before is None and change.after and change.after.kind == "directory"
        return bool(made) and any(change.path in parents(path) for path in self.paths)

    def says(self, change: FileChange) -> bool:
        """Whether it or its client says that it changes just this path, in whatever way."""
        told = change.path in self.told.paths
        return told or names(self.named, change.path) or self.owns(change)


class Look(Struct, frozen=True):
    """How far a look can say whose the changes are that it finds.

    One that is `late` was not taken directly after a call; of those in `alive`, by their requests,
    the client is there, and those in `running` go on as far as is known. `changed_at` gives when
    the state of a path was last changed, in ns, or None; `now` is when the look was made, None
    where the clock was set since its stretch began. The paths in `missed` were changed before the
    look before this one: by one of the `unchecked` calls, or from outside.
    """

    late: bool = False
    alive: frozenset[int] = frozenset()
    running: frozenset[int] = frozenset()
    changed_at: Callable[[FileChange], int | None] = lambda _: None
    now: int | None = None
    missed: Set[str] = frozenset()
    unchecked: tuple[Candidate, ...] = ()

    def dates(self, change: FileChange) -> int | None:
        """When the change was made, where that can be told."""
        at = self.changed_at(change) if self.now is not None else None
        return at if at is not None and self.now is not None and at <= self.now else None

    def ran(self, one: Candidate, at: int | None) -> bool:
        """Whether a call is known to have run then: it had begun and not ended, as is told."""
        over = one.told.over
        if over is None and one.requested in self.running and not one.ended:
            over = self.now
        if at is None or one.begun is None or over is None or self.now is None:
            return False
        return one.begun - A_TICK <= at <= over <= self.now

    def may_have_run(self, one: Candidate, at: int | None) -> bool:
        """Whether nothing that is told rules out that a call ran then."""
        if at is None or (one.is_survivor and one.told.over is None):
            return True
        over = one.told.over
        return (one.begun is None or one.begun - A_TICK <= at) and (over is None or at <= over)


TIMELY = Look()


class Doers(Struct, frozen=True):
    """The calls that may have made a change, under the first of which it is listed.

    It is `own` where it is the first's and the others may have made it, too; `unknown` where
    somebody else may have; from `outside` where it is listed under none; `missed` where the look
    after them did not find it.
    """

    among: tuple[Candidate, ...] = ()
    own: bool = False
    unknown: bool = False
    outside: bool = False
    missed: bool = False

    @property
    def causes(self) -> tuple[int, ...]:
        """As in the fact: all of several, without the one whose own it is."""
        listed = tuple(one.requested for one in self.among)
        if self.own:
            return listed[1:]
        if self.unknown and listed:
            return (*listed, UNKNOWN)
        return listed if self.outside or len(listed) > 1 else ()


def doers_of(change: FileChange, among: Sequence[Candidate], look: Look) -> Doers:
    """The calls that may have made a change, among these.

    A path that a call said it changes is its own until it ends; the others are shared by those
    that did not say, but for one that just one call's command names, and that changed while it ran.
    """
    if change.path in look.missed:
        return Doers(look.unchecked, outside=True, missed=True)
    if look.late and not all(one.is_survivor for one in among):
        return _of_late_look(change, among, look)
    saying = [one for one in among if one.owns(change)]
    shared = all(one.ended for one in saying)
    owners = tuple(one for one in among if one in saying or (shared and one.paths is None))
    if all(one.is_survivor for one in owners):
        return Doers(owners, outside=True)
    naming = [one for one in owners if not one.is_survivor and names(one.named, change.path)]
    if shared and len(owners) > 1 and len(naming) == 1 and look.ran(naming[0], look.dates(change)):
        return Doers((*naming, *(one for one in owners if one != naming[0])), own=True)
    return Doers(owners)


def _of_late_look(change: FileChange, among: Sequence[Candidate], look: Look) -> Doers:
    """By what is told, named and dated; what is left is nobody's unless somebody chooses."""
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
    """The changes by those who may have made them."""
    found: dict[Doers, list[FileChange]] = {}
    for change in changes:
        found.setdefault(doers_of(change, among, look), []).append(change)
    return found
