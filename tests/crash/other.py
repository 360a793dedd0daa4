"""Another program at work in the workspace: `python -m tests.crash.other WAY FOLDER STOP`.

It prints what it wrote and what it displaced, one JSON line each, so that nothing it knows of
can get lost unseen.
"""

import json
import os
import random
import sys
import time
from pathlib import Path

from loom_audit.disk.system import RENAME_EXCHANGE, renameat2


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


WAYS = {"replacing": replacing, "appending": appending, "swapping": swapping}
PAUSES = {"replacing": 0.02, "appending": 0.01, "swapping": 0.002}
"""At most so many seconds between two steps, so that both sides get somewhere."""


def main() -> None:
    way, folder, stop = WAYS[sys.argv[1]], Path(sys.argv[2]), Path(sys.argv[3])
    chosen = random.Random(sys.argv[1])
    n = 0
    while not stop.exists():
        n += 1
        way(folder, n)
        time.sleep(chosen.random() * PAUSES[sys.argv[1]])


if __name__ == "__main__":
    main()
