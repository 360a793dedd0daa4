"""Which shell commands are tests, lints or builds, and which name a program of the network.

By one table of programs (`PROGRAMS`) and the parser that the blocklist uses. It is said of the text
alone: what a script or a makefile does inside is not known.
"""

import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from msgspec import Struct

from loom_audit.model.shell.named import unwrapped
from loom_audit.model.shell.parse import parse
from loom_audit.model.shell.words import CLEAN, LITERAL, SHELLS, Budget, shell_text

CheckKind = Literal["test", "lint", "build"]

PROGRAMS: Mapping[str, Mapping[str, CheckKind]] = {
    "pytest": {"": "test"},
    "py.test": {"": "test"},
    "unittest": {"": "test"},
    "tox": {"": "test"},
    "nox": {"": "test"},
    "jest": {"": "test"},
    "vitest": {"": "test"},
    "mocha": {"": "test"},
    "ava": {"": "test"},
    "phpunit": {"": "test"},
    "rspec": {"": "test"},
    "ctest": {"": "test"},
    "bats": {"": "test"},
    "ruff": {"": "lint"},
    "flake8": {"": "lint"},
    "pylint": {"": "lint"},
    "mypy": {"": "lint"},
    "pyright": {"": "lint"},
    "black": {"": "lint"},
    "isort": {"": "lint"},
    "eslint": {"": "lint"},
    "prettier": {"": "lint"},
    "biome": {"": "lint"},
    "stylelint": {"": "lint"},
    "shellcheck": {"": "lint"},
    "rubocop": {"": "lint"},
    "golangci-lint": {"": "lint"},
    "gofmt": {"": "lint"},
    "clang-tidy": {"": "lint"},
    "clang-format": {"": "lint"},
    "yamllint": {"": "lint"},
    "tsc": {"": "build"},
    "webpack": {"": "build"},
    "vite": {"build": "build"},
    "rollup": {"": "build"},
    "esbuild": {"": "build"},
    "ninja": {"": "build"},
    "cmake": {"--build": "build"},
    "gcc": {"": "build"},
    "g++": {"": "build"},
    "cc": {"": "build"},
    "clang": {"": "build"},
    "rustc": {"": "build"},
    "javac": {"": "build"},
    "make": {
        "": "build",
        "all": "build",
        "build": "build",
        "test": "test",
        "check": "test",
        "lint": "lint",
    },
    "go": {"test": "test", "vet": "lint", "fmt": "lint", "build": "build"},
    "cargo": {
        "test": "test",
        "nextest": "test",
        "clippy": "lint",
        "fmt": "lint",
        "build": "build",
        "check": "build",
    },
    "npm": {"test": "test", "t": "test", "lint": "lint", "build": "build"},
    "yarn": {"test": "test", "lint": "lint", "build": "build"},
    "pnpm": {"test": "test", "lint": "lint", "build": "build"},
    "bun": {"test": "test", "lint": "lint", "build": "build"},
    "deno": {"test": "test", "lint": "lint", "fmt": "lint"},
    "mvn": {"test": "test", "verify": "test", "package": "build", "compile": "build"},
    "gradle": {"test": "test", "check": "test", "build": "build"},
    "gradlew": {"test": "test", "check": "test", "build": "build"},
    "dotnet": {"test": "test", "build": "build"},
    "bazel": {"test": "test", "build": "build"},
    "swift": {"test": "test", "build": "build"},
    "mix": {"test": "test", "compile": "build"},
    "playwright": {"test": "test"},
    "build": {"": "build"},
}
"""Programs with their first operands, "" for any: what they check. `npm run test` is `npm test`.

A script or target of a longer name is that of its first word: `test:unit`, `test-unit`, `tests`.
"""

_RUNNERS: Mapping[str, tuple[str, ...]] = {
    "npx": (),
    "bunx": (),
    "uvx": (),
    "pipx": ("run",),
    "uv": ("run",),
    "poetry": ("run",),
    "pipenv": ("run",),
    "pdm": ("run",),
    "hatch": ("run",),
    "bundle": ("exec",),
    "coverage": ("run",),
    "xvfb-run": (),
}
"""Programs that run another one, which follows these operands."""

