"""Whether somebody watches a workspace, in words."""

import sys


def watched_text(*, watched: bool | None) -> str:
    """Return how what changes from outside comes on record, and how it would at once.

    None: it cannot be seen.
    """
    if watched is None:
        return "whether somebody watches cannot be seen: the locks cannot be read"
    if watched:
        return "watched: what changes from outside is recorded as it happens"
    found = "nobody watches: what changes from outside is found before the next call"
    if not sys.platform.startswith("linux"):
        return found  # `watch` is refused there
    return f"{found}; `loom-audit watch` records it as it happens"
