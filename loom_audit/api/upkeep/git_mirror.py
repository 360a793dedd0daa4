"""The mirror of git's objects of a workspace: what is in it, how large it is, what is damaged."""

from collections.abc import Iterator

from msgspec import Struct

from loom_audit.api.workspace import AuditedWorkspace
from loom_audit.history.read import kept_git as reading
from loom_audit.model.text.display import count_text, first_few, size_text, visible


class MirrorState(Struct, frozen=True):
    """The bytes of a mirror on disk, how many objects that the repository names are missing in it,
    what was left out of it and why, and what git says of damaged objects.
    """

    size: int
    missing: int = 0
    left_out: tuple[str, ...] = ()
    damaged: tuple[str, ...] = ()

    @property
    def is_whole(self) -> bool:
        """Whether all that the repository names is there."""
        return not (self.missing or self.left_out or self.damaged)

    @property
    def hint(self) -> str:
        """What to do where it is not whole."""
        if self.damaged:
            return "Check the disk. Move its folder away, and what git still has is copied anew."
        return "What git lost before is not in it; of the rest the coverage of calls says why."

    @property
    def text(self) -> str:
        """The state in words."""
        return f"{size_text(self.size)} are kept, {'; '.join(self._said()) or 'whole and hashed'}"

    def _said(self) -> Iterator[str]:
        if self.damaged:
            yield f"damaged: {first_few(self.damaged, 3, visible)}"
        yield from (visible(one.removeprefix("git: ")) for one in self.left_out)
        if self.missing:
            yield f"{count_text(self.missing, 'object')} that git names not among them"


def kept_git(workspace: AuditedWorkspace, point: int, folder: str = "") -> reading.KeptGit:
    """The git repository in a folder at a point, its objects as kept. NotFound where none is on
    record, Corrupt.
    """
    return reading.kept_git(workspace.timeline, workspace.attachment.on_disk, folder, point)


def mirror_state(workspace: AuditedWorkspace) -> MirrorState | None:
    """The state of a workspace's mirror, all of it hashed; None where there is none.

    ExecutionFailed where git cannot tell it in time.
    """
    mirror, git = workspace.attachment.on_disk.mirror, workspace.attachment.on_disk.mirrored_git
    if mirror is None or git is None or not (size := mirror.size()):
        return None
    damaged = [line for folder in mirror.folders() for line in git.damaged(folder)]
    return MirrorState(size, mirror.missing().count, tuple(mirror.left_out()), tuple(damaged))
