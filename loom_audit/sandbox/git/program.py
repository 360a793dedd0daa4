"""Runs git on a repository that an agent may have written, as on hostile ground.

git is told its folders and discovers nothing. It is given no settings of the user's. What a
repository's own configuration could let it run or read is set otherwise.
"""

import os
import resource
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress

from loom_audit.errors import ExecutionFailed
from loom_audit.ports import (
    NO_HOOKS,
    ON_HOSTILE_GROUND,
    RUNS_NOTHING,
    GitAnswer,
    setting_variables,
)

MAX_OUTPUT = 64 << 20

SETTINGS = (
    NO_HOOKS,
    *RUNS_NOTHING,
    ("core.untrackedCache", "false"),
    ("core.sshCommand", "false"),
    ("core.commitGraph", "false"),
    ("core.multiPackIndex", "false"),
    ("core.attributesFile", "/dev/null"),
    ("core.excludesFile", "/dev/null"),
    ("protocol.allow", "never"),
    ("advice.graftFileDeprecated", "false"),  # of the file that the environment names
)
"""What a repository's configuration cannot say otherwise."""

_ENVIRONMENT = {
    "LC_ALL": "C",
    "HOME": "/nonexistent",
    "XDG_CONFIG_HOME": "/nonexistent",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_CEILING_DIRECTORIES": "/",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_ALLOW_PROTOCOL": "none",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_GRAFT_FILE": "/dev/null",
    "GIT_PAGER": "cat",
    **ON_HOSTILE_GROUND,
    **setting_variables(SETTINGS),
}
_TOO_OLD = ("Expected git repo version", "unknown repository extension", "unknown ref storage")


def ask_git(
    program: str,
    at: str,
    folders: Mapping[str, str],
    *commands: Sequence[str],
    seconds: float,
    limit: int = MAX_OUTPUT,
    given: bytes = b"",
    opened: Sequence[int] = (),
) -> Sequence[GitAnswer]:
    """Run git commands beside each other in the folder `at`; the variables name git's folders.

    Each reads `given`, and has the descriptors that are `opened`. One that says or writes more than
    `limit` bytes is ended. ExecutionFailed where one cannot be run, or does not end in time.
    """
    environment = {**_ENVIRONMENT, "PATH": os.path.dirname(program), **folders}
    running: list[tuple[subprocess.Popen[bytes], int, int]] = []
    end = time.monotonic() + seconds
    try:
        for words in commands:
            read, output, errors = map(os.memfd_create, ("input", "output", "errors"))
            try:
                write_whole(read, given)
                asked = subprocess.Popen(
                    [program, "--no-pager", *words],
                    cwd=at,
                    env=environment,
                    stdin=read,
                    stdout=output,
                    stderr=errors,
                    start_new_session=True,
                    pass_fds=opened,
                )
            except OSError as error:
                os.close(output)
                os.close(errors)
                raise ExecutionFailed(f"git cannot be run: {error.strerror}") from error
            finally:
                os.close(read)
            running.append((asked, output, errors))
            with suppress(OSError):  # it has ended already
                resource.prlimit(asked.pid, resource.RLIMIT_FSIZE, (limit, limit))
        return [_ended(*one, end) for one in running]
    finally:
        for asked, output, errors in running:
            if asked.poll() is None:
                with suppress(OSError):
                    os.killpg(asked.pid, signal.SIGKILL)
                asked.wait()
            os.close(output)
            os.close(errors)


def find_git(root: str) -> str:
    """Where git is: in no folder of the workspace, where an agent could have put one.

    ExecutionFailed where there is none.
    """
    for folder in os.environ.get("PATH", os.defpath).split(os.pathsep):
        named = os.path.join(folder, "git")
        if os.path.isabs(folder) and os.access(named, os.X_OK):
            path = os.path.realpath(named)
            if path != root and not path.startswith(root.rstrip("/") + "/"):
                return named
    raise ExecutionFailed("git is not installed")


def write_whole(file: int, content: bytes) -> None:
    """Write all of a content from the begin of an open file on; its place stays. OSError."""
    written = 0
    while written < len(content):
        written += os.pwrite(file, memoryview(content)[written:], written)


def _ended(asked: "subprocess.Popen[bytes]", output: int, errors: int, end: float) -> GitAnswer:
    try:
        code = asked.wait(max(0.0, end - time.monotonic()))
    except subprocess.TimeoutExpired as error:
        raise ExecutionFailed("git gave no answer in time") from error
    said = os.pread(errors, 1 << 20, 0).decode("utf-8", "surrogateescape")
    return GitAnswer(code, _whole(output), said)


def _whole(file: int) -> bytes:
    with open(os.dup(file), "rb") as stream:
        stream.seek(0)
        return stream.read()


def check_answer(done: GitAnswer) -> None:
    """ExecutionFailed for a command that failed, with the reason."""
    if why := why_failed(done):
        raise ExecutionFailed(why)


def why_failed(done: GitAnswer) -> str:
    """Why a command failed; "" for one that did not."""
    if done.code == 0:
        return ""
    if done.code == -signal.SIGXFSZ:
        return "git says more of the repository than is read"
    if any(text in done.errors for text in _TOO_OLD):
        return "git is too old for this repository"
    # what git says of it can be what stands in a file
    return f"git cannot read the repository (exit {done.code})"
