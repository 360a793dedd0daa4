"""Which tools a subtask needs: those it declares, else those its text speaks of."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from loom_audit.errors import InvalidArguments, UnknownTool
from loom_audit.model.coverage import Effect
from loom_audit.tools.calls.tool import Tool

EFFECTS: tuple[Effect, ...] = ("read", "write", "execute", "network")

_WORDS: Mapping[Effect, str] = {
    "write": "add append apply change clean convert create delete document draft edit extend fix "
    "format generate implement insert migrate modify move patch port refactor remove rename "
    "replace rewrite save scaffold split translate update write",
    "execute": "bash benchmark build ci command commit compile debug deploy execute format git "
    "install lint measure package pip npm pytest push reproduce run script shell test tests "
    "unittest verify",
    "network": "api crawl docs documentation download fetch google http https internet latest "
    "online research scrape search url web website www",
}


def choose_tools(tools: Sequence[Tool], subtask: Any) -> list[Tool]:
    """The tools for a subtask, in the order given.

    A subtask is a text, or a mapping or object with any of `tools` (names), `needs` (effects)
    and texts under `title`, `name`, `description`, `instructions`, `goal` or `text`. Declared
    names are taken as they are, and declared needs with the tools that read; both together add
    up. With neither, words of the text choose the effects; a text with none of them gets every
    tool. UnknownTool for a name that is not registered, InvalidArguments for another need.
    """
    names = _texts(subtask, "tools")
    needs = _texts(subtask, "needs")
    if names is None and needs is None:
        effects = _effects_in(_text(subtask))
        return [tool for tool in tools if tool.effect in effects]
    known = {tool.name for tool in tools}
    for name in names or ():
        if name not in known:
            raise UnknownTool(
                f"The subtask needs {name}, which is not registered",
                hint=f"There are: {', '.join(sorted(known))}.",
            )
    for need in needs or ():
        if need not in EFFECTS:
            raise InvalidArguments(
                f"{need!r:.80} is not a need of a subtask", hint=f"Needs are {', '.join(EFFECTS)}."
            )
    wanted = {"read", *needs} if needs is not None else set()
    return [tool for tool in tools if tool.name in (names or ()) or tool.effect in wanted]


def _effects_in(text: str) -> set[str]:
    words = {*re.findall(r"[a-z]+", text.lower())}
    found = {effect for effect, marks in _WORDS.items() if words & {*marks.split()}}
    return {"read", *found} if found else {*EFFECTS}


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
