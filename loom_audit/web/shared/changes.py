"""Many changed files on one page: a tree with sums first, then differences, both in parts.

It is the same for a call, for a plan and for two points. `diff` in the address asks for one file,
`line` for its rows from there on.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from loom_audit.api.review.later_changes import ChangedAgain
from loom_audit.errors import InvalidArguments
from loom_audit.model.files import FileChange, Move
from loom_audit.model.records import RecordedChange
from loom_audit.model.text.display import visible
from loom_audit.web.shared.budget import Budget, Part
from loom_audit.web.shared.dependencies import is_number, number
from loom_audit.web.shared.diffs import (
    AUTO,
    CONTEXT,
    WIDER,
    Around,
    Content,
    FileView,
    joined,
    view_change,
)
from loom_audit.web.shared.marking import Marking
from loom_audit.web.shared.pages import Pages, wants_fragment
from loom_audit.web.shared.tree import FILES, NO_TREE, Folder, Leaf, Sums, Tree, show_tree
from loom_audit.web.shared.urls import Fields, first

LISTS = (FILES, "diffs")
FEW = 3
"""The number of files up to which a page shows no tree of them."""
INDEX = 8_000
"""What the tree may weigh beside the differences."""
SUMMED = 100
"""The number of files over which folders have no sums, each of which takes a comparison."""
LONG = 3
"""The number of bytes of a link that weigh 1: a link is about the same in each row."""
MOST_OPENED = 40
"""The number of gaps of a file that an address can open."""
PAGE_SOURCE = 1024 * 1024
"""The number of bytes of files that are compared for one answer."""


class Changes(Struct, frozen=True):
    """What a page shows of changes of `count` paths; `alone` is the one file that was asked for.

    `folded` counts the rows that others tell: folders of which a path is listed, and where a move
    came from. Files can be downloaded as of the points `old` and `new`, where there are such.
    `unrecorded` changes are on disk only, and can be taken back or put on record. `calls` are the
    numbers of the calls that changed a file, where the page is about several; `later` has the first
    and last change of a file after what is shown, `again` gives those of its parts that were
    changed again; `marking` is there where the reader can mark what was viewed. With `ticking`
    files are ticked to be undone together. `around` says what stands around changes.
    """

    base: str
    count: int
    files: Tree
    diffs: Part[FileView]
    alone: FileView | None = None
    old: int | str | None = None
    new: int | str | None = None
    unrecorded: bool = False
    folded: int = 0
    calls: Mapping[str, tuple[int, ...]] = {}
    later: Mapping[str, tuple[RecordedChange, RecordedChange]] = {}
    again: Callable[[str], Mapping[str, ChangedAgain]] | None = None
    ticking: bool = False
    marking: Marking | None = None
    around: Around = Around()


def show_changes(
    changes: Sequence[FileChange],
    content: Content,
    query: Fields,
    budget: Budget,
    base: str,
    *,
    moves: Iterable[Move] = (),
    old: int | str | None = None,
    new: int | str | None = None,
) -> Changes:
    """Show as many of the changes as fit the budget, from where the query says.

    InvalidArguments for a path that is not among them.
    """
    shown = joined(changes, moves)
    if path := first(query, "diff"):
        found = next((pair for pair in shown if pair[0].path == path), None)
        if found is None:
            raise InvalidArguments(f"{visible(path)} is not among these changes")
        around = around_of(query)
        view = view_change(
            found[0],
            content,
            source=found[1],
            start=number(query, "line") or 0,
            space=budget.remaining,
            whole=False,
            around=around,
        )
        diffs = Part[FileView]("diffs", (), 0, len(shown))
        return Changes(base, len(changes), NO_TREE, diffs, view, old=old, new=new, around=around)
    views = _Views(content, shown, budget.remaining, len(base) // LONG)
    files = NO_TREE
    if len(shown) > FEW and budget.wanted in ("", FILES):
        paths = (change.path for change, _ in shown)
        files = show_tree(paths, views.leaf, views.sums, query, budget, most=INDEX, link=views.link)
    diffs = budget.part("diffs", shown, views.in_full)
    folded = len(changes) - len(shown)
    return Changes(base, len(changes), files, diffs, old=old, new=new, folded=folded)


def around_of(query: Fields) -> Around:
    """Which lines an address asks for around each change of a file."""
    lines = min(number(query, "context") or CONTEXT, WIDER[-1])
    opened = query.get("open", ())[:MOST_OPENED]
    return Around(lines, frozenset(int(one) for one in opened if is_number(one)))


def fragment_of(
    request: Request, pages: Pages, changes: Changes, budget: Budget
) -> Response | None:
    """The part of the changes that htmx asks for; None when it asks for something else."""
    if not wants_fragment(request):
        return None
    if changes.alone and changes.alone.start:
        return pages.fragment(request, "_lines.html", "lines", changes=changes)
    block = "file" if changes.alone else budget.wanted
    if block not in ("file", *LISTS):
        return None
    return pages.fragment(request, "_changes.html", block, changes=changes)


class _Views:
    """The views of the files of one answer, each made once, within PAGE_SOURCE bytes."""

    def __init__(
        self,
        content: Content,
        shown: Sequence[tuple[FileChange, str | None]],
        space: int,
        link: int,
    ) -> None:
        count = len(shown)
        self.link = link
        self._content = content
        self._shown = {pair[0].path: pair for pair in shown}
        self._only = count == 1
        self._space = min(AUTO, space - INDEX if count > FEW else space) if count > 1 else space
        self._to_compare = PAGE_SOURCE
        self._made: dict[str, FileView] = {}

    def leaf(self, path: str) -> Leaf:
        """What the tree says of a file."""
        view = self._view(path)
        return Leaf(view.action, Sums(view.added, view.removed))

    def sums(self, folder: Folder) -> Sums:
        """The lines of all files in a folder, where all of them are compared."""
        if len(self._shown) > SUMMED:
            return Sums()
        inside = [self._view(path) for path in self._shown if path.startswith(folder.path + "/")]
        counts = [(view.added, view.removed) for view in inside if view.body != "none"]
        added, removed = [one for one, _ in counts], [one for _, one in counts]
        if None in added or None in removed:
            return Sums()
        return Sums(sum(one or 0 for one in added), sum(one or 0 for one in removed))

    def in_full(self, pair: tuple[FileChange, str | None]) -> tuple[FileView, int]:
        """A file with its lines, and what it weighs."""
        view = self._view(pair[0].path)
        return view, view.weight + 2 * self.link

    def _view(self, path: str) -> FileView:
        change, source = self._shown[path]
        if change.path not in self._made:
            made = view_change(
                change,
                self._content,
                source=source,
                space=self._space,
                whole=not self._only,
                compare=self._to_compare > 0,
            )
            if made.added is not None:
                self._to_compare -= sum(
                    state.size for state in (change.before, change.after) if state
                )
            self._made[change.path] = made
        return self._made[change.path]
