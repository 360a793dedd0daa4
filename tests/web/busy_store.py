"""A store as it is after weeks: many calls of several agents, all made by real tools.

`python -m tests.web.busy_store FOLDER [CALLS]` makes one; its workspace is FOLDER/work and its data
folder FOLDER/home. The same calls give the same files. What was done is in `Busy`, which the tests
use as their oracle: it is kept by the program that makes the calls, not read from the store.
"""

import asyncio
import random
import struct
import sys
import zlib
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

from loom_audit.api.face import AuditedWorkspace, AuditStore, Session, open_store
from loom_audit.ports import CallFilter
from loom_audit.tools.calls.gate import Decision
from tests.web.web_pages import HOSTILE, STRANGE

AGENTS = (
    "coder",
    "reviewer",
    "a-very-long-agent-name-" + "that-goes-on-" * 12,
    "агент \u202eevil\u202c <b>",
    "x",
)
LONG_TOOL = "mcp__a_server_with_a_long_name__" + "and_a_tool_with_a_longer_one_" * 4
LONG_FILE = "f" * 240 + ".txt"
MODULES = 60


@dataclass(frozen=True)
class Done:
    """One call as its maker knows it: its number in the log, and what it did.

    `named` are paths in its arguments, `left` what was on disk at `paths` when it had ended, at the
    time `at`, and `by` who let it run, where anybody was asked.
    """

    number: int
    session: str
    tool: str
    ok: bool
    paths: tuple[str, ...] = ()
    named: tuple[str, ...] = ()
    left: Mapping[str, bytes | None] = field(default_factory=dict)
    at: datetime = datetime.min
    by: str = ""


class People:
    """A gate at which people decide about some calls, each in turn; `last` is who was asked."""

    def __init__(self) -> None:
        self.last = ""
        self._turn = cycle(("person:ada", "person:grace <b>", "person:linus"))

    async def decide(self, tool: Any, args: Any, ctx: Any, *, asked: str = "") -> Decision:
        self.last = ""
        if tool.name != "write_file" or "mod_0" not in args.path:
            return Decision("allowed", "gate")
        self.last = next(self._turn)
        return Decision("allowed", self.last, "looked at it")


@dataclass
class Busy:
    store: AuditStore
    workspace: AuditedWorkspace
    root: Path
    done: list[Done] = field(default_factory=list)
    outside: list[str] = field(default_factory=list)
    first: dict[str, bytes] = field(default_factory=dict)
    gate: People = field(default_factory=People)

    def files_after(self, count: int) -> dict[str, bytes]:
        """What was in the files after so many calls, but for what was changed from outside."""
        found: dict[str, bytes | None] = {**self.first}
        for one in self.done[:count]:
            found.update(one.left)
        ours = found.items() - {(path, found.get(path)) for path in self.outside}
        return {path: content for path, content in ours if content is not None}

    @property
    def url(self) -> str:
        return f"/w/{self.workspace.id}"


