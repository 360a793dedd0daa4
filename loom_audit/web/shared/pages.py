"""From a template and values to an answer; every value is made harmless on its way out.

Two nets, neither of which a template can forget: Jinja2's autoescape (no recorded text becomes
markup) and `finalize` (no recorded text carries control characters, escape sequences or bidi
marks unseen). Page and fragment are one template: a fragment is one of its blocks.
"""

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from jinja2_fragments import render_block
from markupsafe import Markup
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from loom_audit.api.control.approvals import is_waiting
from loom_audit.api.face import AuditedWorkspace
from loom_audit.errors import AuditError
from loom_audit.model.git.words import runs_code
from loom_audit.model.plans.lineage import by_calls_text
from loom_audit.model.text.display import (
    count_text,
    duration_text,
    one_line,
    size_text,
    visible,
)
from loom_audit.web.shared.urls import address, encoded, quoted

STATUS = {
    "INVALID_PATH": 400,
    "IS_A_DIRECTORY": 400,
    "NOT_A_DIRECTORY": 400,
    "NOT_EMPTY": 409,
    "INVALID_ARGUMENTS": 400,
    "FILE_NOT_FOUND": 404,
    "NOT_FOUND": 404,
    "NO_WORKSPACE": 404,
    "UNKNOWN_TOOL": 404,
    "PERMISSION_DENIED": 403,
    "APPROVAL_DENIED": 403,
    "BLOCKED_COMMAND": 403,
    "CONFLICT": 409,
    "TOO_LARGE": 413,
    "AUDIT_UNAVAILABLE": 503,
    "TIMEOUT": 504,
}

LINKED_CALLS = 10
_UNSEEN = re.compile("^ +| +$| {2,}")


class Place(Struct, frozen=True):
    """A link of the navigation, to `/w/WORKSPACE/segment/…/path`.

    `section` marks the link of the page that is shown. A page that looks `on_disk` is not there in
    an imported log.
    """

    section: str
    title: str
    segments: tuple[str, ...]
    path: str | None = None
    on_disk: bool = False


