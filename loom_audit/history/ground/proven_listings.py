"""Listings of trees that were compared with their hash, kept by that hash for as long as they fit.

The hash stands in the log, and is read there each time; a tree that had it has it still.
"""

from loom_audit.model.continuity import TreeFold

MOST_PATHS = 100_000
"""The number of paths that all listings together may keep."""


class ProvenListings:
    """Keeps trees by the hashes of their listings, those that were asked for last. Any thread."""

    def __init__(self, most_paths: int = MOST_PATHS) -> None:
        self._most = most_paths
        self._kept: dict[str, TreeFold] = {}

    def get(self, listing: str) -> TreeFold | None:
        """A tree of its own that begins as the one with this hash; None where none is kept."""
        found = self._kept.pop(listing, None)
        if found is None:
            return None
        self._kept[listing] = found
        return found.copy()

    def keep(self, listing: str, tree: TreeFold) -> None:
        """Keep a tree as it is now under the hash of its listing, if it is not too large."""
        if len(tree.states) > self._most:
            return
        self._kept[listing] = tree.copy()
        # another thread may put in or take out one meanwhile
        while sum(len(one.states) for one in [*self._kept.values()]) > self._most:
            self._kept.pop(next(iter([*self._kept]), ""), None)
