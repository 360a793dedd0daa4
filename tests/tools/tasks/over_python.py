"""How the scripted model's calls are made over our Python face."""

from base64 import b64decode
from collections.abc import Mapping
from itertools import count
from typing import Any

import anyio

from loom_audit.api.face import Session
from tests.tools.tasks.model import Ask, Told


def over_python(session: Session) -> Ask:
    """Calls of a session, answered as Anthropic's messages are, pictures with them."""
    numbers = count(1)

    def ask(tool: str, arguments: Mapping[str, Any]) -> Told:
        id = f"toolu_{next(numbers):02}"
        answer = [{"type": "tool_use", "id": id, "name": tool, "input": dict(arguments)}]

        async def answered() -> list[dict[str, Any]]:
            return (await session.batch(answer).run()).messages("anthropic", images=True)

        [message] = anyio.run(answered)
        [block] = message["content"]
        assert block["tool_use_id"] == id
        if isinstance(block["content"], str):
            return Told(block["content"])
        said, shown = block["content"]
        return Told(said["text"], b64decode(shown["source"]["data"]))

    return ask
