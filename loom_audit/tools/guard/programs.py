"""What the command blocklist refuses of one program and its arguments (see `rules`)."""

import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from itertools import dropwhile, takewhile

from loom_audit.model.shell.words import ANY, HOME, LITERAL, SET, STAR
from loom_audit.tools.guard.unread import COPIERS, outputs_of, target_folders

_SYSTEM = frozenset(
    {
        "bin",
        "boot",
        "dev",
        "etc",
        "home",
        "lib",
        "lib32",
        "lib64",
        "libx32",
        "media",
        "mnt",
        "opt",
        "proc",
        "root",
        "run",
        "sbin",
        "srv",
        "sys",
        "usr",
        "var",
        "Applications",
        "Library",
        "System",
        "Users",
        "Volumes",
        "private",
    }
)
_SYSTEM_PAIRS = {
    ("usr", "bin"),
    ("usr", "include"),
    ("usr", "lib"),
    ("usr", "lib64"),
    ("usr", "libexec"),
    ("usr", "local"),
    ("usr", "sbin"),
    ("usr", "share"),
    ("var", "lib"),
    ("System", "Library"),
    ("private", "etc"),
    ("private", "var"),
}
_NARROWING = {"-name", "-iname", "-path", "-ipath", "-wholename", "-regex"}
_BEFORE_STARTS = re.compile(r"-[HLP]|-O\d*")
_DEVICES = re.compile(r"/dev/(null|stdout|stderr|tty|fd/.*)", re.DOTALL)
REMOVERS = {"rm", "grm", "srm"}
MAKERS = {"mkfs", "mke2fs", "mkdosfs", "mkntfs", "newfs"}
_EDITORS: dict[str, tuple[str, str]] = {
    **dict.fromkeys(("tee", "shred", "wipefs", "sponge"), ("", "")),
    **dict.fromkeys(("touch", "gtouch"), ("", r"-[a-z]*[rdt]|--reference|--date")),
    **dict.fromkeys(("truncate", "gtruncate"), ("", r"-[a-z]*[rs]|--reference|--size")),
    **dict.fromkeys(
        ("sed", "gsed", "perl", "ruby"),
        (r"-[a-zA-Z]*i.*|--in-place.*", r"-[a-zA-Z]*[ef]|--expression|--file"),
    ),
}
"""Programs that write every file they name: the option without which they only read, and the
options whose value is the next word."""
_ALL_MODES = re.compile(r"0*[0-7]?[0-7]{2}[267]|(.*,)?([ugo]*[ao][ugoa]*)?[+=][rxXst]*w.*")


def destroys(name: str, args: list[str], cwd: str) -> str | None:
    """Return what a program destroys with these arguments from the directory `cwd`, or None."""
    if name in REMOVERS:
        return _removes(args, cwd)
    if name.split(".")[0] in MAKERS and not {*args} <= {"--help", "-V", "--version", "-h"}:
        return "makes a file system"
    if name == "dd" and any(word.startswith("if=") for word in args):
        return "copies with dd if="
    if any(is_device(word, cwd) for word in _written(name, args)):
        return "writes to a device"
    if name in ("chmod", "gchmod"):
        return _opens(args, cwd)
    return None


def _written(name: str, args: list[str]) -> Iterator[str]:
    """The paths that a program writes; of a directory it writes into, also what is in there."""
    yield from outputs_of(name, args)
    if name == "dd":
        yield from (word[3:] for word in args if word.startswith("of="))
    places = target_folders(name, args)
    if name in COPIERS:
        places += _sorted_out(args)[1][-1:]
    for place in places:
        yield from (place, f"{place}/{ANY}")
    if name in _EDITORS:
        option, valued = _EDITORS[name]
        edits = not option or any(re.fullmatch(option, word) for word in args)
        named = [valued and re.fullmatch(valued, word) for word in ("", *args)]
        paths = [
            word
            for word, before in zip(args, named, strict=False)
            if word[:1] != "-" and not before
        ]
        # the first is the program where no option gives one
        yield from paths[bool(option) and not any(named) :] if edits else ()


def _sorted_out(args: list[str]) -> tuple[list[str], list[str]]:
    """Options and operands, wherever they stand, up to `--`."""
    end = args.index("--") if "--" in args else len(args)
    options = [word for word in args[:end] if word[:1] == "-" and len(word) > 1]
    operands = [word for word in args[:end] if word[:1] != "-" or len(word) == 1]
    return options, operands + args[end + 1 :]


