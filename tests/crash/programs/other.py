"""Another program at work in the workspace: `python -m tests.crash.programs.other WAY FOLDER STOP`.

It prints what it wrote and what it displaced, one JSON line each, so that nothing it knows of
can get lost unseen.
"""

import json
import os
import random
import sys
import time
from pathlib import Path

from loom_audit.disk.access.system import RENAME_EXCHANGE, renameat2
from loom_audit.model.scope import TEMPORARY


def say(**words: str) -> None:
    sys.stdout.write(json.dumps(words) + "\n")
    sys.stdout.flush()


def trade(one: Path, other: Path) -> None:
    """Two names trade places, in one step."""
    here = os.open(one.parent, os.O_RDONLY)
    there = os.open(other.parent, os.O_RDONLY)
    try:
        renameat2(here, os.fsencode(one.name), there, os.fsencode(other.name), RENAME_EXCHANGE)
    finally:
        os.close(here)
        os.close(there)


def replacing(folder: Path, n: int) -> None:
    """Its version takes the file's place; what was there is looked at, then deleted."""
    mine = folder.parent / "mine"
    text = f"other {n}\nmark\n" * (1 + n % 5)
    mine.write_text(text)
    try:
        trade(mine, folder / "file")
    except FileNotFoundError:
        return
    say(wrote=text, displaced=mine.read_text())
    mine.unlink()


def appending(folder: Path, n: int) -> None:
    """A line at the end of whatever is there now."""
    try:
        file = os.open(folder / "file", os.O_WRONLY | os.O_APPEND)
    except FileNotFoundError:
        return
    try:
        os.write(file, b"appended %d\n" % n)
    finally:
        os.close(file)
    say(line=f"appended {n}")


def swapping(folder: Path, n: int) -> None:
    """A directory and a link that leads outside trade places."""
    trade(folder / "inside", folder / "link")
    say(swapped=str(n))


def editing(folder: Path, n: int) -> None:
    """A person's edit anywhere, in one step; what is displaced or taken away is told."""
    chosen, mine = random.Random(n), folder.parent / "mine"
    text = f"<editing {n}>\n"
    mine.write_text(text)
    files = [path for path in everything_in(folder) if path.is_file() and not path.is_symlink()]
    target = chosen.choice(files or [folder / "none"])
    way = chosen.choice(("make", "take away", "rename", "append", "append", "replace", "replace"))
    try:
        if way == "make":
            target.with_name(f"made-{n}").hardlink_to(mine)
            say(wrote=text)
        elif way == "take away":
            target.rename(mine)
            say(displaced=mine.read_text("latin-1"))
        elif way == "rename":
            target.rename(target.with_name(f"renamed-{n}"))
            say(renamed=str(n))
        else:
            if way == "append":
                mine.write_bytes(target.read_bytes() + mine.read_bytes())
            trade(mine, target)
            say(wrote=text, displaced=mine.read_text("latin-1"))
    except (FileNotFoundError, NotADirectoryError):
        return  # what was listed is gone by now
    finally:
        mine.unlink(missing_ok=True)


def everything_in(folder: Path) -> list[Path]:
    """The paths below a folder in which others are at work, without their temporary files."""
    found = []
    for above, _, names in os.walk(folder):
        found += [Path(above, name) for name in names if not name.startswith(TEMPORARY)]
    return sorted(found)


WAYS = {"replacing": replacing, "appending": appending, "swapping": swapping, "editing": editing}
PAUSES = {"replacing": 0.02, "appending": 0.01, "swapping": 0.002, "editing": 0.04}
"""At most so many seconds between two steps, so that both sides get somewhere.

A file `pace` beside the folder says it otherwise.
"""


def main() -> None:
    way, folder, stop = WAYS[sys.argv[1]], Path(sys.argv[2]), Path(sys.argv[3])
    chosen, pace = random.Random(sys.argv[1]), folder.parent / "pace"
    n = 0
    while not stop.exists():
        n += 1
        way(folder, n)
        pause = float(pace.read_text()) if pace.exists() else PAUSES[sys.argv[1]]
        time.sleep(chosen.random() * pause)


if __name__ == "__main__":
    main()
