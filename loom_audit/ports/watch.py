"""What tells which paths may have changed between two looks at the workspace."""

from typing import Protocol


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
