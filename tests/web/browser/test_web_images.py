"""Pictures are shown as pictures, from an address where nothing in them runs."""

import base64
import re
import struct
from collections.abc import Iterator

import pytest
from fastapi.testclient import TestClient
from playwright.sync_api import Browser

from tests.web.busy_store import Busy, png
from tests.web.conftest import Live, Recorded, asking


@pytest.fixture
def asked(busy: Busy) -> Iterator[TestClient]:
    with asking(busy.store) as made:
        yield made


def copied(busy: Busy) -> int:
    """The call that copied a picture."""
    return next(one.number for one in busy.done if "copy.png" in one.paths)


def test_a_picture_has_its_own_address_with_a_fixed_type(busy: Busy, asked: TestClient) -> None:
    answer = asked.get(f"{busy.url}/image/head/copy.png")
    assert answer.status_code == 200 and answer.content == png(120, 60, 90)
    assert answer.headers["content-type"] == "image/png"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["content-security-policy"] == "sandbox; default-src 'none'"
    assert answer.headers["cross-origin-resource-policy"] == "same-origin"


def test_pages_show_pictures_with_type_size_and_hash(busy: Busy, asked: TestClient) -> None:
    for page in (f"{busy.url}/c/{copied(busy)}?diff=copy.png", f"{busy.url}/at/head/copy.png"):
        text = asked.get(page).text
        assert "PNG image, 120 × 60" in text and "SHA-256" in text
        [where] = re.findall(r'<img src="([^"]+)" width="120" height="60"', text)
        assert asked.get(where).headers["content-type"] == "image/png"


HUGE = png(1, 1, 1)[:16] + struct.pack(">II", 60_000, 60_000) + png(1, 1, 1)[24:]
FILES = {
    "script.png": b"<script>window.hacked = 1</script>\0",
    "vector.svg": b"<svg xmlns='http://www.w3.org/2000/svg' onload='window.hacked = 2'/>",
    "page.gif": b"GIF89a/*\1\0\0*/=1;<script>window.hacked = 3</script>",
    "bomb.png": HUGE,
    "large.png": png(2, 2, 2) + b"\0" * (9 * 1024 * 1024),
    "text.html": b"<img src=x onerror='window.hacked = 4'>",
}


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("name", "status"), [(n, 413 if n == "large.png" else 400) for n in FILES if n != "page.gif"]
)
def test_what_is_not_a_picture_by_its_bytes_is_not_shown_as_one(
    recorded: Recorded, client: TestClient, name: str, status: int
) -> None:
    (recorded.root / name).write_bytes(FILES[name])
    recorded.call("seen", "shell_execute", {"command": f"cp {name} other-{name}"})
    answer = client.get(f"{recorded.url}/image/head/{name}")
    assert answer.status_code == status, answer.text
    assert "text/html" in answer.headers["content-type"]
    text = client.get(f"{recorded.url}/c/{recorded.numbers['seen']}").text
    assert "<img " not in text


def test_a_picture_that_is_a_page_too_is_a_picture(recorded: Recorded, client: TestClient) -> None:
    (recorded.root / "page.gif").write_bytes(FILES["page.gif"])
    recorded.call("seen", "shell_execute", {"command": "cp page.gif other.gif"})
    answer = client.get(f"{recorded.url}/image/head/page.gif")
    assert answer.headers["content-type"] == "image/gif"
    assert "sandbox" in answer.headers["content-security-policy"]


def test_what_is_not_there_is_an_error_that_says_so(busy: Busy, asked: TestClient) -> None:
    assert asked.get(f"{busy.url}/image/head/nothing.png").status_code == 404
    assert asked.get(f"{busy.url}/image/head/src").status_code == 404
    assert asked.get(f"{busy.url}/image/nowhere/copy.png").status_code == 400


def test_bytes_in_arguments_and_results_are_not_walls_of_base64(
    recorded: Recorded, client: TestClient
) -> None:
    text = base64.b64encode(png(300, 200, 7) + bytes(range(256)) * 9).decode()
    arguments = {"path": "a.png", "content": text, "encoding": "base64"}
    number = recorded.call("encoded", "write_file", arguments)
    page = client.get(f"{recorded.url}/c/{number}").text
    assert text[:80] not in page
    assert "PNG image, 300 × 200" in page


@pytest.mark.browser
def test_pictures_are_drawn_without_a_complaint(
    busy: Busy, busy_live: Live, browser: Browser
) -> None:
    context = busy_live.visit(browser)
    page = context.new_page()
    problems: list[str] = []
    page.on("console", lambda message: problems.append(message.text))
    page.goto(f"{busy_live.address}{busy.url}/at/head/copy.png")
    drawn = "async e => { await e.decode(); return e.naturalWidth }"
    assert page.locator(".picture img").evaluate(drawn) == 120
    assert problems == []
    context.close()
