"""What was on record of paths before they left the tree: read from the log, not from its tables."""

from collections.abc import Collection, Iterable, Mapping

from loom_audit.history.ground.attachment import StoredLog
from loom_audit.history.ground.log_end import LogEnd
from loom_audit.history.ground.proven_log import NO_HEADS, ProvenLog
from loom_audit.history.ground.verified_tree import VerifiedTree
from loom_audit.model.events import Fact, PathsUntracked, ScopeAccepted, TreeRelisted
from loom_audit.model.files import FileState, parents
from loom_audit.ports import EventFilter

_LOSING = (PathsUntracked.kind, ScopeAccepted.kind, TreeRelisted.kind)


def states_before_lost(stored: StoredLog, paths: Collection[str]) -> dict[str, FileState | None]:
    """By path its last state on record, None for one of which there never was any.

    What is not known is not in it: no event says that the path left the tree, or the tree was
    listed anew since.
    """
    proven = ProvenLog(stored.log, NO_HEADS, LogEnd(stored.log, stored.tables))
    trees = VerifiedTree(proven, stored.tables)
    found: dict[str, FileState | None] = {}
    lost_later = dict.fromkeys(paths, 0)
    """By path that is not found yet the event with which it left the tree later; 0 for none."""
    wanted = EventFilter(kinds=_LOSING, newest_first=True)
    for event in stored.log.read(wanted) if lost_later else ():
        if isinstance(event.fact, TreeRelisted):
            return found  # what was before is not compared with what came
        lost = frozenset(_lost_by(event.fact))
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


def _lost_by(fact: Fact) -> Iterable[str]:
    if isinstance(fact, PathsUntracked):
        return () if fact.kept else (one.path for one in fact.paths)
    return fact.untracked if isinstance(fact, ScopeAccepted) else ()


def _changed_since(
    proven: ProvenLog, after: int, before: Mapping[str, int]
) -> dict[str, FileState | None]:
    """What paths were made last after an event and `before` another, 0 for none such, by path."""
    found: dict[str, FileState | None] = {}
    for event, fact in proven.changes(after, max(before.values(), default=0)):
        for change in fact.changes:
            if event.seq < before.get(change.path, 0):
                found[change.path] = change.after
    return found
