"""A session's own net change, ready to show: files with sums, and rows that name their calls."""

from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial

from fastapi import Request
from msgspec.structs import replace

from loom_audit.api.face import AuditedWorkspace
from loom_audit.api.lines import CallSet, Lines, NetChange, NetFile, NetHunk, Writer, lines_of
from loom_audit.api.review.later_changes import ChangedAgain, LaterChanges
from loom_audit.api.review.sessions import Reviews, SessionReview
from loom_audit.errors import InvalidArguments
from loom_audit.model.files import FileChange
from loom_audit.model.text.display import count_text, first_few, visible
from loom_audit.model.text.textdiff import Line, word_spans
from loom_audit.web.review.scope import Scope
from loom_audit.web.shared.budget import Budget, Part, weight
from loom_audit.web.shared.changes import FEW, INDEX, LONG, Changes, around_of
from loom_audit.web.shared.dependencies import number
from loom_audit.web.shared.diffs import (
    AUTO,
    CONTEXT,
    LINE,
    Around,
    Content,
    FileView,
    Row,
    gap_before,
    notes_of,
    row_of,
    rows_on_page,
    said_by_others,
    view_change,
)
from loom_audit.web.shared.marking import Marking
from loom_audit.web.shared.spacing import Said, spacing_of
from loom_audit.web.shared.tree import FILES, NO_TREE, Folder, Leaf, Sums, show_tree
from loom_audit.web.shared.urls import Fields, first

SHOWN_WRITERS = 4
SHOWN_LATER = 3
"""The number of those who changed a part again that are named."""
MOST_PAIRS = 200
"""The number of pairs of lines of a run that are compared word by word."""

FIRST_LINES, FIRST_FILE_LINES = 1_500, 400
"""Lines of hunks of all files, and of one, that are asked for with a first view."""

ALL_LINES = 500_000
"""Lines of the hunks of a file that is looked at alone."""

PROPERTIES = {"mode": "permission bits changed", "kind": "made", "path": "moved"}
"""What became of a property of a file, in words."""

MARKED = 4
"""Elements of a file by which its parts are marked, besides those of its rows."""


def reviews_of(request: Request) -> Reviews:
    """The sessions that this dashboard has gathered."""
    reviewed: Reviews = request.app.state.reviews
    return reviewed


def net_with_lines(lines: Lines, calls: CallSet, path: str, context: int = CONTEXT) -> NetChange:
    """The own net change of some calls, with the lines of the first files, or of the file at a path
    with so much context. NotFound, Corrupt.
    """
    if path:
        return lines.net(
            calls,
            paths=[path],
            context=context,
            max_lines=ALL_LINES,
            max_file_lines=ALL_LINES,
        )
    return lines.net(calls, max_lines=FIRST_LINES, max_file_lines=FIRST_FILE_LINES, by_sums=True)


def net_of(
    reviews: Reviews,
    workspace: AuditedWorkspace,
    reviewed: SessionReview,
    scope: Scope,
    path: str,
    until: int | None = None,
    context: int = CONTEXT,
) -> NetChange:
    """The own net change of a session with those within it, or of a part of it, up to an event.

    With the lines of the first files, or of the file at a path, with so much context.
    """
    end = reviewed.until if until is None else min(until, reviewed.until)

    def gather() -> NetChange:
        lines = lines_of(workspace)
        id, turn = reviewed.session.id, scope.turn
        if turn is not None:
            last = min(turn.until, end)
            calls = lines.between(min(turn.seq, last), last, session=id)
        elif scope.since is not None:
            sessions = frozenset(one.id for one in (reviewed.session, *reviewed.subagents))
            calls = CallSet(min(scope.since, end), end, sessions=sessions)
        else:
            calls = lines.of_session(id, until=end)
        return net_with_lines(lines, calls, path, context)

    name = "net", reviewed.session.id, scope.fields, end, path, path and context
    return reviews.once(workspace, name, gather)


def later_changes(reviews: Reviews, workspace: AuditedWorkspace, net: NetChange) -> LaterChanges:
    """What changed the files of a net change since its end."""
    name = "later", net.calls
    return reviews.once(workspace, name, lambda: LaterChanges(workspace, net))


