"""Every file tool against every hostile path: nothing outside is read, listed, made or changed."""

import os
import shutil
import socket
import stat
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import anyio
import pytest

from loom_audit.tools.calls.result import ToolResult
from tests.given.cases import some
from tests.tools.bundled.files.hostile_paths import WHOLE, corpus
from tests.tools.conftest import Bench

CLEAR = {
    "INVALID_PATH",
    "IS_A_DIRECTORY",
    "NOT_A_DIRECTORY",
    "NOT_EMPTY",
    "FILE_NOT_FOUND",
    "INVALID_ARGUMENTS",
    "CONFLICT",
    "PERMISSION_DENIED",
}
NEVER = [
    "/tmp/loom-hostile-new",
    "/dev/shm/loom-hostile-new",
    "/loom-hostile-new",
    "/etc/loom-hostile-new",
]

# how each tool is given the path; whether it follows a link there, and whether it changes things
TOOLS: Mapping[str, tuple[Callable[[str], dict[str, object]], str]] = {
    "read_file": (lambda p: {"path": p}, "follows"),
    "read_file in base64": (lambda p: {"path": p, "encoding": "base64"}, "follows"),
    "write_file": (lambda p: {"path": p, "content": "new"}, "follows changes"),
    "edit_file": (lambda p: {"path": p, "old_str": "", "new_str": "more"}, "follows changes"),
    "edit_file in place": (
        lambda p: {"path": p, "old_str": "e", "new_str": "E"},
        "follows changes",
    ),
    "delete_file": (lambda p: {"path": p, "recursive": True}, "changes"),
    "move_file from": (lambda p: {"from": p, "to": "moved/here"}, "changes"),
    "move_file to": (lambda p: {"from": "mover", "to": p, "overwrite": True}, "changes"),
    "list_directory": (lambda p: {"path": p}, "follows lists"),
    "list_directory below": (
        lambda p: {"path": p, "recursive": True, "includeHidden": True},
        "follows lists",
    ),
    "list_files": (lambda p: {"path": p, "recursive": True}, "follows lists"),
    "search_files": (lambda p: {"pattern": ".", "path": p}, "follows lists"),
    "shell_execute": (lambda p: {"command": "pwd -P", "cwd": p}, "follows lists"),
}

SYMLINKS = {
    "out": "../outside",
    "outfile": "../outside/known.txt",
    "absolute": "{outside}",
    "up": "..",
    "chain1": "chain2",
    "chain2": "./out",
    "dir/up": "../..",
    "dir/out": "../../outside",
    "etc": "/etc",
    "slash": "/",
    "process": "/proc/self",
    "working": "/proc/self/cwd",
    "descriptors": "/proc/self/fd",
    "dangling-out": "../outside/new.txt",
    "dangling-tmp": "/tmp/loom-hostile-new",
    "dangling": "nowhere",
    "loop1": "loop2",
    "loop2": "loop1",
    "itself": "itself",
    "in": "dir",
    "infile": "dir/file",
    "link-to-git": ".git",
    "linked-fifo": "fifo",
}
FILES = {
    "inside.txt": b"inside: one\n",
    "dir/file": b"inside: two\n",
    "mover": b"inside: three\n",
    ".git/config": b"[core]\n",
    "sub/.git/config": b"[core]\n",
    ".hidden": b"inside\n",
}


PARTS = 6
"""A tool is given the corpus in so many parts, of which `make test` has the first."""


def is_file(path: Path, content: bytes) -> bool:
    return path.is_file() and path.read_bytes() == content


def is_link(path: Path, target: str) -> bool:
    return path.is_symlink() and os.readlink(path) == target


class Trap:
    """A workspace full of ways out, and beside it what must not be reached."""

    def __init__(self, bench: Bench) -> None:
        self.root, self.outside = bench.root, bench.root.parent / "outside"
        self.secret = "canary-7c1fa9d04be2"
        (self.outside / "dir").mkdir(parents=True)
        for name in ("known.txt", "dir/deep.txt", f"{self.secret}.txt", ".hidden"):
            (self.outside / name).write_text(f"{self.secret} e\n")
        (self.outside / "hard").write_text("inside by another name\n")
        shutil.rmtree(self.root / "src")
        self.build()
        self.before = self.beside()

    def build(self) -> None:
        """Put back what a call took away."""
        for name, content in FILES.items():
            self.make(
                name, partial(is_file, content=content), partial(Path.write_bytes, data=content)
            )
        for name, text in SYMLINKS.items():
            target = text.format(outside=self.outside)
            self.make(
                name, partial(is_link, target=target), partial(Path.symlink_to, target=target)
            )
        for name in ("hard", "dir/hard"):
            self.make(
                name,
                lambda p: p.exists() and p.samefile(self.outside / "hard"),
                lambda p: os.link(self.outside / "hard", p),
            )
        self.make("fifo", lambda p: p.is_fifo(), os.mkfifo)
        self.make("socket", lambda p: p.is_socket(), bind)
        self.make("device", lambda p: p.is_char_device() or p.is_fifo(), device)

    def make(
        self, name: str, there: Callable[[Path], bool], make: Callable[[Path], object]
    ) -> None:
        path = self.root / name
        if path.is_symlink() or not there(path):
            if path.is_symlink() and there(path):
                return
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            elif os.path.lexists(path):
                path.unlink()
            for above in (path.parent.parent, path.parent):
                if above.is_symlink() or (above.exists() and not above.is_dir()):
                    above.unlink()
            path.parent.mkdir(parents=True, exist_ok=True)
            make(path)

    def beside(self) -> dict[str, tuple[bytes | None, int, int, int]]:
        """All there is beside the workspace: content, mode, time and inode."""
        seen = {}
        for folder, folders, files in os.walk(self.root.parent):
            if Path(folder) == self.root.parent:
                folders[:] = [name for name in folders if name != self.root.name]
            for name in (*folders, *files):
                path = Path(folder, name)
                found = path.lstat()
                content = path.read_bytes() if stat.S_ISREG(found.st_mode) else None
                seen[str(path)] = (content, found.st_mode, found.st_mtime_ns, found.st_ino)
        return seen


