"""What a page that shows changes needs to let a person mark what they have viewed."""

from collections.abc import Mapping

from msgspec import Struct


class Marking(Struct, frozen=True):
    """The parts of the files of a page, those of them that the reader has `viewed`, and the address
    `where` marks are sent, with these `fields`.

    `names` has the names of all parts of a file by its path, `unlined` those that are not lines
    with what they are. The page shows all up to the event `until`; the reader has read up to
    `read`.
    """

    where: str
    fields: tuple[tuple[str, str], ...]
    names: Mapping[str, tuple[str, ...]]
    unlined: Mapping[str, tuple[tuple[str, str], ...]]
    viewed: frozenset[str]
    until: int
    read: int | None = None

    @property
    def count(self) -> int:
        """How many parts there are."""
        return sum(map(len, self.names.values()))

    def has_viewed(self, path: str) -> bool:
        """Whether all parts of a file are viewed."""
        return self.viewed.issuperset(self.names[path])

    def folds(self, path: str) -> bool:
        """Whether a file is folded as a whole: it has several parts, or one without lines, and all
        are viewed. A single run of lines is folded by itself.
        """
        names = self.names.get(path, ())
        alone = len(names) == 1 and path not in self.unlined
        return bool(names) and not alone and self.has_viewed(path)
