"""What the two sessions of the demonstration are told, do and say, and where they work.

The agent does good work, makes a mistake among it, and says more at its end than its tests do.
"""

import os
import shlex
import shutil
import struct
import zlib
from base64 import b64encode
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeAlias

from msgspec import Struct

from loom_audit.errors import NotFound
from loom_audit.tools.bundled.environment import base_python

PACKAGES = ("jinja2", "click", "markdown_it", "json", "email")
"""Pure Python packages to copy, the first that is here; the last two are in every Python."""


PYTHON = Path(base_python())
"""The base interpreter: a command of the demo finds nothing of our own environment."""
UNITTEST = "-B -m unittest tests/test_words.py"
RUN_TESTS = f"{shlex.quote(PYTHON.name)} {UNITTEST}"
ENVIRONMENT = {"PATH": f"{PYTHON.parent}:{os.environ.get('PATH', os.defpath)}"}
"""In which `RUN_TESTS` finds it by its name."""


class Step(Struct, frozen=True):
    """A step of a session calls a tool; the demo refers to the number of the call by `label`."""

    tool: str
    arguments: Mapping[str, Any]
    label: str = ""


class Prompt(Struct, frozen=True):
    """What a person tells the agent."""

    text: str


class Message(Struct, frozen=True):
    """What the agent says."""

    text: str


Happening: TypeAlias = Step | Prompt | Message


class Story(Struct, frozen=True):
    """A session of the demonstration: its title, and what happens in it, in order."""

    title: str
    happenings: Sequence[Happening]

    @property
    def calls(self) -> int:
        """The number of calls in it."""
        return sum(isinstance(one, Step) for one in self.happenings)


def make_workspace(root: Path) -> str:
    """The workspace before the agent comes: a package, a README, a file nobody will touch.

    Its package's name. NotFound when no suitable package is installed.
    """
    for package in PACKAGES:
        found = find_spec(package)
        source = Path(found.origin).parent if found and found.origin else None
        if source is not None and len(_find_modules(source)) >= 2:
            break
    else:
        raise NotFound(
            "No suitable package is installed here",
            hint=f"Install one of {', '.join(PACKAGES)}.",
            details={"packages": list(PACKAGES)},
        )
    shutil.copytree(
        source, root / package, ignore=shutil.ignore_patterns("__pycache__", "*.so", "*.pyd")
    )
    (root / "README.md").write_text(f"# {package}\n\nA copy to work on.\n")
    (root / "notes.txt").write_text("Written before the agent came.\n")
    return package


def _find_modules(package: Path) -> dict[str, list[str]]:
    """Modules, the largest first, with their class and def lines that stand there once."""
    modules = sorted(package.glob("*.py"), key=lambda path: (-path.stat().st_size, path.name))
    found = {}
    for module in modules:
        text = module.read_text("utf-8")
        lines = [
            line
            for line in text.splitlines()
            if line.startswith(("class ", "def ")) and text.count(line) == 1
        ]
        if len(lines) >= 3:
            found[module.name] = lines
    return found


def edit_by_hand(root: Path) -> tuple[str, ...]:
    """What a person does in an editor meanwhile: no tool, nothing announced."""
    with (root / "README.md").open("a") as readme:
        readme.write("\nA line that a person added while the agent worked.\n")
    (root / "todo.txt").write_text("ask the agent what it did here\n")
    return ("README.md", "todo.txt")


WORDS = '''"""Words of a text."""


def count(text):
    counts = {}
    for word in text.split():
        counts[word] = counts.get(word, 0) + 1
    return counts


def longest(text):
    return max(text.split(), key=len)
'''
TESTS = """import unittest

from toolkit.words import count, longest


class Words(unittest.TestCase):
    def test_words_are_counted(self):
        self.assertEqual(count("a b a"), {"a": 2, "b": 1})

    def test_no_text_has_no_longest_word(self):
        self.assertEqual(longest(""), "")
"""


SHORTEST = """def shortest(text):
    return min(text.split(), key=len)


"""
FIXED = 'min(text.split(), key=len, default="")'
MORE_TESTS = """

    def test_no_text_has_no_shortest_word(self):
        self.assertEqual(shortest(""), "")
"""


def building(root: Path, package: str) -> Story:
    """The agent looks around, edits, adds a package with tests, and makes them pass."""
    reviewable = _find_modules(root / package)
    (largest, lines), (second, others) = list(reviewable.items())[:2]
    reviewed = "# Reviewed.\n"
    several = [
        {"old_str": others[0], "new_str": reviewed + others[0]},
        {"old_str": others[1], "new_str": reviewed + others[1]},
        {"old_str": reviewed, "new_str": "# Reviewed, and left as it is.\n", "replace_all": True},
    ]
    script = f"#!/bin/sh\nexec {shlex.quote(str(PYTHON))} {UNITTEST}\n"
    happenings: list[Happening] = [
        Prompt(
            f"Add a small toolkit beside {package}: count the words of a text, find the longest "
            "one, with tests. Mark what you review in the two largest modules while you read them."
        ),
        Message("I look at the workspace and at the largest modules before I write anything."),
        Step("list_directory", {}),
        Step("read_file", {"path": "README.md"}),
        Step("read_file", {"path": f"{package}/{largest}", "line_range": [1, 60]}),
        Step("search_files", {"pattern": r"^class \w+", "path": package, "file_pattern": "*.py"}),
        Step("shell_execute", {"command": f"wc -l {package}/*.py | sort -n"}),
        _edit(f"{package}/{largest}", lines[0], reviewed + lines[0], "edit"),
        _edit(f"{package}/{largest}", lines[1], reviewed + lines[1]),
        Step("edit_file", {"path": f"{package}/{second}", "edits": several}, "edits"),
        Step("write_file", {"path": "toolkit/__init__.py", "content": '"""Small tools."""\n'}),
        Step("write_file", {"path": "toolkit/words.py", "content": WORDS}, "words"),
        Step("write_file", {"path": "tests/test_words.py", "content": TESTS}),
        Step("shell_execute", {"command": RUN_TESTS}, "failing tests"),
        Message("longest() raises for an empty text. I give it a default and run the tests again."),
        _edit("toolkit/words.py", "key=len)", 'key=len, default="")', "fix"),
        Step("shell_execute", {"command": RUN_TESTS}),
        Message("The toolkit is in toolkit/words.py, and both of its tests pass."),
        Prompt("Good. Give it a logo and a script that runs the tests, then tidy up after you."),
        Step("read_file", {"path": f"{package}/no_such_module.py"}),
        _edit("toolkit/words.py", "text that is not there", "x"),
        Step(
            "write_file", {"path": "toolkit/logo.png", "content": _picture(), "encoding": "base64"}
        ),
        Step("shell_execute", {"command": f"ln -s ../{package}/{largest} toolkit/upstream.py"}),
        Step("write_file", {"path": "run-tests.sh", "content": script}),
        Step("shell_execute", {"command": "chmod 755 run-tests.sh && ./run-tests.sh"}, "chmod"),
        Step("write_file", {"path": "scratch.md", "content": "- look at the tests\n"}),
        Step("move_file", {"from": "scratch.md", "to": "toolkit/doc/plan.md"}),
        Step("delete_file", {"path": "notes.txt"}),
        Message(
            "./run-tests.sh runs the tests, which pass. My plan is in toolkit/doc/plan.md now, and "
            "I deleted notes.txt, which nothing used."
        ),
    ]
    return Story(f"Add word tools to {package}", happenings)


def going_too_far(package: str) -> Story:
    """The agent adds what is asked for, and destroys the package with one command among the rest.

    Its last test fails; it edits once more, runs no test after that, and says that they pass.
    """
    mark = "# Cleaned up."
    sed = f"sed -i.bak -e '1i\\' -e '{mark}' {package}/*.py"
    in_tests = [
        {"old_str": "import count, longest", "new_str": "import count, longest, shortest"},
        {"old_str": TESTS.splitlines()[-1], "new_str": TESTS.splitlines()[-1] + MORE_TESTS},
    ]
    happenings: list[Happening] = [
        Prompt(
            f"Put the line '{mark}' on top of every module of {package}, and add shortest() beside "
            "longest(), with a test. Leave nothing behind that you only needed on the way."
        ),
        Message("I mark the modules with one sed, and keep a copy of the toolkit while I edit it."),
        Step("shell_execute", {"command": f"{sed} && rm {package}/*.bak"}, "sed"),
        Step("shell_execute", {"command": f"grep -lx '{mark}' {package}/*.py | wc -l"}),
        Step("read_file", {"path": "../../../etc/passwd"}),
        Step("shell_execute", {"command": "cp -r toolkit toolkit.old && mkdir -p build/lib"}),
        _edit("toolkit/words.py", "def longest(text):", SHORTEST + "def longest(text):"),
        Step("edit_file", {"path": "tests/test_words.py", "edits": in_tests}),
        Step("shell_execute", {"command": RUN_TESTS}, "last tests"),
        _edit("toolkit/words.py", "min(text.split(), key=len)", FIXED, "last edit"),
        Step("shell_execute", {"command": "ls /no/such/directory"}),
        Step("shell_execute", {"command": f"rm -rf {package}* toolkit.old"}, "rm"),
        Step("list_directory", {"path": "."}),
        Message(
            "Every module is marked, shortest() is there with its test, and all tests pass. I "
            "removed the copy that I had made of the toolkit."
        ),
    ]
    return Story("Mark the modules, add shortest()", happenings)


ASKED = Step("delete_file", {"path": "todo.txt"}, "asked")
"""The call that waits for a person: the agent wants to delete what that person wrote."""
AFTER_YES = "todo.txt is deleted as well. Nothing is left to do."
AFTER_NO = "I leave todo.txt where it is. Nothing is left to do."


def _edit(path: str, old: str, new: str, label: str = "") -> Step:
    return Step("edit_file", {"path": path, "old_str": old, "new_str": new}, label)


def _picture() -> str:
    """A PNG file in base64."""
    side = 24

    def chunk(kind: bytes, body: bytes) -> bytes:
        checksum = zlib.crc32(kind + body)
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", checksum)

    rows = b"".join(b"\0" + bytes((x * y) % 256 for x in range(side)) for y in range(side))
    header = struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0)
    body = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    return b64encode(b"\x89PNG\r\n\x1a\n" + body).decode("ascii")
