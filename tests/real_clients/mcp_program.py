"""A program of somebody else: the protocol's own client, started in a Python of its own.

    python mcp_program.py COMMAND... < calls.json

Each call is asked in its turn, those of one list at once; what they gave is printed as JSON.
"""

import json
import sys
from typing import Any

import anyio
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client


async def main(command: list[str], steps: list[list[dict[str, Any]]]) -> None:
    server = StdioServerParameters(command=command[0], args=command[1:])
    told: dict[str, Any] = {}
    async with Client(stdio_client(server)) as client:

        async def ask(call: dict[str, Any]) -> None:
            given = await client.call_tool(call["tool"], call["arguments"])
            told[call["id"]] = {"failed": bool(given.is_error), "text": given.content[0].text}

        for step in steps:
            async with anyio.create_task_group() as together:
                for call in step:
                    together.start_soon(ask, call)
    sys.stdout.write(json.dumps(told))


if __name__ == "__main__":
    anyio.run(main, sys.argv[1:], json.load(sys.stdin))
