"""A client that tells its hooks what Claude Code tells them, and writes a transcript as it does."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

Answer = Callable[[bytes], bytes]


class HookedClaude:
    """One session of it. `answer` is who answers a hook's input."""

    def __init__(self, answer: Answer, root: Path, transcript: Path, session: str = "s1") -> None:
        self.answer = answer
        self.root = root
        self.transcript = transcript
        self.session = session

    def hook(self, name: str, **more: Any) -> bytes:
        """Call a hook; what it prints."""
        given = {
            "session_id": self.session,
            "transcript_path": str(self.transcript),
            "cwd": str(self.root),
            "hook_event_name": name,
            **more,
        }
        return self.answer(json.dumps(given).encode())

    def write(self, kind: str, *blocks: Any, **more: Any) -> None:
        """Write one record of the transcript."""
        record = {
            "type": kind,
            "uuid": f"u{self.transcript.stat().st_size if self.transcript.exists() else 0}",
            "sessionId": self.session,
            "timestamp": datetime.now(UTC).isoformat().replace("+00:00", "Z"),
            "cwd": str(self.root),
            "version": "2.1.328",
            "message": {"role": kind, "content": list(blocks)},
            **more,
        }
        with self.transcript.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")

    def asks(self, id: str, tool: str, arguments: Any) -> None:
        """The model asks for a call."""
        self.write("assistant", {"type": "tool_use", "id": id, "name": tool, "input": arguments})

    def before(self, id: str, tool: str, arguments: Any) -> bytes:
        return self.hook("PreToolUse", tool_name=tool, tool_input=arguments, tool_use_id=id)

    def after(self, id: str, tool: str, arguments: Any, response: Any) -> bytes:
        return self.hook(
            "PostToolUse",
            tool_name=tool,
            tool_input=arguments,
            tool_use_id=id,
            tool_response=response,
            duration_ms=7,
        )

    def told(self, id: str, response: Any, output: str = "", *, error: bool = False) -> None:
        """The model is told how a call ended."""
        block = {"type": "tool_result", "tool_use_id": id, "content": output, "is_error": error}
        self.write("user", block, toolUseResult=f"Error: {output}" if error else response)

    def bash(self, id: str, command: str, does: Callable[[], object] = lambda: None) -> None:
        """One whole call of Bash."""
        arguments, response = {"command": command}, {"stdout": "", "stderr": ""}
        self.asks(id, "Bash", arguments)
        assert self.before(id, "Bash", arguments) == b""
        does()
        assert self.after(id, "Bash", arguments, response) == b""
        self.told(id, response)

    def writes(self, id: str, path: Path, content: str) -> None:
        """One whole call of Write."""
        arguments = {"file_path": str(path), "content": content}
        self.asks(id, "Write", arguments)
        assert self.before(id, "Write", arguments) == b""
        path.write_text(content)
        response = {"type": "create", "filePath": str(path), "content": content}
        assert self.after(id, "Write", arguments, {**response, "originalFile": None}) == b""
        self.told(id, response)


class HookedCodex:
    """One session of Codex, which tells how a command ended in its rollout only."""

    def __init__(self, answer: Answer, root: Path, rollout: Path, session: str = "x1") -> None:
        self.answer = answer
        self.root = root
        self.rollout = rollout
        self.session = session
        self.write("session_meta", {"id": session, "cwd": str(root), "cli_version": "0.169.0"})

    def hook(self, name: str, **more: Any) -> bytes:
        given = {
            "session_id": self.session,
            "transcript_path": str(self.rollout),
            "cwd": str(self.root),
            "hook_event_name": name,
            **more,
        }
        return self.answer(json.dumps(given).encode())

    def write(self, kind: str, payload: Any) -> None:
        """Write one record of the rollout."""
        at = datetime.now(UTC).isoformat().replace("+00:00", "Z")
        with self.rollout.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"timestamp": at, "type": kind, "payload": payload}) + "\n")

    def asks(self, id: str, command: str) -> None:
        arguments = json.dumps({"cmd": command})
        call = {"type": "function_call", "name": "exec_command", "arguments": arguments}
        self.write("response_item", {**call, "call_id": id})

    def before(self, id: str, command: str) -> bytes:
        given = {"tool_name": "Bash", "tool_input": {"command": command}}
        return self.hook("PreToolUse", tool_use_id=id, **given)

    def after(self, id: str, command: str, output: str = "") -> bytes:
        given = {"tool_name": "Bash", "tool_input": {"command": command}}
        return self.hook("PostToolUse", tool_use_id=id, tool_response=output, **given)

    def ended(self, id: str, code: int, output: str = "") -> None:
        """The rollout tells how a command ended."""
        item = {"type": "CommandExecution", "id": id, "exit_code": code}
        more = {"aggregated_output": output, "status": "failed" if code else "completed"}
        self.write("event_msg", {"type": "item_completed", "item": {**item, **more}})


class HookedGemini:
    """One session of Gemini CLI, whose hooks name no call; its session file does, afterwards."""

    def __init__(self, answer: Answer, root: Path, file: Path, session: str = "g1") -> None:
        self.answer = answer
        self.root = root
        self.file = file
        self.session = session
        self._write({"sessionId": session, "projectHash": "0", "startTime": _now()})

    def hook(self, name: str, **more: Any) -> bytes:
        given = {
            "session_id": self.session,
            "transcript_path": str(self.file),
            "cwd": str(self.root),
            "hook_event_name": name,
            "timestamp": _now(),
            **more,
        }
        return self.answer(json.dumps(given).encode())

    def before(self, command: str) -> bytes:
        return self.hook(
            "BeforeTool", tool_name="run_shell_command", tool_input={"command": command}
        )

    def after(self, command: str, output: str = "") -> bytes:
        response = {"llmContent": f"Output: {output}", "returnDisplay": output}
        given = {"tool_name": "run_shell_command", "tool_input": {"command": command}}
        return self.hook("AfterTool", tool_response=response, **given)

    def writes(self, *calls: tuple[str, str, str]) -> None:
        """The session file tells some calls once all of them have ended: id, command, status."""
        told = [
            {
                "id": id,
                "name": "run_shell_command",
                "args": {"command": command},
                "status": status,
                "timestamp": _now(),
                "result": [{"functionResponse": {"id": id, "response": {"output": "told"}}}],
            }
            for id, command, status in calls
        ]
        message = {"id": calls[0][0], "timestamp": _now(), "type": "gemini", "content": ""}
        self._write({**message, "toolCalls": told})

    def _write(self, record: Any) -> None:
        with self.file.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")


def _now() -> str:
    return datetime.now(UTC).isoformat().replace("+00:00", "Z")
