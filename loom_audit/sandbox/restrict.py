"""What a process gives up before it becomes the command: `apply(text)` in the forked child.

One step a line, in order: `limit RESOURCE SOFT HARD` | `drop-capabilities` | `allow ACCESS PATH`,
then `landlock FILES NETWORK SCOPE SIZE` (bit sets of linux/landlock.h, SIZE the bytes of them
that this kernel knows) | `seccomp PROGRAM`. PATH and PROGRAM are hexadecimal.
"""

import posix

TYPE_CHECKING = False
if TYPE_CHECKING:
    import ctypes

SET_SECCOMP, SET_NO_NEW_PRIVS, DROP_FROM_BOUNDING_SET = 22, 38, 24  # linux/prctl.h
SECCOMP_FILTER = 2
CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446  # the same number on every machine
FILE_ACCESS = 0b111 | 1 << 14 | 1 << 15
"""What a rule may allow on what is not a directory: execute, write, read, truncate, ioctl."""


def apply(text: str) -> None:
    """Take every step in order. OSError at the first that is refused: then nothing must be run."""
    rules: list[tuple[int, bytes]] = []
    for line in text.splitlines():
        word, *values = line.split(" ")
        if word == "limit":
            limit(*map(int, values))
        elif word == "drop-capabilities":
            drop_capabilities(library())
        elif word == "allow":
            rules.append((int(values[0]), bytes.fromhex(values[1])))
        elif word == "landlock":
            landlock(library(), rules, *map(int, values))
        elif word == "seccomp":
            seccomp(library(), bytes.fromhex(values[0]))
        else:
            raise OSError(22, "no such step", word)


def limit(which: int, soft: int, hard: int) -> None:
    """Set a resource limit (setrlimit(2)), never above the one that is there."""
    import resource

    _, most = resource.getrlimit(which)
    if most != resource.RLIM_INFINITY:
        soft, hard = min(soft, most), min(hard, most)
    resource.setrlimit(which, (soft, hard))


def library() -> "ctypes.CDLL":
    """The C library of this process, whose calls leave errno to be read."""
    import ctypes

    return ctypes.CDLL(None, use_errno=True)


def check(result: int) -> int:
    """The result of a call of the C library; OSError with its errno when it is negative."""
    import ctypes

    if result < 0:
        raise OSError(ctypes.get_errno(), posix.strerror(ctypes.get_errno()))
    return result


def drop_capabilities(libc: "ctypes.CDLL") -> None:
    """Drop all capabilities, also those that a program of user 0 would get (capabilities(7))."""
    number = 0  # the kernel knows how many there are: the first that it does not know fails
    while libc.prctl(DROP_FROM_BOUNDING_SET, number, 0, 0, 0) == 0:
        number += 1
    # _LINUX_CAPABILITY_VERSION_3 of linux/capability.h, and three empty sets of 64 bits
    header = (0x20080522).to_bytes(4, "little") + bytes(4)
    check(libc.capset(header, bytes(24)))


def landlock(
    libc: "ctypes.CDLL",
    rules: "list[tuple[int, bytes]]",
    files: int,
    net: int,
    scope: int,
    size: int,
) -> None:
    """Forbid this process and all its children every access but those that the rules allow.

    `files`, `net` and `scope` are the fields of struct landlock_ruleset_attr, each of 64 bits, and
    `size` how many bytes of the struct this kernel knows (landlock_create_ruleset(2)).
    """
    import ctypes

    attributes = b"".join(value.to_bytes(8, "little") for value in (files, net, scope))[:size]
    whole = ctypes.c_size_t(size)
    ruleset = check(libc.syscall(CREATE_RULESET, attributes, whole, 0))
    for access, path in rules:
        try:
            descriptor = posix.open(path, posix.O_PATH | posix.O_CLOEXEC)
        except OSError:
            continue  # what is not there, or not ours to enter, is not allowed either
        allowed = access & files
        if posix.fstat(descriptor).st_mode & 0o170000 != 0o040000:
            allowed &= FILE_ACCESS
        # struct landlock_path_beneath_attr, which is packed; rule type 1 is PATH_BENEATH
        rule = allowed.to_bytes(8, "little") + descriptor.to_bytes(4, "little")
        check(libc.syscall(ADD_RULE, ruleset, 1, rule, 0))
        posix.close(descriptor)
    # both need this: a setuid program must not be run with less than it counts on (prctl(2))
    check(libc.prctl(SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    check(libc.syscall(RESTRICT_SELF, ruleset, 0))
    posix.close(ruleset)


def seccomp(libc: "ctypes.CDLL", program: bytes) -> None:
    """Filter the system calls of this process and its children by struct sock_filter[]."""
    import ctypes

    instructions = ctypes.create_string_buffer(program, len(program))
    # struct sock_fprog: how many instructions of 8 bytes, and where they are
    count = (len(program) // 8).to_bytes(ctypes.sizeof(ctypes.c_void_p), "little")
    where = ctypes.addressof(instructions).to_bytes(ctypes.sizeof(ctypes.c_void_p), "little")
    check(libc.prctl(SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    check(libc.prctl(SET_SECCOMP, SECCOMP_FILTER, count + where, 0, 0))
