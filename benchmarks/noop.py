"""A command that changes nothing, recorded in a warm session, against git looking around.

git runs as our own user may, and so does the command; what a sandbox around it costs more is
reported apart.
"""

import asyncio
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from msgspec.structs import replace

from benchmarks.figures import Figure, Sizes, interleaved
from benchmarks.projects import Repository, fill, new_store
from loom_audit.api.face import Session
from loom_audit.sandbox import confining_runner
from loom_audit.tools.calls.settings import ToolSettings


def measure(folder: Path, sizes: Sizes) -> Iterator[Figure]:
    for count in (1_000, 10_000) if sizes.quick else (1_000, 10_000, 100_000):
        yield from _at(folder / str(count), count, 10 if count < 100_000 else 5)
        shutil.rmtree(folder / str(count))


def _at(folder: Path, count: int, rounds: int) -> Iterator[Figure]:
    work = folder / "work"
    fill(work, count)
    repository = Repository(folder / "git", work)
    repository.commit()
    with new_store(folder / "store") as store:
        workspace = store.attach(work)
        with workspace.session("benchmark") as session, asyncio.Runner() as runner:
            as_set = session.settings
            open_ = replace(as_set, confinement="off")
            times = interleaved(
                rounds,
                {
                    "ours": _call(runner, session, open_),
                    "confined": _call(runner, session, as_set),
                    "status": lambda: repository.run("status", "--porcelain"),
                    "commit": repository.commit,
                    "bare": lambda: repository.run("--version"),
                },
                warm=2,
            )
        sandbox = confining_runner().name
    shown = f"no-op shell_execute, {count:,} files"
    inside = f"… in {sandbox}"
    note = f"starting a process alone takes {times['bare']:.1f} ms"
    yield Figure("noop", shown, times["ours"], "ms", "git status", times["status"], 5.0, note)
    yield Figure("noop", shown, times["ours"], "ms", "git add -A && git commit", times["commit"])
    yield Figure("noop", inside, times["confined"], "ms", "git status", times["status"])


def _call(runner: asyncio.Runner, session: Session, settings: ToolSettings) -> Callable[[], object]:
    def call() -> None:
        session.settings = settings
        result = runner.run(session.call("shell_execute", {"command": "true"}))
        if not result.ok:
            raise SystemExit(result.output)

    return call
