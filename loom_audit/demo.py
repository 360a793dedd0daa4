"""A real agent session on a copy of a real package, and the proof that it can be taken back."""

import asyncio
import hashlib
import os
import shlex
import shutil
import stat
import struct
import sys
import tempfile
import zlib
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from loom_audit.api.face import AuditedWorkspace, AuditStore, Session, open_store
from loom_audit.config import read_settings
from loom_audit.errors import NotFound
from loom_audit.ports import OnProgress, Progress

PACKAGES = ("jinja2", "click", "markdown_it", "json", "email")
"""Pure Python packages to copy, the first that is here; the last two are in every Python."""

CHECKPOINT = "tests-pass"
AGENT = "demo"


class Step(Struct, frozen=True):
    """A step of the session calls a tool; the demo refers to the number of the call by `label`."""

    tool: str
    arguments: Mapping[str, Any]
    label: str = ""


class Demo(Struct, frozen=True):
    """A recorded session and independent copies of the workspace at its turning points.

    `start`, `checkpoint` and `end` are seqs; `copies` has a folder for each. `numbers` are the
    calls by label, `outside` the paths a person changed in between, `environment` what must be
    set for other commands to find the store.
    """

    folder: str
    root: str
    store: str
    package: str
    session: str
    start: int
    checkpoint: int
    end: int
    calls: int
    failed: int
    numbers: Mapping[str, int]
    outside: tuple[str, ...]
    copies: Mapping[str, str]
    environment: Mapping[str, str]


class Proof(Struct, frozen=True):
    """Paths compared and paths that differ, per comparison: replayed, rolled back, undone."""

    compared: Mapping[str, int]
    differences: Mapping[str, Sequence[str]]

    @property
    def holds(self) -> bool:
        """Whether all that was compared is equal."""
        return not any(self.differences.values())


# --- the session --------------------------------------------------------------------------


@contextmanager
def demo_store(folder: Path, url: str | None = None) -> Iterator[AuditStore]:
    """The store of this URL or of the settings; where nobody set any, one in the folder."""
    told = url or os.environ.get("LOOM_AUDIT_STORE") or os.environ.get("LOOM_AUDIT_HOME")
    if told:
        with open_store(url) as store:
            yield store
        return
    os.environ["LOOM_AUDIT_HOME"] = str(folder / "home")
    try:
        with open_store() as store:
            yield store
    finally:
        del os.environ["LOOM_AUDIT_HOME"]


def make_folder() -> Path:
    """A temporary folder for one demo; it stays until the person deletes it."""
    return Path(tempfile.mkdtemp(prefix="loom-audit-demo-")).resolve()


def run_demo(store: AuditStore, folder: Path, *, report: OnProgress | None = None) -> Demo:
    """Copy a package into `folder/workspace`, and record an agent's work on it.

    Independent copies of the workspace are kept in `folder/copies`. NotFound when no suitable
    package is installed.
    """
    root, copies = folder / "workspace", folder / "copies"
    package = _make_workspace(root)
    copies.mkdir()
    workspace = store.attach(root, report=report)
    start = workspace.log.head()
    _copy(root, copies / "start")
    build, destroy = _building_steps(root, package), _destructive_steps(package)
    recording = _Recording(report, len(build) + len(destroy))
    with workspace.session(AGENT, title=f"Add word tools to {package}") as session:
        asyncio.run(_run_steps(session, build, recording))
        _copy(root, copies / "checkpoint")
        checkpoint = workspace.checkpoint(CHECKPOINT, note="before the clean-up")
        outside = _edit_by_hand(root)
        asyncio.run(_run_steps(session, destroy, recording))
    _copy(root, copies / "end")
    return Demo(
        folder=str(folder),
        root=str(root),
        store=store.url,
        package=package,
        session=session.id,
        start=start,
        checkpoint=checkpoint.point,
        end=workspace.log.head(),
        calls=recording.done,
        failed=recording.failed,
        numbers=recording.numbers,
        outside=outside,
        copies={name: str(copies / name) for name in ("start", "checkpoint", "end")},
        environment=_environment(store),
    )


def _environment(store: AuditStore) -> dict[str, str]:
    needed = {}
    if home := os.environ.get("LOOM_AUDIT_HOME"):
        needed["LOOM_AUDIT_HOME"] = home
    if read_settings().url != store.url:
        needed["LOOM_AUDIT_STORE"] = store.url
    return needed


class _Recording(Struct):
    report: OnProgress | None
    total: int
    done: int = 0
    failed: int = 0
    numbers: dict[str, int] = field(default_factory=dict)


async def _run_steps(session: Session, steps: Sequence[Step], recording: _Recording) -> None:
    for step in steps:
        result = await session.call(step.tool, dict(step.arguments))
        recording.done += 1
        recording.failed += not result.success
        if step.label:
            recording.numbers[step.label] = session.workspace.log.head()
        if recording.report is not None:
            recording.report(Progress("recording", recording.done, recording.total, "calls"))


