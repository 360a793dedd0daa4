"""What the transcripts of real clients say, read without the package: what was asked, said and
called, in order.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FAILED = re.compile(r"(?:Exit code: |exited with code )[1-9]|verification failed")
WRITTEN = ("content", "new_string", "newString")
NAMED = ("file_path", "filePath")


@dataclass
class Told:
    """A prompt, what the agent said (`kind` is the class of its row), or a call of a tool.

    `lines` are those that the call was to write, `path` is where, with the folder of the session.
    """

    kind: str
    text: str
    id: str = ""
    path: str = ""
    lines: tuple[str, ...] = ()
    failed: bool = False


def call(id: str, tool: str, given: Mapping[str, Any]) -> Told:
    path = next((given[name] for name in NAMED if name in given), "")
    text = next((given[name] for name in WRITTEN if name in given), "")
    return Told("call", tool, id, path, tuple(text.splitlines()))


def patch(id: str, tool: str, text: str) -> Told:
    lines = tuple(line[1:] for line in text.splitlines() if line.startswith("+"))
    path = re.findall(r"\*\*\* (?:Add|Update) File: (.+)", text)[-1]
    return Told("call", tool, id, path, lines)


def claude_code(content: str) -> Iterator[Told | str]:
    for line in content.splitlines():
        record = json.loads(line)
        if record.get("isMeta") or record.get("isSidechain") or "message" not in record:
            continue
        machine = record.get("promptSource") == "system"
        blocks = record["message"]["content"]
        if isinstance(blocks, str):
            blocks = [{"type": "text", "text": blocks}]
        for block in blocks:
            match block["type"]:
                case "text" if not machine or block["text"].startswith("<task-notification>"):
                    kind = "prompt" if record["type"] == "user" else "assistant"
                    yield Told("system" if machine else kind, block["text"])
                case "tool_use":
                    yield call(block["id"], block["name"], block["input"])
                case "tool_result" if block.get("is_error"):
                    yield str(block["tool_use_id"])


def codex(content: str) -> Iterator[Told | str]:
    for line in content.splitlines():
        payload = json.loads(line)["payload"]
        item = payload.get("item", {})
        match payload.get("type"):
            case "item_completed" if item["type"] == "UserMessage":
                yield Told("prompt", item["content"][0]["text"])
            case "message" if payload["role"] == "assistant":
                yield Told("assistant", payload["content"][0]["text"])
            case "function_call":
                yield call(payload["call_id"], payload["name"], json.loads(payload["arguments"]))
            case "custom_tool_call":
                yield patch(payload["call_id"], payload["name"], payload["input"])
            case "function_call_output" | "custom_tool_call_output":
                if FAILED.search(str(payload["output"])):
                    yield str(payload["call_id"])


def gemini(content: str) -> Iterator[Told | str]:
    said = set[str]()
    for line in content.splitlines():
        record = json.loads(line)
        if record.get("type") == "user":
            yield from (Told("prompt", one["text"]) for one in record["content"] if "text" in one)
        if record.get("type") != "gemini":
            continue
        if record["content"] and record["id"] not in said:
            said.add(record["id"])
            yield Told("assistant", record["content"])
        for one in record.get("toolCalls", ()):
            yield call(one["id"], one["name"], one["args"])
            if one["status"] == "error" or "Exit Code: 3" in json.dumps(one["result"]):
                yield str(one["id"])


def opencode(content: str) -> Iterator[Told | str]:
    for message in json.loads(content)["messages"]:
        kind = "prompt" if message["info"]["role"] == "user" else "assistant"
        for part in message["parts"]:
            if part["type"] == "text":
                yield Told(kind, part["text"])
            elif part["type"] == "tool":
                state = part["state"]
                yield call(part["callID"], part["tool"], state["input"])
                if state["status"] == "error" or state["metadata"].get("exit"):
                    yield str(part["callID"])


READERS: Mapping[str, Callable[[str], Iterator[Told | str]]] = {
    "claude-code": claude_code,
    "codex": codex,
    "gemini": gemini,
    "opencode": opencode,
}


def told(client: str, file: Path) -> list[Told]:
    """All of it in order, each call once."""
    found: dict[str, Told] = {}
    for n, one in enumerate(READERS[client](file.read_text())):
        if isinstance(one, str):
            found[one].failed = True
        else:
            found.setdefault(one.id or f"said {n}", one)
    return [*found.values()]
