"""A store as a team has it after weeks: 5,000 calls of five agents, made by the real recorder.

The same count gives the same calls over the same files; times and ids differ.
"""

import asyncio
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.imports import write_transcript
from benchmarks.projects import content, fill, name, new_store, prose
from loom_audit.api.agents.importing import import_file
from loom_audit.api.agents.said import tell_message, tell_prompt
from loom_audit.api.face import AuditedWorkspace, AuditStore, Session
from loom_audit.ports import CallFilter
from loom_audit.tools.calls.gate import Decision

CALLS = 5_000
FILES = 300
"""Files of the workspace, all of which some commands change."""
LARGE = 600
"""Calls of the session that is reviewed."""
AGENTS = ("coder", "reviewer", "fixer", "tester", "writer")
ATTEMPT = 100
"""Calls of a session that is taken back."""
TAKEN_BACK = 0.36
"""How many of all calls are taken back."""
TURN = 50
"""Calls from one prompt to the next."""
MAKEFILE = "test:\n\t@echo '12 passed'; [ $$(ls package0/d1 | wc -l) -gt 24 ]\n"
EVERY_FILE = "for f in $(find package0 -name '*.py'); do echo '# pass %d' >> $f; done"
LONG = "mkdir -p notes && cat > notes/plan_%d.md <<'END'\n%s\nEND\nwc -c notes/plan_%d.md"


@dataclass
class Recorded:
    """The store; `large` is the session that is reviewed, `wide` the last call that changed every
    file, `long` the last one of a long command, and `made` how many calls there are.
    """

    store: AuditStore
    workspace: AuditedWorkspace
    large: str = ""
    wide: int = 0
    long: int = 0
    made: int = 0


class _People:
    """A gate at which ada lets each long command run, which is on record."""

    async def decide(self, tool: Any, args: Any, ctx: Any, *, asked: str = "") -> Decision:
        asks = "notes/plan_" in str(getattr(args, "command", ""))
        return Decision("allowed", "person:ada" if asks else "gate")


def record(folder: Path, calls: int = CALLS) -> Recorded:
    """Make the store of so many calls, of which a third and more are taken back again."""
    chance = random.Random(26)
    fill(folder / "work", FILES)
    (folder / "work" / "Makefile").write_text(MAKEFILE)
    store = new_store(folder / "store")
    made = Recorded(store, store.attach(folder / "work"))
    made.large = _session(made, chance, AGENTS[0], min(LARGE, calls // 3))
    back, turn = int(calls * TAKEN_BACK), 0
    while made.made < calls:
        turn += 1
        start, left = made.workspace.log.head(), calls - made.made
        _session(made, chance, AGENTS[turn % len(AGENTS)], min(ATTEMPT if back > 0 else 200, left))
        if back > 0 and turn % 4:
            back -= _take_back(made.workspace, start, by_one=turn % 4 == 1)
        if turn % 8 == 0:
            (folder / "work" / name(turn % FILES)).write_bytes(b"by hand %d\n" % turn)
            made.workspace.checkpoint(f"step-{turn}")
    write_transcript(folder / "session.jsonl", calls // 10)
    import_file(store, folder / "session.jsonl")
    return made


def _take_back(workspace: AuditedWorkspace, start: int, *, by_one: bool) -> int:
    """Take back all that was done since an event; how many calls that are."""
    for _ in range(8 if by_one else 0):
        workspace.carry_out(workspace.plan_undo())
    workspace.carry_out(workspace.plan_rollback(start))
    listed = workspace.timeline.calls(CallFilter(after=start, limit=None))
    return sum(call.undone_by is not None for call in listed)


def _session(made: Recorded, chance: random.Random, agent: str, count: int) -> str:
    """Record a session of so many calls with what is said in it, and return its id."""
    title = f"Task {made.made} of the backlog"
    with made.workspace.session(agent, title=title, gate=_People()) as session:
        asyncio.run(_calls(made, chance, session, count))
        tell_message(session, "All of it is done, and every test that I ran passes.")
        return session.id


async def _calls(made: Recorded, chance: random.Random, session: Session, count: int) -> None:
    for n in range(count):
        if n % TURN == 0:
            if n:
                tell_message(session, f"{n} calls on, this is how far I am. {_text(chance, 400)}")
            tell_prompt(session, f"Go on with part {n // TURN}. {_text(chance, 300)}")
        kind = "wide" if made.made % 1_000 == 400 else "long" * (made.made % 40 == 13)
        tool, arguments = _next(chance, Path(made.workspace.root), made.made, kind)
        result = await session.call(tool, arguments)
        made.made += 1
        if kind and not result.ok:
            raise SystemExit(f"{tool} failed: {result.output}")
        if kind:
            [newest] = made.workspace.timeline.calls(CallFilter(limit=1))
            setattr(made, kind, newest.seq or 0)


def _next(chance: random.Random, root: Path, number: int, kind: str) -> tuple[str, dict[str, Any]]:
    """A tool and its arguments, of this kind where there is one."""
    if kind == "wide":
        return "shell_execute", {"command": EVERY_FILE % number}
    if kind == "long":
        command = LONG % (number, _text(chance, 3_000), number)
        return "shell_execute", {"command": command}
    # a few files are changed often, most of them now and then
    path = name(min(chance.randrange(FILES), chance.randrange(FILES)))
    weights = {"read": 24, "edit": 30, "write": 12, "new": 8, "list": 5, "search": 5}
    weights |= {"shell": 6, "test": 4, "fail": 3, "move": 3}
    match chance.choices([*weights], [*weights.values()])[0]:
        case "read":
            return "read_file", {"path": path}
        case "edit":
            return "edit_file", {"path": path, **_edit(chance, root / path, number)}
        case "write":
            text = content(chance.randrange(FILES), number).decode("latin-1")
            return "write_file", {"path": path, "content": text}
        case "new":
            text = _text(chance, 1_500)
            return "write_file", {"path": f"notes/note_{number:05}.md", "content": text}
        case "list":
            return "list_directory", {"path": "package0"}
        case "search":
            return "search_files", {"pattern": f"value = {number % 7}", "path": "package0/d1"}
        case "shell":
            return "shell_execute", {"command": f"echo {number} >> log.txt && wc -l log.txt"}
        case "test":
            return "shell_execute", {"command": "make test"}
        case "fail":
            return "edit_file", {"path": path, "old_str": "not there\n", "new_str": ""}
    return "shell_execute", {"command": f"mkdir -p moved && cp {path} moved/{number}.py"}


def _edit(chance: random.Random, file: Path, number: int) -> dict[str, str]:
    """Some lines instead of one that stands there once; at the end where there is none."""
    text = file.read_text("utf-8", "surrogateescape")
    lines = [one for one in text.split("\n") if one.isascii() and text.count(one) == 1]
    line = chance.choice(lines) if lines else ""
    more = "".join(f"{line[:40]}  # {number}.{n}\n" for n in range(chance.randrange(1, 6)))
    return {"old_str": line, "new_str": more + line[: chance.randrange(80)]}


def _text(chance: random.Random, size: int) -> str:
    """Real text, that looks like what is written by hand."""
    start = chance.randrange(len(prose()) - size)
    return prose()[start : start + size].decode("latin-1").replace("\r", "")
