"""Which opaque entries the folders in scope were before: such a folder has arrived by a move.

Nobody knows from the log what was in an opaque entry, so no plan deletes what arrived with it.
"""

from collections.abc import Callable, Iterator, Mapping, Set

from loom_audit.history.ground.attachment import Attachment
from loom_audit.model.events import FilesChanged
from loom_audit.model.files import (
    FileState,
    Tree,
    is_directory,
    is_opaque,
    is_within,
    paths_inside,
    with_folders_above,
)
from loom_audit.ports import EventFilter

Facts = Callable[[Set[int]], Mapping[int, FilesChanged]]
"""Gives the facts of these events, by their seqs; an event that changed no file is left out."""

_PATHS_PER_QUERY = 500
"""Most paths that one query of the tables names."""


class Arrivals:
    """Tells by the log which opaque entries folders in scope were; each event is read once.

    `facts` reads the events, by default from the log.
    """

    def __init__(self, attachment: Attachment, facts: Facts | None = None) -> None:
        self._attachment = attachment
        self._facts = facts or self._read
        self._known: dict[int, _Event | None] = {}
        self._makings: dict[str, list[tuple[int, bool]]] = {}

    def identities(self, folders: Mapping[str, int]) -> dict[str, set[str]]:
        """The identities that each folder had as an opaque entry, by path; most folders have none.

        `folders` are paths, each with the event before which the folder was there. A folder may
        have several identities: of empty folders that one event moved, the log does not say which
        of them is which. Corrupt.
        """
        found: dict[str, set[str]] = {}
        waiting = {(path, before): {path} for path, before in folders.items()}
        seen: set[tuple[str, int, str]] = set()
        # each round follows the moves one event back, for all folders at once
        while waiting:
            self._look_up({place for place, _ in waiting})
            further: dict[tuple[str, int], set[str]] = {}
            for (place, before), asked in waiting.items():
                event = self._made(place, before)
                for source, state in event.origins(place) if event else ():
                    if state.identity:
                        for path in asked:
                            found.setdefault(path, set()).add(state.identity)
                    elif event and is_directory(state):
                        new = {path for path in asked if (source, event.seq, path) not in seen}
                        seen |= {(source, event.seq, path) for path in new}
                        if new:
                            further.setdefault((source, event.seq), set()).update(new)
            waiting = further
        return found

    def _look_up(self, paths: Set[str]) -> None:
        """Find by the tables the events that put folders at these paths."""
        left = sorted(paths - self._makings.keys())
        self._makings.update((path, []) for path in left)
        for n in range(0, len(left), _PATHS_PER_QUERY):
            for one in self._attachment.stored.tables.changes(paths=left[n : n + _PATHS_PER_QUERY]):
                if is_directory(one.change.after) and not is_directory(one.change.before):
                    known = one.origin == "baseline"  # nothing was moved in it
                    self._makings[one.change.path].append((one.seq, known))

    def _made(self, path: str, before: int) -> "_Event | None":
        """The last event before `before` that put a folder at a path; None for the baseline."""
        made = [(seq, known) for seq, known in self._makings[path] if seq < before]
        return self._event(made[-1][0]) if made and not made[-1][1] else None

    def _event(self, seq: int) -> "_Event | None":
        if seq not in self._known:
            fact = self._facts({seq}).get(seq)
            self._known[seq] = None if fact is None else _Event(seq, fact)
        return self._known[seq]

    def _read(self, seqs: Set[int]) -> Mapping[int, FilesChanged]:
        found: dict[int, FilesChanged] = {}
        for seq in seqs:
            for event in self._attachment.stored.log.read(EventFilter.only(seq)):
                if isinstance(event.fact, FilesChanged):
                    found[seq] = event.fact
        return found


class _Event:
    """The places from which one event moved folders."""

    def __init__(self, seq: int, fact: FilesChanged) -> None:
        self.seq = seq
        self._before = {c.path: c.before for c in fact.changes if c.before is not None}
        self._gone = [c.path for c in fact.changes if is_directory(c.before) and c.after is None]
        self._paths = sorted(change.path for change in fact.changes) if self._gone else []
        self._sources: dict[str, set[str]] = {}
        for move in with_folders_above(fact.moves):
            self._sources.setdefault(move.target, set()).add(move.source)

    def origins(self, folder: str) -> Iterator[tuple[str, FileState]]:
        """The paths at which the folder may have been before the event, each with its state then.

        Where no move on record names the folder, it may be any folder that is gone and had the same
        paths in it.
        """
        sources = self._sources.get(folder)
        if sources is None and self._gone:
            changed = paths_inside(folder, self._paths)
            sources = {path for path in self._gone if paths_inside(path, self._paths) == changed}
        if is_opaque(self._before.get(folder)):
            sources = {folder, *(sources or ())}
        for source in sorted(sources or ()):
            if source in self._before:
                yield source, self._before[source]


def arrived_among(attachment: Attachment, tree: Tree) -> dict[str, str]:
    """The outermost folders of a tree that arrived and are still on disk, each with its identity.

    There are none on a system that cannot rename a folder back onto an absent name. Corrupt.
    """
    if not attachment.on_disk.workspace.renames_folders():
        return {}
    after = attachment.stored.log.head() + 1
    folders = sorted(path for path, state in tree.items() if is_directory(state))
    known = Arrivals(attachment).identities(dict.fromkeys(folders, after))
    found: dict[str, str] = {}
    for path in folders:
        inside = path not in known or is_within(path, found)
        if not inside and (identity := attachment.on_disk.workspace.identity(path)) in known[path]:
            found[path] = identity
    return found