class Pages:
    """Renders the templates of one running dashboard, with these places in the navigation; whether
    keys are off is asked for each page.
    """

    def __init__(self, places: Sequence[Place], keys_are_off: Callable[[], bool]) -> None:
        self._static = fingerprints(assets("static"))
        self._environment = Environment(
            loader=FileSystemLoader(assets("templates")),
            autoescape=True,
            finalize=_harmless,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._environment.globals.update(
            places=places,
            keys_are_off=keys_are_off,
            static=self._static_address,
            address=address,
            encoded=encoded,
            quoted=quoted,
            waiting=waiting,
            is_waiting=is_waiting,
            runs_code=runs_code,
            by_calls=by_calls_text,
        )
        self._environment.filters.update(
            when=when,
            stamp=stamp,
            size=size_text,
            count=count,
            counted=partial(count_text, grouped=True),
            took=duration_text,
            mode=mode,
            plain=plain,
            path=shown_path,
            path_lines=path_lines,
            one_line=one_line,
        )

    def compile(self) -> None:
        """Compile every template, so that the first page of each kind need not wait for its own."""
        for name in self._environment.list_templates():
            self._environment.get_template(name)

    def page(
        self, request: Request, template: str, status: int = 200, **values: Any
    ) -> HTMLResponse:
        """Render the whole page."""
        text = self._environment.get_template(template).render(_common(request, values))
        return HTMLResponse(text.encode("utf-8", "backslashreplace"), status)

    def fragment(
        self, request: Request, template: str, block: str, status: int = 200, **values: Any
    ) -> HTMLResponse:
        """Render one block of a page, for htmx to swap in."""
        text = render_block(self._environment, template, block, _common(request, values))
        return HTMLResponse(text.encode("utf-8", "backslashreplace"), status)

    def refusal(
        self,
        request: Request,
        status: int,
        code: str,
        message: str,
        hint: str,
        *,
        details: Mapping[str, Any] | None = None,
        links: tuple[tuple[str, str], ...] = (),
    ) -> Response:
        """Render what goes wrong, as a block for htmx; from 500 on without the navigation.

        `links` lead to the calls that stand in the way, or to what else can be done.
        """
        workspace = workspace_in(request)
        values = {
            "number": status,
            "phrase": HTTPStatus(status).phrase,
            # its navigation asks the store, which may be what fails
            "workspace": workspace if status < 500 else None,
            "back_to": workspace,
            "code": code,
            "message": message,
            "hint": hint,
            "details": details or {},
            "links": links,
        }
        if wants_fragment(request):
            return self.fragment(request, "error.html", "problem", status, fragment=True, **values)
        return self.page(request, "error.html", status, fragment=False, **values)

    def _static_address(self, name: str) -> str:
        return f"/static/{name}?v={self._static[name]}"


def wants_fragment(request: Request) -> bool:
    """Whether htmx asks for a part of the page; never when it restores history."""
    headers = request.headers
    return headers.get("hx-request") == "true" and "hx-history-restore-request" not in headers


def redirect(request: Request, where: str) -> Response:
    """Answer with See other; htmx, which would swap the page it is sent to, is told in a header."""
    if wants_fragment(request):
        return Response(status_code=200, headers={"HX-Redirect": where})
    return RedirectResponse(where, 303)


def workspace_in(request: Request) -> AuditedWorkspace | None:
    """The workspace of the address, once the route has found it."""
    found: AuditedWorkspace | None = getattr(request.state, "workspace", None)
    return found


def obstacles(request: Request, error: AuditError) -> tuple[tuple[str, str], ...]:
    """The calls that an error is about: how each is named, and where it is seen or answered."""
    workspace, calls = workspace_in(request), error.details.get("calls")
    if workspace is None or not isinstance(calls, list):
        return ()
    asking = {
        call.requested for call in workspace.timeline.open_calls() if is_waiting(workspace, call)
    }
    return tuple(
        (f"Answer call #{seq}", address("w", workspace.id, "approvals", seq))
        if seq in asking
        else (f"Call #{seq}", address("w", workspace.id, "c", seq))
        for seq in calls[:LINKED_CALLS]
    )


def _common(request: Request, values: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "nonce": request.state.nonce,
        "workspace": workspace_in(request),
        "signed_in": getattr(request.state, "visitor", None) is not None,
        "section": "",
        **values,
    }


def _harmless(value: Any) -> Any:
    if type(value) is str and value.isascii() and value.isprintable():
        return value  # there are thousands on a page, nearly all like this
    if isinstance(value, str) and not isinstance(value, Markup):
        return visible(value, multiline=True)
    return value


def waiting(workspace: AuditedWorkspace) -> int:
    """The number of calls that wait for an answer, for the navigation."""
    return sum(is_waiting(workspace, call) for call in workspace.timeline.open_calls())


def plain(text: str) -> bool:
    """Whether a text goes through a form field and comes back the same."""
    return visible(text) == text


def shown_path(path: str) -> str:
    r"""A path for reading; spaces at an end or side by side, which HTML hides, as `\x20`."""
    text = visible(path)
    return _UNSEEN.sub(lambda found: r"\x20" * len(found[0]), text) if " " in text else text


def path_lines(paths: Iterable[str]) -> str:
    """Paths for a title, each on a line of its own."""
    return "\n".join(map(shown_path, paths))


def when(at: datetime) -> str:
    """A time in UTC, to the second."""
    return at.isoformat(" ", "seconds")[:19]


def stamp(at: datetime) -> str:
    """RFC 3339 with milliseconds, which is what HTML's `datetime` attribute takes."""
    return at.isoformat(timespec="milliseconds")


def count(number: int) -> str:
    """A number with its thousands set apart."""
    return f"{number:,}"


def mode(bits: int) -> str:
    """Permission bits in octal."""
    return f"{bits:04o}"


def assets(name: str) -> Path:
    """The folder `templates` or `static`, found from where this module lies."""
    package = Path(__file__).resolve().parents[2]
    checkout = package.parent / name
    packed = package / "_assets" / name
    return packed if packed.is_dir() else checkout


def fingerprints(folder: Path) -> dict[str, str]:
    """File name → first 12 hex digits of its SHA-256, for addresses that may be cached for ever."""
    return {
        file.name: hashlib.sha256(file.read_bytes()).hexdigest()[:12]
        for file in folder.iterdir()
        if file.is_file()
    }
