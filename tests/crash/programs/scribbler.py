"""Writes files as a person's programs do: saves, renames, deletions; `python scribbler.py …`.

The arguments are the folder, a number that draws what is done, and how many things are done.
"""

import os
import random
import shutil
import sys
from pathlib import Path


def scribble(folder: Path, seed: int, count: int) -> None:
    """Do so many things in the folder, which is made."""
    chosen = random.Random(seed)
    folder.mkdir(parents=True, exist_ok=True)
    for n in range(count):
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        doing = chosen.random()
        if doing < 0.5 or not files:
            place = folder / chosen.choice(("", "a", "b", "a/c"))
            place.mkdir(parents=True, exist_ok=True)
            (place / f"f{chosen.randrange(8)}").write_text(
                f"{seed} {n}\n" * chosen.randrange(1, 50)
            )
        elif doing < 0.7:
            made = files[0].with_name(".new")
            made.write_text(f"saved {seed} {n}\n")
            made.replace(chosen.choice(files))
        elif doing < 0.8:
            chosen.choice(files).rename(folder / f"moved{chosen.randrange(4)}")
        elif doing < 0.9:
            chosen.choice(files).unlink()
        elif (folder / "a").is_dir():
            shutil.rmtree(folder / "d", ignore_errors=True)
            os.rename(folder / "a", folder / "d")


if __name__ == "__main__":
    scribble(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
