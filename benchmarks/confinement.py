"""A command in each sandbox against the same command without: what starting it costs."""

from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.figures import Figure, Sizes, interleaved
from loom_audit.ports import Command, Runner
from loom_audit.sandbox import confining_runner, open_runner

COMMANDS = {
    "true": ("true",),
    "python -c pass": ("/usr/bin/python3", "-c", "pass"),
}


def measure(folder: Path, sizes: Sizes) -> Iterator[Figure]:
    found = [*confining_runner([str(folder / "store")]).backends()]
    runners = {one.runner.name: one.runner for one in found if not one.flaw}
    missing = "; ".join(f"{one.runner.name}: {one.flaw}" for one in found if one.flaw)
    work = folder / "work"
    work.mkdir()
    for shown, argv in COMMANDS.items():
        times = interleaved(
            15 if sizes.quick else 60,
            {
                name: _run(runner, str(work), argv)
                for name, runner in {"plain": open_runner(), **runners}.items()
            },
            warm=3,
        )
        for name in runners:
            label = f"{shown}, {name}"
            yield Figure("confinement", label, times[name], "ms", "plain", times["plain"])
        if not runners:
            yield Figure("confinement", shown, times["plain"], "ms", note=missing)


def _run(runner: Runner, root: str, argv: tuple[str, ...]) -> Callable[[], object]:
    def run() -> None:
        done = runner.run(root, Command(argv))
        if done.exit_code:
            raise SystemExit(done.stderr.decode(errors="replace"))

    return run
