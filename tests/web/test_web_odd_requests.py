"""Requests that no page of ours makes: answered with an error that says what is wrong."""

import pytest
from fastapi.testclient import TestClient

from loom_audit.web.plans.requests import CHOICE
from tests.web.conftest import Recorded

ODD = {
    "a target of 5,000 digits": "verb=revert&target=" + "9" * 5_000,
    "a point of 5,000 digits": "verb=rollback&target=" + "9" * 5_000,
    "head and 5,000 digits": "verb=rollback&target=head~" + "9" * 5_000,
    "a lone surrogate in a choice": f"verb=undo&{CHOICE}%25ed%25a0%2580=current",
    "a lone surrogate as a choice": f"verb=undo&{CHOICE}a=%ed%a0%80",
    "a lone surrogate as a target": "verb=undo&target=%ed%a0%80",
    "a lone surrogate as a verb": "verb=%ed%a0%80",
    "NUL in a path": "verb=rollback&target=head&path=a%00b",
    "a path of 100,000 bytes": "verb=rollback&target=head&path=" + "a" * 60_000,
    "25,000 blank fields": "&".join(["verb=undo"] + ["x="] * 25_000),
}


@pytest.mark.few(3)
@pytest.mark.parametrize("how", ODD)
def test_an_odd_request_is_refused_as_such(
    recorded: Recorded, client: TestClient, how: str
) -> None:
    head = recorded.workspace.log.head()
    for answer in (
        client.get(f"{recorded.url}/plan?{ODD[how][:60_000]}"),
        client.post(
            f"{recorded.url}/carry-out",
            content=ODD[how],
            headers={"content-type": "application/x-www-form-urlencoded"},
        ),
    ):
        assert 400 <= answer.status_code < 500 or (
            answer.status_code == 200 and "undo" in ODD[how]
        ), (how, answer.status_code, answer.text[-800:])
    assert recorded.workspace.log.head() == head


PAGES = ("c/{0}", "at/{0}/", "compare/{0}..head", "calls?after={0}", "history/{0}", "raw/{0}/a")


NAMES = ("9" * 5_000, "%ed%a0%80", "%00", "-1", "head~" + "9" * 5_000)


def test_an_odd_address_is_refused_as_such(recorded: Recorded, client: TestClient) -> None:
    for page in PAGES:
        for odd in NAMES:
            answer = client.get(f"{recorded.url}/{page.format(odd)}")
            assert answer.status_code in (200, 400, 404), (page, odd[:9], answer.text[-800:])


def test_head_is_answered_as_get_without_a_body(recorded: Recorded, client: TestClient) -> None:
    for page in (
        "",
        "/",
        "/calls",
        "/at/head/",
        "/status",
        "/at/head/notes.txt",
        "/raw/head/notes.txt",
    ):
        asked = client.get(f"{recorded.url}{page}", follow_redirects=False)
        answer = client.head(f"{recorded.url}{page}", follow_redirects=False)
        assert (answer.status_code, answer.content) == (asked.status_code, b""), page
        assert answer.headers.get("content-type") == asked.headers.get("content-type")
