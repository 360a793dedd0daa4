"""Words, commands and pipes of a shell text, as `parse` reads them.

A word is a text after quote removal in which Unicode noncharacters stand for what has a meaning
beyond itself: `HOME`, `UNKNOWN` (an expansion nobody can know), active globs and braces, `SPLIT`
where an expansion falls apart, and `REF`, which names the output of a substitution.
"""

import re
from collections.abc import Sequence

from msgspec import Struct, field

HOME, UNKNOWN, FETCHED, DECODED, STAR, ANY, SET, OPEN, COMMA, CLOSE, SPLIT, REF = (
    chr(code) for code in range(0xFDD0, 0xFDDC)
)
GLOBS = {"*": STAR, "?": ANY, "[": SET}
BRACES = {"{": OPEN, ",": COMMA, "}": CLOSE}
LITERAL = str.maketrans(
    {mark: char for char, mark in (GLOBS | BRACES).items()}
    | {HOME: "~", UNKNOWN: "$…", FETCHED: "$(download)", DECODED: "$(decoded)", SPLIT: " "}
)
CLEAN = str.maketrans(dict.fromkeys((chr(code) for code in range(0xFDD0, 0xFDDC)), "\ufffd"))
REFERENCE = re.compile(f"{REF}(q?)([0-9]+){REF}")
"""The output of a substitution by number; one that was quoted stays one word."""
PIPE_FILE = "/dev/fd/"
"""What stands before the output of a process substitution."""
SHELLS = frozenset(("sh", "bash", "dash", "ash", "zsh", "ksh", "mksh"))
"""Shells that read texts as `parse` does."""
ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(\+?)=")

_ANSI_ESCAPE = re.compile(
    r"\\(?:x([0-9A-Fa-f]{1,2})|u([0-9A-Fa-f]{1,4})|([0-7]{1,3})|(.))", re.DOTALL
)
_GROUP = re.compile(f"{OPEN}([^{OPEN}{CLOSE}]*){CLOSE}")
LONGEST_VALUE = 4096
MOST_ALTERNATIVES = 64
_LONGEST_CHAIN = 50


class Budget(Struct):
    """Characters that may still be read, so that texts inside texts cannot grow for ever."""

    remaining: int

    def spend(self, size: int) -> bool:
        """Take `size` characters from the budget; return whether there were so many."""
        self.remaining -= size
        return self.remaining >= 0


class Flow(Struct, eq=False):
    """What goes through a pipe: texts that are known, and how one came about that nobody has read.

    `unread` is `downloads` or `decodes`, empty where neither was done. `link` says that it is a `|`
    between two commands.
    """

    origin: "Flow | None" = None
    into: "Flow | None" = None
    link: bool = False
    unread: str = ""
    texts: list[str] = field(default_factory=list)

    def add(self, unread: str, texts: list[str]) -> None:
        """Note what is written into a pipe, and so into each pipe that it leads to."""
        flow: Flow | None = self
        for _ in range(_LONGEST_CHAIN):
            if flow is None:
                return
            flow.unread = flow.unread or unread
            flow.texts += [text for text in texts[:8] if text not in flow.texts]
            del flow.texts[8:]
            flow = flow.into

    def read(self) -> tuple[str, list[str]]:
        """Return how what a pipe gives came about unread, and the texts known of it, at most 8."""
        unread, texts, flow = "", list[str](), self
        for _ in range(_LONGEST_CHAIN):
            unread = unread or flow.unread
            texts += flow.texts
            if flow.origin is None:
                break
            flow = flow.origin
        return unread, texts[:8]


class Command(Struct, eq=False):
    """One simple command: its words, where it stands, what it reads and where it writes.

    `inner` and `result` are the input and output of the group that closed just before, where the
    command is only that group's redirections.
    """

    input: Flow
    cwd: str
    words: list[str] = field(default_factory=list)
    writes: list[str] = field(default_factory=list)
    reads: list[str] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    outs: list[Flow] = field(default_factory=list)
    output: Flow | None = None
    inner: Flow | None = None
    result: Flow | None = None


