"""Which tools a subtask needs: those it declares, else those its text speaks of."""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from loom_audit.errors import InvalidArguments, UnknownTool
from loom_audit.model.coverage import Effect
from loom_audit.tools.calls.tool import Tool

EFFECTS: tuple[Effect, ...] = ("read", "write", "execute", "network")

_WORK = frozenset(
    [
        "add",
        "append",
        "apply",
        "bash",
        "benchmark",
        "build",
        "bump",
        "change",
        "ci",
        "clean",
        "command",
        "commit",
        "compile",
        "convert",
        "correct",
        "create",
        "debug",
        "delete",
        "deploy",
        "document",
        "draft",
        "edit",
        "execute",
        "extend",
        "finish",
        "fix",
        "format",
        "generate",
        "git",
        "implement",
        "improve",
        "insert",
        "install",
        "lint",
        "make",
        "measure",
        "merge",
        "migrate",
        "modify",
        "move",
        "package",
        "patch",
        "pip",
        "npm",
        "port",
        "publish",
        "push",
        "pytest",
        "refactor",
        "release",
        "remove",
        "rename",
        "repair",
        "replace",
        "reproduce",
        "rewrite",
        "run",
        "save",
        "scaffold",
        "script",
        "set",
        "shell",
        "speed",
        "split",
        "test",
        "translate",
        "unittest",
        "update",
        "upgrade",
        "use",
        "verify",
        "write",
    ]
)
"""What is worked on is written and run: neither is taken from a text that has one of these."""
_NETWORK = frozenset(
    [
        "api",
        "crawl",
        "docs",
        "documentation",
        "download",
        "fetch",
        "github",
        "google",
        "http",
        "https",
        "internet",
        "latest",
        "newest",
        "online",
        "publish",
        "push",
        "release",
        "research",
        "scrape",
        "search",
        "url",
        "web",
        "website",
        "www",
    ]
)
_LOOKING = frozenset(
    ["browse", "download", "fetch", "find", "google", "look", "read", "research", "search"]
)
"""A text that begins so, speaks of the network and of no work, only looks something up."""


def choose_tools(
    tools: Sequence[Tool], subtask: Any, *, left_out: Collection[str] = ()
) -> list[Tool]:
    """The tools for a subtask, in the order given.

    A subtask is a text, or a mapping or object with any of `tools` (names), `needs` (effects)
    and texts under `title`, `name`, `description`, `instructions`, `goal` or `text`. Declared
    names are taken as they are, and declared needs with the tools that read; both together add
    up. With neither, words of the text choose the effects; in doubt it gets every tool, and a
    text that writes keeps what runs, tests and installs. UnknownTool for a name that is not
    registered, InvalidArguments for another need. Tools `left_out` are taken only where they are
    declared by name.
    """
    names = _texts(subtask, "tools")
    needs = _texts(subtask, "needs")
    if names is None and needs is None:
        effects = _effects_in(_text(subtask))
        return [one for one in tools if one.effect in effects and one.name not in left_out]
    known = {tool.name for tool in tools}
    for name in names or ():
        if name not in known:
            raise UnknownTool(
                f"The subtask needs {name}, which is not registered",
                hint=f"There are: {', '.join(sorted(known.difference(left_out)))}.",
            )
    for need in needs or ():
        if need not in EFFECTS:
            raise InvalidArguments(
                f"{need!r:.80} is not a need of a subtask", hint=f"Needs are {', '.join(EFFECTS)}."
            )
    wanted = {"read", *needs} if needs is not None else set()
    return [
        tool
        for tool in tools
        if tool.name in (names or ()) or (tool.effect in wanted and tool.name not in left_out)
    ]


def _effects_in(text: str) -> set[str]:
    words = re.findall(r"[a-z]+", text.lower())
    stems = {stem for word in words for stem in _stems(word)}
    network = {"network"} if stems & _NETWORK else set[str]()
    if stems & _WORK:
        return {"read", "write", "execute"} | network
    if network and {*_stems(words[0])} & _LOOKING:
        return {"read", "network"}
    return {*EFFECTS}


def _stems(word: str) -> Iterator[str]:
    """The word, and what it may be a form of: `fixes` of `fix`, `writing` of `write`."""
    yield word
    for ending in ("s", "es", "d", "ed", "ing"):
        if word.endswith(ending):
            stem = word.removesuffix(ending)
            yield from (stem, stem + "e")
            if stem[-1:] == stem[-2:-1]:
                yield stem[:-1]


def _part(subtask: Any, name: str) -> Any:
    if isinstance(subtask, Mapping):
        return subtask.get(name)
    return None if isinstance(subtask, str) else getattr(subtask, name, None)


def _texts(subtask: Any, name: str) -> list[str] | None:
    value = _part(subtask, name)
    if value is None:
        return None
    if isinstance(value, str) or not isinstance(value, (list, tuple, set, frozenset)):
        raise InvalidArguments(
            f"{name} of a subtask must be a list of texts", hint="Write one text as a list of one."
        )
    return [str(item) for item in value]


def _text(subtask: Any) -> str:
    if isinstance(subtask, str):
        return subtask
    parts = ("title", "name", "description", "instructions", "goal", "text")
    return " ".join(part for name in parts if isinstance(part := _part(subtask, name), str))
