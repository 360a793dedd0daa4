"""Reads loose objects, and what new ones lead to, so that git need not be started for a commit.

What is not loose, is large or has another form than git writes is left to git (gitformat-loose(5),
git-hash-object(1)).
"""

import os
import re
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from hashlib import sha1, sha256

from msgspec import Struct

from loom_audit.ports.git_objects import LONG_ID

MOST_READ = 1 << 20
MOST_INFLATED = 4 << 20
MOST_FOLLOWED = 1_000
"""Bytes of an object's file and content that are read, and objects that are followed, before git
is asked in place of it.
"""

_FIRST = 512
"""Bytes of an object's file and content among which its kind is."""

_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_HEADER = re.compile(rb"(commit|tree|blob|tag) (\d+)\0")
_COMMIT = re.compile(rb"tree ([0-9a-f]+)\n((?:parent [0-9a-f]+\n)*)author ")
_TAG = re.compile(rb"object ([0-9a-f]+)\ntype (commit|tree|blob|tag)\ntag ")
_FOLDER, _OTHER_REPOSITORY = b"40000", b"160000"
_FILES = frozenset({b"100644", b"100755", b"120000"})


class LooseObject(Struct, frozen=True):
    """An object: `commit`, `tree`, `blob` or `tag`, and its content."""

    kind: bytes
    body: bytes

    @property
    def parents(self) -> Sequence[str] | None:
        """The parents of a commit; None where it is none."""
        found = _COMMIT.match(self.body) if self.kind == b"commit" else None
        return found and [line[7:].decode() for line in found[2].splitlines()]

    @property
    def tree(self) -> str:
        """The tree of a commit; "" where it is none."""
        found = _COMMIT.match(self.body) if self.kind == b"commit" else None
        return found[1].decode() if found else ""


def loose_object(objects: int, id: str) -> LooseObject | None:
    """A loose object in an open folder of objects, whose content has this hash; else None."""
    with suppress(OSError, zlib.error):
        file = os.open(f"{id[:2]}/{id[2:]}", _FILE, dir_fd=objects)
        try:
            size = os.fstat(file).st_size
            content = os.read(file, size) if size <= MOST_READ else b""
        finally:
            os.close(file)
        inflating = zlib.decompressobj()
        whole = inflating.decompress(content, MOST_INFLATED)
        made_by = sha256 if len(id) == LONG_ID else sha1
        header = _HEADER.match(whole)
        if header and inflating.eof and made_by(whole).hexdigest() == id:
            return LooseObject(header[1], whole[header.end() :])
    return None


def are_whole(objects: int, wanted: Sequence[str], whole: Collection[str]) -> bool:
    """Whether these objects and all that they lead to are in an open folder of objects, where all
    that `whole` ones lead to is. False where git has to tell it.
    """
    return _Following(objects, wanted, whole).ends_well()


class _Following:
    """A walk from new objects to what is known; whatever is met on the way has to be loose."""

    def __init__(self, objects: int, wanted: Sequence[str], whole: Collection[str]) -> None:
        self._objects = objects
        self._known = {*whole}
        self._waiting: list[tuple[str, bytes]] = [(id, b"") for id in wanted]
        self._kinds: dict[str, bytes] = {}
        self._trees: list[tuple[str, str]] = []
        self._allowed = MOST_FOLLOWED

    def ends_well(self) -> bool:
        """Whether all that is met is there."""
        while self._waiting:
            id, kind = self._waiting.pop()
            if id in self._known and not kind:
                continue
            if id not in self._kinds:
                found = self._read(id)
                if found is None or not (id in self._known or self._follow(found)):
                    return False
                self._known.add(id)
                self._kinds[id] = found.kind
            if kind not in (b"", self._kinds[id]):
                return False
        return all(self._is_there(*one) for one in self._in_trees())

    def _read(self, id: str) -> LooseObject | None:
        self._allowed -= 1
        return loose_object(self._objects, id) if self._allowed >= 0 else None

    def _follow(self, one: LooseObject) -> bool:
        if one.kind == b"tag" and (named := _TAG.match(one.body)):
            self._waiting.append((named[1].decode(), named[2]))
        elif (parents := one.parents) is not None:
            self._waiting += ((one, b"commit") for one in parents)
            above = self._read(parents[0]) if parents else None
            self._trees.append((one.tree, above.tree if above else ""))
        else:
            return one.kind == b"blob"  # a tree that is named by itself is left to git
        return True

    def _in_trees(self) -> Iterator[tuple[bytes, str]]:
        """The files that trees have and the ones before have not, and trees that are not read."""
        while self._trees:
            id, before = self._trees.pop()
            now, old = self._entries(id), self._entries(before) if before else {}
            if now is None:
                yield _FOLDER, id
                continue
            for name, (mode, inner) in now.items():
                was = old.get(name) if old else None
                if was == (mode, inner) or mode == _OTHER_REPOSITORY:
                    continue
                if mode == _FOLDER:
                    self._trees.append((inner, was[1] if was and was[0] == _FOLDER else ""))
                else:
                    yield mode, inner

    def _entries(self, id: str) -> Mapping[bytes, tuple[bytes, str]] | None:
        found = self._read(id)
        if found is None or found.kind != b"tree":
            return None
        with suppress(ValueError):
            return _entries_of(found.body, len(id) // 2)
        return None

    def _is_there(self, mode: bytes, id: str) -> bool:
        self._allowed -= 1
        return mode in _FILES and self._allowed >= 0 and _kind_of(self._objects, id) == b"blob"


def _kind_of(objects: int, id: str) -> bytes:
    """The kind that the first bytes of a loose object say; b"" where there is none."""
    with suppress(OSError, zlib.error):
        file = os.open(f"{id[:2]}/{id[2:]}", _FILE, dir_fd=objects)
        try:
            content = os.read(file, _FIRST)
        finally:
            os.close(file)
        return zlib.decompressobj().decompress(content, _FIRST).partition(b" ")[0]
    return b""


def _entries_of(body: bytes, size: int) -> dict[bytes, tuple[bytes, str]]:
    """The names in a tree with mode and id; ValueError for what git does not write."""
    found, at = dict[bytes, tuple[bytes, str]](), 0
    while at < len(body):
        end = body.index(b"\0", at)
        mode, _, name = body[at:end].partition(b" ")
        at = end + 1 + size
        if name in found or at > len(body):
            raise ValueError("a name that comes twice, or an entry that was cut off")
        found[name] = mode, body[end + 1 : at].hex()
    return found
