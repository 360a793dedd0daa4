"""Who may ask, and what every answer carries. Each refusal is one of the known attacks."""

import pytest
from fastapi.testclient import TestClient

from tests.web.conftest import PORT, Recorded, asking


def host_of(client: TestClient) -> str:
    """The host name of the dashboard, without a port."""
    return client.base_url.host


@pytest.mark.parametrize("port", ["", ":8642", ":9000", ":80"])
def test_our_own_name_is_answered_on_any_port(reader: TestClient, port: str) -> None:
    for name in (host_of(reader), host_of(reader).upper()):
        assert reader.get("/healthz", headers={"host": name + port}).status_code == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        f"evil.example:{PORT}",
        "127.0.0.1",
        f"127.0.0.1:{PORT}",
        "localhost",
        f"localhost:{PORT}",
        f"[::1]:{PORT}",
        f"NAME.evil.example:{PORT}",
        f"x.NAME:{PORT}",
        "NAME.",
        "NAME:",
        "NAME:x",
        "NAME:1:2",
        "NAME:123456",
        "",
    ],
)
@pytest.mark.parametrize("path", ["/", "/healthz", "/static/app.css", "/nothing", "/sign-in"])
def test_a_foreign_host_is_refused_before_routing(reader: TestClient, host: str, path: str) -> None:
    ours = host_of(reader)
    answer = reader.get(path, headers={"host": host.replace("NAME", ours)})
    assert answer.status_code == 421
    assert "MISDIRECTED" in answer.text
    assert ours not in answer.text
    assert "the terminal that started this server" in answer.text and "`" not in answer.text


def test_the_page_to_sign_in_says_where_its_token_stands(reader: TestClient) -> None:
    stranger = TestClient(reader.app, base_url=str(reader.base_url))
    asked = stranger.get("/").text
    assert "The terminal that started this server (<code>make run</code>" in asked


REFUSED = [
    {"sec-fetch-site": "cross-site"},
    {"sec-fetch-site": "same-site"},
    {"sec-fetch-site": "cross-site", "origin": "OURS"},
    {"sec-fetch-site": "same-origin", "origin": "http://evil.example"},
    {"sec-fetch-site": "same-origin", "origin": f"http://localhost:{PORT}"},
    {"sec-fetch-site": "same-origin", "origin": "https://NAME:8642"},
    {"sec-fetch-site": "same-origin", "origin": "http://NAME:9000"},
    {"sec-fetch-site": "same-origin", "origin": "null"},
    {"sec-fetch-site": "cross-site", "origin": "null"},
    {"origin": "http://evil.example"},
    {"origin": "null"},
    {},
]


def filled_in(headers: dict[str, str], client: TestClient) -> dict[str, str]:
    """Headers with the names of this dashboard in them."""
    ours = f"http://{host_of(client)}:{PORT}"
    names = {"OURS": ours, "NAME": host_of(client)}
    for word, name in names.items():
        headers = {key: value.replace(word, name) for key, value in headers.items()}
    return headers


@pytest.mark.parametrize("headers", REFUSED, ids=str)
@pytest.mark.parametrize("path", ["carry-out", "verify"])
def test_a_request_that_changes_something_must_be_ours(
    standing: Recorded, reader: TestClient, headers: dict[str, str], path: str
) -> None:
    del reader.headers["sec-fetch-site"]
    head = standing.workspace.log.head()
    form = {"verb": "revert", "target": str(standing.numbers["notes"]), "quick": "1"}
    answer = reader.post(f"{standing.url}/{path}", data=form, headers=filled_in(headers, reader))
    assert answer.status_code == 403
    assert "CROSS_SITE" in answer.text
    assert standing.workspace.log.head() == head
    assert (standing.root / "notes.txt").read_text() == "one\nTWO\nthree\n"


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "headers",
    [
        {"sec-fetch-site": "same-origin"},
        {"sec-fetch-site": "same-origin", "origin": "OURS"},
        {"origin": "OURS"},
    ],
    ids=str,
)
def test_our_own_forms_are_let_through(
    recorded: Recorded, client: TestClient, headers: dict[str, str]
) -> None:
    del client.headers["sec-fetch-site"]
    form = {"verb": "revert", "target": str(recorded.numbers["notes"]), "quick": "1"}
    answer = client.post(f"{recorded.url}/carry-out", data=form, headers=filled_in(headers, client))
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
        assert headers["referrer-policy"] == "same-origin"
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
    with asking(standing.store) as signed_in:
        monkeypatch.setattr(signed_in.app.state, "store", None)  # type: ignore[attr-defined]
        broken = TestClient(
            signed_in.app,
            base_url=str(signed_in.base_url),
            cookies=signed_in.cookies,
            raise_server_exceptions=False,
        )
        answer = broken.get("/")
    assert answer.status_code == 500
    assert "INTERNAL" in answer.text
    assert "default-src 'none'" in answer.headers["content-security-policy"]


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
