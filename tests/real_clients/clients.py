"""How each real client is started: its settings, its environment, its tools."""

import json
import os
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from tests.real_clients.installed import from_npm
from tests.real_clients.script import Call, Told
from tests.real_clients.sessions import FORBIDDEN, Hands

CLAUDE = ("claude", "--output-format", "stream-json", "--verbose", "-p")
AFTER_EDIT = "sh tools/after_edit.sh"
TRUSTING = "--dangerously-bypass-hook-trust"
"""Codex skips hooks that nobody trusted at a keyboard, the person's own ones too."""
CODEX = ("codex", "exec", "--json", TRUSTING)
GEMINI = ("gemini", "-m", "gemini-2.5-flash")
"""With its default model it asks another one first which model to take."""


class RealClient(Protocol):
    """One client. `prepare` writes the person's own settings, without anything of ours."""

    name: str
    package: str
    unsaid: Mapping[str, str]
    """Steps whose status the client knows in another way than the script has it."""
    settings: Sequence[str]
    """What of the client's settings lies in a workspace."""
    escapes: int
    """How often Esc is pressed to stop a call."""
    leaving: Sequence[bytes]
    """What is typed to leave it."""
    told: bytes
    """What the client itself shows of each hook: that it runs, or that it is new here."""

    def id_of(self, call: Call) -> str: ...
    def hands(self, workspace: Path) -> Hands: ...
    def prepare(self, home: Path, workspace: Path, url: str) -> None: ...
    def environment(self, home: Path, url: str) -> Mapping[str, str]: ...
    def once(self, prompt: str) -> Sequence[str]: ...
    def careful(self, prompt: str) -> Sequence[str]: ...
    def terminal(self, prompt: str) -> Sequence[str]: ...
    def status(self, told: Told) -> str | None:
        """How a call ended by what the model was told; None where that does not say it."""


def surroundings(client: RealClient, home: Path, url: str) -> dict[str, str]:
    """The whole environment of a client: nothing of this machine's person is in it."""
    node = shutil.which("node") or "node"
    commands = from_npm(client.package)
    path = os.pathsep.join((str(commands), str(Path(node).parent), "/usr/bin", "/bin"))
    common = {
        "HOME": str(home),
        "PATH": path,
        "LC_ALL": "C.UTF-8",
        "TERM": "xterm-256color",
        "no_proxy": "127.0.0.1",
    }
    return common | dict(client.environment(home, url))


def written(file: Path, content: Any) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(content if isinstance(content, str) else json.dumps(content, indent=2))


@dataclass(frozen=True)
class NamedTools:
    """Hands of a client whose tools take JSON."""

    workspace: Path
    tools: Mapping[str, Callable[..., tuple[str, Mapping[str, Any]]]]

    def _call(self, id: str, kind: str, *given: str) -> Call:
        tool, arguments = self.tools[kind](*given)
        return Call(id, tool, arguments)

    def read(self, id: str, path: str) -> Call:
        return self._call(id, "read", str(self.workspace / path))

    def edit(self, id: str, path: str, old: str, new: str) -> Call:
        return self._call(id, "edit", str(self.workspace / path), old, new)

    def create(self, id: str, path: str, content: str) -> Call:
        return self._call(id, "create", str(self.workspace / path), content)

    def overwrite(self, id: str, path: str, old: str, content: str) -> Call:
        return self.create(id, path, content)

    def shell(self, id: str, command: str) -> Call:
        return self._call(id, "shell", command)

    def background(self, id: str, command: str) -> Call:
        return self._call(id, "background", command)


