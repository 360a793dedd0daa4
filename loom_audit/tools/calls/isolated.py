"""A function that runs in a process of its own, which can be killed; also that process."""

import importlib
import os
import pickle
import sys
from collections.abc import Callable, Mapping
from multiprocessing import spawn
from pathlib import Path
from typing import Any

from loom_audit.errors import AuditError, ExecutionFailed, InvalidArguments, TooLarge
from loom_audit.ports import CommandResult

MAX_VALUE = 64 * 1024 * 1024
"""Bytes of what such a function may give back, as a pickle."""

_PROGRAM = "import sys; sys.path[:] = {path!r}; from {module} import main; main()"


def isolated_call(
    function: Callable[..., Any], named: Mapping[str, Any]
) -> tuple[tuple[str, ...], bytes]:
    """Return the command that calls a function in another process, and its input, a pickle.

    The process finds the function by module and name, the main module as `multiprocessing` finds
    it. InvalidArguments when the arguments cannot be pickled.
    """
    path = [entry or str(Path.cwd()) for entry in sys.path]
    program = _PROGRAM.format(path=path, module=__name__)
    prepared = spawn.get_preparation_data(function.__name__)
    del prepared["authkey"]
    try:
        order = pickle.dumps((prepared, function.__module__, function.__qualname__, dict(named)))
    except Exception as error:
        raise InvalidArguments(
            f"the arguments of {function.__name__} cannot be sent to a process: {error}"
        ) from error
    return (sys.executable, "-c", program), order


def value_of(completed: CommandResult, name: str) -> Any:
    """Return what the function returned in its process, or raise what the function raised there.

    ExecutionFailed when the process ended without a result, TooLarge for one over `MAX_VALUE`
    bytes.
    """
    if completed.truncated and completed.stdout_bytes > MAX_VALUE:
        raise TooLarge(f"{name} gave back {completed.stdout_bytes} bytes, more than {MAX_VALUE}")
    try:
        value, error = pickle.loads(completed.stdout)
    except Exception as flaw:
        said = completed.stderr.decode(errors="replace").strip()[-500:]
        raise ExecutionFailed(
            f"the process of {name} ended with exit code {completed.exit_code} "
            f"and no result: {said or 'it said nothing'}"
        ) from flaw
    if error is not None:
        raise error
    return value


def main() -> None:
    """Call the function that standard input names, and write its result to standard output."""
    answer = os.fdopen(os.dup(1), "wb")  # not inherited by what the function starts
    os.dup2(2, 1)  # what the function prints is not its result
    value, raised = None, None
    try:
        prepared, module, qualname, named = pickle.load(sys.stdin.buffer)
        spawn.prepare(prepared)
        value = _find_function(module, qualname)(**named)
    except Exception as error:  # noqa: BLE001 - whatever it raises is raised where it was called
        raised = error
    with answer:
        answer.write(_packed(value, raised))


def _find_function(module: str, qualname: str) -> Callable[..., Any]:
    """What is there by this name: the function, or the tool that was made of it and calls it."""
    found: Any = importlib.import_module(module)
    for part in qualname.split("."):
        found = getattr(found, part)
    called: Callable[..., Any] = found
    return called


def _packed(value: Any, raised: Exception | None) -> bytes:
    """The value and the exception as a pickle; as text where the other side cannot read it."""
    try:
        packed = pickle.dumps((value, raised))
        pickle.loads(packed)
    except Exception as error:  # noqa: BLE001 - as many kinds as there are values
        if raised is None:
            flaw: AuditError = ExecutionFailed(f"its result cannot be sent back: {error}")
        else:
            flaw = ExecutionFailed(f"{type(raised).__name__}: {raised}")
        return pickle.dumps((None, flaw))
    return packed
