"""Starts supervisors in one sandbox, as its owner asks for them; the sandbox ends with `main()`.

It is the first process of a sandbox that stays, and imports little, for the same reason as
`supervisor`. ORDERS is a socket of packets. The first has the root of the workspace, which may not
be written, then `INODE PATH` of each mount point that may, parted by NUL; an inode of 0 is not
compared. The answer is `ready`, or what is wrong: bubblewrap goes by paths, and somebody may have
put a link in the place of a folder while it did. Each further packet has five descriptors: standard
input, output and error, control and messages of a supervisor.

No process of the sandbox, though it is of the same user, reads or takes descriptors of this one.
"""

import _signal  # type: ignore[import-not-found]
import _socket
import posix

MOST_BYTES = 1 << 18
"""Bytes of the first packet at most."""

DESCRIPTORS = 5
DEVICES = (b"null", b"zero", b"full", b"random", b"urandom", b"tty", b"console", b"pts", b"shm")
ALWAYS_WRITABLE = {b"/", b"/dev", b"/proc", *(b"/dev/" + name for name in DEVICES)}
"""What bubblewrap makes anew for each sandbox; no folder could be mounted on a device."""


def main(orders: int) -> None:
    """Check the mounts, then start supervisors until the owner is gone."""
    import supervisor  # type: ignore[import-not-found]  # beside us, in our folder

    posix.set_inheritable(orders, False)
    supervisor.prctl(supervisor.SET_DUMPABLE, 0)
    _signal.signal(_signal.SIGCHLD, _signal.SIG_IGN)  # then the kernel waits for them
    owner = _socket.socket(fileno=orders)
    flaw = wrong_mount(owner.recv(MOST_BYTES))
    owner.send(flaw or b"ready")
    while not flaw:
        packet, beside, _, _ = owner.recvmsg(1, _socket.CMSG_SPACE(4 * DESCRIPTORS))
        if not packet:
            break
        [(_, _, content)] = beside
        given = [*memoryview(content).cast("i")]
        if posix.fork() == 0:
            owner.close()
            supervise(given)
        for descriptor in given:
            posix.close(descriptor)
    posix._exit(0)


def supervise(given: "list[int]") -> None:
    """Be a supervisor with these descriptors, in the child; it does not return."""
    try:
        import supervisor

        posix.setsid()
        for number, descriptor in enumerate(given[:3]):
            posix.dup2(descriptor, number)
            posix.close(descriptor)
        supervisor.main(*given[3:])
    finally:
        posix._exit(127)


def wrong_mount(order: bytes) -> bytes:
    """What can be written here and must not be, or is not what it should be; empty when nothing."""
    root, *listed = order.split(b"\0")
    inodes = {path: int(inode) for inode, _, path in (one.partition(b" ") for one in listed)}
    device = posix.stat(root).st_dev
    seen: set[bytes] = set()
    for point in writable_mounts():
        if point in seen or (point not in inodes and point not in ALWAYS_WRITABLE):
            return b"something else is mounted at " + point
        seen.add(point)
    for path, inode in inodes.items():
        there = posix.stat(path, follow_symlinks=False)
        if path not in seen or (inode and (there.st_dev, there.st_ino) != (device, inode)):
            return b"another folder is mounted at " + path
    return b""


def writable_mounts() -> "list[bytes]":
    """The mount points that are not read-only (proc_pid_mountinfo(5))."""
    with open("/proc/self/mountinfo", "rb") as lines:
        fields = [line.split(b" ") for line in lines]
    return [unescaped(one[4]) for one in fields if b"rw" in one[5].split(b",")]


def unescaped(path: bytes) -> bytes:
    """A path whose blanks, line ends and backslashes are written in octal."""
    first, *others = path.split(b"\\")
    return first + b"".join(bytes([int(one[:3], 8)]) + one[3:] for one in others)
