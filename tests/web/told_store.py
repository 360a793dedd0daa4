"""A store of calls whose maker keeps beside it, in plain lists, what people ask about them.

Every line that is ever written is unlike every other, so that its text says which call wrote it,
and which removed it.
"""

import asyncio
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from loom_audit.api.agents.said import tell_message, tell_prompt
from loom_audit.api.face import AuditedWorkspace, AuditStore, Session, open_store
from loom_audit.api.upkeep.drift import accept_drift
from loom_audit.ports import CallFilter
from loom_audit.tools.calls.gate import Decision

FILES = 6
LINES = 14
TURN = 5
"""Calls from one prompt to the next."""
Files = dict[str, list[str]]


@dataclass(frozen=True)
class Done:
    """A call as its maker knows it: its number in the log, why it was made, what it changed.

    `files` are all files after it, at the time `at`, and `by` who let it run, where one was asked.
    """

    number: int
    session: int
    tool: str
    why: str
    ok: bool
    named: tuple[str, ...]
    changed: tuple[str, ...]
    files: Files
    at: datetime
    by: str


@dataclass
class Told:
    """The store, and what was done in it; the number of a session is its place in `sessions`.

    `wrote` and `removed` have the place in `done` of the call that did so, by the line; what was
    there before any call, and what a person wrote, is in neither. Of each session there are the
    files and the times before and after it.
    """

    store: AuditStore
    workspace: AuditedWorkspace
    root: Path
    done: list[Done] = field(default_factory=list)
    sessions: list[str] = field(default_factory=list)
    spans: list[tuple[datetime, datetime]] = field(default_factory=list)
    starts: list[Files] = field(default_factory=list)
    files: Files = field(default_factory=dict)
    wrote: dict[str, int] = field(default_factory=dict)
    removed: dict[str, int] = field(default_factory=dict)
    lines: int = 0
    asked: str = ""

    @property
    def url(self) -> str:
        return f"/w/{self.workspace.id}"

    def line(self, path: str) -> str:
        """A line that never was before."""
        self.lines += 1
        return f"line {self.lines} of {Path(path).name}\n"

    def of(self, session: int) -> list[tuple[int, Done]]:
        """The calls of a session, each with its place."""
        return [(n, one) for n, one in enumerate(self.done) if one.session == session]

    def end(self, session: int) -> Files:
        """The files after a session."""
        return self.of(session)[-1][1].files

    def follow(self, path: str, now: list[str] | None, by: int | None) -> None:
        """Let a file be these lines, or gone, by the call at this place; None for no call."""
        was = self.files.pop(path, [])
        if now is not None:
            self.files[path] = now
        if by is not None:
            self.wrote |= dict.fromkeys({*(now or ())} - {*was}, by)
            self.removed |= dict.fromkeys({*was} - {*(now or ())}, by)

    async def decide(self, tool: Any, args: Any, ctx: Any, *, asked: str = "") -> Decision:
        """Let a call run: a person decides about each that writes a whole file."""
        self.asked = f"person:{len(self.done) % 3}" if tool.name == "write_file" else ""
        return Decision("allowed", self.asked or "gate", "looked at it" if self.asked else "")


@contextmanager
def telling(folder: Path, sessions: int, calls: int, seed: int) -> Iterator[Told]:
    """A store of so many sessions with so many calls each."""
    chance, root = random.Random(seed), folder / "work"
    (root / "src").mkdir(parents=True)
    with ExitStack() as stack:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("LOOM_AUDIT_HOME", str(folder / "home"))
            store = stack.enter_context(open_store())
        files: Files = {}
        made = Told(store, None, root)  # type: ignore[arg-type]  # attached once it has files
        for n in range(FILES):
            path = f"src/part_{n}.txt"
            files[path] = [made.line(path) for _ in range(LINES)]
            (root / path).write_text("".join(files[path]))
        made.files, made.workspace = files, store.attach(root)
        for number in range(sessions):
            _session(made, chance, number, calls)
        yield made


def _session(made: Told, chance: random.Random, number: int, calls: int) -> None:
    if number:  # what a person did before it, in an editor
        path = chance.choice(sorted(made.files))
        now = [*made.files[path], made.line(path)]
        (made.root / path).write_text("".join(now))
        made.follow(path, now, None)
        accept_drift(made.workspace)
    begun = datetime.now(UTC)
    made.starts.append({**made.files})
    agent, title = f"agent-{number}", f"task {number}"
    with made.workspace.session(agent, title=title, gate=made) as session:
        made.sessions.append(session.id)

        async def run() -> None:
            why = ""
            for n in range(calls):
                if n % TURN == 0:
                    why = f"Please do part {n // TURN} of task {number}, as was said."
                    tell_prompt(session, why)
                await _call(made, chance, session, number, why)
            tell_message(session, f"Task {number} is done.")

        # a browser of Playwright has a loop in this thread
        with ThreadPoolExecutor(1) as own:
            own.submit(asyncio.run, run()).result()
    made.spans.append((begun, datetime.now(UTC)))


async def _call(made: Told, chance: random.Random, session: Session, number: int, why: str) -> None:
    tool, arguments, path, now = _next(made, chance)
    made.asked = ""
    result = await session.call(tool, arguments)
    assert result.success == (path != "" or tool == "read_file"), result.output
    if path:
        made.follow(path, now, len(made.done))
        kept = made.files.get(path)
        assert (made.root / path).exists() == (kept is not None)
        assert kept is None or (made.root / path).read_text() == "".join(kept)
    [newest] = made.workspace.timeline.calls(CallFilter(limit=1))
    named = str(arguments.get("path", ""))
    done = Done(
        number=newest.seq or 0,
        session=number,
        tool=tool,
        why=why,
        ok=result.success,
        named=(named,) if named else (),
        changed=(path,) if path else (),
        files={**made.files},
        at=datetime.now(UTC),
        by=made.asked,
    )
    made.done.append(done)


def _next(made: Told, chance: random.Random) -> tuple[str, Any, str, list[str] | None]:
    """A tool and its arguments, the path that it changes, and the lines that are there then."""
    path = chance.choice(sorted(made.files))
    lines = made.files[path]
    kinds = ("read", "edit", "write", "new", "shell", "delete", "fail")
    [kind] = chance.choices(kinds, (2, 6, 2, 1, 2, 1 if len(made.files) > FILES else 0, 1))
    at = chance.randrange(len(lines)) if lines else 0
    more = [made.line(path) for _ in range(chance.randrange(1, 4))]
    match kind:
        case "read":
            return "read_file", {"path": path}, "", None
        case "edit" if lines:
            stays = chance.random() < 0.4
            new = [lines[at], *more] if stays else more
            change = {"old_str": lines[at], "new_str": "".join(new)}
            return (
                "edit_file",
                {"path": path, **change},
                path,
                [*lines[:at], *new, *lines[at + 1 :]],
            )
        case "write" | "edit":
            now = [one for one in lines if chance.random() < 0.8] + more
            return "write_file", {"path": path, "content": "".join(now)}, path, now
        case "new":
            path = f"src/new_{made.lines}.txt"
            now = [made.line(path) for _ in range(4)]
            return "write_file", {"path": path, "content": "".join(now)}, path, now
        case "shell":
            command = f"printf '{more[0].strip()}\\n' >> {path}"
            return "shell_execute", {"command": command}, path, [*lines, more[0]]
        case "delete":
            return "delete_file", {"path": path}, path, None
    return "edit_file", {"path": path, "old_str": "never there\n", "new_str": ""}, "", None
