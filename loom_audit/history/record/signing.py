"""Signs the head of a log, and puts on record with which key. Who calls this holds the lock."""

from collections.abc import Sequence

from loom_audit.errors import Corrupt
from loom_audit.model.events import Draft, Event, SessionStarted, TreeHead
from loom_audit.model.noted import HeadNoted
from loom_audit.model.signed.ed25519 import public_key
from loom_audit.model.signed.key_ring import KeyRing
from loom_audit.model.signed.signed_heads import SignedHead, key_id, sign_head
from loom_audit.ports import EventLog, Heads, HeadsFolder, SignedHeads


def note_key(
    log: EventLog, heads: Heads, signed: SignedHeads, ring: KeyRing, *, actor: str
) -> Event:
    """Put on record, once, which key signs the heads of a log from here on.

    While a rotation is under way that is the next one, in place of the current one. Errors as
    those of an append and of `sign_newest`: nothing is added to a log that would not be signed.
    """
    _newest_head(log, heads, signed)
    key = ring.next or ring.current
    replaced = ring.current.public.hex() if ring.next else ""
    before = signed.last()
    _, started = log.newest((SessionStarted.kind,), 0)
    size, root = (before.head.size, before.head.root.hex()) if before else (0, "")
    fact = HeadNoted(size, root, started, key.public.hex(), replaced)
    # by the id it is on record once, also where the rotation was interrupted and is done again
    return log.append([Draft(fact, "", actor, id=f"key-{key_id(key.public)}")])[0]


def sign_newest(
    log: EventLog, heads: Heads, signed: SignedHeads, seeds: Sequence[bytes]
) -> SignedHead:
    """Sign the head of all events by these keys, and keep it; the last one where it is the same.

    Corrupt where the log is not one with every head that was signed or kept of it before: it is
    shorter, or other events are in it. Then nothing is signed. StorageFailed.
    """
    before, head = signed.last(), _newest_head(log, heads, signed)
    wanted = [public_key(seed) for seed in seeds]
    again = before is not None and before.head == head and before.signed_by(wanted) == wanted
    made = before if before is not None and again else sign_head(head, seeds)
    signed.keep(made)
    return made


def hand_over(log: EventLog, signed: SignedHeads, folder: HeadsFolder) -> tuple[int, Sequence[str]]:
    """Put every signed head of a log in a folder where it is not yet; how many that were.

    And what in the folder is not of this log's events: a head of other ones, of more of them, and
    a file that is none. Ours are put there all the same, and nothing there is changed.
    StorageFailed.
    """
    foreign = []
    there = folder.there(log.id)
    last = signed.last()  # after what is there, which another process may be putting there
    for name, one in there.items():
        if one is None:
            foreign.append(f"{name} is not as it was put there")
        elif last is None or one.head.size > last.head.size:
            foreign.append(f"{name} is over more events than were signed here: the log went back")
        else:
            try:
                log.prove(max(0, one.head.size - 1), one.head.size, one.head)
            except Corrupt:
                foreign.append(f"{name} is over other events: there are two logs of this name")
    return sum(map(folder.put, signed.kept())), foreign


def _newest_head(log: EventLog, heads: Heads, signed: SignedHeads) -> TreeHead:
    """The head of all events. Corrupt where a head that was signed or kept is of other ones."""
    before = signed.last()
    kept = [one for one in heads.kept() if one.log == log.id]
    head = log.tree_head()
    known = max(kept, key=lambda one: one.size, default=None)
    earlier = [before.head] if before is not None else []
    for one in [*earlier, *([known] if known is not None else [])]:
        if one.log != log.id or one.size > head.size:
            raise Corrupt(
                f"the log ends at event {head.size}, and a head over {one.size} was kept of it",
                hint="An older copy was put back, or it was cut off: `loom-audit verify` says "
                "more. It is not signed: two logs under one name would be told as one.",
                details={"head": one.size},
            )
        if one.size:
            log.prove(one.size - 1, one.size, one)
    return head
