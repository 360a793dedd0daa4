"""What `search_files` runs as a process of its own: standard library only, reads and prints.

Reads a request as JSON from standard input, searches beneath its working directory without
ever following a symlink, and prints one line of JSON for each match and one at its end.
"""

import json
import os
import re
import stat
import sys
from collections.abc import Callable, Iterator
from io import BytesIO
from typing import Any

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC


def main() -> None:
    """Answer one request. A pattern that is none is answered with `invalid`."""
    request = json.load(sys.stdin)
    try:
        pattern = re.compile(request["pattern"])
    except (re.error, OverflowError, RecursionError) as error:
        say({"invalid": str(error)})
        return
    wanted = matcher(request["glob"])
    matches = files = skipped = 0
    truncated = False
    for path, descriptor in walk(request["path"], frozenset(request["skip"]), wanted):
        with os.fdopen(descriptor, "rb") as stream:
            try:
                raw = stream.read(request["max_file"] + 1)
            except OSError:
                raw = b"\0"
        if len(raw) > request["max_file"] or b"\0" in raw[:8192]:
            skipped += 1
            continue
        files += 1
        before = matches
        for number, line in enumerate(BytesIO(raw), 1):
            text = line.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8", "replace")
            if pattern.search(text):
                if matches == request["max_matches"]:
                    truncated = True
                    break
                matches += 1
                say({"path": path, "line": number, "text": text[: request["max_text"]]})
        if matches > before:
            sys.stdout.flush()
        if truncated:
            break
    say({"files": files, "skipped": skipped, "truncated": truncated})


def say(item: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(item) + "\n")


def walk(
    path: str, skip: frozenset[str], wanted: Callable[[str], bool]
) -> Iterator[tuple[str, int]]:
    """Paths and descriptors of the regular files at or below the path, in order of names."""
    names = [name for name in path.split("/") if name]
    current = os.open(".", _DIRECTORY)
    for name in names[:-1]:
        current = step(current, name)
    if names:
        descriptor = regular(names[-1], current)
        if descriptor is not None:
            yield path, descriptor
            return
        current = step(current, names[-1])
    yield from below(current, path + "/" if names else "", skip, wanted)


def below(
    directory: int, prefix: str, skip: frozenset[str], wanted: Callable[[str], bool]
) -> Iterator[tuple[str, int]]:
    try:
        with os.scandir(directory) as listing:
            entries = sorted(listing, key=lambda entry: os.fsencode(entry.name))
        for entry in entries:
            path = prefix + entry.name
            if entry.is_dir(follow_symlinks=False):
                if entry.name not in skip:
                    try:
                        inner = os.open(entry.name, _DIRECTORY, dir_fd=directory)
                    except OSError:
                        continue  # unreadable, or no directory any more
                    yield from below(inner, path + "/", skip, wanted)
            elif entry.is_file(follow_symlinks=False) and wanted(path):
                descriptor = regular(entry.name, directory)
                if descriptor is not None:
                    yield path, descriptor
    finally:
        os.close(directory)


def step(directory: int, name: str) -> int:
    try:
        return os.open(name, _DIRECTORY, dir_fd=directory)
    finally:
        os.close(directory)


def regular(name: str, directory: int) -> int | None:
    """A descriptor of a regular file, None when it is anything else or cannot be read."""
    try:
        descriptor = os.open(name, _FILE, dir_fd=directory)
    except OSError:
        return None
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    return None


def matcher(glob: str | None) -> Callable[[str], bool]:
    """Whether a path fits: by its name when the glob has no slash, else as a whole."""
    if glob is None:
        return lambda path: True
    whole = "/" in glob
    rule = re.compile("|".join(translated(g.removeprefix("./")) for g in braces(glob)))
    return lambda path: rule.fullmatch(path if whole else path.rsplit("/", 1)[-1]) is not None


def braces(glob: str) -> list[str]:
    """`*.{js,ts}` as `*.js` and `*.ts`."""
    found = re.search(r"\{([^{}]*,[^{}]*)\}", glob)
    if not found:
        return [glob]
    before, after = glob[: found.start()], glob[found.end() :]
    return [one for part in found[1].split(",") for one in braces(before + part + after)][:1000]


def translated(glob: str) -> str:
    """The glob as a regular expression: `**/` any directories, `**` anything, `*` within a name."""
    parts = re.split(r"(\*\*/|\*\*|\*|\?|\[[^\]]+\])", glob)
    rules = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    out = []
    for part in parts:
        if part in rules:
            out.append(rules[part])
        elif part.startswith("[") and part.endswith("]") and len(part) > 2:
            inner = part[1:-1].replace("\\", "\\\\")
            out.append("[^" + inner[1:] + "]" if inner[0] in "!^" else "[" + inner + "]")
        else:
            out.append(re.escape(part))
    return "(?s:" + "".join(out) + ")"


if __name__ == "__main__":
    main()
