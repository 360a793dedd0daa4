"""The mirror of git's objects of a workspace: what is in it, how large it is, what is damaged."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from loom_audit.api.workspace import AuditedWorkspace
from loom_audit.errors import InvalidArguments, NotFound
from loom_audit.history.read import kept_git as reading
from loom_audit.history.record.git.whole import entries_of, packed_objects, whole_of
from loom_audit.model.git.record import SHARED_REFS, GitChanged, GitState, is_run_by_git
from loom_audit.model.git_points import GitPoints, GitSummary, git_summary
from loom_audit.model.plans.git_settings import may_run
from loom_audit.model.plans.git_things import is_led_out, whole_thing
from loom_audit.model.text.display import count_text, first_few, size_text, visible
from loom_audit.ports import EventFilter, GitFile
from loom_audit.ports.git_objects import plain_settings


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


def write_kept_git(
    workspace: AuditedWorkspace, point: int, folder: str, to: str | Path
) -> tuple[Path, GitSummary, Sequence[str]]:
    """Write a repository as it was at a point into the `.git` of an absent or empty directory: its
    objects, HEAD, refs, stashes, logs and index, without hooks and settings.

    Returns that `.git`, what it names, and in words what it had that is left out. Conflict where
    the directory is not empty, or lies in a workspace or the store. NotFound where there was no
    repository, InvalidArguments for a linked worktree, ExecutionFailed where objects are not kept.
    """
    attachment = workspace.attachment
    points = GitPoints()
    points.follow(
        workspace.timeline.events(EventFilter(before=point + 1, kinds=(GitChanged.kind,)))
    )
    state = points.states.get(folder, GitState())
    summary = git_summary(state)
    if summary is None:
        raise NotFound(
            "no repository was there at this point",
            hint="`loom-audit history .git` lists what changed of each repository.",
        )
    if SHARED_REFS in state.names:
        raise InvalidArguments(
            "this is a linked worktree, whose refs are elsewhere",
            hint="Name the folder of the repository that has them.",
        )
    thing = whole_thing(folder, state)
    whole = whole_of(attachment.stored, thing)
    left = [
        f"{visible(one.path)} is left out: it is a link, or has a rebase run programs"
        for one in thing.files
        if (is_led_out(one) or may_run(one.path)) and one.path not in whole.files
    ]
    config = plain_settings(long_ids=whole.long_ids).encode()
    files = {path: file for path, file in whole.files.items() if not is_run_by_git(path)}
    whole = replace(whole, files={**files, "config": GitFile("file", 0o644, config)})
    pack, not_kept = packed_objects(attachment, whole, entries_of(attachment.stored, state.files))
    target = Path(workspace.adapters.empty_workspace(to).root)
    builder = workspace.adapters.git_builder_at(str(target), str(workspace.root))
    with builder.begin("") as building:
        building.fill(whole, pack)
        building.finish()
    return target / ".git", summary, [*left, *filter(None, [not_kept])]


def mirror_state(workspace: AuditedWorkspace) -> MirrorState | None:
    """The state of a workspace's mirror, all of it hashed; None where there is none.

    ExecutionFailed where git cannot tell it in time.
    """
    mirror, git = workspace.attachment.on_disk.mirror, workspace.attachment.on_disk.mirrored_git
    if mirror is None or git is None or not (size := mirror.size()):
        return None
    damaged = [line for folder in mirror.folders() for line in git.damaged(folder)]
    return MirrorState(size, mirror.missing().count, tuple(mirror.left_out()), tuple(damaged))
