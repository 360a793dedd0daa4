"""Runs one command and leaves nothing of it behind: `main()`, given CONTROL and MESSAGES.

A process of its own, because it adopts every orphan of the command (PR_SET_CHILD_SUBREAPER)
and reaps all its children, which a program with children of its own must not do. It imports
only what the interpreter has built in: `os`, `signal` and `ctypes` would double its start-up.

CONTROL is a pipe from the owner: the order (see `Order`), then one byte per request: 0 kills
everything, any other is a signal for the command. Its end means that the owner is gone, and
everything is killed; PR_SET_PDEATHSIG says the same when a fork of the owner holds the pipe.
MESSAGES is a pipe to the owner, one line each:
`failed STAGE ERRNO` | `started PID` | `stopped SIGNAL` | `outlived PID NAME` |
`unkillable PID NAME` | `ended WAITSTATUS`.
"""

import _signal  # type: ignore[import-not-found]
import errno
import posix
import select
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

GRACE = 0.1
"""Seconds for what outlives the command to end by itself: `tee >(grep …)` takes a moment."""

KILL_SECONDS = 5.0
"""Seconds until a process that does not die of SIGKILL is reported as unkillable."""

SET_DEATH_SIGNAL, SET_DUMPABLE, SET_SUBREAPER = 1, 4, 36  # linux/prctl.h
KEYBOARD = (_signal.SIGINT, _signal.SIGQUIT, _signal.SIGTSTP, _signal.SIGTTIN, _signal.SIGTTOU)
RESTORED = (*KEYBOARD, _signal.SIGHUP, _signal.SIGTERM, _signal.SIGPIPE, _signal.SIGXFSZ)


class Order:
    """A command to run, as the owner orders it: NUL-separated fields after an eight-digit length.

    Mode letters: `g` own process group, `t` hand the terminal over, `s` report stops,
    `w` walk the process tree (without it only the process group is killed), `p` show the
    command nothing of us, `k` leave alive what outlives the command. `steps` is the text of
    `restrict`.
    """

    __slots__ = ("argv", "cwd", "environment", "mode", "owner", "path", "steps")

    def __init__(self, fields: list[bytes]) -> None:
        self.mode = fields[0].decode()
        self.owner = int(fields[1])
        self.cwd = fields[2]
        self.steps = fields[3].decode()
        count = int(fields[4])
        self.argv = fields[5 : 5 + count]
        self.environment = dict(entry.split(b"=", 1) for entry in fields[5 + count :])
        self.path = self.environment.get(b"PATH", b"/usr/local/bin:/usr/bin:/bin")


def read_order(control: int) -> Order | None:
    """The order, or None when the owner died before it was written."""
    data = b""
    while len(data) < 8 or len(data) < 8 + int(data[:8]):
        want = 8 - len(data) if len(data) < 8 else 8 + int(data[:8]) - len(data)
        chunk = posix.read(control, min(want, 1 << 20))
        if not chunk:
            return None
        data += chunk
    return Order(data[8:].split(b"\0"))


def prctl(option: int, value: int) -> bool:
    """Whether prctl(2) with this option succeeded; False where there is no such call."""
    try:
        import _ctypes

        here: Any = None  # what dlopen(3) takes for the program itself
        call = _ctypes.dlsym(_ctypes.dlopen(here, 2), "prctl")
        return bool(_ctypes.call_function(call, (option, value, 0, 0, 0)) == 0)
    except (ImportError, OSError, AttributeError):
        return False


def processes(pid: int) -> list[int]:
    """The pids of all descendants of a process, zombies included; empty where /proc is silent."""
    found: list[int] = []
    waiting = [pid]
    while waiting:
        folder = b"/proc/%d/task" % waiting.pop()
        try:
            for thread in posix.listdir(folder):
                children = [
                    int(n) for n in read_file(folder + b"/" + thread + b"/children").split()
                ]
                found += children
                waiting += children
        except OSError:
            continue
    return found


def read_file(path: bytes) -> bytes:
    """The whole content of a file, such as those of /proc, whose size is not known before."""
    fd = posix.open(path, posix.O_RDONLY)
    try:
        data = b""
        while chunk := posix.read(fd, 65536):
            data += chunk
        return data
    finally:
        posix.close(fd)


def process_name(pid: int) -> bytes | None:
    """The name of a process, None when it is dead or a zombie."""
    try:
        stat = read_file(b"/proc/%d/stat" % pid)
    except OSError:
        return None
    name, _, rest = stat[stat.index(b"(") + 1 :].rpartition(b")")
    return None if rest[1:2] in (b"Z", b"X") else name.replace(b"\n", b"?")


def signal(pid: int, number: int) -> bool:
    """Send a signal; False when this user may not, True also when the process is gone."""
    try:
        posix.kill(pid, number)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return True


