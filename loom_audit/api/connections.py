"""Where registries that were given no store record to."""

import atexit
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from loom_audit.api.gates import default_gate
from loom_audit.api.session import Session
from loom_audit.api.store import AuditStore, open_store
from loom_audit.config import read_settings, read_tool_settings
from loom_audit.history.recorder import Recorder
from loom_audit.tools.calls.gate import ApprovalGate
from loom_audit.tools.calls.settings import ToolSettings


class Connections:
    """Recorders of the default store for registries that were given none.

    One session per workspace and process, ended when the process ends.
    """

    def __init__(self) -> None:
        self._open = ExitStack()
        self._store: AuditStore | None = None
        self._sessions: dict[str, Session] = {}
        self._opening = threading.Lock()
        atexit.register(self.close)

    @property
    def gate(self) -> ApprovalGate:
        """The gate of `approvals.toml`. InvalidArguments."""
        return default_gate(read_settings())

    @property
    def settings(self) -> ToolSettings:
        """Those of `tools.toml`. InvalidArguments."""
        return read_tool_settings(read_settings())

    @contextmanager
    def __call__(self, path: Path) -> Iterator[Recorder]:
        """The recorder of the workspace at the path, which is attached when it is not yet."""
        key = str(path.absolute())
        with self._opening:
            if key not in self._sessions:
                if self._store is None:
                    self._store = self._open.enter_context(open_store())
                session = self._store.attach(path).session("registry")
                self._sessions[key] = self._open.enter_context(session)
        yield self._sessions[key].recorder

    def close(self) -> None:
        """End the sessions and close the store; a later call opens them anew."""
        with self._opening:
            self._sessions.clear()
            self._store = None
            self._open.close()
