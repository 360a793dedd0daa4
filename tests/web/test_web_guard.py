"""Who may ask, and what every answer carries. Each refusal is one of the known attacks."""

import socket

import pytest
import uvicorn
from fastapi.testclient import TestClient

from loom_audit.errors import InvalidArguments, StorageFailed
from loom_audit.web.app import serve
from loom_audit.web.guard import hosts
from tests.web.conftest import Recorded

PORT = 8642
OURS = f"http://127.0.0.1:{PORT}"


@pytest.mark.parametrize("host", [*sorted(hosts(PORT)), f"LOCALHOST:{PORT}"])
def test_our_own_names_are_answered(reader: TestClient, host: str) -> None:
    assert reader.get("/healthz", headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        f"evil.example:{PORT}",
        "127.0.0.1",
        "127.0.0.1:1",
        f"127.0.0.1.evil.example:{PORT}",
        f"localhost.:{PORT}",
        f"0.0.0.0:{PORT}",
        f"127.1:{PORT}",
        "",
    ],
)
@pytest.mark.parametrize("path", ["/", "/healthz", "/static/app.css", "/nothing"])
def test_a_foreign_host_is_refused_before_routing(reader: TestClient, host: str, path: str) -> None:
    answer = reader.get(path, headers={"host": host})
    assert answer.status_code == 421
    assert "MISDIRECTED" in answer.text


REFUSED = [
    {"sec-fetch-site": "cross-site"},
    {"sec-fetch-site": "same-site"},
    {"sec-fetch-site": "cross-site", "origin": OURS},
    {"sec-fetch-site": "same-origin", "origin": "http://evil.example"},
    {"sec-fetch-site": "same-origin", "origin": f"http://localhost:{PORT}"},
    {"sec-fetch-site": "same-origin", "origin": f"https://127.0.0.1:{PORT}"},
    {"origin": "http://evil.example"},
    {"origin": "null"},
    {},
]


@pytest.mark.parametrize("headers", REFUSED, ids=str)
@pytest.mark.parametrize("path", ["carry-out", "verify"])
def test_a_request_that_changes_something_must_be_ours(
    standing: Recorded, reader: TestClient, headers: dict[str, str], path: str
) -> None:
    del reader.headers["sec-fetch-site"]
    head = standing.workspace.log.head()
    form = {"verb": "revert", "target": str(standing.numbers["notes"]), "quick": "1"}
    answer = reader.post(f"{standing.url}/{path}", data=form, headers=headers)
    assert answer.status_code == 403
    assert "CROSS_SITE" in answer.text
    assert standing.workspace.log.head() == head
    assert (standing.root / "notes.txt").read_text() == "one\nTWO\nthree\n"


@pytest.mark.parametrize(
    "headers",
    [
        {"sec-fetch-site": "same-origin"},
        {"sec-fetch-site": "same-origin", "origin": "null"},
        {"sec-fetch-site": "same-origin", "origin": OURS},
        {"origin": OURS},
    ],
    ids=str,
)
def test_our_own_forms_are_let_through(
    recorded: Recorded, client: TestClient, headers: dict[str, str]
) -> None:
    del client.headers["sec-fetch-site"]
    form = {"verb": "revert", "target": str(recorded.numbers["notes"]), "quick": "1"}
    answer = client.post(f"{recorded.url}/carry-out", data=form, headers=headers)
    assert answer.status_code == 303
    assert (recorded.root / "notes.txt").read_text() == "one\ntwo\nthree\n"


@pytest.mark.parametrize("path", ["carry-out"])
def test_a_get_never_changes_anything(standing: Recorded, reader: TestClient, path: str) -> None:
    head = standing.workspace.log.head()
    query = f"?verb=revert&target={standing.numbers['notes']}&quick=1"
    assert reader.get(f"{standing.url}/{path}{query}").status_code == 405
    assert reader.get(f"{standing.url}/plan{query}").status_code == 200
    assert reader.get(f"{standing.url}/status").status_code == 200
    assert standing.workspace.log.head() == head
    assert (standing.root / "notes.txt").read_text() == "one\nTWO\nthree\n"


def test_every_answer_carries_the_headers(standing: Recorded, reader: TestClient) -> None:
    for path in ("/", standing.url + "/", "/nothing", "/static/app.css", "/healthz"):
        headers = reader.get(path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "require-trusted-types-for 'script'" in policy
        assert "frame-ancestors 'none'" in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cross-origin-opener-policy"] == "same-origin"
        assert headers["cross-origin-resource-policy"] == "same-origin"
    assert reader.get("/").headers["cache-control"] == "no-store"
    assert "immutable" in reader.get("/static/app.css").headers["cache-control"]


def test_every_page_has_a_nonce_of_its_own(reader: TestClient) -> None:
    one, other = reader.get("/"), reader.get("/")
    assert one.headers["content-security-policy"] != other.headers["content-security-policy"]
    nonce = one.headers["content-security-policy"].split("'nonce-")[1].split("'")[0]
    assert one.text.count(f'nonce="{nonce}"') >= 2


def test_a_defect_of_ours_is_a_page_with_all_headers(
    standing: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    from loom_audit.web.app import create_app

    app = create_app(standing.store, port=PORT)
    monkeypatch.setattr(app.state, "store", None)
    with TestClient(app, base_url=OURS, raise_server_exceptions=False) as broken:
        answer = broken.get("/")
    assert answer.status_code == 500
    assert "INTERNAL" in answer.text
    assert "default-src 'none'" in answer.headers["content-security-policy"]


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.0.2", "example.org", ""])
def test_it_is_served_on_loopback_only(standing: Recorded, host: str) -> None:
    with pytest.raises(InvalidArguments) as refused:
        serve(standing.store, port=PORT, host=host)
    assert "ssh -L" in refused.value.hint


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_an_answer_is_sent_without_waiting_for_the_last_one_to_be_acknowledged(
    standing: Recorded, monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    """As Nagle's algorithm does, which makes each answer on a kept connection 40 ms late."""
    options = []

    def accept(server: uvicorn.Server, sockets: list[socket.socket]) -> None:
        with socket.create_connection(sockets[0].getsockname()[:2]):
            accepted, _ = sockets[0].accept()
            with accepted:
                options.append(accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))

    monkeypatch.setattr(uvicorn.Server, "run", accept)
    serve(standing.store, port=0, host=host)
    assert len(options) == 1
    assert options[0] != 0


def test_a_port_that_is_taken_is_named(standing: Recorded) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(StorageFailed) as refused:
            serve(standing.store, port=port)
    assert str(port) in refused.value.message
    assert "--port" in refused.value.hint


@pytest.mark.parametrize(
    "path",
    [
        "/static/../pyproject.toml",
        "/static/%2e%2e/pyproject.toml",
        "/static/..%2fpyproject.toml",
        "/static//etc/passwd",
    ],
)
def test_static_files_do_not_lead_outside(reader: TestClient, path: str) -> None:
    assert reader.get(path).status_code == 404


def test_a_form_that_is_too_large_is_refused(standing: Recorded, reader: TestClient) -> None:
    body = "verb=revert&target=1&x=" + "y" * (1024 * 1024)
    answer = reader.post(
        f"{standing.url}/carry-out",
        content=body,
        headers={"content-type": "application/x-www-form-urlencoded"},
    )
    assert answer.status_code == 413


def test_a_form_of_another_type_is_refused(standing: Recorded, reader: TestClient) -> None:
    answer = reader.post(f"{standing.url}/carry-out", json={"verb": "revert", "target": "1"})
    assert answer.status_code == 400
