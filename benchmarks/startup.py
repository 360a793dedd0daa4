"""What a whole process costs: CPU time beside a bare Python's, and beside a shadow repository.

The bytecode is there, as after an installation; everything is measured in every round, in turns.
"""

import json
import os
import resource
import statistics
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from benchmarks.figures import Figure, Sizes, interleaved, timed
from benchmarks.projects import Repository, content, fill, name

FLOORS = ("json", "sqlite3", "dataclasses", "msgspec", "click", "pathspec", "pydantic")
ANSWER = 14.0
COMMANDS: Mapping[str, tuple[Sequence[str], float]] = {
    "--version": (("--version",), 3.0),
    "--help": (("--help",), 8.0),
    "log": (("log",), ANSWER),
    "show": (("show", "5"), ANSWER),
    "status": (("status",), ANSWER),
    "diff": (("diff",), ANSWER),
    "cat": (("cat", "a"), ANSWER),
    "head": (("head",), ANSWER),
    "undo --dry-run": (("undo", "--dry-run"), ANSWER),
    "run -- true": (("run", "--", "true"), 18.0),
    "call read_file": (("call", "read_file", '{"path": "a"}'), 18.0),
}
"""Each command's words, and how many times as much CPU time as a bare Python's it may take."""

SESSION = """
from loom_audit import open_store
with open_store() as store, store.attach(".").session("benchmark"):
    pass
"""
PROGRAM = str(Path(sys.executable).with_name("loom-audit"))


def measure(folder: Path, sizes: Sizes) -> Iterator[Figure]:
    small = folder / "small"
    small.mkdir()
    (small / "a").write_text("one\n")
    environment = _environment(folder / "home")
    _run([PROGRAM, "init"], small, environment)
    _run([PROGRAM, "call", "write_file", '{"path": "a", "content": "two"}'], small, environment)
    works = {"pass": [sys.executable, "-c", "pass"]}
    works |= {f"import {one}": [sys.executable, "-c", f"import {one}"] for one in FLOORS}
    works |= {shown: [PROGRAM, *words] for shown, (words, _) in COMMANDS.items()}
    works["session"] = [sys.executable, "-c", SESSION]
    taken = _cpu(5 if sizes.quick else 15, works, small, environment)
    bare = taken.pop("pass")
    most = {shown: at_most for shown, (_, at_most) in COMMANDS.items()} | {"session": 12.0}
    for shown, milliseconds in taken.items():
        yield Figure("startup", shown, milliseconds, "ms", "python -c pass", bare, most.get(shown))
    yield from _whole(folder / "large", 1_000 if sizes.quick else 10_000)


def _whole(folder: Path, count: int) -> Iterator[Figure]:
    """Processes in a workspace of many files, beside what a shadow repository does at each."""
    work = folder / "work"
    fill(work, count)
    repository = Repository(folder / "git", work)
    environment = _environment(folder / "home")

    def ours(*words: str) -> None:
        _run([PROGRAM, *words], work, environment)

    def first() -> None:
        ours("init")

    firsts = interleaved(1, {"ours": first, "git": repository.commit})
    shown = f"init, {count:,} files"
    yield Figure("startup", shown, firsts["ours"], "ms", "git add && commit", firsts["git"], 1.5)

    written = 1

    def edit(files: int) -> None:
        nonlocal written
        written += 1
        for n in range(files):
            (work / name(n)).write_bytes(content(n, written))

    def write() -> None:
        nonlocal written
        written += 1
        text = content(0, written).decode()
        ours("call", "write_file", json.dumps({"path": name(0), "content": text}))

    def commit() -> None:
        edit(1)
        repository.commit()

    works = {"run": lambda: ours("run", "--", "true"), "write": write, "commit": commit}
    times = interleaved(5, works, warm=1)
    for what, at_most in (("run", 4.0), ("write", 4.0)):
        shown = f"{'run -- true' if what == 'run' else 'call write_file'}, {count:,} files"
        git = times["commit"]
        yield Figure("startup", shown, times[what], "ms", "git add && commit", git, at_most)
    for files, at_most in ((1, 4.0), (min(1000, count), 3.0)):
        yield _rolled_back(files, at_most, work, repository, environment)


def _rolled_back(
    files: int, at_most: float, work: Path, repository: Repository, environment: dict[str, str]
) -> Figure:
    """A rollback of so many files beside `git add && commit` and `git reset --hard`."""
    ours, git = list[float](), list[float]()

    def back() -> None:
        _run([PROGRAM, "rollback", "@before", "--yes"], work, environment)

    script = f"for f in $(find . -name 'file*.py' | sort | head -{files}); do echo x >> $f; done"
    for _ in range(3):
        _run([PROGRAM, "checkpoint", "before"], work, environment)
        _run([PROGRAM, "run", "--", "sh", "-c", script], work, environment)
        ours.append(timed(back) * 1000)
        repository.commit()
        _run(["sh", "-c", script], work, environment)
        git.append(timed(lambda: _reset(repository)) * 1000)
    shown = f"rollback of {files:,} {'file' if files == 1 else 'files'}"
    theirs = "git add && commit, reset --hard"
    return Figure(
        "startup", shown, statistics.median(ours), "ms", theirs, statistics.median(git), at_most
    )


def _reset(repository: Repository) -> None:
    """What a shadow repository does to take a change back: keep it, go to the commit before."""
    repository.commit()
    repository.run("reset", "-q", "--hard", "HEAD~1")


def _environment(home: Path) -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith("LOOM_AUDIT_")}
    kept.pop("PYTHONDONTWRITEBYTECODE", None)
    return kept | {"LOOM_AUDIT_HOME": str(home)}


def _run(words: Sequence[str], cwd: Path, environment: Mapping[str, str]) -> None:
    done = subprocess.run(words, cwd=cwd, env=environment, capture_output=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(words)}: {done.stderr.decode(errors='replace')}")


def _cpu(
    rounds: int, works: Mapping[str, Sequence[str]], cwd: Path, environment: Mapping[str, str]
) -> dict[str, float]:
    """The median CPU time of each process in milliseconds; the first round is not counted."""
    taken: dict[str, list[float]] = {shown: [] for shown in works}
    for n in range(-1, rounds):
        for shown, words in works.items():
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            _run(words, cwd, environment)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            if n >= 0:
                used = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
                taken[shown].append(used * 1000)
    return {shown: statistics.median(times) for shown, times in taken.items()}
