"""Facts about commands that go on when their call has finished."""

from typing import ClassVar, Literal

from msgspec import Struct


class WritableFolder(Struct, frozen=True):
    """A folder that a background command may write; `identity` says which folder it is."""

    path: str
    identity: str = ""


class BackgroundStarted(Struct, frozen=True):
    """The command of a call goes on in the background, as `name`.

    Of the workspace it can write what is in these folders, and nothing else.
    """

    kind: ClassVar[str] = "background.started"
    call_id: str
    name: str
    writes: tuple[WritableFolder, ...] = ()


class BackgroundFinished(Struct, frozen=True):
    """A background command finished, and all that it had started.

    It exited by itself, was stopped by a call, closed with its session, or interrupted with the
    process that had started it: then nobody saw its end. `exit_code` is 128+n by signal n,
    `printed` how many bytes it printed, and `output` the last of them as text.
    """

    kind: ClassVar[str] = "background.finished"
    call_id: str
    name: str
    how: Literal["exited", "stopped", "closed", "interrupted"]
    exit_code: int | None = None
    printed: int = 0
    output: str = ""