def _make_workspace(root: Path) -> str:
    """The workspace before the agent comes: a package, a README, a file nobody will touch."""
    for package in PACKAGES:
        found = find_spec(package)
        source = Path(found.origin).parent if found and found.origin else None
        if source is not None and len(_find_modules(source)) >= 2:
            break
    else:
        raise NotFound(
            "No suitable package is installed here",
            hint=f"Install one of {', '.join(PACKAGES)}.",
            details={"packages": list(PACKAGES)},
        )
    shutil.copytree(
        source, root / package, ignore=shutil.ignore_patterns("__pycache__", "*.so", "*.pyd")
    )
    (root / "README.md").write_text(f"# {package}\n\nA copy to work on.\n")
    (root / "notes.txt").write_text("Written before the agent came.\n")
    return package


def _find_modules(package: Path) -> dict[str, list[str]]:
    """Modules, the largest first, with their class and def lines that stand there once."""
    modules = sorted(package.glob("*.py"), key=lambda path: (-path.stat().st_size, path.name))
    found = {}
    for module in modules:
        text = module.read_text("utf-8")
        lines = [
            line
            for line in text.splitlines()
            if line.startswith(("class ", "def ")) and text.count(line) == 1
        ]
        if len(lines) >= 3:
            found[module.name] = lines
    return found


def _edit_by_hand(root: Path) -> tuple[str, ...]:
    """What a person does in an editor meanwhile: no tool, nothing announced."""
    with (root / "README.md").open("a") as readme:
        readme.write("\nA line that a person added while the agent worked.\n")
    (root / "todo.txt").write_text("ask the agent what it did here\n")
    return ("README.md", "todo.txt")


WORDS = '''"""Words of a text."""


def count(text):
    counts = {}
    for word in text.split():
        counts[word] = counts.get(word, 0) + 1
    return counts


def longest(text):
    return max(text.split(), key=len)
'''
TESTS = """import unittest

from toolkit.words import count, longest


class Words(unittest.TestCase):
    def test_words_are_counted(self):
        self.assertEqual(count("a b a"), {"a": 2, "b": 1})

    def test_no_text_has_no_longest_word(self):
        self.assertEqual(longest(""), "")
"""


def _building_steps(root: Path, package: str) -> list[Step]:
    """The agent looks around, edits, adds a package with tests, and makes them pass."""
    reviewable = _find_modules(root / package)
    (largest, lines), (second, others) = list(reviewable.items())[:2]
    python = f"{shlex.quote(sys.executable)} -B"
    run_tests = f"{python} -m unittest tests/test_words.py"
    reviewed = "# Reviewed.\n"
    several = [
        {"old_str": others[0], "new_str": reviewed + others[0]},
        {"old_str": others[1], "new_str": reviewed + others[1]},
        {"old_str": reviewed, "new_str": "# Reviewed, and left as it is.\n", "replace_all": True},
    ]
    script = f"#!/bin/sh\nexec {run_tests}\n"
    return [
        Step("list_directory", {}),
        Step("read_file", {"path": "README.md"}),
        Step("read_file", {"path": f"{package}/{largest}", "line_range": [1, 60]}),
        Step("search_files", {"pattern": r"^class \w+", "path": package, "file_pattern": "*.py"}),
        Step("shell_execute", {"command": f"wc -l {package}/*.py | sort -n"}),
        _edit(f"{package}/{largest}", lines[0], reviewed + lines[0], "edit"),
        _edit(f"{package}/{largest}", lines[1], reviewed + lines[1]),
        Step("edit_file", {"path": f"{package}/{second}", "edits": several}, "edits"),
        Step("write_file", {"path": "toolkit/__init__.py", "content": '"""Small tools."""\n'}),
        Step("write_file", {"path": "toolkit/words.py", "content": WORDS}, "words"),
        Step("write_file", {"path": "tests/test_words.py", "content": TESTS}),
        Step("shell_execute", {"command": run_tests}, "failing tests"),
        _edit("toolkit/words.py", "key=len)", 'key=len, default="")', "fix"),
        Step("shell_execute", {"command": run_tests}),
        Step("read_file", {"path": f"{package}/no_such_module.py"}),
        _edit("toolkit/words.py", "text that is not there", "x"),
        Step(
            "write_file", {"path": "toolkit/logo.png", "content": _picture(), "encoding": "base64"}
        ),
        Step("shell_execute", {"command": f"ln -s ../{package}/{largest} toolkit/upstream.py"}),
        Step("write_file", {"path": "run-tests.sh", "content": script}),
        Step("shell_execute", {"command": "chmod 755 run-tests.sh && ./run-tests.sh"}, "chmod"),
        Step("write_file", {"path": "scratch.md", "content": "- look at the tests\n"}),
        Step("move_file", {"from": "scratch.md", "to": "toolkit/doc/plan.md"}),
        Step("delete_file", {"path": "notes.txt"}),
    ]


