"""Changed files as a tree: folders with sums, files with counts, as much of it as a page holds.

A folder that holds one folder and nothing else is one row with it. What does not fit is closed: its
sums stand there, and a link asks for what is in it, by `in` in the address.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeAlias

from msgspec import Struct, field

from loom_audit.errors import InvalidArguments
from loom_audit.model.text.display import visible
from loom_audit.web.shared.budget import Budget, Part, row_weight
from loom_audit.web.shared.urls import Fields, first, quoted

FILES = "files"
"""The name of the tree among the lists of a page."""
NODES = 7
"""Elements of a row."""


class Sums(Struct, frozen=True):
    """Lines that came and went; None where they were not counted."""

    added: int | None = None
    removed: int | None = None


class Leaf(Struct, frozen=True):
    """What is said of a changed file in its row."""

    action: str
    sums: Sums


class Row(Struct, frozen=True):
    """A row of the tree: a file, or a folder with so many changed `paths` in it.

    Its path is `above` and `name` together. Where a folder is `closed`, what is in it is not shown.
    """

    path: str
    above: str
    name: str
    depth: int
    sums: Sums
    action: str = ""
    paths: int = 0
    closed: bool = False


class Folder(Struct):
    """A folder of changed files, with what is in it in order: folders, and paths of files."""

    path: str
    name: str
    children: "list[Folder | str]" = field(default_factory=list)
    paths: int = 0
    depth: int = 0

    @property
    def above(self) -> str:
        """The path of the folder around it, with the slash at its end; "" at the top."""
        return (self.path + "/").removesuffix(self.name)


Child: TypeAlias = Folder | str


class Tree(Struct, frozen=True):
    """The rows of a tree that a page shows, of which `part` are those directly in `inside`."""

    rows: tuple[Row, ...]
    part: Part[Child]
    inside: str = ""

    @property
    def count(self) -> int:
        """How many folders and files there are directly in `inside`."""
        return self.part.count

    @property
    def start(self) -> int:
        """The number of the first of them here."""
        return self.part.start

    @property
    def items(self) -> tuple[Row, ...]:
        """The rows."""
        return self.rows

    @property
    def remaining(self) -> int:
        """How many come after these."""
        return self.part.remaining

    @property
    def fields(self) -> tuple[tuple[str, str], ...]:
        """The query of the address that goes on."""
        return (*self.part.fields, *fields_in(self.inside))


NO_TREE = Tree((), Part(FILES, (), 0, 0))


def fields_in(folder: str) -> tuple[tuple[str, str], ...]:
    """The field of an address that asks for what is in a folder."""
    return (("in.q", quoted(folder, safe="/")),) if folder else ()


def show_tree(
    paths: Iterable[str],
    leaf: Callable[[str], Leaf],
    sums: Callable[[Folder], Sums],
    query: Fields,
    budget: Budget,
    *,
    most: int,
    link: int,
) -> Tree:
    """Show as much of the tree of these paths as fits the budget, from where the query says.

    `leaf` tells of a file that is shown, `sums` of a folder; each row has a link of weight `link`.
    InvalidArguments for a folder that is not among them.
    """
    root, inside = grown(paths), first(query, "in") if budget.wanted == FILES else ""
    top = root if not inside else next((one for one in _folders(root) if one.path == inside), None)
    if top is None:
        raise InvalidArguments(f"no change lies in a folder {visible(inside)}")
    only = root.children[0] if len(root.children) == 1 else None
    if isinstance(only, Folder) and not budget.wanted:
        top, inside = only, only.path

    def weigh(child: Child) -> int:
        return row_weight(NODES, child if isinstance(child, str) else child.path) + link

    begun = budget.remaining
    if inside:
        budget.remaining -= weigh(top)
    part = budget.part(FILES, top.children, lambda one: (one, weigh(one)), most=most)
    space = budget.remaining
    if not budget.wanted:
        space = min(space, most - (begun - space))
    opened = _opened(part.items, weigh, space)
    budget.remaining -= sum(weigh(child) for one in opened.values() for child in one.children)
    rows = [_folder_row(top, sums, closed=False)] if inside and not part.start else []
    rows += _rows(part.items, opened, leaf, sums, top)
    return Tree((*rows,), part, inside)


def grown(paths: Iterable[str]) -> Folder:
    """The tree of these paths, in which every folder but the topmost holds a file or two things."""
    root = Folder("", "")
    known = {"": root}
    for path in paths:
        _folder(path.rpartition("/")[0], known).children.append(path)
    for one in reversed([*_folders(root)]):
        one.paths = sum(1 if isinstance(child, str) else child.paths for child in one.children)
    for one in _folders(root):
        for child in one.children:
            if isinstance(child, Folder):
                _join(child)
                child.depth = one.depth + 1
    return root


def _folder(path: str, known: dict[str, Folder]) -> Folder:
    """The folder of this path among those that are known, which it and those around it join."""
    made: list[Folder] = []
    while path not in known:
        made.append(Folder(path, path.rpartition("/")[2] + "/"))
        path = path.rpartition("/")[0]
    found = known[path]
    for one in reversed(made):
        known[one.path] = one
        found.children.append(one)
        found = one
    return found


def _join(folder: Folder) -> None:
    """Make a folder one with the folders in it, as long as there is nothing beside them."""
    names = [folder.name]
    only = folder.children[0]
    while len(folder.children) == 1 and isinstance(only, Folder):
        names.append(only.name)
        folder.path, folder.children = only.path, only.children
        only = folder.children[0]
    folder.name = "".join(names)


def _folders(root: Folder) -> Iterator[Folder]:
    """A folder and all in it, each before those in it."""
    waiting = [root]
    while waiting:
        one = waiting.pop()
        yield one
        waiting += [child for child in one.children if isinstance(child, Folder)]


def _opened(shown: Sequence[Child], weigh: Callable[[Child], int], space: int) -> dict[str, Folder]:
    """The folders, by path, whose rows fit into the space: the outer ones before the inner ones."""
    opened: dict[str, Folder] = {}
    waiting = deque(child for child in shown if isinstance(child, Folder))
    while waiting:
        folder = waiting.popleft()
        needed = 0
        for child in folder.children:
            needed += weigh(child)
            if needed > space:
                break
        else:
            space -= needed
            opened[folder.path] = folder
            waiting += [child for child in folder.children if isinstance(child, Folder)]
    return opened


def _rows(
    shown: Sequence[Child],
    opened: dict[str, Folder],
    leaf: Callable[[str], Leaf],
    sums: Callable[[Folder], Sums],
    top: Folder,
) -> Iterator[Row]:
    waiting = [(child, top) for child in reversed(shown)]
    while waiting:
        child, around = waiting.pop()
        if isinstance(child, Folder):
            yield _folder_row(child, sums, closed=child.path not in opened)
            if child.path in opened:
                waiting += [(one, child) for one in reversed(child.children)]
            continue
        above = around.path + "/" if around.path else ""
        told = leaf(child)
        name = child.removeprefix(above)
        yield Row(child, above, name, around.depth + 1, told.sums, action=told.action)


def _folder_row(folder: Folder, sums: Callable[[Folder], Sums], *, closed: bool) -> Row:
    return Row(
        path=folder.path,
        above=folder.above,
        name=folder.name,
        depth=folder.depth,
        sums=sums(folder),
        paths=folder.paths,
        closed=closed,
    )
