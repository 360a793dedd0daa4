"""What tells which paths may have changed between two looks at the workspace."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from loom_audit.model.scope import Scope


class Watch(Protocol):
    """What the kernel tells of a workspace between looks, so that a look need not be of everything.

    A watch has no thread: what the kernel has queued is read at the beginning of each look with it,
    and by `read`, under the workspace lock. A command's look is made once its processes have ended,
    so that all they did is queued by then. Each folder is watched before it is read, so that
    whatever comes later is told; a folder that is new is read whole. Files with several names,
    those that this process has mapped or had at the last look, and paths whose known stamp is none
    are read at every look.

    A look is of everything when nothing was watched before, when one before it did not end, when
    the kernel could not tell all, and always where there is a `flaw`.
    """

    @property
    def flaw(self) -> str:
        """The reason why the watch is of no use here; "" where it is of use."""
        ...

    @property
    def lag(self) -> int:
        """For how long, in ns, what happened may not have been told yet."""
        ...

    @property
    def why_whole(self) -> str:
        """The reason why the last look was of everything; "" when it was not."""
        ...

    def touch(self, path: str) -> None:
        """Let the next look be of a path too, and of what is below it."""
        ...

    def distrust(self, why: str) -> None:
        """Let the next look be of everything, for this reason."""
        ...

    def read(self) -> None:
        """Take what the kernel has queued since the last look began."""
        ...

    def happened_at(self, path: str) -> bool:
        """Whether something was told of a path's folder since the last look; True where unknown.

        `read` is called before.
        """
        ...

    def close(self) -> None:
        """Watch nothing any more."""
        ...


class Noticed(NamedTuple):
    """A path at which something happened; it is `renewed` where a folder came or went there."""

    path: str
    renewed: bool = False


class Observer(Protocol):
    """What tells, as it happens, at which paths of a workspace something happens.

    It has threads of its own, which hand over what they notice and do nothing else. It is used by
    one thread, and its `watch` by that one too, under the workspace lock: what a look with it is of
    is what was touched.
    """

    @property
    def doubt(self) -> str:
        """The reason why a look at everything is due; "" where none is."""
        ...

    @property
    def watch(self) -> Watch:
        """What a look asks where it has to look."""
        ...

    def start(self, scope: Scope) -> None:
        """Begin to notice, in the folders in scope, what happens; anew where it had begun.

        Conflict where it cannot be, with the reason.
        """
        ...

    def take(self, seconds: float | None) -> Sequence[Noticed]:
        """What was noticed since, in order; waited for up to so many seconds, or until it comes.

        Conflict where not all is noticed any more, StorageFailed where nothing is.
        """
        ...

    def check(self) -> None:
        """Doubt where a folder that was renamed is not known any more by its path."""
        ...

    def forget(self) -> None:
        """Forget what looks have told: the next one is of everything, and is not due by that."""
        ...

    def close(self) -> None:
        """Notice nothing any more."""
        ...
