"""Which paths the text of a shell command names as what it writes, deletes or moves.

A redirection's target, and the operands of programs that do nothing else with them. What is read,
a pattern, and what an expansion gives that nobody can know are not names: `cat precious.txt` has
none. It is said of the text alone: whether the command came that far is not known.
"""

import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice

from msgspec import Struct

from loom_audit.model.shell.parse import DEEPEST, parse
from loom_audit.model.shell.words import CLEAN, HOME, REF, SHELLS, Budget, shell_text

_MARK = re.compile(f"[{HOME}-{REF}]")
_PREFIXES: dict[str, tuple[str, int]] = {
    "sudo": ("ugpCDRTUrh", 0),
    "env": ("u", 0),
    "nice": ("n", 0),
    "nohup": ("", 0),
    "setsid": ("", 0),
    "timeout": ("ks", 1),
    "time": ("fo", 0),
    "stdbuf": ("ioe", 0),
    "command": ("", 0),
    "exec": ("a", 0),
}
"""Programs that run another: their options with a value, and how many operands come first."""
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")


class Named(Struct, frozen=True):
    """A path as a command names it, from its directory; with `below`, all that is in it too.

    Where the path is a folder already, the command means the names `into` in that folder.
    """

    path: str
    below: bool = False
    into: tuple[str, ...] = ()


class _Operands(Struct, frozen=True):
    """The words after a program: `options` by their letter or long name, with their values."""

    options: dict[str, str]
    rest: list[str]

    def has(self, *names: str) -> bool:
        return not self.options.keys().isdisjoint(names)

    def value(self, *names: str) -> str:
        return next((self.options[name] for name in names if self.options.get(name)), "")


def named_in(text: str, cwd: str) -> Iterator[Named]:
    """Yield what a shell text names, from its directory `cwd`; each path perhaps more than once."""
    budget = Budget(8 * len(text) + 200_000)
    yield from _in_text(text.translate(CLEAN), cwd, budget, 0)


def named_by(argv: Sequence[str], cwd: str) -> Iterator[Named]:
    """Yield what the words of one command name, which no shell reads before it runs."""
    budget = Budget(200_000)
    yield from _in_words([word.translate(CLEAN) for word in argv], cwd, budget, 0)


def _in_text(text: str, cwd: str, budget: Budget, depth: int) -> Iterator[Named]:
    script = parse(text, budget, cwd=cwd)
    if not script.whole or depth > DEEPEST:
        return
    left_known = not any(command.words[:1] == ["popd"] for command in script.commands)
    for command in script.commands:
        place = command.cwd if left_known and not _MARK.search(command.cwd) else ""
        for target in command.writes:
            yield from _at(place, [Named(target)])
        yield from _in_words(command.words, place, budget, depth)


def _in_words(words: Sequence[str], cwd: str, budget: Budget, depth: int) -> Iterator[Named]:
    name, *rest = unwrapped(words) or [""]
    if name in SHELLS:
        if not _MARK.search(text := shell_text(rest)):
            yield from _in_text(text, cwd, budget, depth + 1)
    elif name in _PROGRAMS:
        values, names = _PROGRAMS[name]
        yield from _at(cwd, names(_sorted_out(rest, values)))


def _at(cwd: str, named: Iterable[Named]) -> Iterator[Named]:
    """Those of them that are certain, from the directory they are named in; "" where unknown."""
    for one in named:
        if not one.path or _MARK.search("".join((one.path, *one.into))):
            continue
        if not one.path.startswith("/") and not cwd:
            continue
        into = tuple(name for name in one.into if name not in ("", ".", ".."))
        yield Named(posixpath.join(cwd, one.path), one.below, into)


def unwrapped(words: Sequence[str]) -> list[str]:
    """Return a command without the programs that only run it; empty for none."""
    left = [*words]
    while left and (found := _PREFIXES.get(posixpath.basename(left[0]))):
        name, (letters, operands) = posixpath.basename(left.pop(0)), found
        while left and left[0][:1] == "-" and len(left[0]) > 1:
            option = left.pop(0)
            if option[1:2] != "-" and option[-1] in letters and left:
                left.pop(0)
        while left and name in ("env", "sudo") and _ASSIGNMENT.match(left[0]):
            left.pop(0)
        del left[:operands]
    return [posixpath.basename(left[0]), *left[1:]] if left else []