class ClaudeCode:
    name = "claude-code"
    package = "@anthropic-ai/claude-code"
    unsaid: Mapping[str, str] = {}
    settings: Sequence[str] = (".claude",)
    escapes = 1
    leaving: Sequence[bytes] = (b"\x03", b"\x03")
    told = b""

    def id_of(self, call: Call) -> str:
        return call.id

    def hands(self, workspace: Path) -> Hands:
        return NamedTools(
            workspace,
            {
                "read": lambda path: ("Read", {"file_path": path}),
                "edit": lambda path, old, new: (
                    "Edit",
                    {"file_path": path, "old_string": old, "new_string": new},
                ),
                "create": lambda path, content: ("Write", {"file_path": path, "content": content}),
                "shell": lambda command: ("Bash", {"command": command, "description": "as asked"}),
                "background": lambda command: (
                    "Bash",
                    {"command": command, "description": "later", "run_in_background": True},
                ),
            },
        )

    def prepare(self, home: Path, workspace: Path, url: str) -> None:
        hook = {"type": "command", "command": AFTER_EDIT}
        own = {
            "permissions": {"deny": [f"Bash({FORBIDDEN}:*)"]},
            "hooks": {"PostToolUse": [{"matcher": "Edit|Write", "hooks": [hook]}]},
        }
        written(workspace / ".claude" / "settings.json", own)
        trusted = {
            "hasCompletedOnboarding": True,
            "customApiKeyResponses": {"approved": ["dummy"], "rejected": []},
            "projects": {str(workspace): {"hasTrustDialogAccepted": True}},
            "bypassPermissionsModeAccepted": True,
            "theme": "dark",
        }
        written(home / ".claude.json", trusted)

    def environment(self, home: Path, url: str) -> Mapping[str, str]:
        return {
            "ANTHROPIC_BASE_URL": url,
            "ANTHROPIC_API_KEY": "dummy",
            "DISABLE_AUTOUPDATER": "1",
            "DISABLE_TELEMETRY": "1",
            "DISABLE_ERROR_REPORTING": "1",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "IS_SANDBOX": "1",
        }

    def once(self, prompt: str) -> Sequence[str]:
        return (*CLAUDE, prompt, "--dangerously-skip-permissions")

    def careful(self, prompt: str) -> Sequence[str]:
        return (*CLAUDE, prompt, "--permission-mode", "default")

    def terminal(self, prompt: str) -> Sequence[str]:
        return ("claude", "--dangerously-skip-permissions", prompt)

    def status(self, told: Told) -> str | None:
        if told.failed:
            return "denied" if "has been denied" in told.text else "error"
        return "running" if told.text.startswith("Command running in background") else "ok"


class Codex:
    name = "codex"
    package = "@openai/codex"
    unsaid: Mapping[str, str] = {}
    settings: Sequence[str] = (".codex",)
    escapes = 1
    leaving: Sequence[bytes] = (b"\x03", b"\x03")
    told = b""

    def id_of(self, call: Call) -> str:
        return call.id

    def hands(self, workspace: Path) -> Hands:
        return PatchingTools()

    def prepare(self, home: Path, workspace: Path, url: str) -> None:
        settings = f"""\
model = "gpt-5.5"
model_provider = "scripted"
check_for_update_on_startup = false
[model_providers.scripted]
name = "scripted"
base_url = "{url}/v1"
wire_api = "responses"
env_key = "DUMMY_KEY"
request_max_retries = 0
stream_max_retries = 0
[analytics]
enabled = false
[notice.model_migrations]
"gpt-5.5" = "gpt-6-sol"
[projects."{workspace}"]
trust_level = "trusted"
"""
        written(home / ".codex" / "config.toml", settings)
        rule = f'prefix_rule(pattern=["{FORBIDDEN}"], decision="forbidden")\n'
        written(home / ".codex" / "rules" / "default.rules", rule)
        hook = {"type": "command", "command": AFTER_EDIT}
        own = {"PostToolUse": [{"matcher": "apply_patch", "hooks": [hook]}]}
        written(home / ".codex" / "hooks.json", {"hooks": own})

    def environment(self, home: Path, url: str) -> Mapping[str, str]:
        return {"CODEX_HOME": str(home / ".codex"), "DUMMY_KEY": "dummy"}

    def once(self, prompt: str) -> Sequence[str]:
        return (*CODEX, "-s", "danger-full-access", prompt)

    def careful(self, prompt: str) -> Sequence[str]:
        return (*CODEX, prompt)

    def terminal(self, prompt: str) -> Sequence[str]:
        return ("codex", TRUSTING, "-s", "danger-full-access", "-a", "never", prompt)

    def status(self, told: Told) -> str | None:
        if "policy forbids" in told.text:
            return "denied"
        if "Process running with session ID" in told.text:
            return "running"
        code = re.search(r"(?:Process exited with|Exit) code:? (\d+)", told.text)
        return "ok" if code and code[1] == "0" else "error"


