"""Rebuilds the tree of a point in an empty directory."""

from collections.abc import Mapping

from loom_audit.errors import Conflict, TooLarge
from loom_audit.history.ground.prefetch import Prefetch
from loom_audit.model.files import FileChange, FileState
from loom_audit.ports import BlobStore, OnProgress, Progress, Replacement, Workspace

CHUNK = 5_000
"""Files that are written between two reports of the progress."""


def replay(
    tree: Mapping[str, FileState],
    blobs: BlobStore,
    target: Workspace,
    progress: OnProgress | None = None,
) -> int:
    """Write every path of a tree but the opaque entries into an empty target; how many there are.

    `progress` is told of the files that are written. Conflict when the target is not empty;
    TooLarge, with nothing written, for a content recorded by hash only; Corrupt for one that is
    damaged.
    """
    if target.list():
        raise Conflict(f"{target.root} is not empty", hint="Name a new folder.")
    tree = {path: state for path, state in tree.items() if state.kind != "opaque"}
    missing = blobs.missing({state.blob for state in tree.values() if state.blob})
    if missing:
        paths = [path for path, state in tree.items() if state.blob in missing]
        raise TooLarge(
            f"{paths[0]} was recorded by hash only and cannot be written",
            hint="Replay a point at which it is not there, or copy it from the workspace yourself.",
            details={"paths": paths[:100]},
        )
    # a folder may forbid writing, so it gets its recorded mode once all that is in it is there
    folders = [p for p, state in sorted(tree.items()) if state.kind == "directory"]
    open_mode = FileState("directory", None, 0o700, 0)
    target.replace_all([Replacement(FileChange(path, None, open_mode)) for path in folders])
    rest = [(path, state) for path, state in sorted(tree.items()) if state.kind != "directory"]
    prefetch = Prefetch(blobs, (state for _, state in rest))
    for n in range(0, len(rest), CHUNK):
        part = rest[n : n + CHUNK]
        for displaced in target.replace_all(
            [Replacement(FileChange(p, None, state), prefetch.opener(state)) for p, state in part]
        ):
            displaced.discard()
        if progress:
            progress(Progress("replay", n + len(part), len(rest)))
    for path in reversed(folders):
        if tree[path] != open_mode:
            target.replace(FileChange(path, open_mode, tree[path]), None).discard()
    return len(tree)