def bind(path: Path) -> None:
    here = Path.cwd()
    os.chdir(path.parent)  # a socket's address is at most 108 bytes long
    try:
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(path.name)
    finally:
        os.chdir(here)


def device(path: Path) -> None:
    """A device where we may make one, else something else that is not a file."""
    try:
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 5))
    except OSError:
        os.mkfifo(path)


def wrong(kind: str, traits: str, whole: bool, result: ToolResult) -> str:
    """What is wrong with a result for a path of this kind; empty when nothing is."""
    code = None if result.success else result.error.code
    if code is not None and (code not in CLEAR or not result.error.message):
        return f"an unclear refusal: {code} {result.error}"
    if whole and "lists" in traits:
        return "" if result.success else f"the workspace itself is refused: {code}"
    refused = {
        "out": {"INVALID_PATH"},
        "none": CLEAR,
        "link": CLEAR if "follows" in traits else None,
        "kept": CLEAR if "changes" in traits else None,
        "odd": None,
    }[kind]
    if refused is not None and code not in refused:
        return f"came to {code or 'a success'}"
    return ""


def test_the_corpus_is_large_and_has_every_kind() -> None:
    rows = corpus()
    assert len(rows) >= 400 and len({path for path, _ in rows}) == len(rows)
    for kind, least in (("out", 150), ("link", 20), ("none", 50), ("kept", 15), ("odd", 140)):
        assert sum(1 for _, one in rows if one == kind) >= least


@pytest.mark.few(1)
@pytest.mark.parametrize("part", some(range(PARTS), 1))
@pytest.mark.parametrize("how", TOOLS)
def test_no_path_leads_out(bench: Bench, how: str, part: int) -> None:
    arguments, traits = TOOLS[how]
    tool = how.split()[0]
    trap = Trap(bench)
    rows = corpus()[part::PARTS]
    leaks, mistakes = [], []
    there = [*map(os.path.lexists, NEVER)]  # by whoever else uses this machine

    async def all_of_them() -> None:
        for text, kind in rows:
            path = text.format(root=trap.root, outside=trap.outside, name=trap.root.name)
            result = await bench.acall(tool, arguments(path))
            said = str(result.to_dict())
            if trap.secret in said or "root:x:0:" in said or "PATH=" in said:
                leaks.append((text, "said", said[:300]))
            if "lists" in traits and result.success and tool == "shell_execute":
                inside = Path(result.data["stdout"].removesuffix("\n"))
                if inside != trap.root and trap.root not in inside.parents:
                    leaks.append((text, "ran in", str(inside)))
            if trap.beside() != trap.before or [*map(os.path.lexists, NEVER)] != there:
                leaks.append((text, "changed", str(set(trap.beside()) ^ set(trap.before))))
            if tool == "shell_execute" and text.startswith("scratch://"):
                kind = "odd"  # a folder of that name: commands run in the workspace only
            problem = wrong(kind, traits, text in WHOLE or text == "", result)
            if problem:
                mistakes.append((text[:80], kind, problem))
            if "changes" in traits:
                trap.build()

    anyio.run(all_of_them)
    assert leaks == []
    assert mistakes == []
    bench.assert_every_call_has_one_finish()
    assert len(bench.finished()) == len(rows)


@pytest.mark.parametrize("path", ["../../../etc/passwd", "/etc/shadow", "src/../../x", "way/out"])
def test_no_file_tool_leaves_the_workspace(bench: Bench, path: str) -> None:
    (bench.root / "way").symlink_to("/")
    before = bench.tree()
    for name, arguments in (
        ("read_file", {"path": path}),
        ("write_file", {"path": path, "content": "x"}),
        ("edit_file", {"path": path, "old_str": "", "new_str": "x"}),
        ("delete_file", {"path": path}),
        ("move_file", {"from": path, "to": "x"}),
        ("move_file", {"from": "notes.txt", "to": path}),
        ("list_directory", {"path": path}),
        ("list_files", {"path": path}),
        ("search_files", {"pattern": "x", "path": path}),
        ("shell_execute", {"command": "true", "cwd": path}),
        ("bash", {"command": "true", "cwd": path}),
    ):
        assert bench.call(name, arguments).error.code == "INVALID_PATH", name
    assert bench.tree() == before