class Supervisor:
    """One command from its start to the death of the last process that it left."""

    def __init__(
        self, control: int, messages: int, order: Order, previous: "dict[int, Any]"
    ) -> None:
        self.control, self.messages, self.order, self.previous = control, messages, order, previous
        self.wakeups, self.waker = posix.pipe()
        posix.set_blocking(self.waker, False)
        self.reaper = "w" in order.mode and prctl(SET_SUBREAPER, 1)
        self.tty = -1
        self.child = 0
        self.status: int | None = None

    def tell(self, line: bytes) -> None:
        """Write one line to the owner; nothing when the owner is gone."""
        try:
            posix.write(self.messages, line + b"\n")
        except OSError as error:
            if error.errno != errno.EPIPE:  # the owner is gone, and nobody is left to tell
                raise

    def listen(self) -> None:
        """Let the deaths of children and SIGTERM wake up `watch`, and open the terminal."""
        for number in (_signal.SIGCHLD, _signal.SIGTERM):
            _signal.signal(number, lambda *_: None)
        _signal.set_wakeup_fd(self.waker, warn_on_full_buffer=False)
        if "p" in self.order.mode:
            prctl(SET_DUMPABLE, 0)
        if "t" in self.order.mode or "s" in self.order.mode:
            try:
                self.tty = posix.open("/dev/tty", posix.O_RDWR | posix.O_NOCTTY)
            except OSError:
                self.tty = -1

    def start(self) -> bool:
        """Fork and exec; False, and the owner is told, when the command could not be started."""
        failure, failed = posix.pipe()
        self.child = posix.fork()
        if self.child == 0:
            try:
                self.become_command(failed)
            finally:
                posix._exit(127)
        posix.close(failed)
        reason = posix.read(failure, 64)
        posix.close(failure)
        if reason:
            posix.waitpid(self.child, 0)
            self.tell(b"failed " + reason)
            return False
        self.tell(b"started %d" % self.child)
        return True

    def become_command(self, failed: int) -> None:
        """Be the command, in the child: take its place in the terminal, restore signals, exec."""
        order = self.order
        prctl(SET_DEATH_SIGNAL, _signal.SIGKILL)
        _signal.set_wakeup_fd(-1)
        if "g" in order.mode:
            posix.setpgid(0, 0)
        if "t" in order.mode and self.tty >= 0 and posix.tcgetpgrp(self.tty) == order.owner:
            posix.tcsetpgrp(self.tty, posix.getpid())
        for number, handler in self.previous.items():
            ignored = handler == _signal.SIG_IGN and number not in (
                _signal.SIGPIPE,
                _signal.SIGXFSZ,
            )
            _signal.signal(number, _signal.SIG_IGN if ignored else _signal.SIG_DFL)
        _signal.signal(_signal.SIGCHLD, _signal.SIG_DFL)
        try:
            posix.chdir(order.cwd)
        except OSError as error:
            posix.write(failed, b"cwd %d" % (error.errno or 0))
            return
        if order.steps:
            try:
                import restrict  # type: ignore[import-not-found]  # beside us, in our folder

                restrict.apply(order.steps)
            except (OSError, ValueError, ImportError) as error:
                posix.write(failed, b"confine %d" % (getattr(error, "errno", 0) or errno.EINVAL))
                return
        posix.write(failed, b"exec %d" % self.execute())

    def execute(self) -> int:
        """Execute the program as execvp(3) does; the errno of the most telling failure."""
        argv, environment = self.order.argv, self.order.environment
        if b"/" in argv[0]:
            candidates = [argv[0]]
        else:
            candidates = [
                (folder + b"/" if folder else b"./") + argv[0]
                for folder in self.order.path.split(b":")
            ]
        worst = errno.ENOENT
        for candidate in candidates:
            try:
                posix.execve(candidate, argv, environment)
            except OSError as error:
                if error.errno == errno.ENOEXEC:  # a script without a first line: as sh does
                    posix.execve(b"/bin/sh", [b"sh", candidate, *argv[1:]], environment)
                # a folder of PATH that we may not search says nothing about the program
                if error.errno not in (errno.ENOENT, errno.ENOTDIR) and posix.access(candidate, 0):
                    worst = error.errno or worst
        return worst

    def watch(self) -> bool:
        """Wait until the command ends; True when it is to be killed instead."""
        poll = select.poll()
        poll.register(self.control, select.POLLIN)
        poll.register(self.wakeups, select.POLLIN)
        while True:
            self.reap()
            if self.status is not None:
                return False
            for fd, _ in poll.poll():
                requests = posix.read(fd, 64)
                if fd == self.wakeups:
                    if _signal.SIGTERM in requests:
                        return True
                elif not requests or 0 in requests:
                    return True
                else:
                    for number in requests:
                        self.forward(number)

    def forward(self, number: int) -> None:
        """Send a signal to the command; SIGCONT gives the command its terminal again."""
        if (
            number == _signal.SIGCONT
            and "t" in self.order.mode
            and self.tty >= 0
            and posix.tcgetpgrp(self.tty) == self.order.owner
        ):
            posix.tcsetpgrp(self.tty, posix.getpgid(self.child))
        signal(-self.child if "g" in self.order.mode else self.child, number)

    def reap(self) -> bool:
        """Collect the processes that died; False when no child is left."""
        flags = posix.WNOHANG | (posix.WUNTRACED if "s" in self.order.mode else 0)
        while True:
            try:
                pid, status = posix.waitpid(-1, flags)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if posix.WIFSTOPPED(status):
                if pid == self.child:
                    self.give_terminal_back()
                    self.tell(b"stopped %d" % posix.WSTOPSIG(status))
            elif pid == self.child:
                self.status = status

    def give_terminal_back(self) -> None:
        """Make the owner's process group the one that the terminal's keyboard is for."""
        if "t" in self.order.mode and self.tty >= 0:
            try:
                if posix.tcgetpgrp(self.tty) != self.order.owner:
                    posix.tcsetpgrp(self.tty, self.order.owner)
            except OSError as error:
                # the terminal was closed, or the owner's group is gone with its owner
                if error.errno not in (errno.EIO, errno.ENOTTY, errno.ESRCH, errno.EPERM):
                    raise

    def survivors(self) -> list[tuple[int, bytes]]:
        """The pids and names of the descendants that run."""
        named = [(pid, process_name(pid)) for pid in processes(posix.getpid())]
        return [(pid, name) for pid, name in named if name is not None]

    def wait_for_survivors(self) -> None:
        """Let what outlives the command end within GRACE, then name to the owner what did not."""
        if not self.reaper:
            return
        end = time.monotonic() + GRACE
        while self.reap() and time.monotonic() < end:
            if not self.survivors():
                return
            time.sleep(0.004)
        for pid, name in self.survivors():
            self.tell(b"outlived %d %s" % (pid, name))

    def kill_all(self) -> None:
        """Kill every descendant; those that cannot be killed are named to the owner.

        A round stops every process before one is killed, so that none forks away from the list.
        """
        if not self.reaper:
            self.kill_group()
            return
        if self.status is None:
            signal(-self.child if "g" in self.order.mode else self.child, _signal.SIGKILL)
        end = time.monotonic() + KILL_SECONDS
        stopped: set[int] = set()
        while self.reap() and time.monotonic() < end:
            found = set(processes(posix.getpid()))
            if self.status is None:
                found.add(self.child)
            fresh = found - stopped
            mine = {pid for pid in fresh if signal(pid, _signal.SIGSTOP)}
            stopped |= fresh
            if mine:
                continue
            if not [pid for pid in found if signal(pid, _signal.SIGKILL)]:
                break
            time.sleep(0.001)
            stopped.clear()
        for pid, name in self.survivors():
            self.tell(b"unkillable %d %s" % (pid, name))

    def kill_group(self) -> None:
        """Kill the process group, which is all that can be done without a subreaper."""
        end = time.monotonic() + 1.0
        while time.monotonic() < end:
            self.reap()
            try:
                posix.kill(-self.child if "g" in self.order.mode else self.child, _signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                break
            time.sleep(0.001)
        self.reap()

    def run(self) -> None:
        """Start the command, wait for its end, kill what is left, and tell the owner of the end."""
        self.listen()
        if not self.start():
            self.give_terminal_back()
            return
        kill = self.watch()
        if not kill:
            self.wait_for_survivors()
        if kill or "k" not in self.order.mode:
            self.kill_all()
        self.give_terminal_back()
        self.tell(b"ended %d" % (_signal.SIGKILL if self.status is None else self.status))


def ignore_terminal_signals() -> "dict[int, Any]":
    """Ignore the signals of the terminal, and die with the owner, also before the order is read.

    Returns what was done with signals before, for the command.
    """
    prctl(SET_DEATH_SIGNAL, _signal.SIGTERM)
    previous = {number: _signal.getsignal(number) for number in RESTORED}
    for number in (*KEYBOARD, _signal.SIGHUP, _signal.SIGPIPE):
        _signal.signal(number, _signal.SIG_IGN)
    return previous


def main(control: int, messages: int) -> None:
    """Read the order from the pipe `control`, run the command, and exit."""
    posix.set_inheritable(control, False)
    posix.set_inheritable(messages, False)
    previous = ignore_terminal_signals()
    order = read_order(control)
    if order is not None:
        Supervisor(control, messages, order, previous).run()
    posix._exit(0)
