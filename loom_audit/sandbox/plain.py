"""Commands without confinement: everything the user may do, the command may do.

The runner promises bounded output, and that the whole process tree is dead on return, also
what called setsid or forked twice. A process started for the command by another service (a
systemd unit, a container, `at`) is not of this tree, nor is what the command may not be
signalled for (setuid programs: these are named as not killed). Where there is no subreaper
(anything but Linux) only the command's process group is killed and nothing is named.
"""

import errno
import os
import resource
import subprocess
import sys
import time
from collections.abc import Mapping

from msgspec import Struct

from loom_audit.errors import ExecutionFailed, InvalidArguments
from loom_audit.ports import Command, CommandResult, Limits, Moments
from loom_audit.sandbox import terminal
from loom_audit.sandbox.run import (
    ChildProcess,
    HeadAndTail,
    Run,
    close,
    exit_code,
    follow_streams,
    run_to_end,
    send,
)
from loom_audit.sandbox.supervised import FOLDER, SUPERVISOR


class LaunchOptions(Struct, frozen=True):
    """How a supervisor is started, and how its command is restricted.

    `wrap` goes before the supervisor's argument vector; the supervisor gets these descriptors and
    this environment (ours when None). `steps` is the text of `restrict`. A `private` supervisor has
    process ids of its own, and the command is shown nothing of it.
    """

    wrap: tuple[str, ...] = ()
    descriptors: tuple[int, ...] = ()
    environment: Mapping[str, str] | None = None
    steps: str = ""
    private: bool = False


UNCONFINED = LaunchOptions()


def own_environment() -> dict[str, str]:
    """Our environment without LOOM_AUDIT_*: a command is told no path of the store."""
    return {k: v for k, v in os.environ.items() if not k.startswith("LOOM_AUDIT_")}


class PlainRunner:
    """Runs commands as our own user, without confinement, each under a supervisor process.

    `whole_tree` False kills the process group only, which is all there is off Linux.
    """

    name = "plain"

    def __init__(self, *, whole_tree: bool = sys.platform == "linux") -> None:
        self._whole_tree = whole_tree

    def run(self, root: str, command: Command, moments: Moments = Moments()) -> CommandResult:
        """Run a command as `loom_audit.ports.Runner.run` says.

        The details of ExecutionFailed hold `exit_code`: 127 or 126, as a shell would exit.
        """
        if command.confinement == "required":
            raise ExecutionFailed(
                "This command must be confined, and this runner confines nothing",
                hint="Use the runner of the store, or set `confinement` in tools.toml.",
            )
        launch = LaunchOptions(steps="\n".join(limit_steps(command.limits)))
        return supervise(root, command, launch=launch, whole_tree=self._whole_tree, moments=moments)


def supervise(
    root: str,
    command: Command,
    *,
    launch: LaunchOptions = UNCONFINED,
    whole_tree: bool = True,
    moments: Moments = Moments(),
) -> CommandResult:
    """Run a command under a supervisor that is started as `launch` says.

    The supervisor knows nothing of the command until `moments.start` has returned. ExecutionFailed
    when supervisor or command cannot be started, InvalidArguments for a malformed command.
    """
    inherit = command.stdio == "inherit"
    mode, owner, forwarded = terminal.terminal_mode() if inherit else ("g", 0, ())
    mode += "w" * whole_tree + "p" * launch.private + "k" * command.keep
    order = encode_order(root, command, mode, owner, launch.steps)
    run = _launch(command, launch)
    carry_out(run, order, command, moments, forwarded)
    if run.failure is not None:
        raise start_error(root, command, *run.failure)
    if launch.wrap and not run.child and not run.timed_out and run.killed_at is None:
        raise wrapper_error(launch.wrap[0], run.stderr.content())
    return command_result(run, keep=command.keep)


def carry_out(
    run: Run, order: bytes, command: Command, moments: Moments, forwarded: tuple[str, ...] = ()
) -> None:
    """Give a supervisor its order and wait until nothing of the command runs any more.

    The order is given when `moments.start` has returned.
    """
    try:
        moments.start()
        run.started = time.monotonic()
        with terminal.forward_signals(forwarded, lambda n: send(run.control, bytes([n]))):
            send(run.control, order)
            run_to_end(run, command.timeout, moments.cancelled)
    finally:
        close(run)


