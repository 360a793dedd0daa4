"""Who wrote each line of a file at a point: a window of its lines, in runs of one call each."""

from collections.abc import Iterator, Mapping
from threading import Lock, Thread
from typing import Any

from fastapi import Request
from msgspec import Struct
from starlette.responses import Response

from loom_audit.api.face import AuditedWorkspace
from loom_audit.api.lines import (
    Blame,
    BlameRun,
    FileVersions,
    FollowedFile,
    Lines,
    Writer,
    joined,
    lines_of,
)
from loom_audit.api.review.conversation import Conversation, Said, conversation_of
from loom_audit.api.review.sessions import Reviews
from loom_audit.api.upkeep.drift import is_as_recorded
from loom_audit.errors import AuditError
from loom_audit.model.text.display import visible_bytes
from loom_audit.ports import Progress
from loom_audit.web.review.said import Quote, quote
from loom_audit.web.shared.budget import row_weight, weight
from loom_audit.web.shared.dependencies import number
from loom_audit.web.shared.pages import Pages, wants_fragment
from loom_audit.web.shared.urls import Fields, address

BLAME = "blame"
WINDOW = 300
"""Lines of a page, where they fit."""

LINE_CHARACTERS = 1_000
AT_ONCE = 16 * 1024 * 1024
"""Bytes of versions whose lines are followed while the browser waits; more in the background."""

BESIDE = 2
"""The number of files that are followed in the background at once."""

MOST_ROWS = 110
"""Rows of a page: of at most 12 elements each, so that it stays below 1,500."""

MOST_BYTES = 44_000
"""What the rows and the prompts of a page weigh together."""

ROW_BYTES = 400
"""What a row weighs beside its lines and names."""

PROMPTS = 6_000
"""What the prompts at the foot may weigh together."""

PROMPT = 240
"""Characters of a prompt there."""


class Row(Struct, frozen=True):
    """Lines of one writer: their numbers and texts, one below the other.

    `asked` is the event of the prompt before the call, 0 where none is shown.
    """

    run: BlameRun
    numbers: str
    text: str
    asked: int


class Followings:
    """Follows the lines of long files in threads, and tells how far each is."""

    def __init__(self, reviews: Reviews) -> None:
        self._reviews = reviews
        self._mutex = Lock()
        self._now: dict[tuple[str, str, int], Progress] = {}
        self._failed: dict[tuple[str, str, int], AuditError] = {}

    def of(
        self, workspace: AuditedWorkspace, lines: Lines, path: str, seq: int
    ) -> FollowedFile | Progress:
        """A file with the lines followed, or how far that is. NotFound, Corrupt."""
        key = (workspace.id, path, seq)
        with self._mutex:
            failed, now = self._failed.pop(key, None), self._now.get(key)
        if failed is not None:
            raise failed
        if now is not None:
            return now
        name = (BLAME, path, seq)
        file = self._reviews.once(workspace, (*name, "versions"), lambda: lines.versions(path, seq))
        done = self._reviews.known(workspace, name)
        if isinstance(done, FollowedFile):
            return done
        if file.work <= AT_ONCE:
            return self._reviews.once(workspace, name, lambda: lines.follow(file))
        with self._mutex:
            if key in self._now or len(self._now) >= BESIDE:
                return self._now.get(key) or Progress("waiting for other files", 0)
            begun = self._now[key] = Progress(
                "following the lines", 0, len(file.versions), "versions"
            )
        work = Thread(target=self._follow, args=(workspace, lines, file, key), daemon=True)
        work.start()
        return begun

    def _follow(
        self,
        workspace: AuditedWorkspace,
        lines: Lines,
        file: FileVersions,
        key: tuple[str, str, int],
    ) -> None:
        try:
            done = lines.follow(file, lambda progress: self._now.__setitem__(key, progress))
            self._reviews.once(workspace, (BLAME, *key[1:]), lambda: done)
        except AuditError as error:
            with self._mutex:
                self._failed[key] = error
        finally:
            with self._mutex:
                self._now.pop(key, None)