def _destructive_steps(package: str) -> list[Step]:
    """The agent cleans up, and goes too far."""
    mark = "# Cleaned up."
    sed = f"sed -i.bak -e '1i\\' -e '{mark}' {package}/*.py"
    return [
        Step("shell_execute", {"command": f"{sed} && rm {package}/*.bak"}, "sed"),
        Step("shell_execute", {"command": f"grep -lx '{mark}' {package}/*.py | wc -l"}),
        Step("read_file", {"path": "../../../etc/passwd"}),
        Step("shell_execute", {"command": "cp -r toolkit toolkit.old && mkdir -p build/lib"}),
        Step("shell_execute", {"command": "ls /no/such/directory"}),
        Step("shell_execute", {"command": f"rm -rf {package}* toolkit.old"}, "rm"),
        Step("list_directory", {"path": "."}),
        Step("shell_execute", {"command": "./run-tests.sh"}),
    ]


def _edit(path: str, old: str, new: str, label: str = "") -> Step:
    return Step("edit_file", {"path": path, "old_str": old, "new_str": new}, label)


def _picture() -> str:
    """A PNG file in base64."""
    side = 24

    def chunk(kind: bytes, body: bytes) -> bytes:
        checksum = zlib.crc32(kind + body)
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", checksum)

    rows = b"".join(b"\0" + bytes((x * y) % 256 for x in range(side)) for y in range(side))
    header = struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0)
    body = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    return b64encode(b"\x89PNG\r\n\x1a\n" + body).decode("ascii")


def what_to_try(demo: Demo) -> list[tuple[str, str]]:
    """Commands with what each is for, to be typed in the workspace."""
    sed, edit = demo.numbers["sed"], demo.numbers["edit"]
    return [
        ("loom-audit log", "every call of the session"),
        (f"loom-audit show {sed}", "one of them: sed over all modules"),
        (f"loom-audit diff {demo.start} head --name-only", "all it did to the files"),
        ("loom-audit verify", "whether the log is what was written"),
        ("loom-audit undo --dry-run", "what taking back the newest change would do"),
        (f"loom-audit revert {demo.numbers['rm']}", f"bring {demo.package}/ back after rm -rf"),
        (f"loom-audit revert {edit}", "take back one edit, keep the later ones"),
        (f"loom-audit rollback @{CHECKPOINT}", "everything as it was when the tests passed"),
        ("loom-audit undo", "take the rollback back too"),
    ]


# --- the proof ----------------------------------------------------------------------------


def prove(workspace: AuditedWorkspace, demo: Demo) -> Proof:
    """Replay the end and the checkpoint, roll back to the start, undo that, roll back again.

    Each result is compared with the copy made at that moment: every path with its kind,
    permission bits and content. The workspace is left as it was at the start.
    """
    folder = Path(demo.folder)
    compared: dict[str, int] = {}
    differences: dict[str, Sequence[str]] = {}

    def compare(what: str, rebuilt: Path, moment: str) -> None:
        expected, actual = listing(Path(demo.copies[moment])), listing(rebuilt)
        compared[what] = len(expected)
        paths = expected.keys() | actual.keys()
        unequal = sorted(path for path in paths if expected.get(path) != actual.get(path))
        differences[what] = [os.fsdecode(path) for path in unequal]

    for name, point in (("end", demo.end), ("checkpoint", demo.checkpoint)):
        with _absent_folder(folder) as target:
            workspace.replay(point, target)
            compare(f"replayed {name}", target, name)
    root = Path(demo.root)
    workspace.carry_out(workspace.plan_rollback(demo.start, outside=True))
    compare("rolled back to start", root, "start")
    workspace.carry_out(workspace.plan_undo())
    compare("rollback undone", root, "end")
    workspace.carry_out(workspace.plan_rollback(demo.start, outside=True))
    compare("rolled back again", root, "start")
    return Proof(compared, differences)


@contextmanager
def _absent_folder(folder: Path) -> Iterator[Path]:
    """A directory that is not there yet and is gone at the end."""
    with tempfile.TemporaryDirectory(dir=folder) as outer:
        yield Path(outer) / "replayed"


def _copy(source: Path, target: Path) -> None:
    shutil.copytree(source, target, symlinks=True)


def listing(top: Path) -> dict[bytes, tuple[str, int, bytes]]:
    """Every path below it, read with `os` alone: kind, permission bits, SHA-256 or target."""
    found: dict[bytes, tuple[str, int, bytes]] = {}
    base = os.fsencode(top)
    for folder, folders, files in os.walk(base):
        for name in (*folders, *files):
            path = os.path.join(folder, name)
            mode = os.lstat(path).st_mode
            if stat.S_ISLNK(mode):
                entry = ("symlink", 0, os.readlink(path))
            elif stat.S_ISDIR(mode):
                entry = ("directory", stat.S_IMODE(mode), b"")
            else:
                with open(path, "rb") as content:
                    digest = hashlib.file_digest(content, "sha256").digest()
                entry = ("file", stat.S_IMODE(mode), digest)
            found[os.path.relpath(path, base)] = entry
    return found
