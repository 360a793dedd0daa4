"""A filter of system calls, built as the classic BPF program that seccomp(2) takes.

The filter closes what a confined command must not reach in the kernel whatever files it sees:
mounts, namespaces, other processes' memory, keys, BPF, io_uring (which opens sockets past any
filter) and pushing input into a terminal. A call that is refused fails with EPERM; `clone3` with
ENOSYS, so that the C library falls back to `clone`: the flags of `clone3` lie in memory, where a
filter cannot look, those of `clone` are an argument.
"""

import errno
import platform
import socket
import struct

from msgspec import Struct

from loom_audit.errors import ExecutionFailed

# linux/bpf_common.h, linux/seccomp.h
LOAD, EQUAL, AT_LEAST, ANY_BIT, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
ALLOW, REFUSE, KILL = 0x7FFF0000, 0x00050000, 0x80000000
NUMBER, MACHINE, FIRST, SECOND = 0, 4, 16, 24
"""Offsets into struct seccomp_data: call, architecture, low halves of two arguments."""

NEW_NAMESPACES = 0x7E020000  # CLONE_NEW* but for time, linux/sched.h
INPUT_PUSHERS = (0x5412, 0x541C)  # TIOCSTI, TIOCLINUX


class _Machine(Struct, frozen=True):
    """The numbers that differ by machine: ELF audit number, x32 bit, numbers of calls."""

    audit: int
    x32: bool
    numbers: dict[str, int]


_X86_64 = _Machine(
    0xC000003E,
    True,
    {
        "clone": 56,
        "ioctl": 16,
        "socket": 41,
        "clone3": 435,
        "acct": 163,
        "add_key": 248,
        "bpf": 321,
        "clock_adjtime": 305,
        "clock_settime": 227,
        "create_module": 174,
        "delete_module": 176,
        "finit_module": 313,
        "fsconfig": 431,
        "fsmount": 432,
        "fsopen": 430,
        "fspick": 433,
        "get_kernel_syms": 177,
        "init_module": 175,
        "io_uring_enter": 426,
        "io_uring_register": 427,
        "io_uring_setup": 425,
        "ioperm": 173,
        "iopl": 172,
        "kcmp": 312,
        "kexec_file_load": 320,
        "kexec_load": 246,
        "keyctl": 250,
        "lookup_dcookie": 212,
        "mount": 165,
        "mount_setattr": 442,
        "move_mount": 429,
        "nfsservctl": 180,
        "open_by_handle_at": 304,
        "open_tree": 428,
        "perf_event_open": 298,
        "pidfd_getfd": 438,
        "pivot_root": 155,
        "process_vm_readv": 310,
        "process_vm_writev": 311,
        "ptrace": 101,
        "quotactl": 179,
        "quotactl_fd": 443,
        "reboot": 169,
        "request_key": 249,
        "setns": 308,
        "settimeofday": 164,
        "swapoff": 168,
        "swapon": 167,
        "syslog": 103,
        "umount2": 166,
        "unshare": 272,
        "uselib": 134,
        "userfaultfd": 323,
        "vhangup": 153,
    },
)
_AARCH64 = _Machine(
    0xC00000B7,
    False,
    {
        "clone": 220,
        "ioctl": 29,
        "socket": 198,
        "clone3": 435,
        "acct": 89,
        "add_key": 217,
        "bpf": 280,
        "clock_adjtime": 266,
        "clock_settime": 112,
        "delete_module": 106,
        "finit_module": 273,
        "fsconfig": 431,
        "fsmount": 432,
        "fsopen": 430,
        "fspick": 433,
        "init_module": 105,
        "io_uring_enter": 426,
        "io_uring_register": 427,
        "io_uring_setup": 425,
        "kcmp": 272,
        "kexec_file_load": 294,
        "kexec_load": 104,
        "keyctl": 219,
        "lookup_dcookie": 18,
        "mount": 40,
        "mount_setattr": 442,
        "move_mount": 429,
        "nfsservctl": 42,
        "open_by_handle_at": 265,
        "open_tree": 428,
        "perf_event_open": 241,
        "pidfd_getfd": 438,
        "pivot_root": 41,
        "process_vm_readv": 270,
        "process_vm_writev": 271,
        "ptrace": 117,
        "quotactl": 60,
        "quotactl_fd": 443,
        "reboot": 142,
        "request_key": 218,
        "setns": 268,
        "settimeofday": 170,
        "swapoff": 225,
        "swapon": 224,
        "syslog": 116,
        "umount2": 39,
        "unshare": 97,
        "userfaultfd": 282,
        "vhangup": 58,
    },
)
MACHINES = {"x86_64": _X86_64, "aarch64": _AARCH64}
_INSPECTED = ("clone", "ioctl", "socket", "clone3")