def show_net(
    net: NetChange,
    content: Content,
    query: Fields,
    budget: Budget,
    base: str,
    later: LaterChanges | None = None,
    marking: Marking | None = None,
) -> Changes:
    """Show as much of a net change as fits the budget, from where the query says; `later` has what
    changed its files since, and their parts, `marking` what the reader can mark of it.

    InvalidArguments for a path that is not in it.
    """
    about = partial(Changes, base, len(net.files), old=net.calls.after, new=net.calls.until)
    about = partial(about, calls={file.path: file.calls for file in net.files}, marking=marking)
    if later is not None:
        by_path = {file.path: file for file in net.files}
        about = partial(about, later=later, again=lambda path: later.of(by_path[path]))
    show = partial(view_net, viewed=marking.viewed if marking else frozenset())
    show = partial(show, again=later.of if later is not None else None)
    if path := first(query, "diff"):
        found = next((file for file in net.files if file.path == path), None)
        if found is None:
            raise InvalidArguments(f"{visible(path)} is not among these changes")
        start = number(query, "line") or 0
        around = around_of(query)
        view = show(found, content, start=start, space=budget.remaining, whole=False, around=around)
        diffs = Part[FileView]("diffs", (), 0, len(net.files))
        return about(files=NO_TREE, diffs=diffs, alone=view, around=around)
    said = said_by_others([change_of(file) for file in net.files])
    listed = [file for file in net.files if file.path not in said]
    count, link = len(listed), len(base) // LONG
    space = min(AUTO, budget.remaining - INDEX if count > FEW else budget.remaining)

    def in_full(file: NetFile) -> tuple[FileView, int]:
        view = show(file, content, space=space if count > 1 else budget.remaining, whole=count > 1)
        return view, view.weight + 2 * link + weight(8 + MARKED + len(file.calls[:6]))

    files = NO_TREE
    if count > FEW and budget.wanted in ("", FILES):
        leaves = {file.path: file for file in listed}
        told = {one.path: Sums(one.added, one.removed) for one in net.folders}

        def leaf(path: str) -> Leaf:
            return Leaf(action_of(leaves[path]), Sums(*sums_of(leaves[path])))

        def sums(folder: Folder) -> Sums:
            return told[folder.path]

        files = show_tree(leaves, leaf, sums, query, budget, most=INDEX, link=link)
    diffs = budget.part("diffs", listed, in_full)
    return about(files=files, diffs=diffs, folded=len(said))


def view_net(
    file: NetFile,
    content: Content,
    *,
    start: int = 0,
    space: int = AUTO,
    whole: bool = True,
    viewed: Collection[str] = (),
    again: Callable[[NetFile], Mapping[str, ChangedAgain]] | None = None,
    around: Around = Around(),
) -> FileView:
    """View one file of a net change, with the rows from `start` on that weigh no more than `space`.

    `whole`: all of them, or none. `viewed` are the names of the parts that are folded, and `again`
    gives those that were changed again.
    """
    change, source = change_of(file), source_of(file)
    said, of_file = spacing_of([hunk.lines for hunk in file.hunks])
    notes = (*notes_of(_own(file)), *filter(None, [of_file]), *_notes(file))
    if file.reason:
        own = _own(file)
        found = view_change(
            own, content, source=source, start=start, space=space, whole=whole, around=around
        )
        return replace(found, notes=(*found.notes, file.reason))
    added, removed = sums_of(file)
    view = FileView(change, action_of(file), source, notes, "none", (), added, removed)
    if file.omitted:
        return replace(view, body="later")
    length = sum(len(hunk.lines) + _has_gap(file, n) for n, hunk in enumerate(file.hunks))
    if not length:
        return view
    if whole and length > 1 and length * weight(LINE) > space:
        return replace(view, body="later")
    later = {
        part: tuple([one.actor for one in told.by[:SHOWN_LATER]])
        for part, told in (again(file) if again else {}).items()
    }
    rows, used, length = rows_on_page(
        lambda start: _rows(file, start, said, viewed, later), length, start, around, space
    )
    if whole and len(rows) < length:
        return replace(view, body="later")
    return replace(
        view, body="rows", rows=rows, start=start, length=length, rows_weight=used, named=True
    )


def change_of(file: NetFile) -> FileChange:
    """The states of a file before and at the end."""
    return FileChange(file.path, file.before, file.after)


