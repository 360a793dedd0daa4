"""The warm process: it answers agents' hooks on a socket, each connection in a thread of its own.

What a hook client sends: `loom-hook 1 CLIENT SECONDS [FLAGS]` as a line, with its working directory
as a descriptor; then the hook's input. What it is sent back: `=` and what the hook prints; `!` when
this process ends and another is to be asked; `?` when it does not see the same files. A `+` comes
first when a rule denies the call or asks about it: without what follows it may not run.
"""

import fcntl
import os
import select
import socket
import stat
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from loom_audit.api.agents.clients import Hooks
from loom_audit.api.agents.conversations import Container
from loom_audit.api.agents.launcher import SOCKET, build_id
from loom_audit.api.face import AuditStore
from loom_audit.errors import Conflict, InvalidArguments

IDLE_SECONDS = 600.0
"""After so long without a hook, and without an open call, the process ends."""

TICK = 0.25
CHECK_SECONDS = 2.0
"""How often it is looked whether this program was replaced on disk."""

MAX_INPUT = 512 * 1024 * 1024
MAX_LOG = 1024 * 1024
_HEADER = 4096
_PEER = struct.Struct("3i")
_PROGRAM = (Path(__file__).absolute(), Path(sys.executable))
_DRAIN_SECONDS = 3600.0
"""How long a process that was replaced stays for a question that waits."""


class HookServer:
    """Answers hooks on one socket from entering to leaving; `note` takes what went wrong.

    `closed` is called once the socket is gone; hooks that are here are answered still.
    """

    def __init__(
        self,
        store: AuditStore,
        folder: Path,
        name: str,
        note: Callable[[str], object],
        container: Container | None = None,
        closed: Callable[[], object] = lambda: None,
    ) -> None:
        self._closed = closed
        self._leaving = threading.Lock()
        self.path = folder / name
        self.heard = time.monotonic()
        self.ended = threading.Event()
        self._hooks = Hooks(store, container)
        self._note = note
        self._build = build_id()
        self._checked = time.monotonic()
        self._take_up_at = 0.0
        self._socket: socket.socket | None = None
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._threads: set[threading.Thread] = set()
        self._outside: set[str] = set()

    # --- from begin to end ----------------------------------------------------------------

    def __enter__(self) -> "HookServer":
        self._hooks.reserve()
        self._socket = _listening(self.path)
        self._accepting.start()
        threading.Thread(target=self._settle_often, daemon=True, name="_settle_often").start()
        return self

    def __exit__(self, *_: object) -> None:
        self.drain()

    def drain(self) -> None:
        """Take no more hooks, answer those that are here, and put on record what is known."""
        self._make_way()
        until = time.monotonic() + _DRAIN_SECONDS
        self._accepting.join(_DRAIN_SECONDS)  # which may be about to answer one more
        for thread in list(self._threads):
            thread.join(max(0.0, until - time.monotonic()))
        self._settle(last=True)
        self._hooks.close()

    @property
    def has_heard(self) -> bool:
        """Whether a hook of a session in a workspace ever came to this process."""
        return self._hooks.has_heard

    def _make_way(self) -> None:
        """Be asked no more: another process may answer from here on."""
        self.ended.set()
        with self._leaving:
            listening, self._socket = self._socket, None
            if listening is not None:
                with suppress(OSError):
                    self.path.unlink()
                with suppress(OSError):
                    listening.shutdown(socket.SHUT_RDWR)
                listening.close()
                self._closed()

    @property
    def is_idle(self) -> bool:
        """Whether nobody has asked for long, and no call is open."""
        return time.monotonic() - self.heard > IDLE_SECONDS and self._hooks.is_idle

    # --- one hook -------------------------------------------------------------------------

    def _accept(self) -> None:
        while (listening := self._socket) is not None and not self.ended.is_set():
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            self.heard = time.monotonic()
            thread = threading.Thread(target=self._serve, args=(connection,), daemon=True)
            self._threads.add(thread)
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            with connection:
                self._answer(connection)
        except Exception as error:  # noqa: BLE001 - the others go on; the hook lets the agent go on
            self._note(f"{type(error).__name__}: {error}")
        finally:
            self._threads.discard(threading.current_thread())

    def _answer(self, connection: socket.socket) -> None:
        pid = _peer(connection)
        header, rest, here = _header(connection)
        try:
            client, seconds, flags = _parsed(header)
            data = _rest(connection, rest)
            if self._is_outdated():
                self._make_way()
                connection.sendall(b"!")
                return
            if here is not None and not _is_same_view(here):
                connection.sendall(b"?")
                return
        finally:
            if here is not None:
                os.close(here)
        answer = self._hooks.answer(
            client,
            data,
            hook=pid,
            seconds=seconds,
            prompts="no-prompts" not in flags,
            is_there=lambda: _is_there(connection),
            asked=partial(_say_asked, connection),
        )
        with suppress(BrokenPipeError):
            connection.sendall(b"=" + answer)
        for folder in self._hooks.outside - self._outside:
            self._outside.add(folder)
            self._note(f"{folder} is in no workspace: nothing of {client} is recorded there")

    def _is_outdated(self) -> bool:
        """Whether another build of this program is on disk by now."""
        if time.monotonic() - self._checked < CHECK_SECONDS:
            return False
        self._checked = time.monotonic()
        try:
            return build_id() != self._build
        except OSError:
            return True

    def _settle_often(self) -> None:
        while not self.ended.wait(TICK):
            self._settle()

    def _settle(self, *, last: bool = False) -> None:
        for error in self._hooks.settle(last=last):
            self._note(f"{type(error).__name__}: {error}")
        if last or time.monotonic() >= self._take_up_at:
            try:
                self._hooks.take_up(last=last)
            except Exception as error:  # noqa: BLE001 - it stays for the next time
                self._take_up_at = time.monotonic() + CHECK_SECONDS
                self._note(f"{type(error).__name__}: {error}")


