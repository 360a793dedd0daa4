"""Commands in a session that runs several: from the third on they cost what they change.

Beside the same command through the plain runner, unrecorded; beside each other in workspaces of
different sizes; and, with every look at everything as in a session of one command, beside git.
"""

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

from benchmarks.figures import Figure, Sizes, interleaved
from benchmarks.projects import Repository, fill, new_store
from loom_audit.api.face import Session
from loom_audit.history.record.watching import WATCHED_FROM
from loom_audit.ports import Command
from loom_audit.sandbox.plain import PlainRunner

NO_OP = ("true",)
ONE_FILE = ("sh", "-c", "echo $$ > package0/d0/file0.py")
LARGEST = 1.3
"""How much more the same command may take in the largest workspace than in the smallest."""


def measure(folder: Path, sizes: Sizes) -> Iterator[Figure]:
    counts = (1_000, 10_000) if sizes.quick else (1_000, 10_000, 100_000)
    works: dict[str, Callable[[], object]] = {}
    with ExitStack() as opened:
        for count in counts:
            work = folder / str(count) / "work"
            fill(work, count)
            session = _session(opened, work, folder / str(count) / "store")
            works[f"no-op {count}"] = _recorded(session, NO_OP)
            works[f"one {count}"] = _recorded(session, ONE_FILE)
        works["no-op plain"] = _plain(work, NO_OP)
        works["one plain"] = _plain(work, ONE_FILE)
        times = interleaved(30, works, warm=3)
        for kind, shown in (("no-op", "no-op command"), ("one", "command that writes one file")):
            plain = times[f"{kind} plain"]
            for count in counts:
                name = f"{shown}, {count:,} files"
                yield Figure(
                    "commands", name, times[f"{kind} {count}"], "ms", "unrecorded", plain, 1.5
                )
            most, least = times[f"{kind} {counts[-1]}"], times[f"{kind} {counts[0]}"]
            name, against = f"… {counts[-1]:,} files", f"{counts[0]:,} files"
            yield Figure("commands", name, most, "ms", against, least, LARGEST)
    for count in counts:
        yield _unwatched(folder / str(count), count)
        shutil.rmtree(folder / str(count))


def _unwatched(folder: Path, count: int) -> Figure:
    repository = Repository(folder / "git", folder / "work")
    repository.commit()
    with ExitStack() as opened:
        session = _session(opened, folder / "work", folder / "store")
        session.workspace.attachment.process.last_seen.commands = WATCHED_FROM
        works = {
            "ours": _recorded(session, NO_OP),
            "status": lambda: repository.run("status", "--porcelain"),
        }
        times = interleaved(10 if count < 100_000 else 5, works, warm=2)
    name = f"no-op, everything looked at, {count:,} files"
    return Figure("commands", name, times["ours"], "ms", "git status", times["status"], 3.0)


def _session(opened: ExitStack, work: Path, store: Path) -> Session:
    workspace = opened.enter_context(new_store(store)).attach(work)
    return opened.enter_context(workspace.session("benchmark"))


def _recorded(session: Session, argv: Sequence[str]) -> Callable[[], object]:
    return lambda: session.run(argv)


def _plain(work: Path, argv: Sequence[str]) -> Callable[[], object]:
    command = Command(tuple(argv), timeout=None, stdio="inherit")
    return lambda: PlainRunner().run(str(work), command)
