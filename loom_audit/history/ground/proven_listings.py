"""Listings of trees that were compared with their hash, kept by that hash for as long as they fit.

The hash stands in the log, and is read there each time; a tree that had it has it still.
"""

from collections import OrderedDict
from threading import Lock

from loom_audit.model.continuity import TreeFold

MOST_PATHS = 100_000
"""So many paths at most are kept in all listings together."""


class ProvenListings:
    """Keeps trees by the hashes of their listings, those that were asked for last. Any thread."""

    def __init__(self, most_paths: int = MOST_PATHS) -> None:
        self._most = most_paths
        self._kept: OrderedDict[str, TreeFold] = OrderedDict()
        self._paths = 0
        self._lock = Lock()

    def get(self, listing: str) -> TreeFold | None:
        """A tree of its own that begins as the one with this hash; None where none is kept."""
        with self._lock:
            found = self._kept.get(listing)
            if found is None:
                return None
            self._kept.move_to_end(listing)
            return found.copy()

    def keep(self, listing: str, tree: TreeFold) -> None:
        """Keep a tree as it is now under the hash of its listing, if it is not too large."""
        size = len(tree.states)
        if size > self._most:
            return
        with self._lock:
            if listing not in self._kept:
                self._kept[listing] = tree.copy()
                self._paths += size
            while self._paths > self._most:
                _, gone = self._kept.popitem(last=False)
                self._paths -= len(gone.states)
