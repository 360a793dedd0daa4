"""The workspace at a point: folders, files, downloads; the history of a path."""

from collections import Counter
from collections.abc import Iterator
from typing import Any, BinaryIO

from fastapi import APIRouter, Request
from msgspec import Struct
from starlette.responses import RedirectResponse, Response, StreamingResponse

from loom_audit.api.face import AuditedWorkspace
from loom_audit.api.review.git_points import git_at, git_changes
from loom_audit.errors import AuditError, FileNotFound
from loom_audit.model.files import FileState, Tree
from loom_audit.model.git_points import git_path
from loom_audit.model.kinds import Kind, kind_of
from loom_audit.model.records import RecordedChange
from loom_audit.model.text.display import one_line, visible_bytes
from loom_audit.web.review.blame import BLAME, show_blame
from loom_audit.web.shared.budget import Budget, row_weight, weight
from loom_audit.web.shared.dependencies import Query, Render, Workspace, number, point_text
from loom_audit.web.shared.pages import Pages, Place, wants_fragment
from loom_audit.web.shared.urls import address, first, quoted, unquoted

router = APIRouter()
PLACES = (Place("files", "Files", ("at", "head"), path=""),)
SHOWN_BYTES = 16 * 1024 * 1024
LINE_CHARACTERS = 2_000
DUMPED_BYTES = 256
HISTORY_ROWS = 300
GIT = 40
"""The number of lines of what changed of a git repository that are shown."""
PIECE = 256 * 1024


class Entry(Struct, frozen=True):
    """An entry of a folder; `inside` counts the files below it, where it is a folder."""

    name: str
    path: str
    state: FileState
    inside: int = 0


class FileText(Struct, frozen=True):
    """A file's content ready to show: lines, or for binary content a dump of its beginning."""

    lines: tuple[bytes, ...] = ()
    dump: tuple[tuple[str, str, str], ...] = ()
    cut: bool = False
    problem: AuditError | None = None
    kind: Kind | None = None


@router.get("/w/{workspace}/at")
def choose(workspace: Workspace, query: Query) -> Response:
    """Lead to the point that was chosen in the form."""
    point = point_text(first(query, "point"), first(query, "zone")) or "head"
    workspace.timeline.point(point)
    view = [("view", first(query, "view"))]
    there = address("w", workspace.id, "at", point, path=first(query, "path"), query=view)
    return RedirectResponse(there, 303)


@router.get("/w/{workspace}/at/{point}")
def slash(workspace: Workspace, point: str) -> Response:
    """Lead to the point's root folder, whose address ends in a slash."""
    return RedirectResponse(address("w", workspace.id, "at", unquoted(point), path=""), 308)


@router.get("/w/{workspace}/at/{point}/{path:path}")
def at_point(
    request: Request, workspace: Workspace, point: str, path: str, query: Query, pages: Render
) -> Response:
    """Show a folder or a file as it was, or who wrote its lines."""
    name, path = unquoted(point), unquoted(path).strip("/")
    seq, later = workspace.timeline.meanings(name)
    values: dict[str, Any] = {
        "section": "files",
        "point": name,
        "seq": seq,
        "later": later,
        "path": path,
        "crumbs": crumbs(path),
        "head": workspace.timeline.point("head"),
        "reachable": seq >= first_point(workspace),
    }
    state = workspace.timeline.state(path, seq) if path else None
    if path and state is None:
        return _absent(request, workspace, pages, path, name, seq)
    if state is None or state.kind == "directory":
        tree = workspace.timeline.tree(seq)
        entries = folder(tree, path)
        budget = Budget(query, ("entries",), fragment=wants_fragment(request))
        git = git_path(path)
        values["entries"] = budget.part("entries", entries, _entry)
        values["base"] = address("w", workspace.id, "at", name, path=path)
        if wants_fragment(request) and budget.wanted:
            return pages.fragment(request, "folder.html", "entries", **values)
        return pages.page(
            request,
            "folder.html",
            **values,
            unlisted="" if workspace.timeline.is_listed(seq) else workspace.timeline.unlisted(),
            unknown=workspace.timeline.unknown_entries(path, seq, tree),
            unseen=unseen_at(workspace, path, seq),
            git=git_at(workspace, seq).get(git) if git in tree else None,
        )
    if first(query, "view") == BLAME:
        return show_blame(request, workspace, query, values, pages)
    text = read_text(workspace, state)
    budget = Budget(query, ("lines",), fragment=wants_fragment(request))
    lines = budget.part("lines", text.lines, _line)
    values |= {"base": address("w", workspace.id, "at", name, path=path), "lines": lines}
    if wants_fragment(request) and budget.wanted:
        return pages.fragment(request, "file.html", "lines", **values)
    return pages.page(request, "file.html", **values, state=state, text=text)


