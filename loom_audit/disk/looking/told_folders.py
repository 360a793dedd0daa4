"""The folders in which something happened since the last look, whoever tells it."""

from collections.abc import Iterable, Mapping

from loom_audit.disk.access.paths import split
from loom_audit.model.files import parents
from loom_audit.model.scope import Scope
from loom_audit.ports import LeftOutFiles


class ToldFolders:
    """The part of a `ports.Watch` of one root that keeps account; a subclass reads what the kernel
    tells. Used under the workspace lock.

    `touched` are the folders in which something happened, `renewed` the paths at which there may be
    another folder than before. `linked` are the files with several names, by folder and name with
    their inodes: written by one name, another is told nothing. Once there they stay for as long as
    they exist: what has a deleted name open may write on. `folders` are those that were
    read, each with what it is watched by. `lag` is for how long, in ns, what happened may not have
    been told. `left_out` and `excluded` are those of the last look.
    """

    def __init__(self, flaw: str, *, lag: int = 0) -> None:
        self.flaw = flaw
        self.lag = lag
        self.doubt = "nothing was watched before"
        self.why_whole = self.doubt
        self.folders: dict[str, int] = {}
        self.touched: set[str] = set()
        self.renewed: set[str] = set()
        self.linked: dict[str, dict[str, int]] = {}
        self.mapped: set[str] = set()
        self.left_out: LeftOutFiles = {}
        self._excluded: Mapping[str, str] = {}
        self._scope: Scope | None = None

    # --- a look -----------------------------------------------------------------------------

    def begin(self, scope: Scope, excluded: Mapping[str, str]) -> bool:
        """Begin a look, by reading what is queued; whether it is of what was touched only.

        Until `end` is called the next look would be of everything.
        """
        self.read()
        if scope != self._scope:
            self.distrust("the rules of the scope are others")
        if excluded != self._excluded:
            self.distrust("other folders are mounted or left out")
        self.why_whole = self.flaw or self.doubt
        if self.why_whole:
            self._begin_anew()
        self._scope, self._excluded = scope, dict(excluded)
        self.doubt = "the last look did not end"
        return not self.why_whole

    def end(self, left_out: LeftOutFiles) -> None:
        """End a look that is complete; `left_out` are the files that the look left out."""
        self.left_out = dict(left_out)
        self.doubt = ""

    def add(self, path: str, descriptor: int) -> None:
        """Watch an open folder, of which nothing was read yet, under this path."""
        self.folders[path] = 0

    def forget(self, gone: Iterable[str]) -> None:
        """Stop watching folders that are not at these paths any more, wherever each may be now."""
        for path in gone:
            self._forget(path)
            self.linked.pop(path, None)

    # --- what happened ----------------------------------------------------------------------

    def read(self) -> None:
        """Take all that is queued."""

    def touch(self, path: str) -> None:
        """Let the next look be of a path, and of what is below it, whatever is told."""
        self.touched.add(split(path)[0])
        self.renewed.add(path)

    def happened_at(self, path: str) -> bool:
        """Whether something happened in the folder of a path or above; True where unknown."""
        if self.doubt or split(path)[0] in self.touched:
            return True
        return not self.renewed.isdisjoint((path, *parents(path)))

    def distrust(self, why: str) -> None:
        """Let the next look be of everything; the first reason is kept."""
        self.doubt = self.doubt or why

    def close(self) -> None:
        """Forget what is watched."""
        self.folders = {}
        self.distrust("nothing is watched any more")

    def _begin_anew(self) -> None:
        self.close()
        self.touched, self.renewed, self.linked = set(), set(), {}

    def _forget(self, path: str) -> None:
        self.folders.pop(path, None)
