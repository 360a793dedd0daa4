"""What every route is given: the store, the renderer, the workspace of the URL, the parameters."""

from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Annotated
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from fastapi import Depends, Request
from starlette.requests import ClientDisconnect

from loom_audit.api.face import AuditedWorkspace, AuditStore
from loom_audit.errors import InvalidArguments, NotFound, TooLarge
from loom_audit.model.text.display import one_line
from loom_audit.model.text.times import is_time, read_time
from loom_audit.web.shared.admission import Visitor
from loom_audit.web.shared.pages import Pages
from loom_audit.web.shared.ticks import followed
from loom_audit.web.shared.urls import Fields, fields, first, unquoted

MAX_FORM_BYTES = 1024 * 1024

# What only reads attributes is `async` so that it costs no thread; what may read the store is not.


async def store_of(request: Request) -> AuditStore:
    """The store that the application serves."""
    found: AuditStore = request.app.state.store
    return found


async def pages_of(request: Request) -> Pages:
    """The application's renderer."""
    found: Pages = request.app.state.pages
    return found


def workspace_of(request: Request, workspace: str) -> AuditedWorkspace:
    """The workspace of this id, NotFound for another text: a path would probe the disk.

    What goes wrong from here on is shown as a page of the workspace.
    """
    named = unquoted(workspace)
    store: AuditStore = request.app.state.store
    if named not in {entry.id for entry in store.workspaces()}:
        hint = "The start page lists all, forgotten ones too."
        raise NotFound(f"no workspace {named}", hint=hint)
    found = store.workspace(named)
    request.state.workspace = found
    return found


async def query_of(request: Request) -> Fields:
    """The parameters of the address; of a button that takes along what is ticked, its page's."""
    raw: bytes = request.scope["query_string"]
    return followed(fields(raw))


async def form_of(request: Request) -> Fields:
    """The urlencoded form of a POST. TooLarge over 1 MiB, InvalidArguments for other types."""
    kind = request.headers.get("content-type", "application/x-www-form-urlencoded")
    if kind.partition(";")[0].strip().lower() != "application/x-www-form-urlencoded":
        raise InvalidArguments(f"a form cannot be sent as {kind}")
    body = bytearray()
    try:
        async for part in request.stream():
            body += part
            if len(body) > MAX_FORM_BYTES:
                raise TooLarge(
                    "the form is over 1 MiB", hint="Name folders instead of single paths."
                )
    except ClientDisconnect:
        raise InvalidArguments("the form did not arrive whole") from None
    return fields(bytes(body))


async def visitor_of(request: Request) -> Visitor:
    """Who asks, as the guard has found by their cookie."""
    found: Visitor = request.state.visitor
    return found


Store = Annotated[AuditStore, Depends(store_of)]
Render = Annotated[Pages, Depends(pages_of)]
Workspace = Annotated[AuditedWorkspace, Depends(workspace_of)]
Query = Annotated[Fields, Depends(query_of)]
Form = Annotated[Fields, Depends(form_of)]
SignedIn = Annotated[Visitor, Depends(visitor_of)]


def number(fields: Fields, name: str) -> int | None:
    """The count or seq that a field holds; None for none, InvalidArguments for another text."""
    text = first(fields, name).strip()
    if not text:
        return None
    if not is_number(text):
        raise InvalidArguments(f"{name} is a number, not {text!r}")
    return int(text)


def is_number(text: str) -> bool:
    """Whether a text is that of a count or a seq: at most 18 digits."""
    return text.isascii() and text.isdigit() and len(text) < 19


def point_text(typed: str, zone: str = "") -> str:
    """A point as it was typed, as the log reads it: times are in UTC.

    One that was typed without a zone is meant in the named one, in which the pages were read; by
    default in UTC. InvalidArguments, also where this machine does not know the zone.
    """
    text = typed.strip()
    if not is_time(text):
        return text
    now = datetime.now(UTC)
    meant: tzinfo = UTC
    if zone:
        try:
            meant = ZoneInfo(zone)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            elsewhere = timezone(timedelta(hours=1))
            if read_time(text, now, UTC) != read_time(text, now, elsewhere):
                raise InvalidArguments(
                    f"the time zone {one_line(zone, 80)} is not known where the dashboard runs",
                    hint="Write the time in UTC, with a Z behind it: 2026-01-31T14:05:00Z.",
                ) from None
    return read_time(text, now, meant).astimezone(UTC).isoformat()
