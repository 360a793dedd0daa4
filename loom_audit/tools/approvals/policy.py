"""The rules of `approvals.toml`: which calls are allowed, asked about or denied."""

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import chain
from typing import Any, Literal, get_args

from msgspec import Struct
from pathspec import PathSpec

from loom_audit.errors import AuditError, InvalidArguments
from loom_audit.model.coverage import Effect
from loom_audit.model.shell.parse import parse
from loom_audit.model.shell.words import CLEAN, LITERAL, UNKNOWN, Budget
from loom_audit.ports import Workspace

Action = Literal["allow", "ask", "deny"]

NAME = "approvals.toml"
TIMEOUT = 600.0
"""Seconds somebody is given to answer, when the file does not say."""

_PATHS = (
    "path",
    "from",
    "to",
    "source",
    "target",
    "paths",
    "file",
    "files",
    "directory",
    "cwd",
    "writes",
)
_SEPARATOR = re.compile(r"[;&|()<>\n]+")
_UNSURE = re.compile(r"[<>$`\\\x00-\x08\x0b-\x1f]|(^|[\s;&|()])#|\{[^}]*(,|\.\.)")
"""What a shell may read as something other than the words that stand there."""
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_MOST_OPTIONS = 50
"""Words after a program that are passed over when they begin with an option."""


class Subject(Struct, frozen=True):
    """A call as the rules see it; `command` is None where the tool runs none.

    `paths` holds for each path named in the arguments all workspace paths it may stand for, and
    `effects` what the call has besides its tool's own.
    """

    tool: str
    effect: Effect
    agent: str
    paths: Sequence[frozenset[str]] = ()
    command: str | None = None
    effects: frozenset[Effect] = frozenset()


class Rule(Struct, frozen=True):
    """One `[[rule]]`: it matches when all that it names do. `number` counts from 1."""

    number: int
    action: Action
    reason: str = ""
    tool: str | None = None
    path: str | None = None
    command: str | None = None
    effect: Effect | None = None
    agent: str | None = None

    @property
    def name(self) -> str:
        """The name by which a decision of this rule is on record."""
        return f"policy:{NAME}#{self.number}"

    @property
    def why(self) -> str:
        """The words that people and models read of the rule: number, subject, reason."""
        about = self.command or self.path or self.tool or self.effect or self.agent
        named = f"rule {self.number}" + (f" ({about})" if about else "")
        return f"{named}: {self.reason}" if self.reason else named

    def matches(self, subject: Subject) -> bool:
        """Whether the rule is about the call.

        To allow, every effect, path and part of the command must match; to ask or deny, one.
        """
        sure = self.action == "allow"
        return (
            (self.tool is None or fnmatchcase(subject.tool, self.tool))
            and (self.effect is None or _matches_effect(subject, self.effect, sure=sure))
            and (self.agent is None or _is_agent(subject.agent, self.agent))
            and (self.path is None or _matches_path(subject.paths, self.path, sure=sure))
            and not (sure and self._is_of_paths_alone and subject.effect not in ("read", "write"))
            and (self.command is None or _matches_command(subject.command, self.command, sure=sure))
        )

    @property
    def _is_of_paths_alone(self) -> bool:
        """Then it cannot allow what runs or sends something: that is not held to its paths."""
        return self.path is not None and (self.tool, self.command, self.effect) == (None,) * 3


class Policy(Struct, frozen=True):
    """The rules in order; the first that matches decides.

    Where none does, `default` decides, or the tool itself when that is None. `timeout` is in
    seconds.
    """

    rules: tuple[Rule, ...] = ()
    timeout: float = TIMEOUT
    default: Action | None = None

    def rule_for(self, subject: Subject) -> Rule | None:
        """The first rule that matches the call; None where none does."""
        return next((rule for rule in self.rules if rule.matches(subject)), None)

    @property
    def looks_at_paths(self) -> bool:
        """Whether a rule is about paths, so that those a call would change have to be known."""
        return any(rule.path is not None for rule in self.rules)


def read_policy(table: Mapping[str, Any]) -> Policy:
    """The policy of a parsed file. InvalidArguments names the rule, the key and the flaw."""
    for key in table:
        if key not in ("rule", "timeout", "default"):
            raise _invalid_policy(key, "is not known; known are default, rule, timeout")
    timeout = table.get("timeout", TIMEOUT)
    if isinstance(timeout, bool) or not isinstance(timeout, int | float):
        raise _invalid_policy("timeout", "must be a number of seconds")
    if not 0 < timeout <= 7 * 86_400:
        raise _invalid_policy("timeout", "must be over 0 and at most a week of seconds")
    default = table.get("default")
    if default is not None and default not in get_args(Action):
        raise _invalid_policy("default", "must be allow, ask or deny")
    rules = table.get("rule", [])
    if not isinstance(rules, list):
        raise _invalid_policy("rule", "must be written as [[rule]]")
    read = tuple(_read_rule(number, one) for number, one in enumerate(rules, 1))
    return Policy(read, float(timeout), default)


