"""The filter of system calls, decided by an interpreter of its BPF program."""

import errno
import struct

import pytest

from loom_audit.errors import ExecutionFailed
from loom_audit.sandbox.seccomp import INTERNET, MACHINES, filter_program

ALLOW, KILL = "allow", "kill"


def decide(program: bytes, audit: int, number: int, *arguments: int) -> str:
    """What the kernel does with a call: allow, kill, or the name of an error."""
    seen = struct.pack("=II Q 6Q", number, audit, 0, *(*arguments, 0, 0, 0, 0, 0, 0)[:6])
    steps = [*struct.iter_unpack("=HBBI", program)]
    at, value = 0, 0
    while True:
        code, yes, no, operand = steps[at]
        at += 1
        if code == 0x20:
            (value,) = struct.unpack_from("=I", seen, operand)
        elif code == 0x06:
            action = operand & 0xFFFF0000
            if action == 0x00050000:
                return errno.errorcode[operand & 0xFFFF]
            return {0x7FFF0000: ALLOW, 0x80000000: KILL}[action]
        else:
            holds = {0x15: value == operand, 0x35: value >= operand, 0x45: value & operand}[code]
            at += yes if holds else no


@pytest.mark.parametrize("machine", sorted(MACHINES))
@pytest.mark.parametrize("families", [None, (), INTERNET])
def test_every_call_is_decided_as_said(machine: str, families: tuple[int, ...] | None) -> None:
    here = MACHINES[machine]
    program = filter_program(families, machine)
    numbers = dict(here.numbers)
    clone, ioctl, make_socket = (numbers.pop(name) for name in ("clone", "ioctl", "socket"))
    assert decide(program, here.audit, numbers.pop("clone3")) == "ENOSYS"
    for name, number in numbers.items():
        assert decide(program, here.audit, number) == "EPERM", name
    closed = {*here.numbers.values()}
    for number in set(range(600)) - closed:
        assert decide(program, here.audit, number, 0x10000000) == ALLOW
    assert decide(program, here.audit, clone, 0x01200011) == ALLOW  # what fork() asks for
    for flag in (0x20000, 0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000):
        assert decide(program, here.audit, clone, flag | 17) == "EPERM"
    assert decide(program, here.audit, ioctl, 0, 0x5413) == ALLOW
    assert decide(program, here.audit, ioctl, 0, 0x5412) == "EPERM"
    assert decide(program, here.audit, ioctl, 0, 0xFFFFFFFF_0000541C) == "EPERM"
    for family in range(50):
        allowed = families is None or family in families
        wanted = ALLOW if allowed else "EAFNOSUPPORT"
        assert decide(program, here.audit, make_socket, family) == wanted


@pytest.mark.parametrize("machine", sorted(MACHINES))
def test_calls_of_another_machine_end_the_process(machine: str) -> None:
    program = filter_program(machine=machine)
    for audit in (0x40000003, 0xC000003E, 0xC00000B7, 0):  # i386, x86_64, aarch64
        if audit != MACHINES[machine].audit:
            assert decide(program, audit, 1) == KILL


def test_the_other_calls_of_x86_64_are_not_there() -> None:
    program = filter_program(machine="x86_64")
    assert decide(program, MACHINES["x86_64"].audit, 0x40000000 + 165) == "ENOSYS"


def test_a_machine_whose_calls_are_not_known_has_no_filter() -> None:
    with pytest.raises(ExecutionFailed) as caught:
        filter_program(machine="riscv64")
    assert "riscv64" in caught.value.message and "x86_64" in caught.value.hint