def _sorted_out(words: Sequence[str], letters: str) -> _Operands:
    """Options and operands; a short option of one of the `letters` has a value."""
    options: dict[str, str] = {}
    rest: list[str] = []
    left = [*words]
    while left:
        word = left.pop(0)
        if word == "--":
            rest += left
            break
        if word.startswith("--"):
            name, _, value = word[2:].partition("=")
            options[name] = value
        elif word[:1] == "-" and len(word) > 1:
            for at, letter in enumerate(word[1:], 2):
                options[letter] = ""
                if letter in letters:
                    options[letter] = word[at:] or (left.pop(0) if left else "")
                    break
        else:
            rest.append(word)
    return _Operands(options, rest)


# --- what programs do with their operands -------------------------------------------------


def _each(operands: _Operands) -> Iterator[Named]:
    yield from map(Named, operands.rest)


def _removed(operands: _Operands) -> Iterator[Named]:
    below = operands.has("r", "R", "recursive")
    yield from (Named(path, below) for path in operands.rest)


def _without_first(operands: _Operands) -> Iterator[Named]:
    below = operands.has("R", "recursive")
    yield from (
        Named(path, below) for path in operands.rest[0 if operands.has("reference") else 1 :]
    )


def _folders(operands: _Operands) -> Iterator[Named]:
    for path in operands.rest:
        yield Named(path)
        while operands.has("p", "parents") and (path := posixpath.dirname(path)) not in ("", "/"):
            yield Named(path)


def _moved(operands: _Operands) -> Iterator[Named]:
    sources = operands.rest if operands.value("t", "target-directory") else operands.rest[:-1]
    yield from (Named(path, below=True) for path in sources)
    yield from _copied(operands)


def _copied(operands: _Operands) -> Iterator[Named]:
    folder = operands.value("t", "target-directory")
    sources = operands.rest if folder else operands.rest[:-1]
    target = folder or "".join(operands.rest[-1:])
    into = tuple(posixpath.basename(path.rstrip("/")) for path in sources)
    if folder or len(sources) > 1:
        yield from (Named(posixpath.join(target, name), below=True) for name in into if name)
    elif sources:
        yield Named(
            target, below=True, into=() if operands.has("T", "no-target-directory") else into
        )


def _linked(operands: _Operands) -> Iterator[Named]:
    if len(operands.rest) == 1 and not operands.value("t", "target-directory"):
        yield Named(posixpath.basename(operands.rest[0].rstrip("/")))
    else:
        yield from _copied(operands)


def _installed(operands: _Operands) -> Iterator[Named]:
    yield from _folders(operands) if operands.has("d", "directory") else _copied(operands)


def _edited(operands: _Operands) -> Iterator[Named]:
    """The files of `sed -i`; what stands first is its script, unless an option gives it."""
    if not operands.has("i", "in-place"):
        return
    files = operands.rest[0 if operands.has("e", "f", "expression", "file") else 1 :]
    yield from map(Named, files)


def _output(*names: str) -> Callable[[_Operands], Iterator[Named]]:
    """What an option names that says where the output goes."""

    def named(operands: _Operands) -> Iterator[Named]:
        if path := operands.value(*names):
            yield Named(path)

    return named


def _operand(prefix: str) -> Callable[[_Operands], Iterator[Named]]:
    def named(operands: _Operands) -> Iterator[Named]:
        yield from (Named(w[len(prefix) :]) for w in operands.rest if w.startswith(prefix))

    return named


_PROGRAMS: dict[str, tuple[str, Callable[[_Operands], Iterator[Named]]]] = {
    **dict.fromkeys(("rm", "unlink"), ("", _removed)),
    "rmdir": ("", _each),
    "shred": ("ns", _each),
    "touch": ("drt", _each),
    "tee": ("", _each),
    "truncate": ("sr", _each),
    "mkdir": ("m", _folders),
    "mv": ("tS", _moved),
    "cp": ("tS", _copied),
    "ln": ("tS", _linked),
    "install": ("tSmog", _installed),
    **dict.fromkeys(("chmod", "chgrp", "chown"), ("", _without_first)),
    "sed": ("ef", _edited),
    "sort": ("oktST", _output("o", "output")),
    "curl": ("oHdXuAeFbcTxmw", _output("o", "output")),
    "wget": ("OoaPeUt", _output("O", "output-document")),
    **dict.fromkeys(("cc", "c++", "gcc", "g++", "clang", "clang++", "ld"), ("oIlLD", _output("o"))),
    "dd": ("", _operand("of=")),
}
"""By program: its options with a value, and what it names."""


def most(named: Iterable[Named], limit: int) -> list[Named]:
    """Return each of the first `limit` named paths once."""
    return [*dict.fromkeys(islice(named, limit))]