_DEEPEST = 3
_VALUED_OF: Mapping[str, frozenset[str]] = {
    "git": frozenset(("-C", "-c", "--git-dir", "--work-tree")),
    "make": frozenset(("-C", "-f", "-I", "-o", "-W", "-j", "-l")),
}
"""Options with a value, in programs whose first operand is asked for."""
_SCRIPTS = frozenset(("npm", "yarn", "pnpm", "bun"))
_NAMING = _SCRIPTS | {"make"}
"""Programs whose first operand is a name that somebody chose."""
_LATER_WORDS = re.compile("[-:_.]")
_PYTHON = re.compile(r"(python|pypy)[0-9.]*")
_VALUED_OF_PYTHON = re.compile("-[a-zA-Z]*?([mcWX])(.*)", re.DOTALL)
_NETWORK = frozenset(
    [
        "curl",
        "wget",
        "ssh",
        "scp",
        "sftp",
        "rsync",
        "ftp",
        "nc",
        "ncat",
        "netcat",
        "telnet",
        "socat",
        "dig",
        "nslookup",
        "ping",
        "aria2c",
        "gh",
        "aws",
        "gcloud",
        "az",
        "kubectl",
    ]
)
_NETWORK_OF: Mapping[str, frozenset[str]] = {
    "git": frozenset(["clone", "fetch", "pull", "push", "ls-remote", "submodule"]),
    "pip": frozenset(("install", "download")),
    "pip3": frozenset(("install", "download")),
    "uv": frozenset(("add", "sync", "pip")),
    "npm": frozenset(["install", "i", "ci", "publish", "update"]),
    "yarn": frozenset(("add", "install", "publish")),
    "pnpm": frozenset(["add", "install", "i", "publish", "update"]),
    "cargo": frozenset(["install", "fetch", "publish", "update"]),
    "go": frozenset(("get", "install")),
    "gem": frozenset(("install", "push")),
    "apt": frozenset(("install", "update", "upgrade")),
    "apt-get": frozenset(("install", "update", "upgrade")),
    "docker": frozenset(["pull", "push", "login"]),
    "brew": frozenset(("install", "update", "upgrade")),
}
_CHECKING = re.compile(rf"(?:\b|(?<=m))({'|'.join(map(re.escape, PROGRAMS))})(?!\w)")
_REACHING = re.compile(rf"\b({'|'.join(map(re.escape, [*_NETWORK, *_NETWORK_OF]))})(?!\w)")
"""Texts without one of these words are not parsed."""

_JOINED = re.compile(r"[0-9]*>&[0-9]+|&>>?|[0-9]*>\|")
_OTHERWISE = re.compile(r"[|;&\n(){}`!#]")
_WORD = re.compile(
    r"(if|while|until|for|case|select|exec|coproc|exit|return|trap|set|alias|eval|enable)\b"
)
"""Words after which the rest of a line may not run, or not as it reads, or not decide its end."""
_PREPARING = frozenset(("cd", "export", "source", ".", "mkdir", "pushd"))
"""What is done before a check and seldom fails."""
_NO_RUN = frozenset(
    [
        "--version",
        "--help",
        "-h",
        "--collect-only",
        "--co",
        "--dry-run",
        "--just-print",
        "--no-run",
        "--listTests",
        "--setup-plan",
        "--showconfig",
    ]
)
"""Options with which nothing is checked."""
_NO_RUN_OF: Mapping[str, frozenset[str]] = {
    "make": frozenset(("-n", "-q", "-t", "--recon", "--question", "--touch", "-p")),
    "tox": frozenset(("-l", "list", "config")),
    "nox": frozenset(("-l", "--list")),
}
_FORGIVING = frozenset(("--exit-zero", "--ignore-errors"))
"""Options with which a check that fails may end with 0."""
_APART = re.compile(r"\bsetsid\b|\bsudo +-b\b")
"""What runs a program apart from itself, and ends before that."""
_REFUSING = frozenset(("sudo",))
"""What may end as a check that fails does, without having run it."""
_NOT_RUN = frozenset((124, 125, 126, 127, 137))
"""Exit codes of what was to run a check: that it was stopped, could not be run or is not there."""
_VALUED = frozenset(
    [
        "--with",
        "--with-editable",
        "--with-requirements",
        "--from",
        "-p",
        "--package",
        "--python",
        "--extra",
        "--group",
        "--project",
        "--directory",
        "--env-file",
        "--source",
        "--include",
        "--omit",
        "--rcfile",
    ]
)
"""Options of what runs another program that have a value."""
_LONGEST = 100_000
"""Characters of a command that are read for this."""


class Check(Struct, frozen=True):
    """A command that checks something: the `program` that does, as the table names it.

    `exits`: the exit code of the whole line is that of the check. It is so `alone` for 0 where
    something else may have ended the line: what came before, or what was to run the check.
    """

    kind: CheckKind
    program: str
    exits: bool
    alone: bool = True

    def tells(self, exit_code: int) -> bool:
        """Whether an exit code of the line is that of the check."""
        return self.exits and (exit_code == 0 or (self.alone and exit_code not in _NOT_RUN))


class _Program(Struct, frozen=True):
    """The words of a command without what runs it; `alone` as that of a check."""

    words: list[str]
    alone: bool = True


def check_in(text: str) -> Check | None:
    """Return the last test in a shell text, else its last lint, else its last build; or None."""
    found = _checks_in(text, 0)
    kinds: tuple[CheckKind, ...] = ("test", "lint", "build")
    return next((found[kind] for kind in kinds if kind in found), None)