def show_blame(
    request: Request,
    workspace: AuditedWorkspace,
    query: Fields,
    values: Mapping[str, Any],
    pages: Pages,
) -> Response:
    """Show who wrote the lines from `line` on, or how far it is to find that out."""
    path, seq, point = values["path"], values["seq"], values["point"]
    first = number(query, "line") or 1
    lines = lines_of(workspace)
    followings: Followings = request.app.state.followings
    found = followings.of(workspace, lines, path, seq)
    told: dict[str, Any] = {
        **values,
        "view": BLAME,
        "base": address("w", workspace.id, "at", point, path=path, query=[("view", BLAME)]),
        "here": address(
            "w", workspace.id, "at", point, path=path, query=[("view", BLAME), ("line", first)]
        ),
        "progress": found if isinstance(found, Progress) else None,
    }
    if isinstance(found, FollowedFile):
        blame = lines.window(found, first, first + WINDOW - 1)
        if blame.first > blame.last and blame.lines:  # it has fewer: its end
            first = max(1, blame.lines - WINDOW + 1)
            blame = lines.window(found, first, first + WINDOW - 1)
        reviews: Reviews = request.app.state.reviews
        asked = reviews.once(
            workspace,
            (BLAME, path, seq, first),
            lambda: prompts_of(conversation_of(workspace), blame),
        )
        quotes, space = shown_prompts(asked)
        rows = [
            *fitting(blame, {run: one for run, one in asked.items() if one.seq in quotes}, space)
        ]
        told |= {"blame": blame, "rows": rows, "quotes": quotes, "window": WINDOW}
        end = rows[-1].run.last if rows else 0
        told |= {
            "end": end,
            "unended": end == blame.lines > 0 and not blame.texts[-1].endswith(b"\n"),
            "unrecorded": seq == workspace.log.head()
            and not blame.reason
            and not is_as_recorded(workspace, path),
        }
    if wants_fragment(request):
        return pages.fragment(request, "blame.html", "lines", **told)
    return pages.page(request, "blame.html", **told)


def prompts_of(conversation: Conversation, blame: Blame) -> dict[int, Said]:
    """By its event the prompt before each call that wrote one of the lines, where there is one."""
    writers: dict[int, Writer] = {
        run.by.event: run.by for run in blame.runs if run.by.kind == "call"
    }
    found: dict[int, Said] = {}
    last: dict[str, Said | None] = {}
    for event in sorted(writers, reverse=True):
        session = writers[event].session
        said = last.get(session)
        # between a prompt and an event that follows it there is no other
        if session not in last or (said is not None and said.seq >= event):
            said = last[session] = conversation.prompt_before(session, event)
        if said is not None:
            found[event] = said
    return found


def shown_prompts(asked: Mapping[int, Said]) -> tuple[dict[int, Quote], int]:
    """The prompts that are quoted at the foot by their events, in order, and what is left for the
    lines.
    """
    quotes, used = dict[int, Quote](), 0
    for said in sorted({one.seq: one for one in asked.values()}.values(), key=lambda one: one.seq):
        one = quote(said, PROMPT)
        if one is None or used + one.weight > PROMPTS:
            break
        quotes[said.seq] = one
        used += one.weight
    return quotes, MOST_BYTES - used


def fitting(blame: Blame, asked: Mapping[int, Said], space: int) -> Iterator[Row]:
    """The rows of the lines that fit, always the first line."""
    shown = False
    for run in joined(blame.runs)[:MOST_ROWS]:
        space -= ROW_BYTES + row_weight(0, run.before or "") + weight(0, run.by.actor)
        texts: list[str] = []
        for line in range(run.first, run.last + 1):
            text = line_text(blame.texts[line - blame.first])
            space -= weight(0, text) + len(str(line)) + 2
            if space < 0 and shown:
                break
            texts.append(text)
            shown = True
        if texts:
            last = run.first + len(texts) - 1
            numbers = "\n".join(map(str, range(run.first, last + 1)))
            said = asked.get(run.by.event)
            cut = BlameRun(
                run.first, last, run.by, run.brought_back, run.old_path, run.old_first, run.before
            )
            yield Row(cut, numbers, "\n".join(texts), said.seq if said else 0)
        if space < 0:
            return


def line_text(line: bytes) -> str:
    """A line as it is shown, without the end that every line has."""
    text = visible_bytes(line.removesuffix(b"\n")[: LINE_CHARACTERS * 4], multiline=True)
    return text if len(text) <= LINE_CHARACTERS else text[:LINE_CHARACTERS] + " …"
