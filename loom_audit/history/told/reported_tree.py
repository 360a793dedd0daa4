"""Rebuilds files from what a client tells of them: for an imported log, and for `import --recover`.

Nothing is on disk to compare with. So where a client tells that a file was another before a call
than after the one before, a change between the two is inferred, and folders are made as paths need
them.
"""

import posixpath
from collections.abc import Iterable
from typing import Protocol

from msgspec import UNSET, Struct, UnsetType, field
from msgspec.structs import replace

from loom_audit.clients.reports import FileTold
from loom_audit.errors import NotFound
from loom_audit.model.files import BlobId, FileChange, FileState
from loom_audit.model.text.patches import inverted, patched

FILE_MODE, FOLDER_MODE = 0o644, 0o755
"""The permission bits that files and folders are given, since no client tells any."""

_FOLDER = FileState("directory", None, FOLDER_MODE, 0)
_LONGEST = 4096
"""Characters of a path, as many as PATH_MAX of Linux has bytes."""


class ContentStore(Protocol):
    """Keeps contents by their SHA-256, as the blobs of a store do."""

    def put(self, content: bytes, *, similar_to: BlobId | None = None) -> BlobId:
        """Keep a content; `similar_to` is one that it may be kept as a difference to."""
        ...

    def get(self, blob: BlobId) -> bytes:
        """A content that is kept; NotFound."""
        ...


class ReportedChanges(Struct):
    """What a call changed in a rebuilt tree, by what the client tells.

    `before` are changes that must have been made before the call, since its files were others by
    then, and `made` those of the call. `unknown` are paths below the root whose content after the
    call is not known, and `outside` paths, as the client wrote them, that are not below it.
    """

    before: list[FileChange] = field(default_factory=list)
    made: list[FileChange] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    outside: list[str] = field(default_factory=list)


class ReportedTree:
    """The files below a root, as far as they are known from what was told of the calls by now."""

    def __init__(self, blobs: ContentStore, root: str, states: dict[str, FileState]) -> None:
        self._blobs = blobs
        self._root = posixpath.normpath(root) if root else "/"
        self._states = states
        self.staged = 0
        """Bytes of contents that were stored since a caller set this to 0 last."""

    def relative(self, path: str, cwd: str) -> str | None:
        """A path of a client, absolute or relative to `cwd`, as it is named below the root.

        None for the root itself, a path elsewhere, and what cannot be a path.
        """
        full = posixpath.normpath(posixpath.join(cwd or self._root, path))
        base = self._root.rstrip("/") + "/"
        inside = full.startswith(base) and len(full) > len(base)
        usable = "\0" not in full and len(full) <= _LONGEST
        return full[len(base) :] if inside and usable else None

    def follow(self, files: Iterable[FileTold], cwd: str) -> ReportedChanges:
        """Change the tree as a call did, by the files that its client tells of; what was changed.

        `cwd` is the directory that relative paths of the call begin at.
        """
        changes = ReportedChanges()
        for file in files:
            path = self.relative(file.path, cwd)
            if path is None:
                changes.outside.append(file.path)
            else:
                self._follow(path, file, cwd, changes)
        return changes

    def _follow(self, path: str, file: FileTold, cwd: str, changes: ReportedChanges) -> None:
        before, after = self._contents(path, file, cwd)
        if before is not UNSET:
            expected = self._state(path, before)
            if not _alike(self._states.get(path), expected):
                changes.before += self._make_place(path) if expected is not None else []
                changes.before.append(self._set(path, expected))
        if after is UNSET:
            changes.unknown.append(path)
            return
        state = self._state(path, after)
        changes.before += self._make_place(path) if state is not None else []
        if not _alike(self._states.get(path), state):
            changes.made.append(self._set(path, state))

    def _contents(
        self, path: str, file: FileTold, cwd: str
    ) -> tuple[str | UnsetType | None, str | UnsetType | None]:
        """The content of a file before and after a call, by its diff where only that is told.

        None for no file, UNSET where the content is not known.
        """
        before, after = file.before, file.after
        if not file.diff:
            return before, after
        if after is None and before is UNSET and path not in self._states:
            whole = patched("", inverted(file.diff))
            return (UNSET if whole is None else whole), None
        if after is UNSET:
            base = "" if before is None else before
            if file.source:
                base = self._text(self.relative(file.source, cwd) or "")
            elif base is UNSET:
                base = self._text(path)
            made = patched(base, file.diff) if isinstance(base, str) else None
            after = UNSET if made is None else made
        return before, after

    def _text(self, path: str) -> str | UnsetType:
        """The text that is known to be at a path; UNSET where none is known, or it is not text."""
        state = self._states.get(path)
        if state is None or state.blob is None:
            return UNSET
        try:
            return self._blobs.get(state.blob).decode("utf-8")
        except (NotFound, UnicodeDecodeError):
            return UNSET

    def _state(self, path: str, content: str | UnsetType | None) -> FileState | None:
        """The state that a path has with a content, which is stored; None for no file."""
        if not isinstance(content, str):
            return None
        known = self._states.get(path)
        like = known.blob if known is not None else None
        raw = content.encode("utf-8", "replace")
        self.staged += len(raw)
        mode = known.mode if known is not None and known.kind == "file" else FILE_MODE
        return FileState("file", self._blobs.put(raw, similar_to=like), mode, len(raw))

    def _make_place(self, path: str) -> list[FileChange]:
        """Make the folders above a path, and remove a folder that is there; what was changed."""
        made = []
        above = path.split("/")[:-1]
        for depth in range(1, len(above) + 1):
            folder = "/".join(above[:depth])
            known = self._states.get(folder)
            if known is None or known.kind != "directory":
                made.append(self._set(folder, _FOLDER))
        known = self._states.get(path)
        if known is not None and known.kind == "directory":
            inside = [one for one in self._states if one.startswith(f"{path}/")]
            made += [self._set(one, None) for one in [*sorted(inside, reverse=True), path]]
        return made

    def _set(self, path: str, state: FileState | None) -> FileChange:
        """Give a path a state, None for none; the change that this is."""
        change = FileChange(path, self._states.pop(path, None), state)
        if state is not None:
            self._states[path] = state
        return change


def _alike(one: FileState | None, other: FileState | None) -> bool:
    """Whether two states are the same but for what no client tells: mode, list and hard links."""
    if one is None or other is None or one.kind != other.kind:
        return one is other
    return replace(one, mode=0, acl=False, group=None) == replace(other, mode=0)
