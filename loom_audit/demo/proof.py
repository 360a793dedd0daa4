"""The proof that a demonstration can be rebuilt and taken back, byte for byte."""

import hashlib
import os
import stat
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct

from loom_audit.api.face import AuditedWorkspace
from loom_audit.demo.recording import Demo


class Proof(Struct, frozen=True):
    """Paths compared and paths that differ, per comparison: replayed, rolled back, undone."""

    compared: Mapping[str, int]
    differences: Mapping[str, Sequence[str]]

    @property
    def holds(self) -> bool:
        """Whether all that was compared is equal."""
        return not any(self.differences.values())


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
