"""Resource limits as steps of `restrict`.

The memory limit is RLIMIT_DATA, private writable memory. RLIMIT_AS would count address space
that is only reserved: node, java and everything with WebAssembly reserve far more than they use
and do not start. Nothing here limits the whole of a command: each process has its own measure.
"""

import resource

from loom_audit.ports import Limits


def limit_steps(limits: Limits, *, processes: bool = False, core: bool = True) -> list[str]:
    """The steps that set them. `processes` only where no other processes of the user count.

    Without `core` no memory image of a crash is written.
    """
    wanted = {
        resource.RLIMIT_CPU: limits.cpu,
        resource.RLIMIT_DATA: limits.memory,
        resource.RLIMIT_FSIZE: limits.file,
        resource.RLIMIT_NPROC: limits.processes if processes else None,
        resource.RLIMIT_CORE: None if core else 0,
    }
    # a second more until SIGKILL, for a program that wants to end well on SIGXCPU
    spare = {resource.RLIMIT_CPU: 1}
    return [
        f"limit {which} {value} {value + spare.get(which, 0)}"
        for which, value in wanted.items()
        if value is not None
    ]
