"""A client's session in which two things fail, and what really happened in it."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from loom_audit.api.agents.connect import carry_out, connecting, settings_file
from loom_audit.config import read_settings
from tests.processes.hooked import HookedClaude, HookedCodex
from tests.test_daemon import daemon_of

FAILURES = ("hook before", "hook after", "process", "client", "disk full", "clock", "moved")
LIES = ("", "transcript", "spool", "heads")
CALLS = 4
MOMENTS = 2 + 2 * CALLS + 2
"""One before each hook: two at the start, two of each call, two at the end."""

GOES_ON = 3
"""For so many moments what failed goes on to fail."""

SECONDS = 10.0


@dataclass
class Journal:
    """What happened, as who did it knows: by call its path, and whether it failed.

    `told` are the calls of which the transcript tells the end.
    """

    paths: dict[str, str] = field(default_factory=dict)
    failed: set[str] = field(default_factory=set)
    told: set[str] = field(default_factory=set)
    persons: set[str] = field(default_factory=set)
    hooks: int = 0
    killed: int = 0


class Gone(Exception):
    """The client has ended."""


class FailingSession:
    """One session of a client; `fail_at` says at which moments what begins to fail."""

    def __init__(
        self,
        client: str,
        home: Path,
        root: Path,
        transcripts: Path,
        fail_at: dict[int, set[str]],
        lie: str,
        draw: random.Random,
        fill: Callable[[], Path] | None,
    ) -> None:
        self.journal = Journal()
        self.home, self.root, self.aside = home, root, root.with_name("moved")
        self.client, self.lie, self.draw, self._fill = client, lie, draw, fill
        self._fail_at = fail_at
        self._until: dict[str, int] = {}
        self._moment = -1
        self._filler: Path | None = None
        # renamed, and not written, since that goes on a full disk
        self._warm = home / "hooks" / "daemon"
        self._starts, self._fails = home / "starts", home / "fails"
        self._fails.write_bytes(b"/bin/false\0")
        self._process: subprocess.Popen[str] | None = None
        file = transcripts / "session.jsonl"
        made = HookedClaude if client == "claude-code" else HookedCodex
        self.agent: HookedClaude | HookedCodex = made(self._answer, root, file, "s1")

    # --- what happens -------------------------------------------------------------------------

    def run(self) -> None:
        """The whole session, and after it what failed is mended; the client is gone."""
        child = str(Path(__file__).with_name("asking_client.py"))
        pipe = subprocess.PIPE
        with subprocess.Popen([sys.executable, child], stdin=pipe, stdout=pipe, text=True) as one:
            self._process = one
            with suppress(Gone):
                self._work()
            one.kill()
        self._moment = MOMENTS
        self._mend()
        self._write_as_person("last")
        self._kill_warm()

    def _work(self) -> None:
        agent = self.agent
        self._next()
        agent.hook("SessionStart", source="startup")
        self._next()
        agent.hook("UserPromptSubmit", prompt="do it", prompt_id="p1")
        for n in range(CALLS):
            self._write_as_person(str(n))
            self._call(n)
        self._write_as_person("stop")
        self._next()
        agent.hook("Stop", stop_hook_active=False)
        self._next()
        agent.hook("SessionEnd", reason="exit")

    def _call(self, n: int) -> None:
        agent, id, name = self.agent, f"c{n}", f"call-{n}.txt"
        command = f"echo {n} > {name}" + ("; exit 3" if n == 2 else "")
        arguments, response = {"command": command}, {"stdout": "", "stderr": ""}
        failed = n == 2
        if isinstance(agent, HookedClaude):
            agent.asks(id, "Bash", arguments)
        else:
            agent.asks(id, command)
        self._next()
        if isinstance(agent, HookedClaude):
            agent.before(id, "Bash", arguments)
        else:
            agent.before(id, command)
        (self._here / name).write_text(f"{n}\n")
        self.journal.paths[id] = name
        if failed:
            self.journal.failed.add(id)
        self._next()
        if isinstance(agent, HookedClaude):
            if failed:
                given = {"tool_name": "Bash", "tool_input": arguments, "tool_use_id": id}
                agent.hook("PostToolUseFailure", error="Exit code 3", **given)
            else:
                agent.after(id, "Bash", arguments, response)
            agent.told(id, response, "Exit code 3" if failed else "", error=failed)
        else:
            agent.after(id, command)
            agent.ended(id, 3 if failed else 0)
        self.journal.told.add(id)

    @property
    def _here(self) -> Path:
        """Where the workspace is now; who works in it goes on where it was moved to."""
        return self.aside if self.aside.exists() else self.root

    def _write_as_person(self, when: str) -> None:
        name = f"person-{when}.txt"
        (self._here / name).write_text("a person's\n")
        self.journal.persons.add(name)
        if self.lie == "transcript" and when == "1" and isinstance(self.agent, HookedClaude):
            path, text = str(self.root / name), "a person's\n"
            given = {"file_path": path, "content": text}
            self.agent.asks("lie", "Write", given)
            self.agent.told("lie", {"type": "create", "filePath": path, "content": text})

    # --- what fails ---------------------------------------------------------------------------

    def _next(self) -> None:
        """The next moment: what fails from here on, and what does not any more."""
        self._moment += 1
        for what, until in [*self._until.items()]:
            if self._moment >= until:
                del self._until[what]
                self._end(what)
        for what in sorted(self._fail_at.get(self._moment, ())):
            self._until[what] = self._moment + GOES_ON
            self._begin(what)
        if self._moment == MOMENTS // 2:
            self._tell_lies()

    def _begin(self, what: str) -> None:
        match what:
            case "process":
                self._kill_warm()
                if self._starts.exists():
                    return
                self._warm.rename(self._starts)
                self._fails.rename(self._warm)
            case "client":
                raise Gone
            case "disk full" if self._fill is not None:
                self._filler = self._filler or self._fill()
            case "moved" if self.root.exists():
                self.root.rename(self.aside)

    def _end(self, what: str) -> None:
        match what:
            case "process" if self._starts.exists():
                self._warm.rename(self._fails)
                self._starts.rename(self._warm)
            case "disk full" if self._filler is not None:
                self._filler.unlink()
                self._filler = None
            case "moved" if self.aside.exists():
                self.aside.rename(self.root)

    def _mend(self) -> None:
        for what in ("process", "disk full", "moved"):
            self._end(what)
        if self.lie == "heads":
            for file in read_settings().heads.glob("*.heads"):
                kept = [line for line in file.read_text().splitlines() if "0" * 64 not in line]
                file.write_text("".join(f"{line}\n" for line in kept))

    def _tell_lies(self) -> None:
        if self.lie == "spool":
            now = time.time()
            forged = self.home / "forged.jsonl"
            with suppress(OSError):
                HookedClaude(lambda _: b"", self.root, forged).bash("forged", "rm person-0.txt")
            told = f"{self.client}\tStop\ts1\tforged\t{self.root}\t{forged}"
            with suppress(OSError), (self.home / "hooks" / "spool").open("a") as spool:
                spool.write(f"loom-failed 1 {now:.3f}\t{told}\nloom-failed 1 torn")
                spool.write("\n" + "x" * 9000 + "\n")
        if self.lie == "heads":
            for file in read_settings().heads.glob("*.heads"):
                with suppress(OSError), file.open("a") as heads:
                    heads.write(f"loom-audit-head v1 {file.stem} 100000 {'0' * 64}\n")

    def _kill_warm(self) -> None:
        with suppress(OSError):
            os.kill(daemon_of(self.home), signal.SIGKILL)

    def _answer(self, data: bytes) -> bytes:
        """The hook of the client's process, which may be killed a moment after it began."""
        assert self._process is not None and self._process.stdin and self._process.stdout
        what = "hook before" if b'"PreToolUse"' in data else "hook after"
        kill = what in self._until
        seconds = self.draw.uniform(0.004, 0.02) if kill else SECONDS * 6
        hook = str(self.home / "hooks" / "hook_client.py")
        argv = [sys.executable, "-I", "-S", hook, self.client, "--seconds", str(int(SECONDS))]
        told = {"argv": argv, "data": self._shifted(data.decode()), "kill": seconds}
        self._process.stdin.write(json.dumps(told) + "\n")
        self._process.stdin.flush()
        ended = json.loads(self._process.stdout.readline())
        self.journal.hooks += 1
        self.journal.killed += not ended
        self._shift_transcript()
        return b""

    def _shifted(self, data: str) -> str:
        return data.replace(str(self.aside), str(self.root))

    def _shift_transcript(self) -> None:
        """While the client's clock is wrong its newest record is of another hour."""
        if "clock" not in self._until:
            return
        file = self.agent.transcript if isinstance(self.agent, HookedClaude) else self.agent.rollout
        if not file.exists():
            return
        *before, last = file.read_bytes().splitlines(keepends=True) or [b""]
        record = json.loads(last or b"{}")
        if "timestamp" in record:
            by = timedelta(hours=self.draw.choice((-1, 1)))
            record["timestamp"] = (datetime.now(UTC) + by).isoformat().replace("+00:00", "Z")
            with file.open("r+b") as written:
                written.seek(sum(map(len, before)))
                written.write(json.dumps(record).encode() + b"\n")
                written.truncate()


def connect(client: str, home: Path, root: Path) -> None:
    """Connect the client to the folder, as if some hours ago: a clock may be an hour behind."""
    words = (sys.executable, "-I", "-S", str(home / "hooks" / "hook_client.py"), client)
    carry_out(
        connecting(client, settings_file(client, str(root)), words), home / "hooks", connect=True
    )
    for file in (home / "hooks" / "connected").iterdir():
        kept = json.loads(file.read_bytes())
        file.write_text(json.dumps({**kept, "since": time.time() - 7200}))


def discard(folder: Path) -> None:
    """Leave no store behind: there are a thousand such sessions."""
    shutil.rmtree(folder, ignore_errors=True)
