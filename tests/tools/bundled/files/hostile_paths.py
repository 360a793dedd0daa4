"""Paths that try to get out, that are malformed, or that only look so: what each must come to.

`{root}`, `{outside}` and `{name}` (the workspace's folder) are filled in. Kinds:

- `out`: leads outside; every tool refuses it with INVALID_PATH
- `none`: no path, or no file; every tool refuses it with a clear code
- `link`: a symlink that leads out or nowhere; refused by what follows it, while deleting and
  moving take the link itself
- `kept`: inside, and not to be changed
- `odd`: inside, however it looks; whatever comes of it happens inside

Those that are short lie in tests/data/hostile_paths.json, `whole` beside the kinds.
"""

import json
from pathlib import Path

ROWS = json.loads(Path(__file__).parents[3].joinpath("data", "hostile_paths.json").read_text())
WHOLE = frozenset(ROWS.pop("whole"))
"""Of `none`, those that name the workspace itself: to be listed and searched, and nothing else."""

LONG = {
    "none": [
        "n" * 256,
        "n" * 300,
        "dir/" + "n" * 300,
        "é" * 150,
        "🙂" * 64,
        "n/" * 2500 + "n",
        "x" * 5000,
        "{root}/" + "n" * 300,
        "{root}/" + "y/" * 2200,
    ],
    "odd": ["n" * 255, "é" * 127, "a/" * 60 + "b", "a" * 200 + "/" + "b" * 200],
}


def corpus() -> list[tuple[str, str]]:
    """Each path with its kind."""
    return [(path, kind) for kind, paths in ROWS.items() for path in [*paths, *LONG.get(kind, [])]]
