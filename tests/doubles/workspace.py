"""A workspace in memory, by the same contract as the one on disk."""

import hashlib
import io
import itertools
import stat
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import BinaryIO

from loom_audit.errors import (
    AuditError,
    Conflict,
    Corrupt,
    FileNotFound,
    InvalidPath,
    IsADirectory,
    NotADirectory,
)
from loom_audit.model.events import OpenedFolder, Temporary
from loom_audit.model.files import BlobId, FileChange, FileState, Kind, Move
from loom_audit.model.scope import NEVER, TEMPORARY, Scope
from loom_audit.ports import (
    Attributes,
    Displaced,
    LeftOutFiles,
    OnProgress,
    Replacement,
    Reservation,
    Stamp,
    Stamps,
    Watch,
    opaque_stamp,
)

_TYPES: Mapping[Kind, int] = {
    "file": stat.S_IFREG,
    "symlink": stat.S_IFLNK,
    "directory": stat.S_IFDIR,
}
_Walk = Iterator[tuple[str, Stamp | str]]


@dataclass(slots=True)
class Node:
    """A file, symlink (its content is the target) or directory; times count operations."""

    kind: Kind
    content: bytes
    mode: int
    inode: int
    mtime: int
    ctime: int

    @property
    def state(self) -> FileState:
        if self.kind == "directory":
            return FileState("directory", None, self.mode, 0)
        blob = BlobId(hashlib.sha256(self.content).hexdigest())
        return FileState(self.kind, blob, self.mode, len(self.content))

    @property
    def stamp(self) -> Stamp:
        mode = _TYPES[self.kind] | self.mode
        if self.kind == "directory":
            return Stamp(mode, 0, 0, 0, self.inode)
        return Stamp(mode, len(self.content), self.mtime, self.ctime, self.inode)


