"""Unified diffs that others made, applied to a text."""

import re

_HUNK = re.compile(r"@@ -(\d{1,12})(?:,(\d{1,12}))? \+(\d{1,12})(?:,(\d{1,12}))? @@")
_LINES = re.compile(r"[^\n]*\n|[^\n]+")


def patched(before: str, diff: str) -> str | None:
    """Return the text that a diff's hunks make of a text; None where the diff is of another one.

    Lines end with a line feed. A head with names is passed over.
    """
    old, new, at = _LINES.findall(before), list[str](), 0
    inside, last = False, ""
    for line in diff.split("\n")[: -1 if diff.endswith("\n") else None]:
        if hunk := _HUNK.match(line):
            start, count = int(hunk[1]), int(hunk[2] or 1)
            place = min(start, len(old)) if count == 0 else start - 1
            if not at <= place <= len(old):
                return None
            new += old[at:place]
            at, inside = place, True
        elif not inside:
            continue
        elif line.startswith("+"):
            new.append(line[1:] + "\n")
        elif line.startswith("\\"):
            if last == "+":
                new[-1] = new[-1].removesuffix("\n")
        elif line[:1] in (" ", "-", ""):
            if at >= len(old) or old[at].removesuffix("\n") != line[1:]:
                return None
            if not line.startswith("-"):
                new.append(old[at])
            at += 1
        else:
            return None
        last = line[:1]
    return "".join(new + old[at:]) if inside else None


def inverted(diff: str) -> str:
    """Return the diff that leads back."""
    swapped = [_swapped(line) for line in diff.split("\n")]
    return "\n".join(swapped)


def _swapped(line: str) -> str:
    if hunk := _HUNK.match(line):
        return f"@@ -{hunk[3]},{hunk[4] or 1} +{hunk[1]},{hunk[2] or 1} @@"
    return {"+": "-", "-": "+"}.get(line[:1], line[:1]) + line[1:]
