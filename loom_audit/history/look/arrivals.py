"""Which opaque entries the folders in scope were, by the log: these have arrived."""

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
"""What these events say of how files changed."""

_PATHS_PER_QUERY = 500
"""So many paths are asked for in one query."""


class Arrivals:
    """Tells by the log which opaque entries folders in scope were."""

    def __init__(self, attachment: Attachment, facts: Facts | None = None) -> None:
        self._attachment = attachment
        self._facts = facts or self._read
        self._known: dict[int, _Event | None] = {}
        self._makings: dict[str, list[tuple[int, bool]]] = {}

    def identities(self, folders: Mapping[str, int]) -> dict[str, set[str]]:
        """By path the identities that it may have; mostly there are none.

        `folders` are paths, each with the event before which it was there. Of empty folders that an
        event moved the log does not say which is which: there are several identities then.
        """
        found: dict[str, set[str]] = {}
        waiting = {(path, before): {path} for path, before in folders.items()}
        seen: set[tuple[str, int, str]] = set()
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
        """Find the events that put folders at these paths, without those of the baseline."""
        left = sorted(paths - self._makings.keys())
        self._makings.update((path, []) for path in left)
        for n in range(0, len(left), _PATHS_PER_QUERY):
            for one in self._attachment.stored.tables.changes(paths=left[n : n + _PATHS_PER_QUERY]):
                if is_directory(one.change.after) and not is_directory(one.change.before):
                    known = one.origin == "baseline"  # nothing was moved in it
                    self._makings[one.change.path].append((one.seq, known))

    def _made(self, path: str, before: int) -> "_Event | None":
        """The last event before this one that put a folder there; None where it is the baseline."""
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
    """From where an event moved folders."""

    def __init__(self, seq: int, fact: FilesChanged) -> None:
        self.seq = seq
        self._before = {c.path: c.before for c in fact.changes if c.before is not None}
        self._gone = [c.path for c in fact.changes if is_directory(c.before) and c.after is None]
        self._paths = sorted(change.path for change in fact.changes) if self._gone else []
        self._sources: dict[str, set[str]] = {}
        for move in with_folders_above(fact.moves):
            self._sources.setdefault(move.target, set()).add(move.source)

    def origins(self, folder: str) -> Iterator[tuple[str, FileState]]:
        """What the folder at a path may have been before, each with its state then.

        Where no move says it, it is one of those that are gone with just as much in them.
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
    """The outermost folders of a tree on disk that arrived, each with which it is."""
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
