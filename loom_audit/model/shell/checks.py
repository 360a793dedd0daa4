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

_SHELLS = frozenset(("sh", "bash", "dash", "zsh"))
_TEXT_FOLLOWS = re.compile("-[a-z]*c")
_DEEPEST = 3
_VALUED_OF_GIT = frozenset(("-C", "-c", "--git-dir", "--work-tree"))
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

    `exits`: the exit code of the whole line is that of the check. After other commands that may
    fail it is so `alone` for 0; else one of those may have ended the line.
    """

    kind: CheckKind
    program: str
    exits: bool
    alone: bool = True

    def tells(self, exit_code: int) -> bool:
        """Whether an exit code of the line is that of the check."""
        return self.exits and (self.alone or exit_code == 0)


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
            exits = is_last and _is_chain(text, len(programs)) and not _may_end_well(programs[-1])
            return Check(kind, program, exits, {one[0] for one in programs[:-1]} <= _PREPARING)
    return None


def network_program(text: str) -> str:
    """Return the first program of the network that a shell text names; "" for none."""
    return _reaching(text, 0)


def _reaching(text: str, depth: int) -> str:
    if depth > _DEEPEST or not _REACHING.search(text):
        return ""
    for words in _programs(text):
        name, operand = words[0], _operand(words)
        if name in _NETWORK:
            return name
        if operand in _NETWORK_OF.get(name, ()):
            return f"{name} {operand}"
        if name in _SHELLS:  # bash -lc TEXT
            inner = next((n for n, word in enumerate(words) if _TEXT_FOLLOWS.fullmatch(word)), None)
            if inner and (found := _reaching(" ".join(words[inner + 1 : inner + 2]), depth + 1)):
                return found
    return ""


def _programs(text: str) -> Iterator[list[str]]:
    """The words of each command of a text, with the program's name first."""
    script = parse(text[:_LONGEST].translate(CLEAN), Budget(8 * _LONGEST))
    for command in script.commands:
        asks = command.words[:1] == ["command"] and command.words[1:2] in (["-v"], ["-V"])
        if words := _inner([] if asks else unwrapped(command.words)):
            yield [word.translate(LITERAL) for word in words]


def _may_end_well(words: list[str]) -> bool:
    """Whether a check may end with 0 that failed."""
    return not _FORGIVING.isdisjoint(words) or (words[0] == "make" and "-i" in words)


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
                rest = rest[2:] if rest[0] in _VALUED and rest[1:2] != ["-m"] else rest[1:]
            words = unwrapped(rest)
        else:
            break
    return words


def _kind_of(words: list[str]) -> tuple[CheckKind | None, str]:
    """What a command checks, and its program as the table names it."""
    name, operand = words[0], _operand(words)
    known = PROGRAMS.get(name)
    if known is None or not (_NO_RUN | _NO_RUN_OF.get(name, frozenset())).isdisjoint(words):
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
    options = _VALUED_OF_GIT if words[0] == "git" else frozenset[str]()
    pairs = zip(words[1:], words, strict=False)
    operands = [
        word for word, before in pairs if not word.startswith("-") and before not in options
    ]
    if words[0] in _SCRIPTS and operands[:1] in (["run"], ["run-script"]):
        operands = operands[1:]
    return operands[0] if operands else ""


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
