"""Which branches the worktrees of a repository use: have checked out, rebase or bisect, as git says
(prepare_checked_out_branches of git's branch.c).
"""

import os
from collections.abc import Iterator

from loom_audit.model.git.record import OBJECT_ID
from loom_audit.ports import BranchUse
from loom_audit.sandbox.git.answers import text_of
from loom_audit.sandbox.git.files import read_text
from loom_audit.sandbox.git.mirrored import SECONDS
from loom_audit.sandbox.git.place import GitPlace, worktree_folders
from loom_audit.sandbox.git.program import check_answer
from loom_audit.sandbox.git.writing import Ask

_LISTED = ("worktree", "list", "--porcelain", "-z")
_HEADS = "refs/heads/"
_NAMES = ("rebase-merge/head-name", "rebase-apply/head-name", "BISECT_START")
_STACKED = "rebase-merge/update-refs"


def used_branches(place: GitPlace, ask: Ask) -> Iterator[BranchUse]:
    """What each worktree uses, the repository's own too; not one whose folder is gone, and whose
    entry git would prune. ExecutionFailed, OSError.
    """
    listed = ask(_LISTED, b"", SECONDS, 64 << 20)
    check_answer(listed)
    own = place.top
    if place.is_linked:
        above, name = os.path.split(place.common_path)
        own = above if name == ".git" else place.common_path
    for n, record in enumerate(text_of(listed.output).split("\0\0")):
        said = dict(line.partition(" ")[::2] for line in record.split("\0"))
        if "branch" in said and not {"bare", "prunable"} & said.keys():
            yield BranchUse(said["worktree"] if n else own, said["branch"], "HEAD")
    entries = worktree_folders(place.common, place.common_path)
    for folder, inside in (
        (own, ""),
        *((one, f"worktrees/{name}/") for name, one in entries if os.path.lexists(one)),
    ):
        for path in _NAMES:
            if said_there := _text(place.common, f"{inside}{path}"):
                is_name = not said_there.startswith("refs/")
                if is_name and (path != _NAMES[-1] or OBJECT_ID.fullmatch(said_there)):
                    continue
                yield BranchUse(folder, f"{_HEADS if is_name else ''}{said_there}", path)
        for line in _text(place.common, f"{inside}{_STACKED}").split("\n"):
            if line.startswith(_HEADS):
                yield BranchUse(folder, line, _STACKED)


def _text(common: int, path: str) -> str:
    try:
        return read_text(common, path) or ""
    except NotADirectoryError:
        return ""  # so nothing of that is in progress