def _read_rule(number: int, table: Any) -> Rule:
    where = f"rule {number}"
    if not isinstance(table, dict):
        raise _invalid_policy(where, "must be a table")
    known = set(Rule.__struct_fields__) - {"number"}
    for key, value in table.items():
        if key not in known:
            raise _invalid_policy(f"{where}: {key}", f"is not known; known are {_listed(known)}")
        if not isinstance(value, str) or (not value.strip() and key != "reason"):
            raise _invalid_policy(f"{where}: {key}", "must be a text that is not empty")
    if table.get("action") not in get_args(Action):
        raise _invalid_policy(f"{where}: action", "must be allow, ask or deny")
    if "effect" in table and table["effect"] not in get_args(Effect):
        raise _invalid_policy(f"{where}: effect", f"must be one of {_listed(get_args(Effect))}")
    if "path" in table:
        _check_path(table["path"], f"{where}: path")
    if "command" in table:
        _check_command(table["command"], f"{where}: command")
    return Rule(number, **table)


def _check_path(pattern: str, where: str) -> None:
    """A pattern that no workspace path can match is refused: it would protect nothing."""
    try:
        PathSpec.from_lines("gitignore", [pattern])
    except ValueError as error:
        raise _invalid_policy(where, f"is not a pattern: {error}") from error
    if pattern.lstrip().startswith(("!", "#")):
        raise _invalid_policy(where, "may not begin with ! or #")
    parts = pattern.strip().split("/")
    if "\n" in pattern or "\\" in pattern or not pattern.strip("/ "):
        raise _invalid_policy(where, "names nothing in a workspace")
    if ":" in parts[0] or parts[0] == "~" or {".", ".."} & {*parts}:
        raise _invalid_policy(where, "is not a path below the workspace; leave out ./ and ../")


def _check_command(pattern: str, where: str) -> None:
    """One command with its words; of several, or of redirections, none could ever match."""
    try:
        words, found = shlex.split(pattern), _split_commands(pattern)
    except ValueError as error:
        raise _invalid_policy(where, f"is not a pattern: {error}") from error
    if found != [words]:
        raise _invalid_policy(where, "must be one command; write a rule for each")


def paths_in(arguments: Any) -> list[str]:
    """The paths that arguments name, by the keys that tools use for them."""
    if not isinstance(arguments, Mapping):
        return []
    found: list[str] = []
    for key in _PATHS:
        value = arguments.get(key)
        values = value if isinstance(value, list) else [value]
        found += [one for one in values if isinstance(one, str) and one]
    return found


def command_in(arguments: Any) -> str | None:
    """The shell text that arguments hold, None when they hold none."""
    if not isinstance(arguments, Mapping):
        return None
    found = arguments.get("command")
    if isinstance(found, list) and all(isinstance(word, str) for word in found):
        found = shlex.join(found)
    if found is None and arguments.get("language") == "bash":
        found = arguments.get("code")
    if not isinstance(found, str):
        return None
    given = arguments.get("env")
    # variables say which programs run (PATH, BASH_ENV, GIT_…): they are part of the text
    settings = given.items() if isinstance(given, Mapping) else ()
    return "".join(f"{name}={shlex.quote(str(value))}\n" for name, value in settings) + found


def subject_of(
    tool: str,
    effect: Effect,
    agent: str,
    arguments: Any,
    workspace: Workspace | None,
    paths: Iterable[str] = (),
    effects: frozenset[Effect] = frozenset(),
) -> Subject:
    """A call as the rules see it, by its arguments and more `paths` and `effects` that it has."""
    named = (*paths, *paths_in(arguments))
    possible = [_possible_paths(workspace, path) for path in named]
    return Subject(tool, effect, agent, possible, command_in(arguments), effects - {effect})


def _possible_paths(workspace: Workspace | None, path: str) -> frozenset[str]:
    """The workspace paths that a path in arguments may stand for."""
    if workspace is None:
        return frozenset({path})
    try:
        relative = workspace.relative(path)
        return frozenset({relative, workspace.resolve(relative)})
    except AuditError:
        return frozenset({path})  # it is refused by whoever opens it


def call_subject(arguments: Any) -> str:
    """What a call is about, in a line: its command, else its paths; empty when it names none."""
    if isinstance(arguments, Mapping) and isinstance(arguments.get("command"), str):
        return str(arguments["command"])
    return command_in(arguments) or ", ".join(paths_in(arguments))


def _matches_effect(subject: Subject, effect: Effect, *, sure: bool) -> bool:
    if sure:
        return not subject.effects and effect == subject.effect
    return effect == subject.effect or effect in subject.effects