class Script(Struct):
    """All commands of a text in the order they are written; `whole` unless the budget ran out."""

    commands: list[Command] = field(default_factory=list)
    flows: list[Flow] = field(default_factory=list)
    env: dict[str, tuple[str, ...]] = field(default_factory=dict)
    whole: bool = True

    def assign(self, text: str) -> None:
        """Take `name=value` for what comes later in the text; other words are ignored."""
        match = ASSIGNMENT.match(text)
        if match is None:
            return
        value = text[match.end() :].replace(SPLIT, " ")
        if match[2]:
            value = self.env.get(match[1], ("",))[0] + value
        self.env[match[1]] = (value if len(value) <= LONGEST_VALUE else UNKNOWN,)

    def value(self, name: str, budget: Budget, *, quoted: bool) -> str:
        """Return what `$name` stands for: a known text, alternatives, or `UNKNOWN`."""
        usual = {"HOME": HOME, "IFS": " ", "@": "", "*": ""}.get(name, UNKNOWN)
        values = self.env.get(name, ("" if name.isdecimal() else usual,))
        text = values[0] if len(values) == 1 else OPEN + COMMA.join(values) + CLOSE
        if len(text) > LONGEST_VALUE or not budget.spend(len(text)):
            return UNKNOWN
        if not quoted or name in "@*":
            text = re.sub(r"[ \t\n]+", SPLIT, text).replace("*", STAR).replace("?", ANY)
        return text


class Frame(Struct, eq=False):
    """What is open: a group, a substitution or the text itself, and the word read just now."""

    kind: str
    stdin: Flow
    stdout: Flow
    command: Command
    arithmetic: bool = False
    word: list[str] | None = None
    plain: bool = True
    inside: list[str | int] = field(default_factory=list)
    redirect: str = ""
    flow: int = -1


def alternatives(word: str) -> list[str]:
    """Return the words that brace and variable expansion make of one, at most 64."""
    done: list[str] = []
    todo = [word] if len(word) <= LONGEST_VALUE else []
    while todo and len(todo) + len(done) < MOST_ALTERNATIVES:
        text = todo.pop()
        group = _GROUP.search(text)
        if group is None:
            done.append(text)
            continue
        before, after = text[: group.start()], text[group.end() :]
        if COMMA in group[1]:
            todo += [before + each + after for each in reversed(group[1].split(COMMA))]
        else:
            todo.append(f"{before}{{{group[1]}}}{after}")
    found = (done + todo[::-1])[:MOST_ALTERNATIVES] or [word]
    spent = sum(map(len, found))
    if spent > 16 * LONGEST_VALUE:
        found = [word]
    return [part for each in found for part in each.split(SPLIT) if part or SPLIT not in each]


def unescaped(text: str) -> str:
    """Return the text between $' and ' as bash reads it."""
    return _ANSI_ESCAPE.sub(_unescaped, text).translate(CLEAN)


def _unescaped(escape: re.Match[str]) -> str:
    if escape[4] is not None:
        return {"n": "\n", "t": "\t", "r": "\r", "e": "\x1b"}.get(escape[4], escape[4])
    return chr(int(escape[1] or escape[2] or escape[3], 8 if escape[3] else 16))


def shell_text(words: Sequence[str]) -> str:
    """Return the text that a shell is given by `-c`, from the words after its name; "" for none."""
    given = False
    left = [*words]
    while left and left[0][:1] in ("-", "+") and len(left[0]) > 1:
        word = left.pop(0)
        if word == "--":
            break
        if word.startswith("--"):
            del left[: word in ("--rcfile", "--init-file")]
            continue
        given |= word[0] == "-" and "c" in word
        del left[: word[-1] in "oO"]
    return left[0] if given and left else ""
