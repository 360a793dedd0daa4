"""The files of a log that was imported, rebuilt from what a client told of them."""

import posixpath
from collections.abc import Iterable, Iterator
from typing import Protocol

from msgspec import UNSET, Struct, UnsetType, field
from msgspec.structs import replace

from loom_audit.clients.reports import FileTold
from loom_audit.errors import NotFound
from loom_audit.model.files import BlobId, FileChange, FileState
from loom_audit.model.text.patches import inverted, patched

FILE_MODE, FOLDER_MODE = 0o644, 0o755
"""Permission bits, which no client tells."""

_FOLDER = FileState("directory", None, FOLDER_MODE, 0)
_LONGEST = 4096


class Contents(Protocol):
    """Where contents are kept, by their hash; a store's are."""

    def put(self, content: bytes, *, similar_to: BlobId | None = None) -> BlobId: ...

    def get(self, blob: BlobId) -> bytes:
        """NotFound."""
        ...


class ToldChanges(Struct):
    """What a call changed as it was told, and what must have changed before it.

    `unknown` are paths whose content afterwards is not known, `outside` those of other folders.
    """

    before: list[FileChange] = field(default_factory=list)
    made: list[FileChange] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    outside: list[str] = field(default_factory=list)


class ToldTree:
    """What is known of the files below a root, path by path, as calls tell it."""

    def __init__(self, blobs: Contents, root: str, states: dict[str, FileState]) -> None:
        self._blobs = blobs
        self._root = posixpath.normpath(root) if root else "/"
        self._states = states
        self.staged = 0
        """Bytes of contents that were stored since this was last set to 0."""

    def relative(self, path: str, cwd: str) -> str | None:
        """A path below the root; None for the root, another place, or what is not a path."""
        full = posixpath.normpath(posixpath.join(cwd or self._root, path))
        base = self._root.rstrip("/") + "/"
        inside = full.startswith(base) and len(full) > len(base)
        usable = "\0" not in full and len(full) <= _LONGEST
        return full[len(base) :] if inside and usable else None

    def follow(self, files: Iterable[FileTold], cwd: str) -> ToldChanges:
        """What a call changed, as its files are told; they are known from here on."""
        found = ToldChanges()
        for told in files:
            path = self.relative(told.path, cwd)
            if path is None:
                found.outside.append(told.path)
            else:
                self._follow(path, told, cwd, found)
        return found

    def _follow(self, path: str, told: FileTold, cwd: str, found: ToldChanges) -> None:
        before, after = self._contents(path, told, cwd)
        known = self._states.get(path)
        if before is not UNSET:
            expected = self._state(path, before)
            if not _alike(known, expected):
                found.before.extend(self._become(path, expected))
                known = expected
        if after is UNSET:
            found.unknown.append(path)
            return
        state = self._state(path, after)
        if state is not None:
            found.before.extend(self._make_room(path))
        if not _alike(known, state):
            found.made.append(FileChange(path, known, state))
            self._set(path, state)

    def _contents(
        self, path: str, told: FileTold, cwd: str
    ) -> tuple[str | UnsetType | None, str | UnsetType | None]:
        """A file's content before and after, by its diff where they are not told themselves."""
        before, after = told.before, told.after
        if not told.diff:
            return before, after
        if after is None and before is UNSET and path not in self._states:
            whole = patched("", inverted(told.diff))
            return (UNSET if whole is None else whole), None
        if after is UNSET:
            base = "" if before is None else before
            if told.source:
                base = self._text(self.relative(told.source, cwd) or "")
            elif base is UNSET:
                base = self._text(path)
            made = patched(base, told.diff) if isinstance(base, str) else None
            after = UNSET if made is None else made
        return before, after

    def _text(self, path: str) -> str | UnsetType:
        """The content that a path is known to have."""
        state = self._states.get(path)
        if state is None or state.blob is None:
            return UNSET
        try:
            return self._blobs.get(state.blob).decode("utf-8")
        except (NotFound, UnicodeDecodeError):
            return UNSET

    def _state(self, path: str, content: str | UnsetType | None) -> FileState | None:
        if not isinstance(content, str):
            return None
        known = self._states.get(path)
        like = known.blob if known is not None else None
        raw = content.encode("utf-8", "replace")
        self.staged += len(raw)
        mode = known.mode if known is not None and known.kind == "file" else FILE_MODE
        return FileState("file", self._blobs.put(raw, similar_to=like), mode, len(raw))

    def _become(self, path: str, state: FileState | None) -> Iterator[FileChange]:
        """The changes by which a path comes to this state, and that of the folders above it."""
        if state is not None:
            yield from self._make_room(path)
        yield FileChange(path, self._states.get(path), state)
        self._set(path, state)

    def _make_room(self, path: str) -> Iterator[FileChange]:
        """The changes by which there are folders above a path, and none in its place."""
        above = path.split("/")[:-1]
        for depth in range(1, len(above) + 1):
            folder = "/".join(above[:depth])
            known = self._states.get(folder)
            if known is None or known.kind != "directory":
                yield FileChange(folder, known, _FOLDER)
                self._set(folder, _FOLDER)
        known = self._states.get(path)
        if known is not None and known.kind == "directory":
            inside = [one for one in self._states if one.startswith(f"{path}/")]
            for one in [*sorted(inside, reverse=True), path]:
                yield FileChange(one, self._states.pop(one), None)

    def _set(self, path: str, state: FileState | None) -> None:
        if state is None:
            self._states.pop(path, None)
        else:
            self._states[path] = state


def _alike(one: FileState | None, other: FileState | None) -> bool:
    """Whether two states are the same but for what no client tells."""
    if one is None or other is None or one.kind != other.kind:
        return one is other
    return replace(one, mode=0, acl=False, group=None) == replace(other, mode=0)