def _is_agent(actor: str, pattern: str) -> bool:
    """By the whole actor (`agent:coder`) or by the name alone."""
    return fnmatchcase(actor, pattern) or fnmatchcase(actor.partition(":")[2], pattern)


def _matches_path(paths: Sequence[frozenset[str]], pattern: str, *, sure: bool) -> bool:
    spec = PathSpec.from_lines("gitignore", [pattern])

    def fits(path: str) -> bool:
        # a folder's own pattern (`secrets/`) is about the folder itself too
        return spec.match_file(path) or spec.match_file(path + "/")

    if sure:
        return bool(paths) and all(fits(path) for named in paths for path in named)
    return any(fits(path) for named in paths for path in named)


def _matches_command(command: str | None, pattern: str, *, sure: bool) -> bool:
    if command is None:
        return False
    wanted = shlex.split(pattern)
    if sure:
        return _is_only_command(command, wanted)
    return any(
        _begins_at(words, start, wanted)
        for words in chain(_parse_commands(command), _possible_commands(command, depth=0))
        for start in range(len(words))
    )


def _is_only_command(command: str, wanted: Sequence[str]) -> bool:
    """Whether each of the simple commands is the wanted one, and nothing else is in the text."""
    if _UNSURE.search(command):
        return False
    try:
        found = _split_commands(command)
    except ValueError:
        return False
    return bool(found) and all(
        _words_match(words, wanted) and not _leaves_pattern(words, wanted) for words in found
    )


def _begins_at(words: Sequence[str], start: int, wanted: Sequence[str]) -> bool:
    """Whether the wanted command begins there, also by its path and behind its options."""
    most = len(wanted) + 1  # so many words tell whether there are as many as are wanted
    name = words[start]
    named = [name, _base_name(name)]
    if any(_words_match([one, *words[start + 1 : start + most]], wanted) for one in named):
        return True
    if len(wanted) < 2 or not any(fnmatchcase(one, wanted[0]) for one in named):
        return False
    if not words[start + 1 : start + 2] or words[start + 1][:1] != "-":
        return False
    behind = range(start + 2, min(len(words), start + 2 + _MOST_OPTIONS))
    return any(_words_match(words[at : at + most - 1], wanted[1:]) for at in behind)


def _words_match(words: Sequence[str], wanted: Sequence[str]) -> bool:
    """Word by word; a `*` at the end of the pattern stands for any words that are left."""
    if wanted and wanted[-1] == "*":
        wanted = wanted[:-1]
        words = words[: len(wanted)]
    return len(words) == len(wanted) and all(map(fnmatchcase, words, wanted))


def _leaves_pattern(words: Sequence[str], wanted: Sequence[str]) -> bool:
    """Whether a pattern such as `src/*` was met by a path that leads out of there."""
    return any(
        ".." in word.split("/") and pattern not in ("*", word)
        for word, pattern in zip(words, wanted, strict=False)
    )


def _parse_commands(text: str) -> Iterable[list[str]]:
    """The simple commands with quotes, variables and braces as a shell would read them."""
    text = text.translate(CLEAN)
    for command in parse(text, Budget(8 * len(text) + 200_000)).commands:
        yield [word.replace(UNKNOWN, "").translate(LITERAL) for word in command.words]


def _possible_commands(text: str, *, depth: int) -> Iterable[list[str]]:
    """All that may be a simple command in a shell text, also inside quotes and substitutions."""
    try:
        found = _split_commands(text.replace("`", ";").replace("$(", ";("))
    except ValueError:
        found = [part.split() for part in _SEPARATOR.split(text)]
    for words in found:
        if words:
            yield words
        if depth < 5:
            for word in words:
                if re.search(r"[\s;|&]", word):
                    yield from _possible_commands(word, depth=depth + 1)


def _split_commands(text: str) -> list[list[str]]:
    """The simple commands as lists of words. ValueError for quotes that do not end."""
    joined = _ESCAPED.sub(lambda found: "" if found[1] == "\n" else found[0], text)
    reader = shlex.shlex(joined, posix=True, punctuation_chars=";&|()<>\n")
    reader.whitespace = " \t\r"
    reader.whitespace_split = True
    reader.commenters = ""
    found: list[list[str]] = [[]]
    for word in reader:
        if _SEPARATOR.fullmatch(word):
            found.append([])
        else:
            found[-1].append(word)
    return [words for words in found if words]


def _base_name(word: str) -> str:
    return word.rpartition("/")[2]


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))


def _invalid_policy(key: str, flaw: str) -> InvalidArguments:
    return InvalidArguments(
        f"{NAME}: {key} {flaw}", hint=f"Correct {NAME}; nothing runs until then."
    )
