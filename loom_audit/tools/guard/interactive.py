"""Commands that wait for a person at a terminal, where there is neither.

Told are plain spellings, so that no call waits for its timeout or ends without a word. What is
given something to read, or options by which it needs no person, is let through.
"""

import re
from collections.abc import Sequence
from posixpath import basename

from loom_audit.errors import InvalidArguments
from loom_audit.model.shell.parse import parse
from loom_audit.model.shell.words import CLEAN, Budget, Command, Flow

_EDITORS = frozenset(
    {"vi", "vim", "vimdiff", "view", "nvim", "nano", "pico", "emacs", "micro", "joe"}
)
_MOST_GROUPS = 50
_SCREENS = {
    "htop": "`ps aux` lists processes once.",
    "btop": "`ps aux` lists processes once.",
    "top": "`top -bn1` prints once, and so does `ps aux`.",
    "watch": "Run the command itself.",
    "tig": "`git log` prints the same.",
    "lazygit": "Use git's own commands.",
    "mc": "Use `ls`, `cp` and `mv`.",
}
_LANGUAGES = re.compile(r"(?:python|pypy|ipython|lua)[0-9.]*|node|irb|ghci|php|julia|R|bpython")
_CHOOSING = {
    "rebase": ("-i", "--interactive"),
    "add": ("-i", "--interactive", "-p", "--patch", "-e", "--edit"),
    **dict.fromkeys(("commit", "checkout", "restore", "reset", "stash"), ("-p", "--patch")),
}
"""Options with which a command of git asks a person what it shall do."""


def check_terminal(command: str) -> None:
    """Raise InvalidArguments for a command that would wait for a person at a terminal."""
    text = command.translate(CLEAN)
    for one in parse(text, Budget(8 * len(text) + 200_000)).commands:
        name, *words = one.words or [""]
        name = basename(name)
        if hint := _hint(name, words, reads=_is_given(one), chosen="EDITOR=" in text):
            shown = f"git {words[0]} {words[1]}" if name == "git" else name
            raise InvalidArguments(
                f"{shown:.100} waits for a person at a terminal, and a command has none", hint=hint
            )


def _hint(name: str, words: Sequence[str], *, reads: bool, chosen: bool) -> str:
    """What to do in place of a command that waits; empty for any other.

    `reads` says whether it is given something to read, `chosen` whether an editor of its own.
    """
    options = [word for word in words if word[:1] in ("-", "+")]
    if name in _EDITORS:
        return "" if options or reads else "edit_file and write_file change files."
    if name in _SCREENS:
        once = name != "watch" and options
        return "" if once or options[:1] in (["--help"], ["--version"]) else _SCREENS[name]
    if _LANGUAGES.fullmatch(name):
        return "" if words or reads else f"Give it a program: a file, or `{name} -c` or `-e`."
    if name == "git" and len(words) > 1 and words[1] in _CHOOSING.get(words[0], ()):
        return "" if reads or chosen else "Name what is meant: paths for `git add`, commits by id."
    return ""


def _is_given(command: Command) -> bool:
    if command.reads or command.texts:
        return True
    flow: Flow | None = command.input
    for _ in range(_MOST_GROUPS):
        if flow is None or flow.link or flow.unread or flow.texts:
            return flow is not None
        flow = flow.origin
    return True
