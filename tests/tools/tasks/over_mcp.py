"""How the scripted model's calls are made over MCP, on the streams of a process."""

from base64 import b64decode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

from anyio.from_thread import start_blocking_portal

from tests.cli.shells import Shell
from tests.cli.test_cli_mcp import client
from tests.tools.tasks.model import Ask, Told


@contextmanager
def over_mcp(shell: Shell) -> Iterator[Ask]:
    """Calls to `loom-audit mcp`, a process of its own, asked by the protocol's own client."""
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(client(shell)) as connected,
    ):

        def ask(tool: str, arguments: Mapping[str, Any]) -> Told:
            result = portal.call(partial(connected.call_tool, tool, dict(arguments)))
            said, *shown = result.content
            return Told(said.text, b64decode(shown[0].data) if shown else b"")

        yield ask
