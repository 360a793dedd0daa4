"""Where registries that were given no store record to."""

import atexit
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from loom_audit.api.ground.gates import default_gate, default_settings
from loom_audit.api.ground.session_record import SessionRecord
from loom_audit.api.ground.timelines import timeline_of, undo_of
from loom_audit.config import read_settings, read_tool_settings
from loom_audit.errors import Conflict
from loom_audit.history.ground.writer import Writer
from loom_audit.history.record.listings.baseline import take_baseline
from loom_audit.tools.calls.gate import ApprovalGate
from loom_audit.tools.calls.settings import ToolSettings
from loom_audit.wiring.adapters import Adapters, open_adapters

if TYPE_CHECKING:
    from loom_audit.history.undo.own_calls import OwnCalls

AGENT = "registry"


class Connections:
    """Writers of the default store for registries that were given none.

    One session per workspace and process, ended when the process ends.
    """

    def __init__(self) -> None:
        self._open = ExitStack()
        self._adapters: Adapters | None = None
        self._writers: dict[str, Writer] = {}
        self._opening = threading.Lock()
        atexit.register(self.close)

    @property
    def gate(self) -> ApprovalGate:
        """The gate of `approvals.toml`. InvalidArguments where the file is not valid."""
        return default_gate(read_settings())

    @property
    def settings(self) -> ToolSettings:
        """The settings of `tools.toml`. InvalidArguments where the file is not valid."""
        return read_tool_settings(read_settings())

    @contextmanager
    def __call__(self, path: Path) -> Iterator[Writer]:
        """The writer of the workspace at the path, which is attached when it is not yet."""
        key = str(path.absolute())
        with self._opening:
            if key not in self._writers:
                if self._adapters is None:
                    self._adapters = open_adapters()
                    self._open.callback(self._adapters.close)
                begun = _new_session(self._adapters, path)
                self._writers[key] = self._open.enter_context(begun)
        yield self._writers[key]

    def own_calls(self, writer: Writer) -> "OwnCalls":
        """What the session of a writer of ours did, for the tools its agent calls. Conflict."""
        from loom_audit.history.undo.own_calls import OwnCalls

        with self._opening:
            if self._adapters is None:
                raise Conflict("the session has ended", hint="Make the call again.")
            log = writer.attachment.stored.log
            timeline = timeline_of(self._adapters, log.id, writer.workspace.root)
        return OwnCalls(undo_of(writer.attachment, timeline), writer)

    def close(self) -> None:
        """End the sessions and close the store; a later call opens them anew."""
        with self._opening:
            self._writers.clear()
            self._adapters = None
            self._open.close()


def _new_session(adapters: Adapters, path: Path) -> SessionRecord:
    attachment = adapters.attach(path, ignore=None, max_file_bytes=None)
    take_baseline(attachment)
    # refused when they lie in the workspace, where an agent could write its own
    default_gate(adapters.settings, root=attachment.on_disk.workspace.root)
    default_settings(adapters.settings, attachment.on_disk.workspace.root)
    return SessionRecord(adapters, attachment, AGENT, f"agent:{AGENT}")