@dataclass(frozen=True)
class PatchingTools:
    """Codex's hands: a shell and patches as text."""

    def read(self, id: str, path: str) -> Call:
        return self.shell(id, f"cat {path}")

    def edit(self, id: str, path: str, old: str, new: str) -> Call:
        return self._patch(id, f"*** Update File: {path}\n@@\n-    {old}\n+    {new}\n")

    def create(self, id: str, path: str, content: str) -> Call:
        lines = "".join(f"+{line}\n" for line in content.splitlines())
        return self._patch(id, f"*** Add File: {path}\n{lines}")

    def overwrite(self, id: str, path: str, old: str, content: str) -> Call:
        change = f"@@\n-{old.strip()}\n+{content.strip()}\n"
        return self._patch(id, f"*** Update File: {path}\n{change}")

    def shell(self, id: str, command: str) -> Call:
        return Call(id, "exec_command", {"cmd": command, "yield_time_ms": 10_000})

    def background(self, id: str, command: str) -> Call:
        return Call(id, "exec_command", {"cmd": command, "yield_time_ms": 250})

    def _patch(self, id: str, body: str) -> Call:
        return Call(id, "apply_patch", custom=f"*** Begin Patch\n{body}*** End Patch\n")


class Gemini:
    name = "gemini"
    package = "@google/gemini-cli"
    unsaid: Mapping[str, str] = {}
    settings: Sequence[str] = (".gemini",)
    escapes = 1
    leaving: Sequence[bytes] = (b"/quit", b"\r")
    told = (
        rb"(?s)Executing Hooks?: [^\r\n]*|Expanding hook command: [^\r\n]*|"
        rb"WARNING: The following project-level.*?remove them"
    )

    def id_of(self, call: Call) -> str:
        return f"{call.tool}__{call.id}"

    def hands(self, workspace: Path) -> Hands:
        return NamedTools(
            workspace,
            {
                "read": lambda path: ("read_file", {"file_path": path}),
                "edit": lambda path, old, new: (
                    "replace",
                    {
                        "file_path": path,
                        "instruction": "as asked",
                        "old_string": old,
                        "new_string": new,
                    },
                ),
                "create": lambda path, content: (
                    "write_file",
                    {"file_path": path, "content": content},
                ),
                "shell": lambda command: (
                    "run_shell_command",
                    {"command": command, "description": "as asked"},
                ),
                "background": lambda command: (
                    "run_shell_command",
                    {"command": f"({command}) >/dev/null 2>&1 &", "description": "later"},
                ),
            },
        )

    def prepare(self, home: Path, workspace: Path, url: str) -> None:
        own = {
            "security": {
                "auth": {"selectedType": "gemini-api-key"},
                "folderTrust": {"enabled": False},
            },
            "general": {"enableAutoUpdate": False, "enableAutoUpdateNotification": False},
            "privacy": {"usageStatisticsEnabled": False},
            "ui": {"theme": "Default"},
        }
        written(home / ".gemini" / "settings.json", own)
        rule = (
            f'[[rule]]\ntoolName = "run_shell_command"\ncommandPrefix = "{FORBIDDEN}"\n'
            'decision = "deny"\npriority = 999\n'
        )
        written(home / ".gemini" / "policies" / "own.toml", rule)
        hook = {"type": "command", "command": AFTER_EDIT, "name": "format"}
        project = {"hooks": {"AfterTool": [{"matcher": "replace|write_file", "hooks": [hook]}]}}
        written(workspace / ".gemini" / "settings.json", project)

    def environment(self, home: Path, url: str) -> Mapping[str, str]:
        return {"GEMINI_API_KEY": "dummy", "GOOGLE_GEMINI_BASE_URL": url}

    def once(self, prompt: str) -> Sequence[str]:
        return (*self.careful(prompt), "--approval-mode", "yolo")

    def careful(self, prompt: str) -> Sequence[str]:
        return (*GEMINI, "--output-format", "stream-json", "-p", prompt)

    def terminal(self, prompt: str) -> Sequence[str]:
        return (*GEMINI, "--approval-mode", "yolo", "-i", prompt)

    def status(self, told: Told) -> str | None:
        if told.failed:
            return "denied" if "denied by policy" in told.text else "error"
        if "Background PIDs:" in told.text:
            return "running"
        return "error" if "Exit Code:" in told.text else "ok"


