"""Texts that nobody has read, downloaded or decoded, and the files that commands put them into."""

import posixpath
import re
from collections.abc import Iterable, Iterator, Sequence

from loom_audit.model.shell.words import ANY, DECODED, FETCHED, HOME, REF, UNKNOWN

FETCHERS = {
    "curl",
    "wget",
    "wget2",
    "aria2c",
    "axel",
    "fetch",
    "http",
    "https",
    "lynx",
    "xh",
    "w3m",
}
MARKS = {"downloads": FETCHED, "decodes": DECODED}
"""What stands in a word for a text that nobody has read, by how it came about."""

_DECODERS = {
    "base64": r"-[a-zA-Z]*[dDu][a-zA-Z]*|--d(e(c(o(de?)?)?)?)?",
    "xxd": r"-[a-z]*r[a-z]*|-revert",
    "uudecode": r".*",
    "openssl": r"-d",
}
_DECODERS |= dict.fromkeys(("gbase64", "base32", "basenc", "base58"), _DECODERS["base64"])
_OUTPUT = {
    "curl": r"-[a-zA-Z]*?o(.*)|--output(?:=(.*))?",
    "wget": r"-[a-zA-Z]*?O(.*)|--output-document(?:=(.*))?",
    "aria2c": r"-[a-zA-Z]*?o(.*)|--out(?:=(.*))?",
    "openssl": r"-out()",
    "uudecode": r"-o(.*)",
}
_OUTPUT |= {"wget2": _OUTPUT["wget"], "xh": _OUTPUT["curl"], "http": _OUTPUT["curl"]}
"""The option by which a program is told where to write; its value may be the next word."""

_BY_NAME = {"wget": r"", "wget2": r"", "aria2c": r"", "curl": r"-[a-zA-Z]*O.*|--remote-name.*"}
"""Programs that name a file after its address, and the option for that where one is needed."""


_REMOTE = {"rsync", "scp"}
COPIERS = {"cp", "gcp", "mv", "gmv", "ln", "gln", "install", "ginstall", *_REMOTE}
"""Programs that write what they are given to the last path, or into it."""
_INTO = r"-[a-zA-Z]*?t(.*)|--target-directory(?:=(.*))?"
_MODULE = re.compile(r"(python|pypy)[0-9.]*")


def unread_in(words: Iterable[str]) -> str:
    """Return how a text in the words came about that nobody has read: a key of `MARKS`, or ""."""
    text = "".join(words)
    return next((how for how, mark in MARKS.items() if mark in text), "")


def how_made(name: str, args: Sequence[str]) -> str:
    """Return how a program makes a text that nobody has read: a key of `MARKS`, or ""."""
    if name in FETCHERS:
        return "downloads"
    if _MODULE.fullmatch(name) and "-m" in args[:-1]:
        at = args.index("-m")
        name, args = args[at + 1], args[at + 2 :]
    form = _DECODERS.get(name)
    if form is None or (name == "openssl" and args[:1] not in (["base64"], ["enc"])):
        return ""
    decodes = name == "uudecode" or any(re.fullmatch(form, word) for word in args)
    return "decodes" if decodes else ""


def outputs_of(name: str, args: Sequence[str]) -> Iterator[str]:
    """Yield the files that a program writes by its own options, as they are named."""
    given = [*_values(_OUTPUT.get(name, r"(?!)"), args)]
    yield from given
    option = _BY_NAME.get(name)
    if given or option is None:
        return
    if not option or any(re.fullmatch(option, word) for word in args):
        for word in args:
            if not word.startswith("-"):
                yield re.split(f"[?{ANY}]", word)[0].rstrip("/").rpartition("/")[2]


def _values(option: str, args: Sequence[str]) -> Iterator[str]:
    """The values of an option, which may be the next word."""
    for at, word in enumerate(args):
        if found := re.fullmatch(option, word, re.DOTALL):
            yield next(filter(None, found.groups()), "") or "".join(args[at + 1 : at + 2])


def copied_to(name: str, args: Sequence[str]) -> Iterator[str]:
    """Yield where a program puts the files it is given, under either name they may have there."""
    operands = [word for word in args if not word.startswith("-")]
    places = target_folders(name, args)
    if not places and name in COPIERS and len(operands) > 1:
        places = [operands.pop()]
    for place in places:
        yield place
        yield from (f"{place}/{word.rpartition('/')[2]}" for word in operands)


def target_folders(name: str, args: Sequence[str]) -> list[str]:
    """Return the directories that options of a program that copies name to copy into."""
    return [*_values(_INTO, args)] if name in COPIERS and name not in _REMOTE else []


def place_of(path: str, cwd: str) -> str:
    """Return a path as it is compared with others; empty for one of which nothing is known."""
    if not path.strip(UNKNOWN + "./"):
        return ""
    # behind a directory that nobody knows is the same one as before it
    known = re.split(f"[{UNKNOWN}{REF}]", cwd)
    cwd = known[-1] if len(known) == 1 else known[-1].strip("/")
    inside = cwd and path[:1] not in ("/", HOME)
    return posixpath.normpath(f"{cwd}/{path}" if inside else path)
