"""A client that is run with our hooks for this one run, its settings left as they are."""

import json
import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from loom_audit.api.agents.connect import is_connected, plugin_of, settings_file
from loom_audit.api.agents.launcher import check_home, launcher_words, write_launcher
from loom_audit.clients import jsonc, settings
from loom_audit.clients.known import CLIENTS
from loom_audit.clients.reports import Client
from loom_audit.config import Settings
from loom_audit.errors import AuditError, InvalidArguments
from loom_audit.wiring.commands import first_answer
from loom_audit.wiring.files import audit_errors

SOCKET = "LOOM_AUDIT_HOOKS"
"""The variable that leads a hook client to the process that runs the client."""

_SETTINGS = "--settings"
_CONTENT = "OPENCODE_CONFIG_CONTENT"
_PLUGIN = "loom-audit.js"


_ASKED = 2
_SECONDS = 10.0
_HOOKS_ASKED_FOR = (
    b'{"id":1,"method":"initialize","params":{"clientInfo":{"name":"loom-audit","version":"1"}}}\n'
    b'{"method":"initialized"}\n'
    b'{"id":2,"method":"hooks/list","params":{"cwds":[%s]}}\n'
)
"""What is said to `codex app-server` (JSON-RPC 2.0 without its version, a line each)."""


class Hooked(Struct, frozen=True):
    """A client's command with our hooks: its words, and the variables that it is given.

    `untold` says why it runs without, where it does.
    """

    client: str
    words: Sequence[str]
    variables: Mapping[str, str]
    untold: str = ""


def hooked(client: str, words: Sequence[str], root: str, ours: Settings) -> Hooked:
    """The command with hooks that hand on to a socket of ours, without a change of any file.

    What a person gave themselves is kept, and merged with ours. InvalidArguments, StorageFailed.
    """
    try:
        check_home(ours)
    except InvalidArguments as error:  # the warm process would refuse it too
        return Hooked(client, words, {}, error.message)
    write_launcher(ours)
    hook = [*launcher_words(ours), client]
    variables = {SOCKET: str(ours.hooks / f"run-{os.getpid()}.sock")}
    known, places = CLIENTS[client], (settings_file(client, root), settings_file(client, None))
    if any(is_connected(client, path) for path in places):
        return Hooked(client, words, variables)
    match known.hooked_by:
        case "settings":
            return Hooked(client, _with_settings(known, words, hook), variables)
        case "flags":
            return _with_flags(known, words, hook, root, variables)
        case "plugin":
            more = _with_plugin(known, hook, ours.hooks)
            return Hooked(client, words, {**variables, **more})
    return Hooked(client, words, {}, f"`loom-audit connect {client}` gives one record per call")


def _with_settings(client: Client, words: Sequence[str], hook: Sequence[str]) -> list[str]:
    """With one `--settings`, since of two only the last counts: a person's own and ours."""
    rest, given = list[str](), ""
    left = iter(words[1:])
    for word in left:
        name, equals, value = word.partition("=")
        if word == "--":
            rest += [word, *left]
        elif name == _SETTINGS:
            given = value if equals else next(left, "")
        else:
            rest.append(word)
    text = given
    if given and not given.lstrip().startswith("{"):
        with audit_errors(given):
            text = Path(given).read_text("utf-8")
    try:
        merged = settings.connected(client, text, hook)
        told = json.dumps(jsonc.value(merged, jsonc.read(merged)))
    except InvalidArguments as error:
        error.message = f"{_SETTINGS} {given}: {error.message}"
        raise
    return [words[0], _SETTINGS, told, *rest]


def _with_flags(
    client: Client,
    words: Sequence[str],
    hook: Sequence[str],
    root: str,
    variables: Mapping[str, str],
) -> Hooked:
    """With hooks as session flags, and with the hashes of these that Codex itself reports.

    It runs a hook only whose hash is trusted; nothing else is trusted by this.
    """
    if any("hooks" in word for word in words[1:]):
        return Hooked(client.name, words, {}, "hooks are given on its command line")
    flags = [f"hooks.{event}={entry}" for event, entry in settings.flags(client, hook).items()]
    given = [part for flag in flags for part in ("-c", flag)]
    try:
        line = first_answer(
            [words[0], *given, "app-server"],
            _HOOKS_ASKED_FOR % json.dumps(root).encode(),
            _is_answer,
            root,
            _SECONDS,
        )
        [found] = json.loads(line)["result"]["data"]
        state = {
            one["key"]: one["currentHash"]
            for one in found["hooks"]
            if one["source"] == "sessionFlags" and one["command"] == shlex.join(hook)
        }
    except (AuditError, KeyError, TypeError, ValueError) as error:
        untold = f"{client.name} does not say which hooks it trusts ({error})"
        return Hooked(client.name, words, {}, untold)
    if len(state) != len(flags):
        return Hooked(client.name, words, {}, f"{client.name} does not know all hooks")
    trusted = ", ".join(
        f"{json.dumps(key)} = {{ trusted_hash = {json.dumps(hash)} }}"
        for key, hash in state.items()
    )
    given += ["-c", f"hooks.state={{ {trusted} }}"]
    return Hooked(client.name, [words[0], *given, *words[1:]], variables)


def _is_answer(line: bytes) -> bool:
    try:
        return bool(json.loads(line).get("id") == _ASKED)
    except (AttributeError, ValueError):
        return False


def _with_plugin(client: Client, hook: Sequence[str], folder: Path) -> Mapping[str, str]:
    """With our plugin among those of the settings that it is given."""
    file = folder / _PLUGIN
    with audit_errors(str(file)):
        file.write_bytes(plugin_of(client, hook))
    text = os.environ.get(_CONTENT, "").strip() or "{}"
    told = jsonc.value(text, jsonc.read(text))
    plugins = told.get("plugin", []) if isinstance(told, dict) else None
    if not isinstance(plugins, list):
        raise InvalidArguments(f"{_CONTENT} is not an object with a list of plugins")
    return {_CONTENT: json.dumps({**told, "plugin": [*plugins, file.as_uri()]})}