def _checks_in(text: str, depth: int) -> dict[CheckKind, Check]:
    """The last check of each kind in a text."""
    if depth > _DEEPEST or not _CHECKING.search(text):
        return {}
    found: dict[CheckKind, Check] = {}
    programs = [*_programs(text)]
    names = [one.words[0] for one in programs]
    for place, one in enumerate(programs):
        inner = shell_text(one.words[1:]) if one.words[0] in SHELLS else ""
        outer = text.replace(inner, " ") if inner else text
        is_end = place == len(programs) - 1 and _is_chain(outer, len(programs))
        alone = one.alone and {*names[:place]} <= _PREPARING
        for check in _checks_in(inner, depth + 1).values() if inner else _check_of(one.words):
            exits = check.exits and is_end
            found[check.kind] = Check(check.kind, check.program, exits, check.alone and alone)
    return found


def network_program(text: str) -> str:
    """Return the first program of the network that a shell text names; "" for none."""
    return _reaching(text, 0)


def _reaching(text: str, depth: int) -> str:
    if depth > _DEEPEST or not _REACHING.search(text):
        return ""
    for one in _programs(text):
        name, operand = one.words[0], "".join(_operands(one.words)[:1])
        if name in _NETWORK:
            return name
        if operand in _NETWORK_OF.get(name, ()):
            return f"{name} {operand}"
        if name in SHELLS and (found := _reaching(shell_text(one.words[1:]), depth + 1)):
            return found
    return ""


def _programs(text: str) -> Iterator[_Program]:
    """The commands of a text, each with the program's name first."""
    script = parse(text[:_LONGEST].translate(CLEAN), Budget(8 * _LONGEST))
    for command in script.commands:
        asks = command.words[:1] == ["command"] and command.words[1:2] in (["-v"], ["-V"])
        if (found := _inner([] if asks else command.words)).words:
            yield _Program([word.translate(LITERAL) for word in found.words], found.alone)


def _may_end_well(words: list[str]) -> bool:
    """Whether a check may end with 0 that failed."""
    return not _FORGIVING.isdisjoint(words) or (words[0] == "make" and "-i" in words)


def _inner(words: list[str]) -> _Program:
    """A command without what runs it: `uv run pytest` is `pytest`, `python -m pytest` too."""
    alone = True
    for _ in range(8):
        inner = unwrapped(words)
        before = words[: len(words) - len(inner)]
        alone &= _REFUSING.isdisjoint(posixpath.basename(word) for word in before)
        if not inner:
            return _Program([], alone)
        words = inner
        name, rest = words[0], words[1:]
        if _PYTHON.fullmatch(name) and (module := _module(rest)):
            words = module
        elif name in _RUNNERS and tuple(rest[: len(_RUNNERS[name])]) == _RUNNERS[name]:
            rest = rest[len(_RUNNERS[name]) :]
            while rest and rest[0].startswith("-"):
                rest = rest[2:] if rest[0] in _VALUED and rest[1:2] != ["-m"] else rest[1:]
            words, alone = rest, False
        else:
            break
    return _Program(words, alone)


def _module(words: Sequence[str]) -> list[str]:
    """The module that Python is told to run, with what follows it; empty for none."""
    left = [*words]
    while left and left[0][:1] == "-" and len(left[0]) > 1:
        word = left.pop(0)
        if word.startswith("--"):
            del left[: word == "--check-hash-based-pycs"]
        elif valued := _VALUED_OF_PYTHON.fullmatch(word):
            value = valued[2] or "".join(left[:1])
            del left[: not valued[2]]
            if valued[1] in "mc":
                return [value, *left] if valued[1] == "m" and value else []
    return []


def _check_of(words: list[str]) -> Iterator[Check]:
    """The check that a command is, with its program as the table names it."""
    name, operands = words[0], _operands(words)
    known = PROGRAMS.get(name)
    if known is None or not (_NO_RUN | _NO_RUN_OF.get(name, frozenset())).isdisjoint(words):
        return
    if operands and operands[0] in _NETWORK_OF.get(name, ()):
        return
    parts = [*operands, *(word for word in words if word.startswith("-"))]
    if name in _NAMING and operands:
        first = _LATER_WORDS.split(operands[0])[0]
        parts.append("test" if first == "tests" else first)
    part = next((one for one in parts if one and one in known), "")
    unknown = name in _NAMING and operands and not part
    if not unknown and (kind := known.get(part)):
        yield Check(kind, f"{name} {part}".strip(), exits=not _may_end_well(words))


def _operands(words: list[str]) -> list[str]:
    """The operands of a command; `npm run test` has `test`."""
    name = words[0]
    options = _VALUED_OF.get(name, frozenset())
    pairs = zip(words[1:], words, strict=False)
    operands = [
        word for word, before in pairs if not word.startswith("-") and before not in options
    ]
    if name == "make":
        return [word for word in operands if "=" not in word]
    if name in _SCRIPTS and operands[:1] in (["run"], ["run-script"]):
        return operands[1:]
    return operands


def _is_chain(text: str, count: int) -> bool:
    """Whether a text is one command, or `count` of them joined by nothing but `&&`.

    A sign in quotes that would join commands elsewhere makes it doubtful, and so none.
    """
    parts = _JOINED.sub(" ", text.strip()).split("&&")
    return (
        len(parts) == count
        and not _APART.search(text)
        and not any(_OTHERWISE.search(part) or _WORD.match(part.strip()) for part in parts)
    )