@router.get("/w/{workspace}/raw/{point}/{path:path}")
def raw(workspace: Workspace, point: str, path: str) -> Response:
    """The bytes of a file as they were, for saving: never shown, never sniffed, never run.

    FileNotFound where no file was at the path, or it is not known what was.
    """
    path = unquoted(path)
    seq = workspace.timeline.point(unquoted(point))
    state = workspace.timeline.state(path, seq)
    if state is None and (why := workspace.timeline.why_unseen(path, seq)):
        raise FileNotFound(f"it is not known what was at {path} at {unquoted(point)}: {why}")
    if state is None or state.blob is None:
        raise FileNotFound(f"no file {path} is on record at {unquoted(point)}")
    name = quoted(path.rsplit("/", 1)[-1])
    return StreamingResponse(
        _pieces(workspace.timeline.stream(state)),
        media_type="application/octet-stream",
        headers={
            "content-disposition": f"attachment; filename*=UTF-8''{name}",
            "content-length": str(state.size),
            "content-security-policy": "sandbox; default-src 'none'",
        },
    )


@router.get("/w/{workspace}/history/{path:path}")
def history(
    request: Request, workspace: Workspace, path: str, query: Query, pages: Render
) -> Response:
    """Show every recorded change of a path, and below it when it is a folder; newest first.

    `before` is the event after the first that is listed, of which `skip` changes stood above.
    FileNotFound for a path that nothing is on record of.
    """
    path = unquoted(path).strip("/")
    before, skip = number(query, "before"), number(query, "skip") or 0
    limit = skip + HISTORY_ROWS + 1
    found = workspace.timeline.history(path, below=True, before=before, limit=limit)
    if not found and before is None:
        raise FileNotFound(
            f"nothing on record about {path}",
            hint="Only paths in the workspace's scope are recorded; names are case-sensitive.",
        )
    budget = Budget({}, fragment=wants_fragment(request))
    rows = budget.part("rows", found[skip : skip + HISTORY_ROWS], _recorded).items
    git = [] if before is not None else [*git_changes(workspace, path, GIT)]
    values: dict[str, Any] = {"path": path, "rows": rows, "older": ()}
    values |= {"git": [one_line(text, 120) for text in git[:GIT]], "more_git": len(git[GIT:])}
    if len(found) > skip + len(rows):
        last = rows[-1].seq
        passed = sum(one.seq == last for one in found[: skip + len(rows)])
        values["older"] = (("before", last + 1), ("skip", passed))
    if wants_fragment(request) and before is not None:
        return pages.fragment(request, "history.html", "rows", **values)
    return pages.page(
        request, "history.html", **values, crumbs=crumbs(path), before=before, section="files"
    )


def folder(tree: Tree, path: str) -> list[Entry]:
    """List the entries of a folder of the tree, folders first, then by name."""
    prefix = path + "/" if path else ""
    inside: Counter[str] = Counter()
    found: list[tuple[str, FileState]] = []
    for name, state in tree.items():
        if not name.startswith(prefix):
            continue
        child, slash, _ = name[len(prefix) :].partition("/")
        if not slash:
            found.append((child, state))
        elif state.blob is not None:
            inside[child] += 1
    entries = [Entry(name, prefix + name, state, inside[name]) for name, state in found]
    return sorted(entries, key=lambda entry: (entry.state.kind != "directory", entry.name))