def filter_program(families: tuple[int, ...] | None = None, machine: str | None = None) -> bytes:
    """The program (struct sock_filter[]); with `families` only sockets of these can be made.

    `machine` is what `uname -m` says here. ExecutionFailed for one whose calls are not known.

    An instruction is (code, jump when true, jump when false, value); jumps are counted in
    instructions that are passed over.
    """
    name = machine or platform.machine()
    if name not in MACHINES:
        raise ExecutionFailed(
            f"No filter of system calls is known for {name}",
            hint=f"Commands can be confined on {' and '.join(sorted(MACHINES))}.",
        )
    machine_calls = MACHINES[name]
    # Numbers mean other calls in another architecture: seccomp(2) says to check it first.
    steps = [(LOAD, 0, 0, MACHINE), (EQUAL, 1, 0, machine_calls.audit), (RETURN, 0, 0, KILL)]
    steps += [(LOAD, 0, 0, NUMBER)]
    # The numbers of the x32 interface name the same calls past this list (seccomp(2), caveats).
    if machine_calls.x32:
        steps += [(AT_LEAST, 0, 1, 0x40000000), _refuse(errno.ENOSYS)]
    steps += [(EQUAL, 0, 1, machine_calls.numbers["clone3"]), _refuse(errno.ENOSYS)]
    for name_of_call, number in machine_calls.numbers.items():
        if name_of_call not in _INSPECTED:
            steps += [(EQUAL, 0, 1, number), _refuse(errno.EPERM)]
    steps += _refuse_when(
        machine_calls.numbers["clone"], FIRST, [(ANY_BIT, 0, 1, NEW_NAMESPACES)], errno.EPERM
    )
    pushers = [(EQUAL, 1, 0, INPUT_PUSHERS[0]), (EQUAL, 0, 1, INPUT_PUSHERS[1])]
    steps += _refuse_when(machine_calls.numbers["ioctl"], SECOND, pushers, errno.EPERM)
    if families is not None:
        steps += _refuse_sockets(machine_calls.numbers["socket"], families)
    steps += [(RETURN, 0, 0, ALLOW)]
    return b"".join(struct.pack("=HBBI", *step) for step in steps)


def _refuse(number: int) -> tuple[int, int, int, int]:
    """The instruction that ends the call with an errno (SECCOMP_RET_ERRNO)."""
    return (RETURN, 0, 0, REFUSE | number)


def _refuse_when(
    number: int, argument: int, tests: list[tuple[int, int, int, int]], error: int
) -> list[tuple[int, int, int, int]]:
    """Refuse this call when one of the tests of its argument holds."""
    return [
        (EQUAL, 0, len(tests) + 3, number),
        (LOAD, 0, 0, argument),
        *tests,
        _refuse(error),
        (LOAD, 0, 0, NUMBER),
    ]


def _refuse_sockets(number: int, families: tuple[int, ...]) -> list[tuple[int, int, int, int]]:
    """Refuse sockets of other families, with the error of a system that lacks them."""
    left = len(families)
    tests = [(EQUAL, left - at, 0, family) for at, family in enumerate(families)]
    return [
        (EQUAL, 0, left + 3, number),
        (LOAD, 0, 0, FIRST),
        *tests,
        _refuse(errno.EAFNOSUPPORT),
        (LOAD, 0, 0, NUMBER),
    ]


INTERNET = (int(socket.AF_INET), int(socket.AF_INET6), int(getattr(socket, "AF_NETLINK", 16)))