class Opencode:
    name = "opencode"
    package = "opencode-ai"
    unsaid: Mapping[str, str] = {"background": "ok", "soon": "ok"}
    settings: Sequence[str] = (".opencode", "opencode.json")
    escapes = 2
    leaving: Sequence[bytes] = (b"\x03",)
    told = b""

    def id_of(self, call: Call) -> str:
        return call.id

    def hands(self, workspace: Path) -> Hands:
        return NamedTools(
            workspace,
            {
                "read": lambda path: ("read", {"filePath": path}),
                "edit": lambda path, old, new: (
                    "edit",
                    {"filePath": path, "oldString": old, "newString": new},
                ),
                "create": lambda path, content: ("write", {"filePath": path, "content": content}),
                "shell": lambda command: ("bash", {"command": command, "description": "as asked"}),
                "background": lambda command: (
                    "bash",
                    {"command": f"({command}) >/dev/null 2>&1 &", "description": "later"},
                ),
            },
        )

    def prepare(self, home: Path, workspace: Path, url: str) -> None:
        provider = {
            "npm": "@ai-sdk/openai-compatible",
            "name": "scripted",
            "options": {"baseURL": f"{url}/v1", "apiKey": "dummy"},
            "models": {"scripted": {"name": "scripted", "tool_call": True}},
        }
        own = {
            "$schema": "https://opencode.ai/config.json",
            "provider": {"scripted": provider},
            "model": "scripted/scripted",
            "small_model": "scripted/scripted",
            "permission": {"bash": {"*": "allow", f"{FORBIDDEN}*": "deny"}},
            "autoupdate": False,
            "share": "disabled",
        }
        written(home / ".config" / "opencode" / "opencode.json", own)
        tool = {"command": ["sh", "tools/format.sh", "$FILE"], "extensions": [".py"]}
        written(workspace / "opencode.json", {"formatter": {"own": tool}})

    def environment(self, home: Path, url: str) -> Mapping[str, str]:
        return {
            "OPENCODE_DISABLE_AUTOUPDATE": "1",
            "OPENCODE_DISABLE_MODELS_FETCH": "1",
            "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
            "OPENCODE_DISABLE_DEFAULT_PLUGINS": "1",
        }

    def once(self, prompt: str) -> Sequence[str]:
        return ("opencode", "run", "--format", "json", prompt)

    def careful(self, prompt: str) -> Sequence[str]:
        return self.once(prompt)

    def terminal(self, prompt: str) -> Sequence[str]:
        return ("opencode", "--prompt", prompt)

    def status(self, told: Told) -> str | None:
        """The model is not told exit codes, nor that something is left running."""
        if "a rule which prevents you" in told.text:
            return "denied"
        return "error" if told.text.startswith("Could not find oldString") else None


CLIENTS: Mapping[str, RealClient] = {
    one.name: one for one in (ClaudeCode(), Codex(), Gemini(), Opencode())
}
