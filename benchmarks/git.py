"""What recording git costs: a look that finds it unchanged, a commit, the mirror of objects.

A commit is beside the same one recorded without a look at git, as before there was one, and so is
what needs none, a call where there is no repository; the first copy of all objects is beside the
baseline of a tenth as many files.
"""

import itertools
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from statistics import median

from msgspec.structs import force_setattr

from benchmarks.commands import NO_OP
from benchmarks.figures import Figure, Sizes, interleaved, timed
from benchmarks.projects import fill, new_store
from loom_audit.api.face import Session
from loom_audit.api.foreign import ForeignSession
from loom_audit.disk.access.identity import identity_at
from loom_audit.disk.machine.git_objects import DiskObjectMirror
from loom_audit.history.look.git.changes import look_at_git
from loom_audit.sandbox.git.mirrored import ProgramMirroredGit
from loom_audit.sandbox.git.program_git import ProgramGit

COMMITS = 500
COMMIT = ("sh", "-c", "echo $$ > file.txt && git commit -qam more")
NESTED = 10
MOST_UNCHANGED = 0.5
MOST_COMMIT = 1.5
MOST_MIRROR = 1.0
MOST_WITHOUT = 1.05


def measure(folder: Path, sizes: Sizes) -> Iterator[Figure]:
    refs = [("loose", 1_000), ("packed", 1_000), ("packed", 5_000 if sizes.quick else 50_000)]
    for how, count in refs:
        yield _unchanged(folder / f"{how}-{count}", how, count)
    yield _nested(folder / "nested")
    yield from _recorded(folder, 10 if sizes.quick else 30)
    yield from _without(folder / "without", 30 if sizes.quick else 150)
    yield from _mirrored(folder, 10_000 if sizes.quick else 100_000)


