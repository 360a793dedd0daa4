"""What was on record of paths before they left the tree, read from the log itself.

When such a path is seen again, it is compared with that: the tree does not have it any more.
"""

from collections.abc import Collection, Mapping

from loom_audit.history.ground.attachment import StoredLog
from loom_audit.history.ground.log_end import LogEnd
from loom_audit.history.ground.proven_log import NO_HEADS, ProvenLog
from loom_audit.history.ground.verified_tree import VerifiedTree
from loom_audit.model.continuity import LOSING_KINDS, leaving
from loom_audit.model.events import TreeRelisted
from loom_audit.model.files import FileState, parents
from loom_audit.ports import EventFilter


def states_before_lost(stored: StoredLog, paths: Collection[str]) -> dict[str, FileState | None]:
    """The last state on record of each path before it left the tree; None where it never had one.

    A path is left out where its last state is not known: no event says that the path left the
    tree, or the tree was listed anew since. Corrupt.
    """
    proven = ProvenLog(stored.log, NO_HEADS, LogEnd(stored.log, stored.tables))
    trees = VerifiedTree(proven, stored.tables)
    found: dict[str, FileState | None] = {}
    lost_later = dict.fromkeys(paths, 0)
    """The paths without an answer, each with the event by which it left the tree later, or 0."""
    wanted = EventFilter(kinds=LOSING_KINDS, newest_first=True)
    for event in stored.log.read(wanted) if lost_later else ():
        if isinstance(event.fact, TreeRelisted):
            return found  # trees begin anew with a relisting: no event joins what was before it
        lost = frozenset(leaving(event.fact))
        hit = [path for path in lost_later if not lost.isdisjoint((path, *parents(path)))]
        if not hit:
            continue
        since = _changed_since(proven, event.seq, {path: lost_later[path] for path in hit})
        tree = trees.at(event.seq - 1)
        for path in hit:
            if path in since or path in tree:
                found[path] = since[path] if path in since else tree[path]
                del lost_later[path]
            else:
                lost_later[path] = event.seq
        if not lost_later:
            break
    return found | {path: None for path, seq in lost_later.items() if seq}


def _changed_since(
    proven: ProvenLog, after: int, before: Mapping[str, int]
) -> dict[str, FileState | None]:
    """The state that each path got last after event `after` and before its event in `before`."""
    found: dict[str, FileState | None] = {}
    for event, fact in proven.changes(after, max(before.values(), default=0)):
        for change in fact.changes:
            if event.seq < before.get(change.path, 0):
                found[change.path] = change.after
    return found
