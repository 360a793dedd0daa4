"""A recorded call of each tool against the bare operation it stands for.

The bare ones are what a loop without us would do: no fsync, no record, nothing to undo with.
"""

import asyncio
import http.server
import os
import re
import shutil
import statistics
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from benchmarks.figures import Figure, Sizes
from benchmarks.projects import content, fill, name, new_store
from loom_audit.api.face import Session

FILES = 300


@dataclass(frozen=True, slots=True)
class Pair:
    """A tool's call and the same done bare; both are given the number of the round."""

    tool: str
    arguments: Callable[[int], dict[str, Any]]
    bare: Callable[[int], object]
    note: str = ""


def measure(folder: Path, sizes: Sizes) -> Iterator[Figure]:
    work, plain = folder / "work", folder / "plain"
    for root in (work, plain):
        fill(root, FILES)
        for n in range(400):
            (root / f"gone{n}").write_bytes(b"x\n")
            (root / f"old{n}").write_bytes(b"x\n")
    # the Python of a project, and for both the same: the first on PATH may take its time to start
    own = work / ".venv/bin/python"
    own.parent.mkdir(parents=True)
    own.symlink_to(sys.executable)
    (work / ".venv/pyvenv.cfg").write_text(f"home = {Path(sys.base_prefix) / 'bin'}\n")
    rounds = 10 if sizes.quick else 60
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    pairs = _pairs(plain, f"http://127.0.0.1:{server.server_port}/")
    with new_store(folder / "store") as store, store.attach(work).session("benchmark") as session:
        session.settings = replace(session.settings, private_hosts=("127.0.0.1",))
        for pair in pairs:
            ours, theirs = asyncio.run(_measured(session, pair, rounds))
            yield Figure("tools", pair.tool, ours, "ms", "bare", theirs, note=pair.note)
    server.shutdown()


class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "5")
        self.end_headers()
        self.wfile.write(b"hello")

    def log_message(self, *args: object) -> None:
        pass


async def _measured(session: Session, pair: Pair, rounds: int) -> tuple[float, float]:
    ours, theirs = [], []
    for n in range(-3, rounds):
        number = n + 3
        started = time.perf_counter()
        pair.bare(number)
        between = time.perf_counter()
        result = await session.call(pair.tool, pair.arguments(number))
        ended = time.perf_counter()
        if not result.ok:
            raise SystemExit(f"{pair.tool} failed: {result.output}")
        if n >= 0:
            theirs.append((between - started) * 1000)
            ours.append((ended - between) * 1000)
    return statistics.median(ours), statistics.median(theirs)


def _pairs(plain: Path, url: str) -> list[Pair]:
    def text(n: int) -> str:
        return content(n, n + 7).decode("latin-1")

    def grep(n: int) -> list[str]:
        rule = re.compile("nowhere")
        return [
            p.name for p in plain.rglob("*") if p.is_file() and rule.search(p.read_text("latin-1"))
        ]

    def edit(n: int) -> None:
        file = plain / f"old{n}"
        file.write_text(file.read_text().replace("x", "y"))

    def run(*argv: str) -> Callable[[int], object]:
        return lambda n: subprocess.run(argv, cwd=plain, capture_output=True, check=True)

    return [
        Pair(
            "read_file",
            lambda n: {"path": name(n)},
            lambda n: (plain / name(n)).read_text("latin-1"),
        ),
        Pair(
            "write_file",
            lambda n: {"path": name(n), "content": text(n)},
            lambda n: (plain / name(n)).write_text(text(n)),
            "ours is durable",
        ),
        Pair("edit_file", lambda n: {"path": f"old{n}", "old_str": "x", "new_str": "y"}, edit),
        Pair(
            "delete_file", lambda n: {"path": f"gone{n}"}, lambda n: (plain / f"gone{n}").unlink()
        ),
        Pair(
            "move_file",
            lambda n: {"from": f"old{n + 100}", "to": f"new{n}"},
            lambda n: (plain / f"old{n + 100}").rename(plain / f"new{n}"),
        ),
        Pair(
            "list_directory",
            lambda n: {},
            lambda n: sorted(os.scandir(plain), key=lambda e: e.name),
        ),
        Pair("list_files", lambda n: {"recursive": True}, lambda n: [*plain.rglob("*")]),
        Pair("search_files", lambda n: {"pattern": "nowhere"}, grep),
        Pair(
            "bash",
            lambda n: {"command": "true"},
            run("sh", "-c", "true"),
            "confined where it can be",
        ),
        Pair(
            "run_code",
            lambda n: {"language": "python", "code": "pass"},
            run(sys.executable, "-c", "pass"),
            "confined",
        ),
        Pair("web_fetch", lambda n: {"url": url}, lambda n: urllib.request.urlopen(url).read()),
        *([_git_status(plain)] if shutil.which("git") else []),
    ]


def _git_status(plain: Path) -> Pair:
    for root in (plain, plain.parent / "work"):
        subprocess.run(["git", "init", "-q"], cwd=root, check=True)
    return Pair(
        "git_status",
        lambda n: {},
        lambda n: subprocess.run(
            ["git", "status", "--porcelain=v2"], cwd=plain, capture_output=True, check=True
        ),
    )
