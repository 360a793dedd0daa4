"""How a tool reaches the workspace: async methods, each one whole step in a worker thread.

A step that has begun is never abandoned: cancellation waits for its end, and tells a running
command to stop.
"""

import stat
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import BinaryIO, TypeVar

from loom_audit.errors import (
    AuditError,
    ExecutionFailed,
    FileNotFound,
    InvalidPath,
    NoWorkspace,
    PermissionDenied,
    TooLarge,
)
from loom_audit.history.recorder import OpenCall, Recorder
from loom_audit.model.events import Effect
from loom_audit.model.files import FileChange
from loom_audit.ports import (
    Command,
    Completed,
    Confinement,
    Limits,
    Runner,
    Stamp,
    Workspace,
)
from loom_audit.tools.entries import Entry, type_of
from loom_audit.tools.settings import ToolSettings
from loom_audit.tools.thread import in_thread

T = TypeVar("T")

MAX_EDITED = 64 * 1024 * 1024
"""Bytes of a file that is edited in memory."""


@dataclass(frozen=True, slots=True)
class ToolContext:
    """What one call may use. Paths are relative to `cwd`, or absolute inside the workspace.

    All paths handed back are workspace paths. Methods raise the errors of `loom_audit.errors`:
    InvalidPath outside the workspace, PermissionDenied when the tool's effect does not allow
    it, NoWorkspace where the call has none, AuditUnavailable (and nothing was done) when it
    cannot be put on record.
    """

    workspace: Path | None
    cwd: str = ""
    scratch_dir: Path | None = None
    session: str = ""
    call_id: str = ""
    effect: Effect = "read"
    environment: Mapping[str, str] = field(default_factory=dict)
    settings: ToolSettings = field(default_factory=ToolSettings)
    confinement: Confinement = "off"
    recorder: Recorder | None = field(default=None, repr=False)
    call: OpenCall | None = field(default=None, repr=False)
    runner: Runner | None = field(default=None, repr=False)

    # --- reading --------------------------------------------------------------------------

    async def open(self, path: str, reader: Callable[[BinaryIO, Entry], T]) -> T:
        """What `reader` makes of a regular file's content, read in the worker thread."""

        def step() -> T:
            with self._disk.open(self._path(path)) as stream:
                return reader(stream, self._stat(path))

        return await in_thread(step)

    async def read(self, path: str, limit: int | None = None) -> bytes:
        """A regular file's content, or the first `limit` bytes of it."""
        return await in_thread(lambda: self._disk.read(self._path(path), limit))

    async def stat(self, path: str) -> Entry:
        """The file or directory behind the path, symlinks followed. FileNotFound."""
        return await in_thread(lambda: self._stat(path))

    def exists(self, path: str) -> bool:
        """Whether something is at the path; sync, for `requires_approval`."""
        return self._disk.stamp(self._path(path)) is not None

    async def list(self, path: str = "") -> Sequence[Entry]:
        """A directory's entries, sorted by name, symlinks not followed."""
        return await in_thread(lambda: [*self._list(self._directory(path))])

    async def walk(
        self, path: str = "", *, enter: Callable[[Entry, int], bool], limit: int = 10_000
    ) -> Sequence[Entry]:
        """Entries below a directory, parents first; at most `limit`, and one more if there are.

        `enter` says whether to go into a directory of that depth (1 for those in `path`).
        """

        def below(directory: str, depth: int) -> Iterator[Entry]:
            for entry in self._list(directory):
                yield entry
                if entry.type == "directory" and enter(entry, depth):
                    try:
                        yield from below(entry.path, depth + 1)
                    except (FileNotFound, PermissionDenied):
                        continue  # it is listed; what it holds is not there for us

        def step() -> list[Entry]:
            found: list[Entry] = []
            for entry in below(self._directory(path), 1):
                found.append(entry)
                if len(found) > limit:
                    break
            return found

        return await in_thread(step)

    # --- writing --------------------------------------------------------------------------

    async def write(
        self,
        path: str,
        content: bytes,
        *,
        mode: int | None = None,
        parents: bool = True,
        final: bool = False,
    ) -> FileChange:
        """Put the content at the path. `final` promises that it is the call's last step."""

        def step() -> FileChange:
            self._fits(path, len(content))
            return self._open_call.write(
                self._path(path), content, mode=mode, parents=parents, final=final
            )

        return await in_thread(step)

    async def edit(
        self, path: str, transform: Callable[[bytes | None], bytes], *, final: bool = False
    ) -> FileChange:
        """Replace the content by what `transform` makes of it; None means absent.

        An error `transform` raises passes through, and nothing has changed. TooLarge over
        64 MiB. `final` promises that it is the call's last step.
        """

        def checked(old: bytes | None) -> bytes:
            new = transform(old)
            self._fits(path, len(new))
            return new

        def step() -> FileChange:
            target = self._path(path)
            call = self._open_call
            if self.exists(path) and (size := self._stat(path).size) > MAX_EDITED:
                raise TooLarge(
                    f"{path} has {size} bytes, more than the {MAX_EDITED} that can be edited",
                    hint="Change it with a shell command.",
                )
            return call.edit(target, checked, final=final)

        return await in_thread(step)

    async def delete(
        self, path: str, *, recursive: bool = False, final: bool = False
    ) -> tuple[str, ...]:
        """Delete a file, a symlink or a directory; the paths that are gone."""

        return await in_thread(
            lambda: self._open_call.delete(self._path(path), recursive=recursive, final=final)
        )

    async def move(
        self, source: str, target: str, *, overwrite: bool = False, final: bool = False
    ) -> tuple[FileChange, ...]:
        """Rename a file, symlink or directory. Conflict when the target exists."""

        return await in_thread(
            lambda: self._open_call.move(
                self._path(source), self._path(target), overwrite=overwrite, final=final
            )
        )

    # --- processes ------------------------------------------------------------------------

    async def run(
        self,
        *argv: str,
        cwd: str = "",
        stdin: bytes | None = None,
        timeout: float | None = 60.0,
        limit: int = 256 * 1024,
        final: bool = False,
        confinement: Confinement | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> Completed:
        """Run a command in the workspace and record which files it changed.

        It is confined as the settings say, else as the tool says, unless `confinement` is
        given. The call's environment, and this `environment`, are added to ours. Its whole
        process tree is killed at `timeout` (seconds), or when the call is cancelled. At most
        `limit` bytes of each stream are kept.
        """
        stop = threading.Event()
        wanted = confinement or self.settings.confinement or self.confinement

        def step() -> Completed:
            self._may_run()
            command = Command(
                argv=argv,
                cwd=self._directory(cwd),
                stdin=stdin,
                timeout=timeout,
                limit=limit,
                variables={**self.environment, **(environment or {})},
                confinement=wanted,
                network=self.settings.network,
                readable=self.settings.readable,
                writable=() if self.scratch_dir is None else (str(self.scratch_dir),),
                limits=Limits() if wanted == "off" else self.settings.limits,
            )
            return self._open_call.run(self._commands, command, cancelled=stop.is_set, final=final)

        return await in_thread(step, stop=stop)

    @asynccontextmanager
    async def captured(self) -> AsyncIterator[None]:
        """Record every file that changes during the block as this call's doing.

        For code that changes files itself. PermissionDenied unless the effect is execute.
        """

        def enter() -> None:
            self._may_run()
            manager = self._open_call.captured()
            manager.__enter__()
            held.append(manager)

        held: list[AbstractContextManager[None]] = []
        try:
            await in_thread(enter)
            yield
        finally:
            for manager in held:
                await in_thread(partial(manager.__exit__, None, None, None), certain=True)

    async def compute(
        self, *argv: str, cwd: str = "", stdin: bytes, timeout: float, limit: int
    ) -> Completed:
        """Run a program of ours that only reads, in a process that can be killed.

        For work whose duration nobody can foresee. No change it made would be recorded.
        """
        stop = threading.Event()

        def step() -> Completed:
            command = Command(
                argv=argv, cwd=self._directory(cwd), stdin=stdin, timeout=timeout, limit=limit
            )
            return self._commands.run(self._disk.root, command, cancelled=stop.is_set)

        return await in_thread(step, stop=stop)

    async def in_thread(self, step: Callable[[], T]) -> T:
        """Run blocking code beside the event loop; a timeout waits for its end."""
        return await in_thread(step)

    def _may_run(self) -> None:
        if self.effect != "execute":
            raise PermissionDenied(
                f"{self._open_call.tool} is registered with effect {self.effect} "
                "and tried to run a command",
                hint="Register the tool with effect execute.",
            )

    # --- steps, in the worker thread ------------------------------------------------------

    @property
    def _disk(self) -> Workspace:
        if self.recorder is None:
            raise no_workspace()
        return self.recorder.workspace

    @property
    def _open_call(self) -> OpenCall:
        if self.call is None:
            raise no_workspace()
        return self.call

    @property
    def _commands(self) -> Runner:
        if self.recorder is None:
            raise no_workspace()
        if self.runner is None:
            raise ExecutionFailed(
                "No commands can be run here", hint="Attach the workspace through a store."
            )
        return self.runner

    def _path(self, path: str) -> str:
        below = path if not self.cwd or path.startswith("/") else f"{self.cwd}/{path}"
        return self._disk.relative(below)

    def _directory(self, path: str) -> str:
        target = self._disk.resolve(self._path(path))
        if target:
            stamp = self._disk.stamp(target)
            if stamp is None:
                raise FileNotFound(f"File not found: {path}")
            if not stat.S_ISDIR(stamp.mode):
                raise InvalidPath(
                    f"{path} is not a directory", hint="Name the directory that holds it."
                )
        return target

    def _stat(self, path: str) -> Entry:
        target = self._disk.resolve(self._path(path))
        stamp = self._disk.stamp(target)
        if stamp is None:
            raise FileNotFound(f"File not found: {path}")
        return self._entry(target, stamp)

    def _list(self, directory: str) -> Iterator[Entry]:
        for name, stamp in self._disk.list(directory):
            try:
                yield self._entry(f"{directory}/{name}" if directory else name, stamp)
            except FileNotFound:
                continue  # gone since it was listed

    def _entry(self, path: str, stamp: Stamp) -> Entry:
        kind = type_of(stamp.mode)
        if kind == "directory":  # a directory's stamp holds no times
            return Entry(path, kind, 0, self._disk.mtime(path))
        return Entry(path, kind, stamp.size, datetime.fromtimestamp(stamp.mtime_ns / 1e9, UTC))

    def _fits(self, path: str, size: int) -> None:
        limit = self._open_call.recorder.at.scope.max_file_bytes
        if size > limit:
            raise TooLarge(
                f"{path} would have {size} bytes, more than the {limit} that are recorded",
                hint="Write a smaller file, or raise the workspace's limit.",
            )


def no_workspace() -> AuditError:
    return NoWorkspace(
        "This call names no workspace", hint="Pass workspace=PATH, an attached directory."
    )
