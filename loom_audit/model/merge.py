"""Three-way merge of texts, by lines of bytes."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Merged:
    """A merged content; with `conflicts` above 0 it holds that many pairs of markers."""

    content: bytes
    conflicts: int


def merge3(
    base: bytes | None,
    ours: bytes,
    theirs: bytes,
    *,
    labels: tuple[str, str] = ("current", "taken back"),
) -> Merged | None:
    """Both sides' changes to the base in one text, or None where they cannot be merged as text.

    Binary or large content is merged only where it is trivial (a side equals the base or the
    other side).
    """
    raise NotImplementedError