def _own(file: NetFile) -> FileChange:
    """The change without the permission bits that others gave the file."""
    before, after = file.own_before, file.own_after
    if before is None or after is None or file.mode is not None:
        return FileChange(file.path, before, after)
    return FileChange(file.path, before, replace(after, mode=before.mode))


def source_of(file: NetFile) -> str | None:
    """From where a file was moved, if it was."""
    return file.old_path if file.old_path != file.path else None


def action_of(file: NetFile) -> str:
    """What the calls made of a file, in a word."""
    if file.own_after is None:
        return "deleted"
    if source_of(file) is not None:
        return "moved"
    return "created" if file.own_before is None else "modified"


def sums_of(file: NetFile) -> tuple[int | None, int | None]:
    """How many lines a file has more and fewer by these calls; None where it is not about lines."""
    told = file.hunks or file.omitted or file.added or file.removed
    return (file.added, file.removed) if told and not file.reason else (None, None)


def _notes(file: NetFile) -> Iterator[str]:
    if file.after is None and file.own_after is not None:
        yield "deleted since by others"
    for one in file.again:
        if one != "kind" or file.after is not None:
            yield f"{PROPERTIES[one]} again since by others"
    for one in file.perhaps:
        yield f"perhaps another's: {PROPERTIES[one]}"
    if file.removed_again:
        yield f"{count_text(file.removed_again, 'line')} of it removed again since"
    if file.brought_back:
        yield f"{count_text(file.brought_back, 'line')} brought back"
    if file.shared:
        yield f"{count_text(file.shared, 'line')} perhaps another's"
    if file.others:
        yield f"also changed by {first_few(file.others, SHOWN_WRITERS, lambda one: one.text)}"


def _rows(
    file: NetFile,
    start: int,
    said: Said,
    viewed: Collection[str],
    later: Mapping[str, tuple[str, ...]],
) -> Iterator[Row]:
    """The rows from `start` on, counted with those that stand for a gap."""
    passed = 0
    for n, hunk in enumerate(file.hunks):
        if _has_gap(file, n):
            if passed >= start:
                yield gap_before(hunk.lines[0].new)
            passed += 1
        skipped = max(0, start - passed)
        of_runs = {place: words for (one, place), words in said.items() if one == n}
        for row in _lines(file, hunk, skipped, of_runs, viewed):
            yield replace(row, later=later[row.part]) if row.starts and row.part in later else row
        passed += len(hunk.lines)


def _has_gap(file: NetFile, n: int) -> bool:
    """Whether lines are left out above a hunk."""
    hunk = file.hunks[n]
    return n > 0 or hunk.old_start > 1 or hunk.new_start > 1


def _lines(
    file: NetFile, hunk: NetHunk, skipped: int, said: Mapping[int, str], viewed: Collection[str]
) -> Iterator[Row]:
    last, spans = -1, _spans(hunk)
    runs = {place: run for run in hunk.runs for place in range(run.start, run.end)}
    for place, line in enumerate(hunk.lines):
        writer = line.by if line.kind != " " else -1
        run = runs.get(place)
        if place >= skipped:
            changed = spans.get(place, ())
            shown = Line(line.kind, line.content, line.old, line.new, changed)
            row = row_of(shown, said.get(place, ""))
            if run is not None and run.part:
                row = replace(
                    row, part=run.part, starts=place == run.start, folded=run.part in viewed
                )
            new = writer >= 0 and (writer != last or place == skipped)
            yield _named(row, file.writers[writer]) if new else row
        last = writer


def _spans(hunk: NetHunk) -> dict[int, tuple[tuple[int, int], ...]]:
    """The stretches that changed within lines that replace each other, by their places."""
    found: dict[int, tuple[tuple[int, int], ...]] = {}
    for run in hunk.runs:
        places = range(run.start, run.end)
        gone = [n for n in places if hunk.lines[n].kind == "-"]
        come = [n for n in places if hunk.lines[n].kind == "+"]
        for old, new in [*zip(gone, come, strict=False)][:MOST_PAIRS]:
            found[old], found[new] = word_spans(hunk.lines[old].content, hunk.lines[new].content)
    return found


def _named(row: Row, writer: Writer) -> Row:
    call = writer.call if writer.kind == "call" else 0
    return replace(row, by="" if call else writer.text, call=call)
