"""How a tool reaches the workspace: async methods, each one whole step in a worker thread.

A step that has begun is never abandoned: cancellation waits for its end, and tells a running
command to stop.
"""

import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, TypeVar

from loom_audit.errors import (
    AuditError,
    AuditUnavailable,
    ExecutionFailed,
    FileNotFound,
    InvalidPath,
    PermissionDenied,
    TooLarge,
)
from loom_audit.history.ground.writer import Writer
from loom_audit.history.record.backgrounds import joined_background
from loom_audit.history.record.call import OpenCall
from loom_audit.model.coverage import Effect
from loom_audit.model.files import FileChange
from loom_audit.ports import (
    Command,
    CommandResult,
    Confinement,
    Limits,
    Moments,
    Runner,
    Workspace,
)
from loom_audit.tools.calls.places import scratch
from loom_audit.tools.calls.places.area import SCRATCH, Area, Entry, no_workspace_error, search_path
from loom_audit.tools.calls.settings import ToolSettings
from loom_audit.tools.calls.thread import in_thread

if TYPE_CHECKING:
    from loom_audit.tools.calls.past import PlannedOnce

T = TypeVar("T")

MAX_EDITED = 64 * 1024 * 1024
"""Bytes of a file that is edited in memory."""


@dataclass(frozen=True, slots=True)
class ToolContext:
    """What one call may use. Paths are relative to the workspace, or absolute inside it.

    All paths handed back are workspace paths. Methods raise the errors of `loom_audit.errors`:
    InvalidPath outside the workspace, PermissionDenied when the tool's effect does not allow
    it, NoWorkspace where the call has none, AuditUnavailable (and nothing was done) when it
    cannot be put on record: a context that is made by hand belongs to no call. `asked` is why
    the tool wanted somebody to be asked, as decided on. `left_running` are the system's ids of
    threads that go on when the call has ended.
    """

    workspace: Path | None
    cwd: str = ""
    scratch_dir: Path | None = None
    session: str = ""
    call_id: str = ""
    asked: str = ""
    effect: Effect = "read"
    environment: Mapping[str, str] = field(default_factory=dict)
    settings: ToolSettings = field(default_factory=ToolSettings)
    confinement: Confinement = "off"
    writer: Writer | None = field(default=None, repr=False)
    call: OpenCall | None = field(default=None, repr=False)
    runner: Runner | None = field(default=None, repr=False)
    stop: threading.Event | None = field(default=None, repr=False)
    left_running: list[int] = field(default_factory=list, repr=False)
    past: "PlannedOnce | None" = field(default=None, repr=False)

    # --- reading --------------------------------------------------------------------------

    async def open(self, path: str, reader: Callable[[BinaryIO, Entry], T]) -> T:
        """What `reader` makes of a regular file's content, read in the worker thread."""

        def step() -> T:
            area, rest = self._area(path)
            with area.open(rest) as stream:
                return reader(stream, area.stat(rest))

        return await self.in_thread(step)

    async def read(self, path: str, limit: int | None = None) -> bytes:
        """A regular file's content, or the first `limit` bytes of it."""

        def step() -> bytes:
            area, rest = self._area(path)
            with area.naming(rest):
                return area.disk.read(area.path(rest), limit)

        return await self.in_thread(step)

    async def stat(self, path: str) -> Entry:
        """The file or directory behind the path, symlinks followed. FileNotFound."""

        def step() -> Entry:
            area, rest = self._area(path)
            return area.stat(rest)

        return await self.in_thread(step)

    async def missing(self, path: str) -> FileNotFound:
        """The error that nothing is at a path, with what may be meant by it."""

        def step() -> FileNotFound:
            area, rest = self._area(path)
            return area.missing(rest)

        return await self.in_thread(step)

    @contextmanager
    def naming(self, path: str) -> Iterator[None]:
        """Say of a path that is not there what may be meant by it; sync, for previews."""
        area, rest = self._area(path)
        with area.naming(rest):
            yield

    def exists(self, path: str) -> bool:
        """Whether something is at the path; sync, for `requires_approval`."""
        area, rest = self._area(path)
        return area.disk.stamp(area.path(rest)) is not None

    async def list(self, path: str = "") -> Sequence[Entry]:
        """A directory's entries, sorted by name, symlinks not followed."""

        def step() -> Sequence[Entry]:
            area, rest = self._area(path)
            return [*area.list(area.directory(rest))]

        return await self.in_thread(step)

    async def walk(
        self, path: str = "", *, enter: Callable[[Entry, int], bool], limit: int = 10_000
    ) -> Sequence[Entry]:
        """Entries below a directory, parents first; at most `limit`, and one more if there are.

        `enter` says whether to go into a directory of that depth (1 for those in `path`).
        """

        def step() -> list[Entry]:
            area, rest = self._area(path)
            return [*islice(area.walk(area.directory(rest), enter), limit + 1)]

        return await self.in_thread(step)

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
        """Put the content at the path. `final` promises that it is the call's last step.

        ExecutionFailed for a text, which has to be encoded.
        """

        def step() -> FileChange:
            self._check_content(path, content)
            area, rest = self._area(path)
            if area.prefix:
                self._announce_scratch()
                return scratch.write(area.disk, rest, content, mode=mode, create=parents)
            return self.open_call.edit(
                area.path(rest), content, mode=mode, parents=parents, final=final
            )

        return await self.in_thread(step)

    async def edit(
        self, path: str, transform: Callable[[bytes | None], bytes], *, final: bool = False
    ) -> FileChange:
        """Replace the content by what `transform` makes of it; None means absent.

        An error `transform` raises passes through, and nothing has changed. TooLarge over
        64 MiB. `final` promises that it is the call's last step.
        """

        def checked(old: bytes | None) -> bytes:
            new = transform(old)
            self._check_content(path, new)
            return new

        def step() -> FileChange:
            area, rest = self._area(path)
            call = self.open_call
            if self.exists(path) and (size := area.stat(rest).size) > MAX_EDITED:
                raise TooLarge(
                    f"{path} has {size} bytes, more than the {MAX_EDITED} that can be edited",
                    hint="Change it with a shell command.",
                )
            with area.naming(rest):
                if area.prefix:
                    self._announce_scratch()
                    return scratch.write(area.disk, rest, checked)
                return call.edit(area.path(rest), checked, final=final)

        return await self.in_thread(step)

    async def delete(
        self, path: str, *, recursive: bool = False, final: bool = False
    ) -> tuple[str, ...]:
        """Delete a file, a symlink or a directory; the paths that are gone."""

        def step() -> tuple[str, ...]:
            area, rest = self._area(path)
            with area.naming(rest):
                if area.prefix:
                    self._announce_scratch()
                    return scratch.delete(area.disk, rest, recursive=recursive)
                return self.open_call.delete(area.path(rest), recursive=recursive, final=final)

        return await self.in_thread(step)

    async def move(
        self, source: str, target: str, *, overwrite: bool = False, final: bool = False
    ) -> tuple[FileChange, ...]:
        """Rename a file, symlink or directory. Conflict when the target exists.

        InvalidPath between the workspace and the scratch directory.
        """

        def step() -> tuple[FileChange, ...]:
            (area, old), (target_area, new) = self._area(source), self._area(target)
            if area.prefix != target_area.prefix:
                raise InvalidPath(
                    "The scratch directory is not of the workspace: nothing is moved between them",
                    hint="Read the file and write it there.",
                )
            with area.naming(old):
                if area.prefix:
                    self._announce_scratch()
                    return scratch.move(area.disk, old, new, overwrite=overwrite)
                return self.open_call.move(
                    area.path(old), area.path(new), overwrite=overwrite, final=final
                )

        return await self.in_thread(step)

    # --- processes ------------------------------------------------------------------------

    @property
    def is_confined(self) -> bool:
        """Whether a command that asks for nothing else runs confined; blocks at the first time."""
        wanted = self.settings.confinement or self.confinement
        return wanted != "off" and self.command_runner.name != "plain"

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
        network: bool | None = None,
        writable: tuple[str, ...] = (),
        readable: tuple[str, ...] = (),
        within: str = "",
        home: Mapping[str, bytes] | None = None,
    ) -> CommandResult:
        """Run a command in the workspace and record which files it changed.

        It is confined as the settings say, else as the tool says, unless `confinement` is
        given. The call's environment, and this `environment`, are added to ours. Its whole
        process tree is killed at `timeout` (seconds), or when the call is cancelled. At most
        `limit` bytes of each stream are kept. A confined one gets the network as the settings
        say, unless `network` is given, may use the `readable` and `writable` paths too, and finds
        the files of `home`, by name, in its home directory. With `within` it runs in the sandbox of
        the background command of that name, as that one is.
        """

        def step(cancelled: Callable[[], bool]) -> CommandResult:
            self.check_may_run("execute", "network")
            command = self.command(
                argv,
                cwd,
                stdin=stdin,
                timeout=timeout,
                limit=limit,
                confinement=confinement,
                environment=environment,
                network=network,
                writable=writable,
                readable=readable,
                home=home,
            )
            runner = self.command_runner
            if within:
                runner = joined_background(self.open_call, within)
            return self.open_call.run(runner, command, cancelled=cancelled, final=final)

        return await self._long_step(step)

    def command(
        self,
        argv: tuple[str, ...],
        cwd: str,
        *,
        timeout: float | None,
        confinement: Confinement | None,
        environment: Mapping[str, str] | None,
        stdin: bytes | None = None,
        limit: int = 256 * 1024,
        network: bool | None = None,
        writable: tuple[str, ...] = (),
        readable: tuple[str, ...] = (),
        home: Mapping[str, bytes] | None = None,
    ) -> Command:
        """The command as `run` describes it; sync. InvalidPath, NotADirectory, FileNotFound."""
        wanted = confinement or self.settings.confinement or self.confinement
        return Command(
            argv=argv,
            cwd=Area(self._workspace).directory(cwd),
            stdin=stdin,
            timeout=timeout,
            limit=limit,
            variables={**self.environment, **(environment or {})},
            confinement=wanted,
            network=self.settings.network if network is None else network,
            readable=(*self.settings.readable, *readable),
            writable=(*writable, *([str(self.scratch_dir)] if self.scratch_dir else [])),
            home=home or {},
            limits=Limits() if wanted == "off" else self.settings.limits,
        )

    @asynccontextmanager
    async def captured(self) -> AsyncIterator[None]:
        """Record every file that changes during the block as this call's doing.

        For code that changes files itself. PermissionDenied unless the effect is execute.
        """

        def enter() -> None:
            self.check_may_run("execute")
            manager = self.open_call.capture()
            manager.__enter__()
            entered.append(manager)

        entered: list[AbstractContextManager[None]] = []
        try:
            await in_thread(enter)
            yield
        finally:
            for manager in entered:
                await in_thread(partial(manager.__exit__, None, None, None), shielded=True)

    async def compute(
        self,
        *argv: str,
        cwd: str = "",
        stdin: bytes,
        timeout: float | None,
        limit: int,
        confinement: Confinement = "off",
        environment: Mapping[str, str] | None = None,
        readable: tuple[str, ...] = (),
        read_only: bool = True,
    ) -> CommandResult:
        """Run a program of ours that only reads, in a process that can be killed.

        No change it made would be recorded; a confined one is `read_only` unless told.
        """

        def step(cancelled: Callable[[], bool]) -> CommandResult:
            area, rest = self._area(cwd)
            command = Command(
                argv=argv,
                cwd=area.directory(rest),
                stdin=stdin,
                timeout=timeout,
                limit=limit,
                variables={**search_path(self.workspace, self.scratch_dir), **(environment or {})},
                confinement=confinement,
                readable=(*self.settings.readable, *readable),
                read_only=read_only,
                limits=Limits() if confinement == "off" else self.settings.limits,
            )
            return self.command_runner.run(area.disk.root, command, Moments(cancelled=cancelled))

        return await self._long_step(step)

    async def in_thread(self, step: Callable[[], T]) -> T:
        """Run blocking code beside the event loop; a timeout waits for its end.

        Where the whole call is in a worker thread it runs there, and ExecutionFailed when nobody
        waits for the call any more.
        """
        # then the call is not in a thread of its own, of which `stop` tells
        if self.stop is None:
            return await in_thread(step)
        if self.stop.is_set():
            raise ExecutionFailed("Nobody waits for this call any more")
        return step()

    def no_call_error(self) -> AuditError:
        """Return the error for a context without a call: a workspace is missing, or the call."""
        if self.workspace is None:
            return no_workspace_error()
        return AuditUnavailable(
            "This context belongs to no call on record, and nothing is done off the record",
            hint="Call the tool by `registry.execute(name, arguments, workspace)` or "
            "`session.call(name, arguments)`, which make its context.",
        )

    def check_may_run(self, *effects: Effect) -> None:
        """PermissionDenied for a tool of another effect."""
        if self.effect not in effects:
            raise PermissionDenied(
                f"{self.open_call.tool} is registered with effect {self.effect} "
                "and tried to run a command",
                hint="Register the tool with effect execute.",
            )

    # --- steps, in the worker thread ------------------------------------------------------

    async def _long_step(self, step: Callable[[Callable[[], bool]], T]) -> T:
        """As `in_thread`, of one that asks now and then whether it is to end early."""
        if self.stop is not None:
            asked = self.stop.is_set
            return await self.in_thread(lambda: step(asked))
        stop = threading.Event()
        return await in_thread(lambda: step(stop.is_set), stop=stop)

    @property
    def open_writer(self) -> Writer:
        """What writes the workspace and its log. NoWorkspace, AuditUnavailable."""
        if self.writer is None:
            raise self.no_call_error()
        return self.writer

    @property
    def _workspace(self) -> Workspace:
        return self.open_writer.workspace

    @property
    def open_call(self) -> OpenCall:
        """The call on record. NoWorkspace."""
        if self.call is None:
            raise self.no_call_error()
        return self.call

    @property
    def command_runner(self) -> Runner:
        """What runs commands. NoWorkspace, ExecutionFailed."""
        if self.writer is None:
            raise self.no_call_error()
        if self.runner is None:
            raise ExecutionFailed(
                "No commands can be run here", hint="Attach the workspace through a store."
            )
        return self.runner

    def _area(self, path: str) -> tuple[Area, str]:
        """Where a path leads, and the path there."""
        if not path.startswith(SCRATCH):
            return Area(self._workspace), path
        folder = self.open_writer.scratch
        if folder is None:
            raise InvalidPath(
                "This call has no scratch directory", hint="Name a path in the workspace."
            )
        return Area(folder, SCRATCH), path.removeprefix(SCRATCH).lstrip("/")

    def _announce_scratch(self) -> None:
        """Put the call on record before it changes what is not of the workspace."""
        call = self.open_call
        call.check_writable()
        call.record.lower_coverage("outside the workspace: scratch")
        call.announce()

    def _check_content(self, path: str, content: object) -> None:
        if not isinstance(content, bytes):
            raise ExecutionFailed(
                f"the content for {path} is of type {type(content).__name__}, not bytes",
                hint="Encode a text: `text.encode()`.",
            )
        limit = self.open_call.writer.attachment.scope.max_file_bytes
        if len(content) > limit:
            raise TooLarge(
                f"{path} would have {len(content)} bytes, more than the {limit} that are recorded",
                hint="Write a smaller file, or raise the workspace's limit.",
            )
