"""Functions as tools, in a module in which another process finds them."""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from loom_audit.errors import Conflict
from loom_audit.tools.calls.function import tool
from loom_audit.tools.calls.result import ToolResult


class Sum(BaseModel):
    value: int


class Unreadable(Exception):
    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"{one} and {two}")


@tool(isolate=True, timeout_seconds=1)
def loops(folder: str) -> None:
    """Starts a process that goes on too, and never ends."""
    code = "import time\nwhile True:\n time.sleep(0.01)"
    subprocess.Popen([sys.executable, "-c", code], cwd=folder, start_new_session=True)
    os.chdir(folder)
    Path(folder, "began").touch()
    while True:
        pass


@tool(isolate=True)
def adds(one: int, two: Sum) -> Sum:
    """Adds, and says so."""
    sys.stdout.write("adding\n")
    return Sum(value=one + two.value)


@tool(isolate=True, effect="execute")
def writes(path: str) -> str:
    """Writes a file past the context."""
    Path(path).write_text("written")
    return threading.current_thread().name


@tool(isolate=True, timeout_seconds=60)
def ends(how: str) -> Any:
    """Ends in one of many ways."""
    match how:
        case "conflict":
            raise Conflict("somebody was first", hint="Wait.", details={"who": "you"})
        case "bug":
            raise ZeroDivisionError("one / zero")
        case "unreadable":
            raise Unreadable(1, 2)
        case "result":
            return ToolResult(False, "mine")
        case "unsendable":
            return threading.Lock()
        case "exit":
            sys.stderr.write("last words\n")
            os._exit(7)


@tool(timeout_seconds=0.5)
def spins(seconds: float) -> None:
    """Takes its time, and does not stop for anybody."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass
