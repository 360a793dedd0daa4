"""Agents that bring a workspace to a release by small calls, of every kind that there is."""

import base64
import os
import random
import shlex
import shutil
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import anyio

from loom_audit import AuditedWorkspace, ForeignSession, Session, ToolResult
from tests.oracles.trees import Entry, tree_of
from tests.tapes.person import LEFT_OUT

REFUSED = {
    "CONFLICT",
    "FILE_NOT_FOUND",
    "INVALID_PATH",
    "IS_A_DIRECTORY",
    "NOT_A_DIRECTORY",
    "NOT_EMPTY",
    "INVALID_ARGUMENTS",
    "EXECUTION_ERROR",
}


class Agents:
    """The sessions that act in one workspace: some of ours, and one of another program."""

    def __init__(
        self,
        workspace: AuditedWorkspace,
        sessions: Sequence[Session],
        foreign: ForeignSession,
        chosen: random.Random,
    ) -> None:
        self.root = Path(workspace.root)
        self.sessions = sessions
        self.foreign = foreign
        self.chosen = chosen
        self.count = 0
        self.answers: list[ToolResult] = []

    def act(self, release: Path, earlier: Path) -> str | None:
        """One call, or a few at once, towards the release; None where nothing is left to do.

        What is there that neither release has is the person's and stays, unless it is in the way.
        """
        paths = self.left(release, earlier)
        if not paths:
            return None
        mine = self.chosen.sample(paths, min(len(paths), self.chosen.choice((1, 1, 2, 4))))
        way = self.chosen.choice(WAYS)
        way(self, release, sorted(mine))
        return way.__name__

    def left(self, release: Path, earlier: Path) -> list[bytes]:
        """The paths that are not yet as in the release."""
        now, wanted = tree_of(self.root, skip=LEFT_OUT), tree_of(release)
        gone = tree_of(earlier).keys() - wanted.keys()
        changed = {path for path, entry in wanted.items() if now.get(path) != entry}
        return sorted(changed | (gone & now.keys()))

    def session(self) -> Session:
        return self.chosen.choice(self.sessions)

    def id(self) -> str:
        self.count += 1
        return f"{self.foreign.id}-{self.count}"

    def call(self, tool: str, **arguments: Any) -> None:
        session = self.session()
        self.check(anyio.run(lambda: session.call(tool, arguments)))

    def check(self, result: ToolResult) -> None:
        """A call may be refused for what the person made of its paths, and for nothing else."""
        assert result.success or result.error.code in REFUSED, result.error
        self.answers.append(result)


# --- what is done to the disk -------------------------------------------------------------------


def bring(root: Path, release: Path, paths: Iterable[bytes], *, in_place: bool = False) -> None:
    """Make the paths as they are in the release, by plain operations."""
    for path in paths:
        here, there = root / os.fsdecode(path), release / os.fsdecode(path)
        if not os.path.lexists(there):
            remove(here)
            continue
        for folder in reversed(here.relative_to(root).parents[:-1]):
            if not (root / folder).is_dir() or (root / folder).is_symlink():
                remove(root / folder)
                (root / folder).mkdir()
        if there.is_symlink() or here.is_symlink() or here.is_dir() != there.is_dir():
            remove(here)
        if there.is_symlink():
            here.symlink_to(there.readlink())
            continue
        if there.is_dir():
            here.mkdir(exist_ok=True)
        else:
            if not in_place:
                remove(here)
            here.write_bytes(there.read_bytes())
        here.chmod(there.stat().st_mode & 0o777)


def remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def script(release: Path, paths: Iterable[bytes]) -> str:
    """The same as shell commands."""
    lines = []
    for path in paths:
        name, there = os.fsdecode(path), release / os.fsdecode(path)
        here, source = shlex.quote(f"./{name}"), shlex.quote(str(there))
        if not os.path.lexists(there):
            lines.append(f"rm -rf {here}")
        elif there.is_dir():
            lines.append(f"mkdir -p {here}; chmod {there.stat().st_mode & 0o777:o} {here}")
        else:
            folder = shlex.quote(os.path.dirname(f"./{name}"))
            copied = "cp -d --preserve=mode"
            lines.append(f"rm -rf {here}; mkdir -p {folder}; {copied} {source} {here}")
    return "\n".join([*lines, "true"])


# --- the ways to call ---------------------------------------------------------------------------


def entry(release: Path, path: bytes) -> Entry | None:
    return tree_of(release).get(path)


