"""Whether what a call changed is still as the call left it, path by path, as lists have it."""

from collections.abc import Sequence

from msgspec import Struct

from loom_audit.model.files import FileChange
from loom_audit.model.records import RecordedChange
from loom_audit.ports import Projections


class Aftermath(Struct, frozen=True):
    """A path that a call changed: which change of it came `next`, and which is the `last` of all.

    Both are None where nothing changed the path since.
    """

    change: FileChange
    next: RecordedChange | None = None
    last: RecordedChange | None = None

    @property
    def path(self) -> str:
        """The path that the call changed."""
        return self.change.path

    @property
    def stands(self) -> bool:
        """Whether the path is as the call left it, also where it was otherwise in between."""
        return self.last is None or self.last.change.after == self.change.after


def aftermath(
    projections: Projections, changes: Sequence[FileChange], after: int
) -> list[Aftermath]:
    """What became of these changes after an event, in their order."""
    ends = projections.ends([change.path for change in changes], after)
    return [Aftermath(change, *ends.get(change.path, (None, None))) for change in changes]
