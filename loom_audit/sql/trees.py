"""A tree written as files from contents that lie in a folder, however damaged the tree is."""

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from shutil import copyfile

from loom_audit.model.files import FileState

_ORDER = {"directory": 0, "file": 1, "symlink": 2}


def write_tree(
    tree: Mapping[str, FileState], folder: str, blobs: str, failed: Callable[[str], None]
) -> int:
    """Write what can be written below the new folder; how many paths.

    Nothing is written outside of it: a path that could lead there is refused, and symlinks
    come last, so that no file is written through one.
    """
    Path(folder).mkdir(0o700)
    done = 0
    modes: list[tuple[Path, int]] = []
    for path, state in sorted(tree.items(), key=lambda item: (_ORDER[item[1].kind], item[0])):
        raw = path.encode("utf-8", "surrogateescape")
        if not _is_inside(raw):
            failed(f"the path {path!a} leads elsewhere")
            continue
        target = Path(folder, os.fsdecode(raw))
        try:
            target.parent.mkdir(0o700, parents=True, exist_ok=True)
            if state.kind == "directory":
                target.mkdir(0o700, exist_ok=True)
                modes.append((target, state.mode))
            else:
                _write(target, state, Path(blobs, str(state.blob)))
            done += 1
        except OSError as error:
            failed(f"the {state.kind} {path!a}: {error.strerror or error}")
            continue
    for target, mode in sorted(modes, reverse=True):
        with suppress(OSError):
            target.chmod(mode)
    return done


def _is_inside(path: bytes) -> bool:
    parts = path.split(b"/")
    return b"\0" not in path and not any(part in (b"", b".", b"..") for part in parts)


def _write(target: Path, state: FileState, blob: Path) -> None:
    if state.kind == "symlink":
        target.symlink_to(os.fsdecode(blob.read_bytes()))
        return
    # made first, so that nothing that is there already is written over
    os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW, 0o600))
    try:
        copyfile(blob, target)
        target.chmod(state.mode)
    except OSError:
        target.unlink()
        raise