def by_tools(agents: Agents, release: Path, paths: list[bytes]) -> None:
    """One file tool on the first path."""
    name, wanted = os.fsdecode(paths[0]), entry(release, paths[0])
    here = agents.root / name
    if wanted is None:
        agents.call("delete_file", path=name, recursive=True)
    elif wanted[0] != "file":
        by_shell(agents, release, paths)
    elif agents.chosen.random() < 0.5 and _is_text(here) and wanted[2].isascii() and wanted[2]:
        change = {"old_str": here.read_text(), "new_str": wanted[2].decode()}
        agents.call("edit_file", path=name, edits=[change])
    else:
        coded = base64.b64encode(wanted[2]).decode()
        agents.call("write_file", path=name, content=coded, encoding="base64")


def _is_text(path: Path) -> bool:
    return path.is_file() and not path.is_symlink() and path.read_bytes().isascii()


def by_moving(agents: Agents, release: Path, paths: list[bytes]) -> None:
    """Moves a file of the release elsewhere or back, else the same by tools."""
    kept = [path for path, (kind, _, _) in tree_of(release).items() if kind == "file"]
    source = agents.root / os.fsdecode(agents.chosen.choice(kept))
    if not source.is_file():
        by_tools(agents, release, paths)
        return
    name = source.relative_to(agents.root)
    target = f"moved/{name.name}-{agents.chosen.randrange(10**6)}"
    agents.call("move_file", **{"from": str(name), "to": target})


def by_shell(agents: Agents, release: Path, paths: list[bytes]) -> None:
    agents.call("shell_execute", command=script(release, paths))


def by_run(agents: Agents, release: Path, paths: list[bytes]) -> None:
    agents.session().run(["sh", "-c", script(release, paths)])


def by_function(agents: Agents, release: Path, paths: list[bytes]) -> None:
    recorded = agents.session().tool(_bring_some, effect=agents.chosen.choice(("execute", "write")))
    recorded(agents.root, release, paths, in_place=agents.chosen.random() < 0.5)


def _bring_some(root: Path, release: Path, paths: list[bytes], *, in_place: bool) -> int:
    bring(root, release, paths, in_place=in_place)
    return len(paths)


def by_block(agents: Agents, release: Path, paths: list[bytes]) -> None:
    with agents.session().recording("block", {"count": len(paths)}):
        bring(agents.root, release, paths, in_place=True)


def by_another(agents: Agents, release: Path, paths: list[bytes]) -> None:
    """A call of another program, which may say what it changes."""
    with_parents = {os.fsdecode(one) for path in paths for one in (path, *_above(path))}
    declared = sorted(with_parents) if agents.chosen.random() < 0.5 else None
    id = agents.id()
    agents.foreign.begin_call(id, "Write", {}, "execute", paths=declared)
    bring(agents.root, release, paths)
    agents.foreign.end_call(id, "ok", "done")


def _above(path: bytes) -> list[bytes]:
    parts = path.split(b"/")
    return [b"/".join(parts[:n]) for n in range(1, len(parts))]


def at_once_with_another(agents: Agents, release: Path, paths: list[bytes]) -> None:
    """Two calls of another program that overlap, and a file tool while both are open."""
    one, two = agents.id(), agents.id()
    agents.foreign.begin_call(one, "Bash", {})
    bring(agents.root, release, paths[:1])
    agents.foreign.begin_call(two, "Bash", {})
    bring(agents.root, release, paths[1:2])
    if paths[2:]:
        by_tools(agents, release, paths[2:])
    agents.foreign.end_call(one, "ok", "done")
    bring(agents.root, release, paths[3:])
    agents.foreign.end_call(two, "error", "failed")


def at_once(agents: Agents, release: Path, paths: list[bytes]) -> None:
    """A command, a file tool and a read at the same time."""
    shell, writer = agents.session(), agents.session()

    async def call(session: Session, tool: str, **arguments: Any) -> None:
        agents.check(await session.call(tool, arguments))

    async def all_of_them() -> None:
        async with anyio.create_task_group() as group:

            def start(session: Session, tool: str, **arguments: Any) -> None:
                group.start_soon(lambda: call(session, tool, **arguments))

            start(shell, "shell_execute", command=script(release, paths))
            start(writer, "write_file", path=f"notes/{agents.id()}", content="noted\n")
            start(shell, "list_directory", path=".")

    anyio.run(all_of_them)


WAYS: tuple[Callable[[Agents, Path, list[bytes]], None], ...] = (
    by_tools,
    by_tools,
    by_tools,
    by_moving,
    by_shell,
    by_run,
    by_function,
    by_block,
    by_another,
    at_once_with_another,
    at_once,
)
