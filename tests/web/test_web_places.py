"""A page has three places: its module, its template, and its line in the list of modules."""

import re
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages

from fastapi.routing import APIRoute
from fastapi.testclient import TestClient

from loom_audit import web
from loom_audit.web.app import MODULES
from loom_audit.web.shared.pages import Place, assets
from tests.web.conftest import Recorded
from tests.web.web_pages import pages

ASKED_BY_PAGES = {
    "/progress",
    "/w/{workspace}/drift",
    "/w/{workspace}/fresh",
    "/w/{workspace}/lately",
    "/w/{workspace}/lines",
    "/w/{workspace}/session-lines",
    "/w/{workspace}/raw/{point}/{path:path}",
    "/w/{workspace}/image/{point}/{path:path}",
}
"""What pages ask for by themselves, or offer to save."""

SEEN_OTHERWISE = {
    "/sign-in",
    "/w/{workspace}/approvals",
    "/w/{workspace}/approvals/{number}",
    "/w/{workspace}/verify",
}
"""Pages that a signed-in person does not see, that need a waiting call, or that have moved."""


def test_every_module_with_routes_is_listed() -> None:
    found = walk_packages(web.__path__, "loom_audit.web.")
    names = [one.name for one in found if hasattr(import_module(one.name), "router")]
    routed = {name.removeprefix("loom_audit.web.") for name in names}
    assert routed == {*MODULES}
    assert len({*MODULES}) == len(MODULES)


def test_every_template_is_shown_by_a_module_or_a_template() -> None:
    folder = Path(web.__path__[0])
    templates = {file.name: file.read_text("utf-8") for file in assets("templates").iterdir()}
    texts = [file.read_text("utf-8") for file in folder.rglob("*.py")] + [*templates.values()]
    named = set(re.findall(r"[\"']([\w.]+\.html)[\"']", "\n".join(texts)))
    assert named == {*templates}


def test_the_navigation_leads_to_every_place_and_marks_the_present_one(
    standing: Recorded, reader: TestClient
) -> None:
    modules = [import_module(f"loom_audit.web.{name}") for name in MODULES]
    places: list[Place] = [one for each in modules for one in getattr(each, "PLACES", ())]
    assert len({one.section for one in places}) == len(places) >= 7
    links = re.findall(r'<a href="([^"]+)"[^>]*>(?:[^<]+)', _navigation(reader, standing.url + "/"))
    assert len(links) == len(places)
    for link, place in zip(links, places, strict=True):
        there = reader.get(link, follow_redirects=True)
        assert there.status_code == 200
        (present,) = re.findall(r'aria-current="page">([^<]+)', _navigation(reader, str(there.url)))
        assert present == place.title


def _navigation(reader: TestClient, address: str) -> str:
    text = reader.get(address, follow_redirects=True).text
    return text[text.index("<nav") : text.index("</nav>")]


def test_every_page_is_among_those_that_tests_look_at(
    standing: Recorded, reader: TestClient
) -> None:
    addresses = [address.partition("?")[0] for address in pages(standing).values()]
    unseen = set()
    for module in MODULES:
        for route in import_module(f"loom_audit.web.{module}").router.routes:
            assert isinstance(route, APIRoute)
            if "GET" in (route.methods or ()) and not any(map(route.path_regex.match, addresses)):
                unseen.add(route.path)
    leading = {
        "/w/{workspace}",
        "/w/{workspace}/at",
        "/w/{workspace}/at/{point}",
        "/w/{workspace}/compare",
    }
    assert unseen == ASKED_BY_PAGES | SEEN_OTHERWISE | leading
