"""Where programs of ours are looked for: never where an agent could have put its own."""

import os
from pathlib import Path


def path_without(*writable: str | Path | None) -> str:
    """PATH without relative folders and those in, or reached through, what an agent may write.

    A project's own environment is often first on it. The system's folders when nothing is left.
    """
    kept = [
        folder
        for folder in os.environ.get("PATH", os.defpath).split(os.pathsep)
        if os.path.isabs(folder)
        and not any(_through(folder, os.path.realpath(root)) for root in writable if root)
    ]
    return os.pathsep.join(kept) or os.defpath


def _through(folder: str, root: str) -> bool:
    ways = (Path(folder), *Path(folder).parents)
    return any(Path(os.path.realpath(way)).is_relative_to(root) for way in ways)