def png(width: int, height: int, grey: int) -> bytes:
    """A grey picture (PNG specification, third edition: signature, IHDR, IDAT, IEND)."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        check = zlib.crc32(kind + data)
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", check)

    rows = (b"\0" + bytes([grey]) * width) * height
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(rows))
        + chunk(b"IEND", b"")
    )


def contents(file: Path) -> bytes | None:
    return file.read_bytes() if file.is_file() else None


def lay_out(root: Path) -> None:
    (root / "src").mkdir(parents=True)
    for n in range(MODULES):
        steps = (f"def step_{n}_{k}(value):\n    return value + {k}\n\n\n" for k in range(12))
        (root / "src" / f"mod_{n:02}.py").write_text("".join(steps))
    (root / "data.json").write_text("{}\n")
    (root / "table.csv").write_text("".join(f"{n},{n * n}\n" for n in range(19_500)))
    (root / "logo.png").write_bytes(png(120, 60, 90))
    (root / LONG_FILE).write_text("a long name\n")


def next_call(chance: random.Random, n: int) -> tuple[str, Any, tuple[str, ...]]:
    """A tool, its arguments, and the paths that it changes."""
    module = f"src/mod_{chance.randrange(MODULES):02}.py"
    kind = chance.choices(
        ("read", "edit", "write", "search", "shell", "fail", "move", "list"),
        (40, 20, 10, 8, 8, 4, 2, 8),
    )[0]
    match kind:
        case "read":
            return "read_file", {"path": module}, ()
        case "edit" | "write":
            text = "".join(f"value_{k} = {n}\n" for k in range(chance.randrange(1, 60)))
            return "write_file", {"path": module, "content": text}, (module,)
        case "search":
            return "search_files", {"pattern": f"step_{n % 9}", "path": "src"}, ()
        case "shell":
            command = f"printf '{n}\\n' >> data.json && wc -l data.json"
            return "shell_execute", {"command": command}, ("data.json",)
        case "fail":
            return "edit_file", {"path": module, "old_str": "not there", "new_str": ""}, ()
        case "move":
            name = f"notes/note_{n:05}.md"
            return "write_file", {"path": name, "content": f"# {n}\n"}, (name,)
    return "list_directory", {"path": "src"}, ()


HUGE: tuple[tuple[str, Any, tuple[str, ...]], ...] = (
    (
        "shell_execute",
        {
            "command": "for f in src/*.py; do echo '# end' >> $f; done; "
            "i=0; while [ $i -lt 240 ]; do echo $i > gen_$i.txt; i=$((i+1)); done"
        },
        (
            *(f"gen_{i}.txt" for i in range(240)),
            *(f"src/mod_{n:02}.py" for n in range(MODULES)),
        ),
    ),
    (
        "shell_execute",
        {"command": "sed -i 's/^/x/' table.csv"},
        ("table.csv",),
    ),
    ("write_file", {"path": "evil <i>.html", "content": HOSTILE}, ("evil <i>.html",)),
    (
        "shell_execute",
        {"command": "cp logo.png copy.png && head -c 50 logo.png > broken.png"},
        ("broken.png", "copy.png"),
    ),
    (LONG_TOOL, {"path": "\x1b[31m" * 40}, ()),
    ("move_file", {"from": LONG_FILE, "to": "g" * 240 + ".txt"}, (LONG_FILE, "g" * 240 + ".txt")),
)


async def _call(made: Busy, session: Session, call: tuple[str, Any, tuple[str, ...]]) -> None:
    tool, arguments, paths = call
    made.gate.last = ""
    result = await session.call(tool, arguments)
    [newest] = made.workspace.timeline.calls(CallFilter(limit=1))
    number = newest.seq or 0
    changed = paths if result.success else ()
    named = tuple(str(arguments[name]) for name in ("path", "from", "to") if name in arguments)
    for path in ("data.json", "table.csv", "logo.png", "copy.png", "broken.png"):
        named += (path,) * (path in arguments.get("command", ""))
    left = {path: contents(made.root / path) for path in changed}
    end = datetime.now(UTC)
    done = Done(number, session.id, tool, result.success, changed, named, left, end, made.gate.last)
    made.done.append(done)


def _session(made: Busy, chance: random.Random, agent: str, first: int, count: int) -> None:
    title = f"task {first}: " + "words " * 20
    with made.workspace.session(agent, title=title, gate=made.gate) as session:

        async def run() -> None:
            extra = HUGE if first == 0 else ()
            for call in extra:
                await _call(made, session, call)
            for n in range(first, first + count - len(extra)):
                await _call(made, session, next_call(chance, n))

        with ThreadPoolExecutor(1) as own:  # a browser of Playwright has a loop in this thread
            own.submit(asyncio.run, run()).result()
    if chance.random() < 0.5:
        path = f"src/mod_{chance.randrange(MODULES):02}.py"
        (made.root / path).write_text(f"by hand {first}\n")
        made.outside.append(path)


def make(folder: Path, calls: int, *, per_session: int = 250, seed: int = 1) -> Iterator[Busy]:
    """The store of so many calls, open while the iterator is."""
    chance = random.Random(seed)
    root = folder / "work"
    lay_out(root)
    (root / STRANGE).write_bytes(b"bytes \xff\xfe\n")
    with ExitStack() as stack:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("LOOM_AUDIT_HOME", str(folder / "home"))
            store = stack.enter_context(open_store())
        made = Busy(store, store.attach(root), root)
        made.first |= {
            str(path.relative_to(root)): path.read_bytes()
            for path in root.rglob("*")
            if path.is_file()
        }
        for n, first in enumerate(range(0, calls, per_session)):
            agent = AGENTS[n % len(AGENTS)]
            _session(made, chance, agent, first, min(per_session, calls - first))
        yield made


if __name__ == "__main__":
    for one in make(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 5_000):
        sys.stdout.write(f"{len(one.done)} calls in {one.root}\n")
