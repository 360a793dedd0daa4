"""A command that changes nothing, recorded in a warm session, against git looking around."""

import asyncio
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.figures import Figure, Sizes, interleaved
from benchmarks.places import Repository, fill, new_store
from loom_audit.session import Session


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
            times = interleaved(
                rounds,
                {
                    "ours": _call(runner, session),
                    "status": lambda: repository.run("status", "--porcelain"),
                    "commit": repository.commit,
                    "bare": lambda: repository.run("--version"),
                },
                warm=2,
            )
    shown = f"no-op shell_execute, {count:,} files"
    note = f"starting a process alone takes {times['bare']:.1f} ms"
    yield Figure("noop", shown, times["ours"], "ms", "git status", times["status"], 5.0, note)
    yield Figure("noop", shown, times["ours"], "ms", "git add -A && git commit", times["commit"])


def _call(runner: asyncio.Runner, session: Session) -> Callable[[], object]:
    def call() -> None:
        result = runner.run(session.call("shell_execute", {"command": "true"}))
        if not result.ok:
            raise SystemExit(result.output)

    return call