class MemoryWorkspace:
    """A `ports.Workspace` in memory. Modes are kept and not enforced.

    `write`, `link`, `folder`, `chmod`, `remove` are what somebody else does to it.
    """

    def __init__(self, root: str = "/memory", *, exclude: Iterable[str] = ()) -> None:
        self._root = root
        self._nodes: dict[str, Node] = {}
        self._ticks = itertools.count(1)
        inside = (path for path in exclude if path.startswith(root + "/"))
        self._excluded = frozenset(path[len(root) + 1 :] for path in inside)

    @property
    def root(self) -> str:
        return self._root

    # --- somebody else --------------------------------------------------------------------

    def write(self, path: str, content: bytes, mode: int = 0o644) -> None:
        """Write a file in place, or make one."""
        node = self._nodes.get(path)
        if node is not None and node.kind == "file":
            node.content, node.mode = content, mode
            node.mtime = node.ctime = next(self._ticks)
        else:
            self._nodes[path] = self._node("file", content, mode)

    def link(self, path: str, target: bytes) -> None:
        self._nodes[path] = self._node("symlink", target, 0o777)

    def folder(self, path: str, mode: int = 0o755) -> None:
        self._nodes[path] = self._node("directory", b"", mode)

    def chmod(self, path: str, mode: int) -> None:
        node = self._nodes[path]
        node.mode, node.ctime = mode, next(self._ticks)

    def remove(self, path: str) -> None:
        """Delete it with all it holds."""
        for inside in [p for p in self._nodes if p == path or p.startswith(path + "/")]:
            del self._nodes[inside]

    def _node(self, kind: Kind, content: bytes, mode: int) -> Node:
        now = next(self._ticks)
        return Node(kind, content, mode, now, now, now)

    # --- names ----------------------------------------------------------------------------

    def relative(self, path: str) -> str:
        if "\0" in path:
            raise InvalidPath("the path holds a NUL character")
        if path.startswith("/"):
            if path != self._root and not path.startswith(self._root + "/"):
                raise InvalidPath("the path leads outside the workspace")
            path = path[len(self._root) :]
        parts: list[str] = []
        for part in path.split("/"):
            if part == ".." and not parts:
                raise InvalidPath("the path leaves the workspace")
            if part == "..":
                parts.pop()
            elif part not in ("", "."):
                parts.append(part)
        try:
            sizes = [len(part.encode("utf-8", "surrogateescape")) for part in parts]
        except UnicodeEncodeError as error:
            raise InvalidPath("no file name can have these characters") from error
        if max(sizes, default=0) > 255 or sum(sizes) + len(sizes) - 1 > 4095:
            raise InvalidPath("the path is too long")
        return "/".join(parts)

    def resolve(self, path: str) -> str:
        todo = [part for part in reversed(path.split("/")) if part]
        trail: list[str] = []
        hops = 0
        while todo:
            part = todo.pop()
            if part == "..":
                if not trail:
                    raise InvalidPath(f"the path leads outside the workspace: {path}")
                trail.pop()
                continue
            node = self._nodes.get("/".join([*trail, part]))
            if node is not None and node.kind == "file" and todo:
                raise NotADirectory(f"a folder of the path is not a directory: {path}")
            if node is None or node.kind != "symlink":
                trail.append(part)
                continue
            hops += 1
            if hops > 40:
                raise InvalidPath(f"links go round in a circle: {path}")
            target = node.content.decode("utf-8", "surrogateescape")
            if target.startswith("/"):
                if target != self._root and not target.startswith(self._root + "/"):
                    raise InvalidPath(f"the path leads outside the workspace: {path}")
                target, trail = target[len(self._root) :], []
            todo += [part for part in reversed(target.split("/")) if part not in ("", ".")]
        return "/".join(trail)

    # --- looking --------------------------------------------------------------------------

    def stamp(self, path: str) -> Stamp | None:
        if not path:
            return Stamp(stat.S_IFDIR | 0o755, 0, 0, 0, 0)
        node = self._nodes.get(path)
        return None if node is None else node.stamp

    def _found(self, path: str) -> Node:
        node = self._nodes.get(self.resolve(path))
        if node is None:
            raise FileNotFound(f"file not found: {path}")
        return node

    def stamps(self, paths: Sequence[str]) -> Sequence[Stamp | None]:
        return [self.stamp(path) for path in paths]

    def is_mounted(self, folder: str) -> bool:
        return False

    def mtime(self, path: str) -> datetime:
        return datetime.fromtimestamp(self._found(path).mtime / 1_000_000_000, UTC)

    def open(self, path: str) -> BinaryIO:
        return io.BytesIO(self.read(path))

    def read(self, path: str, limit: int | None = None) -> bytes:
        if not self.resolve(path) or self._found(path).kind != "file":
            raise IsADirectory(f"not a file but a directory: {path}", details={"kind": "directory"})
        return self._found(path).content[:limit]

    def identity(self, path: str) -> str:
        node = self._nodes.get(path)
        return "" if node is None else f"{node.inode:032x}"

    def changed_at(self, path: str) -> int | None:
        return None  # its ticks are not times

    def born(self, path: str) -> int | None:
        return None  # its ticks are not times

    def read_and_stamp(self, path: str, size: int) -> tuple[bytes, Stamp, Attributes]:
        node = self._found(path)
        return (
            self.read(path, size),
            node.stamp,
            Attributes(node.mode, False, 1, f"{node.inode:032x}"),
        )

    def links(self, path: str) -> int:
        return int(path in self._nodes)

    def attributes(self, path: str) -> Attributes:
        node = self._nodes.get(path)
        if node is None:
            raise FileNotFound(f"file not found: {path}")
        return Attributes(node.mode, False, 1, f"{node.inode:032x}")

    def attributes_of_new(self, path: str, mode: int) -> Attributes:
        return Attributes(mode, False, 1, "")

    def read_link(self, path: str) -> bytes:
        node = self._nodes.get(path)
        if node is None:
            raise FileNotFound(f"file not found: {path}")
        if node.kind != "symlink":
            raise InvalidPath(f"not a symlink but a {node.kind}: {path}")
        return node.content

    def list(self, path: str = "") -> Sequence[tuple[str, Stamp]]:
        folder = self.resolve(path)
        if folder and self._found(folder).kind != "directory":
            raise NotADirectory(f"not a directory: {path}")
        return sorted((p.rpartition("/")[2], self._nodes[p].stamp) for p in self._children(folder))

    def _children(self, folder: str) -> Iterable[str]:
        return [p for p in self._nodes if p.rpartition("/")[0] == folder]

    def walk(
        self, scope: Scope, known: Container[str], path: str = "", *, opaque: bool = False
    ) -> _Walk:
        return self._walk(scope, known, path, opaque=opaque)

    def _walk(self, scope: Scope, known: Container[str], path: str, *, opaque: bool) -> _Walk:
        for child in self._children(path):
            node = self._nodes[child]
            folder = node.kind == "directory"
            why = scope.excludes(child, directory=folder)
            if why and (folder or why == "git" or child not in known):
                if opaque and (why == "git" or (folder and why != "temporary")):
                    yield child, opaque_stamp(self.identity(child), node.inode)
                continue
            if child in self._excluded:
                yield child, "store"
                continue
            yield child, node.stamp
            if folder:
                yield from self._walk(scope, known, child, opaque=opaque)

    def watch(self) -> Watch:
        return BlindWatch()

    def differences(
        self,
        scope: Scope,
        known: Stamps,
        left_out: LeftOutFiles | None = None,
        watch: Watch | None = None,
    ) -> Iterator[tuple[str, Stamp | str | None]]:
        if left_out is not None:
            for path, node in self._nodes.items():
                why = scope.excludes(path, directory=False)
                above = path.rpartition("/")[0]
                if above and not scope.includes(above, directory=True):
                    continue
                if why == "ignored" and node.kind != "directory" and path not in known:
                    key = above, why
                    files, size = left_out.get(key, (0, 0))
                    left_out[key] = files + 1, size + len(node.content)
        gone = set(known)
        for path, stamp in self._walk(scope, known, "", opaque=True):
            gone.discard(path)
            if known.get(path) != stamp:
                yield path, stamp
        yield from ((path, None) for path in gone)

    # --- changing -------------------------------------------------------------------------

    def reserve(self, steps: Sequence[Replacement], moves: Sequence[Move] = ()) -> Reservation:
        return _NothingReserved()

    def close_opened(self, opened: OpenedFolder, mode: int) -> bool:
        return False

    def replace(
        self,
        change: FileChange,
        content: BinaryIO | None,
        reserved: Reservation | None = None,
        link: str | None = None,
    ) -> Displaced:
        self._check_writable(change.path)
        return self._replace(change, content, change.path.rpartition("/")[0])

    def _replace(self, change: FileChange, content: BinaryIO | None, home: str) -> Displaced:
        """Put what is displaced into the folder `home`."""
        above, _, _ = change.path.rpartition("/")
        if above:
            parent = self._nodes.get(above)
            if parent is None:
                self.resolve(above)
                raise FileNotFound(f"file not found: {above}")
            if parent.kind != "directory":
                raise NotADirectory(f"a folder of the path is not a directory: {change.path}")
        found, before, after = self._nodes.get(change.path), change.before, change.after
        if found and after and found.kind == after.kind:
            same = before is not None and before.kind == "file" and before.blob == after.blob
            if after.kind == "directory" or (same and found.state.blob == after.blob):
                prior = found.state
                if found.mode != after.mode:
                    found.mode, found.ctime = after.mode, next(self._ticks)
                return _MemoryDisplaced(self, change.path, found, None, prior)
        new = None if after is None else self._make(after, content)
        if found and found.kind == "directory" and self._children(change.path):
            raise Conflict(f"the folder is not empty: {change.path}")
        aside = self._put_aside(change.path, found, home)
        if new is not None:
            self._nodes[change.path] = new
        return _MemoryDisplaced(self, change.path, new, aside, found.state if found else None)

    def is_writable(self, path: str) -> bool:
        try:
            self._check_writable(path)
        except InvalidPath:
            return False
        return True

    def _check_writable(self, path: str) -> None:
        parts = path.split("/")
        hidden = any("/".join(parts[: n + 1]) in self._excluded for n in range(len(parts)))
        temporary = any(part.startswith(TEMPORARY) for part in parts)
        if not path or self.relative(path) != path:
            raise InvalidPath(f"not a path in a workspace: {path}")
        if hidden or temporary or not NEVER.isdisjoint(parts):
            raise InvalidPath(f"inside .git, a temporary or the store: {path}")

    def _make(self, after: FileState, content: BinaryIO | None) -> Node:
        data = b""
        if after.kind != "directory":
            if content is None:
                raise ValueError(f"no content for the {after.kind}")
            data = content.read()
            if after.blob is not None and hashlib.sha256(data).hexdigest() != after.blob:
                raise Corrupt("the content has another hash")
        return self._node(after.kind, data, after.mode)

    def _put_aside(self, path: str, found: Node | None, home: str) -> str | None:
        if found is None:
            return None
        del self._nodes[path]
        if found.kind == "directory":
            return None
        aside = f"{home}/{TEMPORARY}{next(self._ticks)}".removeprefix("/")
        found.ctime = next(self._ticks)
        self._nodes[aside] = found
        return aside

    def replace_all(
        self,
        steps: Sequence[Replacement],
        done: dict[int, Displaced] | None = None,
        reserved: Reservation | None = None,
        progress: OnProgress | None = None,
    ) -> Sequence[Displaced]:
        done = {} if done is None else done
        for step in steps:
            self._check_writable(step.change.path)
        if len({step.change.path for step in steps}) != len(steps):
            raise InvalidPath("a path is there twice")
        for number in sorted(range(len(steps)), key=lambda n: _rank(steps[n].change)):
            step = steps[number]
            try:
                content = step.content() if step.content else None
                done[number] = self._replace(step.change, content, self._home(step, steps))
            except AuditError as error:
                error.details |= {"path": step.change.path, "done": len(done)}
                raise
        return [done[number] for number in range(len(steps))]

    def _home(self, step: Replacement, steps: Sequence[Replacement]) -> str:
        """The nearest folder above that no step takes away."""
        going = {s.change.path for s in steps if not s.change.after or s.content}
        parts = step.change.path.split("/")[:-1]
        for n in range(len(parts)):
            if "/".join(parts[: n + 1]) in going:
                return "/".join(parts[:n])
        return "/".join(parts)

    def rename(self, source: str, target: str, identity: str) -> None:
        if self.identity(source) != identity:
            raise Conflict(f"{source} is not the one that was moved")
        if target in self._nodes:
            raise Conflict(f"something is at {target}")
        above = target.rpartition("/")[0]
        if above and above not in self._nodes:
            raise FileNotFound(f"file not found: {above}")
        for path in [p for p in self._nodes if p == source or p.startswith(source + "/")]:
            self._nodes[target + path.removeprefix(source)] = self._nodes.pop(path)

    def renames_folders(self) -> bool:
        return True

    def is_deleted(self) -> bool:
        return False

    def make_again(self) -> None:
        pass

    def leftovers(self) -> Sequence[str]:
        return sorted(p for p in self._nodes if p.rpartition("/")[2].startswith(TEMPORARY))

    def remove_leftover(self, path: str, identity: str) -> None:
        if not path.rpartition("/")[2].startswith(TEMPORARY):
            raise InvalidPath(f"not a temporary: {path}")
        if self.identity(path) != identity:
            raise Conflict(f"another file is there now: {path}")
        del self._nodes[path]

    def folds_case(self) -> bool:
        return False

    def node(self, path: str) -> Node | None:
        """What is at the path, to be looked at and not kept."""
        return self._nodes.get(path)

    def move(self, source: str, target: str) -> None:
        """Rename one node."""
        self._nodes[target] = self._nodes.pop(source)