def _removes(args: list[str], cwd: str) -> str | None:
    options, operands = _sorted_out(args)
    if any(len(word) > 4 and "--no-preserve-root".startswith(word) for word in options):
        return "removes without preserving the root"
    recursive = _is_recursive(options)
    for word in operands:
        if _protected(word, cwd) and (recursive or STAR in word or ANY in word or SET in word):
            return f"removes {shown([word])}"
    return None


def _opens(args: list[str], cwd: str) -> str | None:
    options, operands = _sorted_out(args)
    mode, places = operands[:1], operands[1:]
    if mode and _is_recursive(options):
        for word in places:
            place = _protected(word, cwd)
            if place == "/" or (place and _ALL_MODES.fullmatch(mode[0])):
                return f"changes the mode of everything in {shown([word])}"
    return None


def _is_recursive(options: list[str]) -> bool:
    return any(
        (len(word) > 3 and "--recursive".startswith(word))
        or (word[:2] != "--" and ("r" in word or "R" in word))
        for word in options
    )


def find_start(args: list[str], cwd: str) -> str:
    """Return where `find` begins when that place is protected and no test narrows it, else ""."""
    behind = dropwhile(_BEFORE_STARTS.fullmatch, args)
    starts = [*takewhile(lambda word: word[:1] not in ("-", "(", "!"), behind)]
    for place, word in enumerate(args[:-1]):
        pattern = args[place + 1].strip("*.?/" + STAR + ANY)
        negated = place > 0 and args[place - 1] in ("!", "-not")
        if word in _NARROWING and pattern and not negated:
            return ""
    return next((start for start in starts or ["."] if _protected(start, cwd)), "")


def is_device(path: str, cwd: str) -> bool:
    """Return whether a path is below /dev, and none of null, tty, stdout, stderr and fd/*."""
    names = _names_from(path, cwd)
    while names[1:2] == ["proc"] and names[3:4] == ["root"]:
        names[1:4] = []
    return names[:2] == ["", "dev"] and len(names) > 2 and not _DEVICES.fullmatch("/".join(names))


def _names_from(path: str, cwd: str) -> list[str]:
    """As `_names_in`, of a path that may be relative to a directory; empty for an empty one."""
    return _names_in(path if path[:1] in ("/", HOME) or not (cwd and path) else f"{cwd}/{path}")


def _names_in(path: str) -> list[str]:
    """An absolute path (or one below `HOME`) without `//`, `/./` and `/../`; else empty."""
    head, _, rest = path.partition("/")
    if head not in ("", HOME) or not path:
        return []
    names = [head]
    for part in rest.split("/"):
        if part == "..":
            # above a home lies the folder of all homes, above the root the root
            names = names[:-1] if len(names) > 1 else ["", "home"] if head else [""]
        elif part not in ("", "."):
            names.append(part)
    return names


def _protected(path: str, cwd: str) -> str:
    """Which protected place the path names or holds everything of: `/`, a directory or `~`."""
    names = _names_from(path, cwd)
    if not names:
        return ""
    while len(names) > 1 and _is_everything(names[-1]):
        names.pop()
    if len(names) == 1:
        return "~" if names[0] == HOME else "/"
    if names[0] == HOME:
        return ""
    pattern = names[1].translate(LITERAL)[:100]
    if len(names) == 2 and any(name == pattern or _matches(name, names[1]) for name in _SYSTEM):
        return "/" + pattern
    if len(names) == 3 and (names[1] in ("home", "Users") or tuple(names[1:]) in _SYSTEM_PAIRS):
        return "/".join(names)
    return ""


def _matches(name: str, word: str) -> bool:
    globs = any(mark in word for mark in (STAR, ANY, SET))
    return globs and len(word) < 40 and fnmatchcase(name, word.translate(LITERAL))


def _is_everything(part: str) -> bool:
    left = re.sub(f"{SET}[^]]*\\]", ANY, part)
    return (STAR in left or ANY in left) and not left.strip("." + STAR + ANY)


def shown(words: list[str]) -> str:
    """Return words as one short line that a message can show."""
    text = " ".join(words[:40])[:200].translate(LITERAL)
    text = "".join(char if char.isprintable() else "?" for char in text)
    return text if len(text) <= 120 else text[:119] + "…"