@contextmanager
def only_one(folder: Path, name: str) -> Iterator[Callable[[], None]]:
    """Be the only process that answers on this socket, until the yielded function is called.

    Conflict when another process answers there.
    """
    file = folder / f"{name}.lock"
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        until = time.monotonic() + 1.0
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                # one that is being drained goes in a moment; one that answers stays
                if time.monotonic() > until or (folder / name).exists():
                    raise Conflict(
                        f"another process answers hooks on {folder / name}",
                        hint="It is used; nothing is to be done.",
                    ) from error
                time.sleep(0.02)
        yield partial(fcntl.flock, descriptor, fcntl.LOCK_UN)
    finally:
        os.close(descriptor)


def run_daemon(store: AuditStore, folder: Path, name: str = SOCKET) -> None:
    """Answer hooks until nobody asks for long, or this program is replaced or removed.

    Conflict when another process answers there.
    """
    note = partial(_note, folder / "daemon.log")
    with (
        only_one(folder, name) as let_go,
        HookServer(store, folder, name, note, closed=let_go) as server,
    ):
        (folder / "failed").unlink(missing_ok=True)
        while not server.ended.wait(1.0):
            # without its program, its interpreter or its socket nobody can be answered any more
            if server.is_idle or not all(one.exists() for one in (*_PROGRAM, server.path)):
                return


def _note(log: Path, text: str) -> None:
    """Keep what went wrong, beside the socket; the oldest goes."""
    with suppress(OSError):
        if log.exists() and log.stat().st_size > MAX_LOG:
            log.replace(log.with_suffix(".old"))
        descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            line = f"{time.strftime('%Y-%m-%dT%H:%M:%S%z')} {text}".replace("\n", " ")
            os.write(descriptor, f"{line}\n".encode("utf-8", "replace"))
        finally:
            os.close(descriptor)


def _listening(path: Path) -> socket.socket:
    """The socket, for our user only; what a killed process left there goes. Under the lock."""
    if path.exists() or path.is_symlink():
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise InvalidArguments(f"{path} is not a socket", hint="Move it away.")
        path.unlink()
    found = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    before = os.umask(0o177)
    try:
        # short, whatever the length of the folder's name
        found.bind(f"/proc/self/fd/{folder}/{path.name}")
        found.listen(128)
    except BaseException:
        found.close()
        raise
    finally:
        os.umask(before)
        os.close(folder)
    return found


def _peer(connection: socket.socket) -> int:
    """The process that asks. InvalidArguments when it is of another user."""
    size = _PEER.size
    pid, user, _ = _PEER.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
    if user != os.geteuid():
        raise InvalidArguments(f"user {user} asked", hint="Each user has a store of their own.")
    return int(pid)


def _header(connection: socket.socket) -> tuple[bytes, bytes, int | None]:
    """The first line, what came with it, and the descriptor of the asker's directory."""
    data, here = b"", None
    while b"\n" not in data and len(data) < _HEADER:
        part, found, _, _ = socket.recv_fds(connection, 1 << 16, 4)
        if here is None and found:
            here = found.pop(0)
        for other in found:
            os.close(other)
        if not part:
            break
        data += part
    line, _, rest = data.partition(b"\n")
    return line, rest, here


def _parsed(header: bytes) -> tuple[str, float, list[str]]:
    words = header.decode("ascii", "replace").split(" ")
    if len(words) < 4 or words[:2] != ["loom-hook", "1"] or not words[3].isdigit():
        raise InvalidArguments(
            f"not what a hook client says: {header[:100]!r}",
            hint="Run `loom-audit connect` again.",
        )
    return words[2], float(words[3]), words[4:]


def _rest(connection: socket.socket, begun: bytes) -> bytes:
    parts, size = [begun], len(begun)
    while part := connection.recv(1 << 20):
        parts.append(part)
        size += len(part)
        if size > MAX_INPUT:
            raise InvalidArguments("the input of a hook is too large")
    return b"".join(parts)


def _say_asked(connection: socket.socket) -> None:
    """Say that without an answer the call may not run; to one that went away, nothing."""
    with suppress(OSError):
        connection.sendall(b"+")


def _is_there(connection: socket.socket) -> bool:
    """Whether the asker still waits: it has said all, so only its end is told."""
    poll = select.poll()
    poll.register(connection, 0)
    return not any(event & (select.POLLHUP | select.POLLERR) for _, event in poll.poll(0))


def _is_same_view(here: int) -> bool:
    """Whether a directory that is open is here what it is for who opened it."""
    try:
        seen, mine = os.fstat(here), os.stat(os.readlink(f"/proc/self/fd/{here}"))
    except OSError:
        return False
    return (seen.st_dev, seen.st_ino) == (mine.st_dev, mine.st_ino)