def command_result(run: Run, *, keep: bool = False) -> CommandResult:
    """How a command has ended; with `keep` what it left running was left alive."""
    kept = keep and run.killed_at is None and run.status is not None
    return CommandResult(
        exit_code=exit_code(run.status),
        stdout=run.stdout.content(),
        stderr=run.stderr.content(),
        stdout_bytes=run.stdout.total,
        stderr_bytes=run.stderr.total,
        timed_out=run.timed_out,
        duration=int((time.monotonic() - run.started) * 1e6),
        survivors=() if kept else tuple(run.survivors),
        kept=tuple(name.partition(" ")[0] for name in run.survivors) if kept else (),
        truncated=run.stdout.truncated or run.stderr.truncated,
    )


# --- starting -----------------------------------------------------------------------------


def encode_order(root: str, command: Command, mode: str, owner: int, steps: str) -> bytes:
    """The order for a supervisor (`supervisor.Order`). InvalidArguments for a malformed command."""
    given = own_environment() if command.environment is None else command.environment
    environment = {**given, **command.variables}
    if not command.argv or not command.argv[0]:
        raise InvalidArguments("The command is empty", hint="Name a program to run.")
    values = (*command.argv, command.cwd, *environment, *environment.values())
    if any("\0" in value for value in values) or any("=" in k or not k for k in environment):
        raise InvalidArguments(
            "A command, a path or a variable of its environment is malformed",
            hint="Leave out NUL characters, and = in names of variables.",
        )
    fields = [
        mode.encode(),
        str(owner).encode(),
        os.fsencode(os.path.join(root, command.cwd)),
        steps.encode(),
        str(len(command.argv)).encode(),
        *(os.fsencode(word) for word in command.argv),
        *(os.fsencode(f"{key}={value}") for key, value in environment.items()),
    ]
    body = b"\0".join(fields)
    return b"%08d" % len(body) + body


def _launch(command: Command, launch: LaunchOptions) -> Run:
    inherit = command.stdio == "inherit"
    feed = subprocess.DEVNULL if command.stdin is None else subprocess.PIPE
    keep = None if inherit else subprocess.PIPE
    their_control, control = os.pipe()
    messages, their_messages = os.pipe()
    pipes = (str(their_control), str(their_messages))
    try:
        process = ChildProcess(
            [*launch.wrap, sys.executable, "-ISc", SUPERVISOR, FOLDER, "supervisor", *pipes],
            stdin=None if inherit and command.stdin is None else feed,
            stdout=keep,
            stderr=keep,
            bufsize=0,
            pass_fds=(their_control, their_messages, *launch.descriptors),
            start_new_session=not inherit,
            env=own_environment() if launch.environment is None else launch.environment,
            cwd="/",
        )
    except OSError as error:
        os.close(control)
        os.close(messages)
        raise ExecutionFailed(
            f"No process could be started: {error.strerror}", hint="Run `loom-audit doctor`."
        ) from error
    finally:
        os.close(their_control)
        os.close(their_messages)
    run = Run(
        process,
        control,
        messages,
        time.monotonic(),
        HeadAndTail(command.limit),
        HeadAndTail(command.limit),
        private=launch.private,
    )
    follow_streams(run, command.stdin)
    return run


def start_error(root: str, command: Command, stage: str, code: int) -> ExecutionFailed:
    """The error when a supervisor failed at a stage with an errno."""
    reason = os.strerror(code)
    if stage == "cwd":
        return ExecutionFailed(
            f"The working directory cannot be entered: {command.cwd or root}: {reason}",
            hint="Name a directory inside the workspace.",
            details={"cwd": command.cwd, "errno": code, "exit_code": 126},
        )
    if stage == "confine":
        return ExecutionFailed(
            f"The command could not be confined: {reason}",
            hint="Run `loom-audit doctor`.",
            details={"errno": code, "exit_code": 126},
        )
    missing = code in (errno.ENOENT, errno.ENOTDIR)
    return ExecutionFailed(
        f"Command not found: {command.argv[0]}"
        if missing
        else f"Command cannot be run: {command.argv[0]}: {reason}",
        hint="Check the name and PATH." if missing else "Check its permissions and its format.",
        details={"program": command.argv[0], "errno": code, "exit_code": 127 if missing else 126},
    )


def wrapper_error(program: str, said: bytes) -> ExecutionFailed:
    """The error when the program that makes the sandbox said that and started nothing."""
    message = said.decode(errors="replace").strip()[-500:]
    return ExecutionFailed(
        f"{os.path.basename(program)} did not start the command: {message or 'it gave no reason'}",
        hint="Run `loom-audit doctor`.",
        details={"exit_code": 126},
    )


def limit_steps(limits: Limits, *, processes: bool = False, core: bool = True) -> list[str]:
    """The limits as steps of `restrict`; `processes` only where the user's others do not count.

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
