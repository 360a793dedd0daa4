"""Where programs of ours are looked for: never where an agent could have put its own."""

import os
from pathlib import Path


def own_programs(*writable: str | Path | None) -> dict[str, str]:
    """PATH for what runs unconfined, without relative folders and those an agent may write.

    Nor those reached through one. A project's own environment is often first on PATH. The
    system's folders when nothing is left.
    """
    kept = [
        folder
        for folder in os.environ.get("PATH", os.defpath).split(os.pathsep)
        if os.path.isabs(folder)
        and not any(_through(folder, os.path.realpath(root)) for root in writable if root)
    ]
    return {"PATH": os.pathsep.join(kept) or os.defpath}


def _through(folder: str, root: str) -> bool:
    ways = (Path(folder), *Path(folder).parents)
    return any(Path(os.path.realpath(way)).is_relative_to(root) for way in ways)