def _mirrored(folder: Path, objects: int) -> Iterator[Figure]:
    """The first copy of so many objects, one after a commit, and one that finds nothing new."""
    files = folder / "baseline"
    fill(files, objects // 10)
    with new_store(folder / "baseline-store") as store:
        baseline = timed(lambda: store.attach(files)) * 1000
    for how in ("packed", "loose"):
        root = folder / f"mirrored-{how}"
        _repository(root, objects // 3, packed=how == "packed")
        mirror = DiskObjectMirror(str(root), folder / f"mirror-{how}")
        asked = ProgramMirroredGit(str(root))
        first = timed(lambda: mirror.take(".git", asked)) * 1000  # noqa: B023 - it is run at once
        against = f"a baseline of {objects // 10:,} files"
        shown = f"mirror of {objects:,} objects, {how}"
        yield Figure("git", shown, first, "ms", against, baseline, MOST_MIRROR)
    times = []
    for n in range(10):
        (root / "file.txt").write_text(f"more {n}\n")
        _git(root, "commit", "-qam", "more")
        times.append(timed(lambda: mirror.take(".git", asked)) * 1000)
    yield Figure("git", "mirror after a commit", median(times), "ms")
    unchanged = interleaved(20, {"": lambda: mirror.take(".git", asked)}, warm=2)[""]
    yield Figure("git", "mirror, nothing new", unchanged, "ms")


def _unchanged(folder: Path, how: str, count: int) -> Figure:
    """The stamps of a repository of so many refs, as each look takes them."""
    _repository(folder, 1)
    head = _git(folder, "rev-parse", "HEAD").strip()
    lines = "".join(f"create refs/heads/b{n} {head}\n" for n in range(count))
    subprocess.run(["git", "update-ref", "--stdin"], cwd=folder, input=lines, text=True, check=True)
    if how == "packed":
        _git(folder, "pack-refs", "--all")
    git = ProgramGit(str(folder), identity_at)
    old = {"stamps": lambda: git.stamps(2**62)}  # nothing has just changed
    time = interleaved(50, old, warm=3)["stamps"]
    return Figure("git", f"unchanged, {count:,} {how} refs", time, "ms", most=MOST_UNCHANGED)


def _nested(folder: Path) -> Figure:
    """A look at nested repositories that finds all of them unchanged, by repository."""
    for n in range(NESTED):
        _repository(folder / f"work/vendor/{n}", 1)
    with ExitStack() as opened:
        workspace = opened.enter_context(new_store(folder / "store")).attach(folder / "work")
        session = opened.enter_context(workspace.session("benchmark"))
        for _ in range(4):
            session.run(NO_OP)
        opened.enter_context(workspace.attachment.exclusive())
        look = {"look": lambda: [*look_at_git(workspace.attachment)]}
        time = interleaved(50, look, warm=3)["look"]
    return Figure(
        "git", f"unchanged, each of {NESTED} nested", time / NESTED, "ms", most=MOST_UNCHANGED
    )


def _recorded(folder: Path, rounds: int) -> Iterator[Figure]:
    works: dict[str, Callable[[], object]] = {}
    with ExitStack() as opened:
        for name in ("ours", "theirs"):
            _repository(folder / name, COMMITS)
            workspace = opened.enter_context(new_store(folder / f"{name}-store"))
            session = workspace.attach(folder / name).session("benchmark")
            opened.enter_context(session)
            if name == "theirs":
                force_setattr(session.workspace.attachment.on_disk, "git", None)
            works[name] = _run(session, COMMIT)
            works[f"no-op {name}"] = _run(session, NO_OP)
        times = interleaved(rounds, works, warm=2)
    against = "no look at git"
    for name, most in (("", MOST_COMMIT), ("no-op ", MOST_COMMIT)):
        shown = f"{name.strip() or 'commit'}, {COMMITS} commits"
        yield Figure(
            "git", shown, times[f"{name}ours"], "ms", against, times[f"{name}theirs"], most
        )


def _without(folder: Path, rounds: int) -> Iterator[Figure]:
    """A command that changes nothing, and a call that a client reports, without a repository."""
    works: dict[str, Callable[[], object]] = {}
    with ExitStack() as opened:
        for name in ("ours", "theirs"):
            fill(folder / name, 300)
            store = opened.enter_context(new_store(folder / f"{name}-store"))
            workspace = store.attach(folder / name)
            if name == "theirs":
                force_setattr(workspace.attachment.on_disk, "git", None)
            session = opened.enter_context(workspace.session("benchmark"))
            works[f"no-op {name}"] = _run(session, NO_OP)
            works[f"call {name}"] = _reported(workspace.start_foreign_session("benchmark"))
        times = interleaved(rounds, works, warm=5)
    for name, shown in (("no-op", "no-op"), ("call", "reported call")):
        yield Figure(
            "git",
            f"{shown} without git",
            times[f"{name} ours"],
            "ms",
            "no look at git",
            times[f"{name} theirs"],
            MOST_WITHOUT,
        )


def _reported(session: ForeignSession) -> Callable[[], None]:
    """A call, reported at its begin and its end, as the warm process does for a client's hooks."""
    numbers = itertools.count()

    def call() -> None:
        name = f"c{next(numbers)}"
        session.begin_call(name, "Bash", {"command": "true"})
        session.end_call(name)

    return call


def _run(session: Session, argv: tuple[str, ...]) -> Callable[[], object]:
    return lambda: session.run(argv)


def _repository(folder: Path, commits: int, *, packed: bool = True) -> None:
    """A repository of so many commits and tags, each with a tree and a file."""
    folder.mkdir(parents=True)
    _git(folder, "init", "-q", "-b", "main")
    _git(folder, "config", "user.name", "ann")
    _git(folder, "config", "user.email", "ann@example.org")
    # a commit would leave a git running that packs, while the folder is deleted
    for setting in ("gc.auto", "maintenance.auto"):
        _git(folder, "config", setting, "0")
    lines = []
    for n in range(commits):
        text = f"{n}\n"
        lines.append(
            f"commit refs/heads/main\ncommitter ann <ann@example.org> {1_700_000_000 + n} +0000\n"
            f"data {len(text)}\n{text}M 100644 inline file.txt\ndata {len(text)}\n{text}\n"
            f"reset refs/tags/t{n}\nfrom refs/heads/main\n\n"
        )
    subprocess.run(
        ["git", "-c", f"fastimport.unpackLimit={1 if packed else 2**30}", "fast-import", "--quiet"],
        cwd=folder,
        input="".join(lines),
        text=True,
        check=True,
    )
    _git(folder, "reset", "-q", "--hard")


def _git(folder: Path, *words: str) -> str:
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull}
    done = subprocess.run(
        ["git", *words], cwd=folder, env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout
