"""A scripted model: it sees the words of its task and the messages of its calls, nothing else."""

import re
from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

PATHS = ("path", "paths", "from", "file_pattern", "cwd", "in", "id")
"""Arguments that name what is there: a model must have read each of them somewhere."""
NUMBERS = ("offset", "call")
SHOWN = 6_000


class Told(Struct, frozen=True):
    """What a model is sent of one call: a text, and the file of a picture where it is one."""

    text: str
    picture: bytes = b""


Ask = Callable[[str, Mapping[str, Any]], Told]
"""Makes a call, and gives back what a model is sent of it."""


class Stuck(AssertionError):
    """A message does not say what the next step needs. It is the tool's message that is mended."""


class Model:
    """Asks for one call at a time. What it names, it has read: in its task, or in an answer."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._read = ""
        self._asked = "nothing"
        self.told = Told("")
        self.answers: list[str] = []

    def begin(self, words: str) -> None:
        """Give it a task in a person's words; what it read for another one is forgotten."""
        self._read = words
        self.told = Told("")

    def ask(self, tool: str, **arguments: Any) -> str:
        """Make a call; return the text of the answer."""
        given = {name.rstrip("_"): value for name, value in arguments.items()}
        self._check_read(tool, given)
        self._asked = f"{tool} {given}"
        told = self._ask(tool, given)
        self.told = replace(told, text=told.text.replace("\r\n", "\n"))  # which nobody sees
        self._read += f"\n{self.told.text}"
        self.answers.append(self.told.text)
        return self.told.text

    def find(self, pattern: str) -> Any:
        """What the pattern's groups stand for in the last answer, all of it without a group."""
        return self.find_all(pattern)[0]

    def find_all(self, pattern: str) -> list[Any]:
        """Every match in the last answer, of which there is at least one."""
        found = re.findall(pattern, self.told.text, re.MULTILINE)
        if not found:
            raise self.stuck(f"{pattern!r} is not in the answer")
        return found

    def sees(self, pattern: str) -> bool:
        """Whether the last answer has the pattern."""
        return re.search(pattern, self.told.text, re.MULTILINE) is not None

    def lines(self, path: str, first: int, last: int) -> str:
        """Lines of a file as they stand there, each with its LF."""
        self.ask("read_file", path=path, line_range=[first, last])
        return "".join(f"{line}\n" for line in self.find_all(r"^ *\d+\t(.*)$"))

    def places(self, pattern: str, path: str = ".") -> list[tuple[str, int]]:
        """Path and line of everything that matches, as the answer says."""
        self.ask("search_files", pattern=pattern, path=path)
        return [(found, int(line)) for found, line in self.find_all(r"^(\S+?):(\d+): ")]

    def replace(self, path: str, old: str, new: str, **more: Any) -> None:
        """Edit a file, which works."""
        self.ask("edit_file", path=path, old_str=old, new_str=new, **more)
        self.find(r"^Edited ")

    def wait_for(self, id: str, pattern: str) -> Any:
        """Ask what a background command printed until the pattern is there; return its groups."""
        said = ""
        while not re.search(pattern, said, re.MULTILINE):
            said += self.ask("bash_output", id=id, wait=30) + "\n"
            if not self.sees(f"{id} runs]$"):
                break
        self.told = Told(said)
        return self.find(pattern)

    def stuck(self, why: str) -> Stuck:
        """The error that names the message from which it cannot go on."""
        return Stuck(f"{why}\n{self._asked}\nis answered by\n{self.told.text[:SHOWN]}")

    def _check_read(self, tool: str, arguments: Mapping[str, Any]) -> None:
        named: list[str] = []
        for name in (*PATHS, *NUMBERS):
            value = arguments.get(name, ())
            named += map(str, value if isinstance(value, list | tuple) else [value])
        for edit in arguments.get("edits", [arguments]):
            named += str(edit.get("old_str", "")).splitlines()
        for one in named:
            if one.strip(". ") not in self._read:
                raise self.stuck(f"{tool} shall take {one!r}, which the model has read nowhere")
