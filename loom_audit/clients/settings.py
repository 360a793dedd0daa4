"""What is written into a client's own settings so that it runs our hook, and taken out again.

Most clients have lists of hooks by event in a JSON file; a hook is ours when its command runs our
hook client. Another loads every plugin in a folder: ours is one file.
"""

import json
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from loom_audit.clients import jsonc
from loom_audit.clients.reports import Client
from loom_audit.errors import InvalidArguments

HOOK_CLIENT = "/hooks/hook_client.py"
SECONDS = 600
"""How long a hook may take, which is what a question to a person may take."""


def connected(client: Client, text: str, words: Sequence[str]) -> str:
    """The settings of hooks with ours in them, which runs these words; unchanged if it is there.

    InvalidArguments for settings that cannot be understood.
    """
    if _is_there(client, text, words):
        return text
    text = disconnected(text)
    if not text.strip():
        text = "{}\n"
    if _hooks(text) is None:
        text = jsonc.with_member(text, jsonc.read(text), "hooks", {})
    for event in client.events:
        hooks = _hooks(text)
        assert hooks is not None
        groups, group = hooks.member(event), _hook_group(client, event, words)
        if groups is None:
            text = jsonc.with_member(text, hooks, event, [group])
        else:
            text = jsonc.with_item(text, groups, group)
    return text


def flags(client: Client, words: Sequence[str]) -> Mapping[str, str]:
    """Our hook for each event as Codex takes it on its command line: TOML."""
    command = json.dumps(shlex.join(words), ensure_ascii=False)

    def groups(event: str) -> str:
        matched = 'matcher = "*", ' if "Tool" in event else ""
        seconds = _seconds(client, event)
        hook = f'{{ type = "command", command = {command}, timeout = {seconds} }}'
        return f"[{{ {matched}hooks = [{hook}] }}]"

    return {event: groups(event) for event in client.events}


def disconnected(text: str) -> str:
    """The settings without our hooks, and without the lists that they leave empty.

    "" when nothing else is in them. InvalidArguments for settings that cannot be understood.
    """
    if not text.strip():
        return text
    found = False
    while (step := _one_less(text)) is not None:
        text, found = step, True
    return "" if found and jsonc.value(text, jsonc.read(text)) == {} else text


def plugin(source: str, words: Sequence[str]) -> str:
    """opencode's plugin, which hands on what it is told (see `clients.opencode`)."""
    return source.replace('["WORDS"]', json.dumps(list(words)))


def _seconds(client: Client, event: str) -> int:
    """How long a hook may take."""
    return client.brief.get(event, SECONDS)


def _hook_group(client: Client, event: str, words: Sequence[str]) -> dict[str, Any]:
    timeout = _seconds(client, event) * client.place.per_second
    hook = {"type": "command", "command": shlex.join(words), "timeout": timeout}
    hook |= {"name": client.place.shown} if client.place.shown else {}
    return ({"matcher": "*"} if "Tool" in event else {}) | {"hooks": [hook]}


def _is_there(client: Client, text: str, words: Sequence[str]) -> bool:
    """Whether our hook is there just as it would be added."""
    hooks = _hooks(text) if text.strip() else None
    found: dict[str, list[Any]] = {}
    for event, entries in zip(hooks.names, hooks.items, strict=True) if hooks else ():
        told = jsonc.value(text, entries)
        found[event] = [one for one in told if HOOK_CLIENT in json.dumps(one)]
    wanted = {event: [_hook_group(client, event, words)] for event in client.events}
    return {event: ours for event, ours in found.items() if ours} == wanted


def _hooks(text: str) -> jsonc.JsonNode | None:
    """The object of hooks. InvalidArguments when something else stands there."""
    root = jsonc.read(text)
    if text[root.start] != "{":
        raise InvalidArguments("these settings are not an object")
    hooks = root.member("hooks")
    if hooks is None:
        return None
    if text[hooks.start] != "{":
        raise InvalidArguments("`hooks` in these settings is not an object")
    for name, entries in zip(hooks.names, hooks.items, strict=True):
        if text[entries.start] != "[":
            raise InvalidArguments(f"`hooks.{name}` in these settings is not a list")
    return hooks


def _one_less(text: str) -> str | None:
    """The text without one hook of ours, or what that left empty; None when there is none."""
    hooks = _hooks(text)
    for at, entries in enumerate(hooks.items if hooks else ()):
        assert hooks is not None
        for index, entry in enumerate(entries.items):
            listed = entry.member("hooks") if text[entry.start] == "{" else None
            ours = [
                n for n, one in enumerate(listed.items if listed else ()) if _is_ours(text, one)
            ]
            if listed is None or not ours:
                continue
            if len(listed.items) > 1:
                return jsonc.without(text, listed, ours[0])
            if len(entries.items) > 1:
                return jsonc.without(text, entries, index)
            if len(hooks.items) > 1:
                return jsonc.without(text, hooks, at)
            root = jsonc.read(text)
            return jsonc.without(text, root, root.names.index("hooks"))
    return None


def _is_ours(text: str, hook: jsonc.JsonNode) -> bool:
    told = jsonc.value(text, hook)
    return isinstance(told, dict) and HOOK_CLIENT in str(told.get("command", ""))