def _rank(change: FileChange) -> tuple[int, int]:
    depth = change.path.count("/")
    if change.after is None:
        return (1, -depth) if change.before and change.before.kind == "directory" else (0, 0)
    return (2, depth) if change.after.kind == "directory" else (3, 0)


class BlindWatch:
    """A watch to which nothing is told."""

    flaw = why_whole = "memory has no inotify"
    lag = 0

    def touch(self, path: str) -> None:
        """Every look is of everything."""

    def distrust(self, why: str) -> None:
        """Every look is of everything."""

    def read(self) -> None:
        """There is nothing to read."""

    def happened_at(self, path: str) -> bool:
        return True

    def close(self) -> None:
        """Nothing is open."""


class _NothingReserved:
    """In memory nothing is left over, so that nothing is named beforehand."""

    temporaries: tuple[Temporary, ...] = ()
    opened: tuple[OpenedFolder, ...] = ()

    def release(self) -> None:
        pass


class _MemoryDisplaced:
    """What a replace in memory took away; with no `aside` a mode, a folder, or nothing."""

    def __init__(
        self,
        workspace: MemoryWorkspace,
        path: str,
        put: Node | None,
        aside: str | None,
        state: FileState | None,
    ) -> None:
        self._workspace, self._path, self._aside, self.state = workspace, path, aside, state
        self._put = put
        self._seen = (put.content, put.mode, put.mtime) if put else None
        self._in_place = put is not None and aside is None and state is not None
        self.links = 0 if state is None else 1

    def open(self) -> BinaryIO:
        node = None
        if self._aside:
            node = self._workspace.node(self._aside)
        elif self._in_place and self.state and self.state.kind == "file":
            node = self._put
        if node is None:
            raise FileNotFound(f"nothing with content was displaced from {self._path}")
        return io.BytesIO(node.content)

    def discard(self) -> None:
        if self._aside:
            self._workspace.remove(self._aside)
            self._aside = None

    def discard_unchanged(self) -> bool:
        node = self._workspace.node(self._aside) if self._aside else None
        if node is not None and (self.state is None or node.state.blob != self.state.blob):
            return False
        self.discard()
        return True

    def put_back(self) -> None:
        now = self._workspace.node(self._path)
        seen = (now.content, now.mode, now.mtime) if now else None
        filled = now is not None and now.kind == "directory" and self._workspace.list(self._path)
        same = self._in_place and self.state and self.state.kind == "directory"
        if now is not self._put or seen != self._seen or (filled and not same):
            raise Conflict(f"{self._path} was changed again after we replaced it")
        if self._in_place and now is not None and self.state and now.kind == self.state.kind:
            now.mode = self.state.mode
            return
        if now is not None:
            self._workspace.remove(self._path)
        if self._aside:
            self._workspace.move(self._aside, self._path)
            self._aside = None
        elif self.state is not None:
            self._workspace.folder(self._path, self.state.mode)
