"""Which shell commands are tests, lints or builds, and which name a program of the network.

By one table of programs (`PROGRAMS`) and the parser that the blocklist uses. It is said of the text
alone: what a script or a makefile does inside is not known.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Literal

from msgspec import Struct

from loom_audit.model.shell.named import unwrapped
from loom_audit.model.shell.parse import parse
from loom_audit.model.shell.words import CLEAN, LITERAL, Budget

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
    "make": {"": "build", "test": "test", "check": "test", "lint": "lint"},
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
"""Programs with their first operands, "" for any: what they check. `npm run test` is `npm test`."""

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

_SCRIPTS = frozenset(("npm", "yarn", "pnpm", "bun"))
_PYTHON = re.compile(r"(python|pypy)[0-9.]*")
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
_CHECKING = re.compile(rf"\b({'|'.join(map(re.escape, PROGRAMS))})(?!\w)")
_REACHING = re.compile(rf"\b({'|'.join(map(re.escape, [*_NETWORK, *_NETWORK_OF]))})(?!\w)")
"""Texts without one of these words are not parsed."""

_JOINED = re.compile(r"[0-9]*>&[0-9]+|&>>?|[0-9]*>\|")
_OTHERWISE = re.compile(r"[|;&\n(){}`!#]")
_WORD = re.compile(r"(if|while|until|for|case|select|exec|coproc)\b")
_LONGEST = 100_000
"""Characters of a command that are read for this."""


class Check(Struct, frozen=True):
    """A command that checks something: the `program` that does, as the table names it.

    `exits`: the exit code of the whole line is that of the check.
    """

    kind: CheckKind
    program: str
    exits: bool


def check_in(text: str) -> Check | None:
    """Return the last test in a shell text, else its last lint, else its last build; or None."""
    if not _CHECKING.search(text):
        return None
    found: dict[CheckKind, tuple[str, bool]] = {}
    programs = [*_programs(text)]
    for place, words in enumerate(programs):
        kind, program = _kind_of(words)
        if kind is not None:
            found[kind] = program, place == len(programs) - 1
    kinds: tuple[CheckKind, ...] = ("test", "lint", "build")
    for kind in kinds:
        if kind in found:
            program, is_last = found[kind]
            return Check(kind, program, is_last and _is_chain(text, len(programs)))
    return None


def network_program(text: str) -> str:
    """Return the first program of the network that a shell text names; "" for none."""
    if not _REACHING.search(text):
        return ""
    for words in _programs(text):
        name, operand = words[0], _operand(words)
        if name in _NETWORK:
            return name
        if operand in _NETWORK_OF.get(name, ()):
            return f"{name} {operand}"
    return ""


def _programs(text: str) -> Iterator[list[str]]:
    """The words of each command of a text, with the program's name first."""
    script = parse(text[:_LONGEST].translate(CLEAN), Budget(8 * _LONGEST))
    for command in script.commands:
        if words := _inner(unwrapped(command.words)):
            yield [word.translate(LITERAL) for word in words]


def _inner(words: list[str]) -> list[str]:
    """A command without what runs it: `uv run pytest` is `pytest`, `python -m pytest` too."""
    for _ in range(8):
        if not words:
            break
        name, rest = words[0], words[1:]
        if _PYTHON.fullmatch(name) and rest[:1] == ["-m"]:
            words = rest[1:]
        elif name in _RUNNERS and tuple(rest[: len(_RUNNERS[name])]) == _RUNNERS[name]:
            rest = rest[len(_RUNNERS[name]) :]
            while rest and rest[0].startswith("-"):
                rest = rest[1:]
            words = unwrapped(rest)
        else:
            break
    return words


def _kind_of(words: list[str]) -> tuple[CheckKind | None, str]:
    """What a command checks, and its program as the table names it."""
    name, operand = words[0], _operand(words)
    known = PROGRAMS.get(name)
    if known is None:
        return None, ""
    if operand in known:
        return known[operand], f"{name} {operand}" if operand else name
    # a script `test:unit`, a flag such as --build
    flag = next((word for word in words[1:] if word in known), "")
    part = operand.split(":")[0] if name in _SCRIPTS else ""
    for one in (flag, part):
        if one and one in known:
            return known[one], f"{name} {one}"
    return known.get(""), name


def _operand(words: list[str]) -> str:
    """The first operand of a command; `npm run test` has `test`."""
    operands = [word for word in words[1:] if not word.startswith("-")]
    if words[0] in _SCRIPTS and operands[:1] in (["run"], ["run-script"]):
        operands = operands[1:]
    return operands[0] if operands else ""


def _is_chain(text: str, count: int) -> bool:
    """Whether a text is one command, or `count` of them joined by nothing but `&&`.

    A sign in quotes that would join commands elsewhere makes it doubtful, and so none.
    """
    parts = _JOINED.sub(" ", text.strip()).split("&&")
    return len(parts) == count and not any(
        _OTHERWISE.search(part) or _WORD.match(part.strip()) for part in parts
    )
