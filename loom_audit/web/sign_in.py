"""Signing in: a one-time token, sent by POST, is traded for the cookie of this server."""

import html
import re

from fastapi import APIRouter, Request
from starlette.responses import Response

from loom_audit.web.shared.admission import COOKIE, LABEL_CHARACTERS, Admission
from loom_audit.web.shared.dependencies import Form, Render
from loom_audit.web.shared.pages import Pages, wants_fragment
from loom_audit.web.shared.urls import first

router = APIRouter()
PATH = "/sign-in"
OUT = "/sign-out"
START = "/"
_PLACE = re.compile(r"/(?![/\\])[!-\[\]-~]*")


@router.get(PATH)
async def ask(request: Request, pages: Render) -> Response:
    """Show the form; no token is redeemed by a GET."""
    return ask_to_sign_in(request, pages)


@router.post(PATH)
async def redeem(request: Request, form: Form, pages: Render) -> Response:
    """Trade the token for the cookie.

    The answer is a page that goes on by itself, not a redirect: what follows a POST that another
    site or a file began is sent without a SameSite=Strict cookie.
    """
    admission: Admission = request.app.state.admission
    place = _place(first(form, "to"))
    cookie = admission.redeem(first(form, "token").strip(), first(form, "name"))
    if cookie is None:
        return ask_to_sign_in(request, pages, place=place, problem=True)
    answer = pages.page(request, "signed_in.html", place=place)
    answer.set_cookie(COOKIE, cookie, httponly=True, samesite="strict")
    return answer


@router.get(OUT)
async def ask_to_leave(request: Request, pages: Render) -> Response:
    """Show the button that signs this browser out."""
    return pages.page(request, "sign_out.html")


@router.post(OUT)
async def leave(request: Request, pages: Render) -> Response:
    """Sign this browser out: its cookie lets nobody in from now on."""
    admission: Admission = request.app.state.admission
    admission.dismiss(request.cookies)
    request.state.visitor = None
    answer = ask_to_sign_in(request, pages, place=START)
    answer.delete_cookie(COOKIE, httponly=True, samesite="strict")
    return answer


def ask_to_sign_in(
    request: Request, pages: Pages, *, place: str = "", problem: bool = False
) -> Response:
    """Tell how to get in, in place of what was asked for, and nothing of what is in the store."""
    if not place:
        asked = request.method in ("GET", "HEAD") and request.scope["path"] != PATH
        query = request.scope["query_string"].decode("ascii", "replace")
        place = _place(request.scope["path"] + (f"?{query}" if query else "")) if asked else START
    values = {"place": place, "problem": problem, "longest": LABEL_CHARACTERS}
    if wants_fragment(request):
        return pages.fragment(request, "sign_in.html", "main", 403, **values)
    return pages.page(request, "sign_in.html", 403, **values)


def signing_in_page(address: str, token: str) -> str:
    """A file that signs the browser in that opens it; `address` ends in a slash."""
    action, value = html.escape(address.rstrip("/") + PATH), html.escape(token)
    return (
        '<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n<title>loom-audit</title>\n'
        f'<form method="post" action="{action}">\n'
        f'<input type="hidden" name="token" value="{value}">\n'
        "<button>Open the dashboard</button>\n</form>\n"
        "<script>document.forms[0].submit()</script>\n"
    )


def _place(text: str) -> str:
    """A path of this server, where to go on; the start page for anything else."""
    return text if _PLACE.fullmatch(text) else START
