"""Runs `loom-audit` as people do: a process of its own, over a real store and workspace."""

import io
import json
import os
import pty
import select
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from loom_audit.cli import main
from tests.processes.forked import Forked

ROOT = Path(__file__).parents[2]


@dataclass
class Shell:
    """A person at a shell, in a workspace, with a store of their own.

    Commands run inside this process, which is quick, except `run` and all where `real` is set:
    those are processes of their own. They are forked, or begin with Python where it is `started`.
    """

    workspace: Path
    home: Path
    real: bool = False
    started: bool = False
    extra: dict[str, str] = field(default_factory=dict)

    @property
    def database(self) -> Path:
        """The file of the store."""
        return self.home / "audit.db"

    @property
    def environment(self) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("LOOM_AUDIT_", "COV_"))}
        return kept | {
            "LOOM_AUDIT_HOME": str(self.home),
            "PYTHONPATH": str(ROOT),
            "LC_ALL": "C.UTF-8",
            **self.extra,
        }

    def __call__(
        self,
        *arguments: str,
        code: int | None = 0,
        stdin: bytes = b"",
        cwd: Path | None = None,
    ) -> "Ran":
        real = self.real or "run" in arguments
        run = self._process if real else self._inside
        ran = run(arguments, stdin, cwd or self.workspace)
        if code is not None:
            assert ran.code == code, f"{arguments}: exit {ran.code}\n{ran.text}\n{ran.errors}"
        assert "Traceback" not in ran.errors, ran.errors
        return ran

    def _process(self, arguments: tuple[str, ...], stdin: bytes, cwd: Path) -> "Ran":
        if not self.started:
            forked = Forked(arguments, cwd=cwd, env=self.environment, stdin=stdin)
            return Ran(forked.wait(), *forked.printed())
        done = subprocess.run(
            [sys.executable, "-m", "loom_audit", *arguments],
            cwd=cwd,
            env=self.environment,
            input=stdin,
            capture_output=True,
            timeout=120,
        )
        return Ran(done.returncode, done.stdout, done.stderr)

    def _inside(self, arguments: tuple[str, ...], stdin: bytes, cwd: Path) -> "Ran":
        streams = [
            io.TextIOWrapper(io.BytesIO(data), encoding="utf-8") for data in (stdin, b"", b"")
        ]
        with pytest.MonkeyPatch.context() as patch:
            for name in [name for name in os.environ if name.startswith("LOOM_AUDIT_")]:
                patch.delenv(name)
            for name, value in {"LOOM_AUDIT_HOME": str(self.home), **self.extra}.items():
                patch.setenv(name, value)
            for name, stream in zip(("stdin", "stdout", "stderr"), streams, strict=True):
                patch.setattr(sys, name, stream)
            patch.chdir(cwd)
            try:
                main(arguments)
            except SystemExit as ended:
                code = int(ended.code or 0)
        printed = []
        for stream in streams[1:]:
            stream.flush()
            assert isinstance(stream.buffer, io.BytesIO)
            printed.append(stream.buffer.getvalue())
        return Ran(code, *printed)

    def sh(self, script: str) -> dict[str, Any]:
        """Run a shell command as a tool call."""
        return self.call("shell_execute", command=script)

    def records(
        self, *arguments: str, code: int | None = 0, cwd: Path | None = None
    ) -> list[dict[str, Any]]:
        return self(*arguments, "--json", code=code, cwd=cwd).records

    def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """Call a tool; its result."""
        (result,) = self.records("call", tool, json.dumps(arguments))
        assert result["success"], result
        return result

    def numbers(self) -> list[int]:
        """The numbers of all calls, oldest first."""
        found = self.records("log", "--oldest-first", "-n", "0")
        return [record["seq"] for record in found]

    def tree(self) -> dict[str, tuple[str, int, bytes]]:
        """What is on disk, found by walking it ourselves: kind, mode, content."""
        return walk(self.workspace)


@dataclass(frozen=True)
class Ran:
    code: int
    stdout: bytes
    stderr: bytes

    @property
    def text(self) -> str:
        return self.stdout.decode("utf-8", "surrogateescape")

    @property
    def errors(self) -> str:
        return self.stderr.decode("utf-8", "surrogateescape")

    @property
    def records(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.text.splitlines()]


def walk(root: Path) -> dict[str, tuple[str, int, bytes]]:
    found: dict[str, tuple[str, int, bytes]] = {}
    for folder, folders, files in os.walk(os.fsencode(root)):
        for name in sorted([*folders, *files]):
            path = os.path.join(folder, name)
            stat = os.lstat(path)
            key = os.path.relpath(path, os.fsencode(root)).decode("utf-8", "surrogateescape")
            if os.path.islink(path):
                found[key] = ("symlink", 0, os.readlink(path))
            elif os.path.isdir(path):
                found[key] = ("directory", stat.st_mode & 0o7777, b"")
            else:
                found[key] = ("file", stat.st_mode & 0o7777, Path(os.fsdecode(path)).read_bytes())
    return found


def new_shell(folder: Path) -> Shell:
    """A workspace with two files, not yet under audit, and an empty data folder."""
    workspace = folder / "work"
    (workspace / "src").mkdir(parents=True)
    (workspace / "a.txt").write_text("one\ntwo\nthree\n")
    (workspace / "src" / "app.py").write_text("print('hello')\n")
    return Shell(workspace, folder / "home")


def at_terminal(
    shell: Shell, *arguments: str, answer: bytes = b"", after: bytes = b"", columns: int = 100
) -> tuple[int, str]:
    """Run a command with a terminal at all three ends; exit code and all it printed.

    The answer is typed before it starts, or once it has printed `after`.
    """
    ours, theirs = pty.openpty()
    process = Forked(
        arguments,
        cwd=shell.workspace,
        env=shell.environment | {"TERM": "xterm", "COLUMNS": str(columns)},
        terminal=theirs,
    )
    os.close(theirs)
    if answer and not after:
        os.write(ours, answer)
    printed = b""
    deadline = time.monotonic() + 60  # only so that a hang ends
    while time.monotonic() < deadline:
        if not select.select([ours], [], [], 1.0)[0]:
            continue
        try:
            part = os.read(ours, 65536)
        except OSError:
            break
        if not part:
            break
        printed += part
        if after and after in printed:
            os.write(ours, answer)
            after = b""
    code = process.wait(30)
    os.close(ours)
    return code, printed.decode("utf-8", "replace").replace("\r\n", "\n")
