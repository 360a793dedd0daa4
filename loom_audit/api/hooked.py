"""A client that is run with our hooks for this one run, its settings left as they are."""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from loom_audit.api.connect import is_connected, plugin_source, settings_file
from loom_audit.api.launcher import hooks_folder, launcher_words, write_launcher
from loom_audit.clients import jsonc, settings
from loom_audit.config import Settings
from loom_audit.disk.paths import audit_errors
from loom_audit.errors import InvalidArguments

SOCKET = "LOOM_AUDIT_HOOKS"
"""The variable that leads a hook client to the process that runs the client."""

_SETTINGS = "--settings"
_CONTENT = "OPENCODE_CONFIG_CONTENT"
_PLUGIN = "loom-audit.js"


class Hooked(Struct, frozen=True):
    """A client's command with our hooks: its words, and the variables that it is given.

    `untold` says why it runs without, where it does.
    """

    client: str
    words: Sequence[str]
    variables: Mapping[str, str]
    untold: str = ""


def hooked(client: str, words: Sequence[str], root: str, found: Settings) -> Hooked:
    """The command with hooks that hand on to a socket of ours, without a change of any file.

    What a person gave themselves is kept, and merged with ours. InvalidArguments, StorageFailed.
    """
    write_launcher(found)
    hook = [*launcher_words(found), client]
    variables = {SOCKET: str(hooks_folder(found) / f"run-{os.getpid()}.sock")}
    places = (settings_file(client, root), settings_file(client, None))
    if any(is_connected(client, path) for path in places):
        return Hooked(client, words, variables)
    match client:
        case "claude-code":
            return Hooked(client, _claude(words, hook), variables)
        case "opencode":
            return Hooked(client, words, {**variables, **_opencode(hook, hooks_folder(found))})
    return Hooked(client, words, {}, f"`loom-audit connect {client}` gives one record per call")


def _claude(words: Sequence[str], hook: Sequence[str]) -> list[str]:
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
        merged = settings.connected("claude-code", text, hook)
        told = json.dumps(jsonc.value(merged, jsonc.read(merged)))
    except InvalidArguments as error:
        error.message = f"{_SETTINGS} {given}: {error.message}"
        raise
    return [words[0], _SETTINGS, told, *rest]


def _opencode(hook: Sequence[str], folder: Path) -> Mapping[str, str]:
    """With our plugin among those of the settings that it is given."""
    file = folder / _PLUGIN
    with audit_errors(str(file)):
        file.write_text(settings.plugin(plugin_source(), hook), "utf-8")
    text = os.environ.get(_CONTENT, "").strip() or "{}"
    told = jsonc.value(text, jsonc.read(text))
    plugins = told.get("plugin", []) if isinstance(told, dict) else None
    if not isinstance(plugins, list):
        raise InvalidArguments(f"{_CONTENT} is not an object with a list of plugins")
    return {_CONTENT: json.dumps({**told, "plugin": [*plugins, file.as_uri()]})}