def first_point(workspace: AuditedWorkspace) -> int:
    """The earliest point that a rollback can go to: the end of the baseline."""
    listed = workspace.timeline.first_listing()
    return workspace.log.head() + 1 if listed is None else listed


def crumbs(path: str) -> tuple[tuple[str, str], ...]:
    """The segments of a path, each with the path up to it."""
    parts = path.split("/") if path else []
    return tuple((part, "/".join(parts[: n + 1])) for n, part in enumerate(parts))


def read_text(workspace: AuditedWorkspace, state: FileState) -> FileText:
    """The beginning of a file as lines, or its first bytes as a dump when it is binary."""
    if state.blob is None:
        return FileText()
    try:
        with workspace.timeline.stream(state) as stream:
            content = stream.read(SHOWN_BYTES + 1)
    except AuditError as error:
        return FileText(problem=error)
    if b"\0" in content[:8192]:
        rows = tuple(dump(content[:DUMPED_BYTES]))
        return FileText(dump=rows, cut=state.size > DUMPED_BYTES, kind=kind_of(content))
    lines = content[:SHOWN_BYTES].split(b"\n")
    if lines[-1] == b"":
        lines.pop()
    return FileText(tuple(lines), cut=len(content) > SHOWN_BYTES)


def dump(content: bytes) -> Iterator[tuple[str, str, str]]:
    """Rows of offset, hexadecimal bytes and printable characters, 16 bytes each."""
    for offset in range(0, len(content), 16):
        row = content[offset : offset + 16]
        text = "".join(chr(byte) if 32 <= byte < 127 else "·" for byte in row)
        yield f"{offset:08x}", row.hex(" "), text


def unseen_at(workspace: AuditedWorkspace, folder: str, *points: int) -> list[tuple[str, str]]:
    """The paths in a folder of which it is not known what was there at a point, and why."""
    found = workspace.timeline.unseen(*points)
    return [one for one in found.items() if not folder or one[0].startswith(f"{folder}/")]


def _line(line: bytes) -> tuple[str, int]:
    text = visible_bytes(line[: LINE_CHARACTERS * 4].removesuffix(b"\r"))
    text = text if len(text) <= LINE_CHARACTERS else text[:LINE_CHARACTERS] + " …"
    return text, weight(3, text)


def _entry(entry: Entry) -> tuple[Entry, int]:
    return entry, row_weight(10, entry.path)


def _recorded(row: RecordedChange) -> tuple[RecordedChange, int]:
    return row, row_weight(20, row.change.path)


def _pieces(content: BinaryIO) -> Iterator[bytes]:
    with content:
        while piece := content.read(PIECE):
            yield piece


def _absent(
    request: Request, workspace: AuditedWorkspace, pages: Pages, path: str, point: str, seq: int
) -> Response:
    """The page for a path that was not there, with where it was."""
    links = [("The workspace at this point", address("w", workspace.id, "at", point, path=""))]
    past = workspace.timeline.history(path, below=True, limit=1000)
    own = [one for one in past if one.change.path == path and one.change.after is not None]
    if past:
        links.append(("Its history", address("w", workspace.id, "history", path=path)))
    if nearest := min(own, key=lambda one: abs(one.seq - seq), default=None):
        there = address("w", workspace.id, "at", nearest.seq, path=path)
        links.append((f"As it was at #{nearest.seq}", there))
    message = f"{path} was not in the workspace at {point}."
    if why := workspace.timeline.why_unseen(path, seq):
        message = f"It is not known what was at {path} at {point}: {why}."
    elif past and workspace.timeline.is_unknown(path, seq):
        unlisted = not workspace.timeline.is_listed(seq)
        why = workspace.timeline.unlisted() if unlisted else "it is on record since later only"
        message = f"It is unknown whether {path} was in the workspace at {point}: {why}."
    return pages.refusal(
        request,
        404,
        "FILE_NOT_FOUND",
        message,
        "It was there at other times." if own else "No change of that name is listed.",
        links=tuple(links),
    )
