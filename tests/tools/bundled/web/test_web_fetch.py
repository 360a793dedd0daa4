"""web_fetch against a real server that redirects inward, dawdles, floods, lies and misnames."""

import hashlib
import socket
import ssl
import tracemalloc
from collections.abc import Callable, Iterator
from ssl import SSLContext
from typing import Any

import pytest
import trustme

from loom_audit.api.registry import ToolRegistry
from loom_audit.errors import InvalidArguments, PermissionDenied
from loom_audit.tools.bundled.web import web_fetch as web_module
from loom_audit.tools.bundled.web.addresses import check_address, is_listed, parse_target
from loom_audit.tools.bundled.web.web_fetch import WebFetch
from loom_audit.tools.calls.context import ToolContext
from loom_audit.tools.calls.gate import Decision, DenyAll
from loom_audit.tools.calls.result import ToolResult
from loom_audit.tools.calls.settings import ToolSettings
from loom_audit.tools.calls.tool import Tool
from tests.tools.bundled.web.web_server import Server, serving
from tests.tools.conftest import Bench

Fetch = Callable[..., ToolResult]

LOCAL = ToolSettings(private_hosts=("127.0.0.1", "localhost"))


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as made:
        yield made


@pytest.fixture
def fetch(bench: Bench) -> Fetch:
    def call(
        url: str,
        settings: ToolSettings = LOCAL,
        tls: SSLContext | None = None,
        gate: DenyAll | Asked | None = None,
        **arguments: Any,
    ) -> ToolResult:
        bench.registry = ToolRegistry()
        bench.registry.register(WebFetch(tls=tls))
        arguments = {"url": url, **arguments}
        return bench.call("web_fetch", arguments, gate=gate, settings=settings)

    return call


def test_a_page_comes_back_with_status_headers_body_and_where_it_came_from(
    bench: Bench, fetch: Fetch, server: Server
) -> None:
    result = fetch(server.url("/hello"))
    assert result.success and result.data["status"] == 200
    assert result.data["body"] == "grüß dich"
    assert result.data["headers"]["content-type"] == "text/plain; charset=utf-8"
    assert result.data["address"] == "127.0.0.1"
    last = bench.last()
    assert last.tool == "web_fetch" and last.effect == "network" and last.status == "ok"
    assert last.result["data"]["hops"] == [
        {"url": server.url("/hello"), "status": 200, "address": "127.0.0.1"}
    ]
    assert "outside the workspace: network" in last.coverage.reasons


def test_a_page_that_is_missing_is_an_answer_too(fetch: Fetch, server: Server) -> None:
    assert fetch(server.url("/nothing")).data["status"] == 404


def test_a_post_sends_headers_and_body(fetch: Fetch, server: Server) -> None:
    headers = {"X-One": "1", "Content-Type": "text/plain"}
    result = fetch(server.url("/echo"), method="POST", body="grüß", headers=headers)
    assert result.data["body"] == "POST grüß"
    _, _, seen = server.seen[0]
    assert seen["X-One"] == "1" and seen["Host"] == f"127.0.0.1:{server.server_port}"


@pytest.mark.parametrize(
    ("page", "body"),
    [("/latin", "grüß"), ("/odd-charset", "plain"), ("/packed", "unpacked"), ("/long", "four")],
)
def test_bodies_are_decoded_as_the_server_says(
    fetch: Fetch, server: Server, page: str, body: str
) -> None:
    assert fetch(server.url(page)).data["body"] == body


def test_binary_data_comes_as_base64(fetch: Fetch, server: Server) -> None:
    data = fetch(server.url("/binary")).data
    assert data["encoding"] == "base64" and data["body"].startswith("AAECAw")


def test_of_a_page_the_model_sees_title_text_and_links(fetch: Fetch, server: Server) -> None:
    url = server.url("/article")
    result = fetch(url)
    more = server.url("/more?a=1&b=2")
    assert result.output == (
        f"200 {url}\nTitle: An évent\n\nHome\n\n# News\n\nThe first word.\n\nSee more.\n\n"
        f"Links:\n- more: {more}"
    )
    data = result.data
    assert (data["title"], data["links"]) == ("An évent", [{"text": "more", "url": more}])
    assert "The first word." in data["text"] and "if(a<b){}" in data["body"]
    assert data["truncated"] is False


def test_raw_shows_the_markup_of_a_page(fetch: Fetch, server: Server) -> None:
    result = fetch(server.url("/article"), raw=True)
    assert "<p>The <b>first</b> word.<p>See" in result.output and not result.data.get("text")
    assert "<p>" not in fetch(server.url("/article")).output


def test_what_is_not_text_is_named(fetch: Fetch, server: Server) -> None:
    digest = hashlib.sha256(bytes(range(256))).hexdigest()
    last = fetch(server.url("/binary")).output.splitlines()[-1]
    assert last.endswith(f", 256 bytes, SHA-256 {digest}]") and "AAECAw" not in last


# --- where it may go ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    [
        "ftp://example.org/",
        "file:///etc/passwd",
        "example.org",
        "//example.org/",
        "http://",
        "http:///path",
        "http://user@example.org/",
        "http://user:pw@example.org/",
        "http://example.org\\@evil.org/",
        "http://exam ple.org/",
        "http://example.org/\r\nX: y",
        "http://example.org:99999/",
        "http://example.org:http/",
        "http://2130706433/",
        "http://0x7f000001/",
        "http://0x7f.0.0.1/",
        "http://0177.0.0.1/",
        "http://127.1/",
        "http://127.0.0.01/",
        "http://134744072/",
        "http://1.2.3/",
        "http://0x/",
        "http://[::1/",
        "http://[::ffff:127.0.0.1]/",
        "javascript:alert(1)",
        "h" * 9000,
    ],
)
def test_a_url_no_browser_would_write_is_refused_before_any_connection(
    fetch: Fetch, url: str
) -> None:
    result = fetch(url)
    assert result.error.code == "INVALID_ARGUMENTS" and result.error.hint


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "127.255.255.254",
        "10.0.0.1",
        "172.16.0.1",
        "192.168.1.1",
        "100.64.0.1",
        "169.254.169.254",
        "0.0.0.0",
        "224.0.0.1",
        "240.0.0.1",
        "255.255.255.255",
        "192.0.2.1",
        "198.18.0.1",
        "::",
        "::1",
        "::ffff:127.0.0.1",
        "::ffff:10.0.0.1",
        "::ffff:169.254.169.254",
        "64:ff9b::7f00:1",
        "64:ff9b::a9fe:a9fe",
        "2002:7f00:1::",
        "2001:0:0:0:0:0:80ff:fffe",
        "fe80::1",
        "fe80::1%eth0",
        "fc00::1",
        "fd00:ec2::254",
        "ff02::1",
        "2001:db8::1",
        "::127.0.0.1",
        "::ffff:0:127.0.0.1",
        "64:ff9b:1::7f00:1",
        "fec0::1",
    ],
)
def test_an_address_that_is_not_public_is_refused(address: str) -> None:
    with pytest.raises(PermissionDenied):
        check_address("name.example", address, private=False)


@pytest.mark.parametrize("address", ["8.8.8.8", "2606:4700::1111", "64:ff9b::808:808"])
def test_a_public_address_passes(address: str) -> None:
    check_address("name.example", address, private=False)


@pytest.mark.parametrize(
    "address", ["169.254.169.254", "fe80::1", "::ffff:169.254.169.254", "0.0.0.0", "224.0.0.1"]
)
def test_link_local_and_the_like_are_refused_even_when_private_is_allowed(address: str) -> None:
    with pytest.raises(PermissionDenied):
        check_address("name.example", address, private=True)


def test_a_private_address_is_refused_unless_its_host_is_allowed_by_name(
    fetch: Fetch, server: Server
) -> None:
    result = fetch(server.url("/hello"), ToolSettings())
    assert result.error.code == "PERMISSION_DENIED" and "127.0.0.1" in result.error.message
    assert server.seen == []


@pytest.mark.parametrize("host", ["[::1]", "[::ffff:7f00:1]", "localhost"])
def test_loopback_by_another_name_is_refused(fetch: Fetch, server: Server, host: str) -> None:
    result = fetch(server.url("/hello", host), ToolSettings(private_hosts=("127.0.0.1",)))
    assert result.error.code == "PERMISSION_DENIED"
    assert server.seen == []


def test_one_private_address_among_public_ones_refuses_the_host(
    fetch: Fetch, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = [
        (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("8.8.8.8", 80)),
        (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 80)),
    ]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: answers)
    result = fetch(server.url("/hello", "rebind.example"), ToolSettings())
    assert result.error.code == "PERMISSION_DENIED" and server.seen == []


def test_a_name_is_resolved_once_and_the_connection_goes_to_that_address(
    fetch: Fetch, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = socket.getaddrinfo
    asked: list[str | bytes] = []

    def resolve(host: str | bytes, *rest: Any, **named: Any) -> list[Any]:
        if host in ("moving.example", b"moving.example"):
            asked.append(host)
            host = "127.0.0.1" if len(asked) == 1 else "169.254.169.254"
        return [*real(host, *rest, **named)]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    settings = ToolSettings(private_hosts=("moving.example",))
    result = fetch(server.url("/hello", "moving.example"), settings)
    assert result.success and len(asked) == 1
    assert server.seen[0][2]["Host"] == f"moving.example:{server.server_port}"


def test_a_host_nobody_knows_is_an_error(fetch: Fetch) -> None:
    assert fetch("http://nowhere.invalid/").error.code == "EXECUTION_ERROR"


def test_a_port_nobody_listens_on_is_an_error(fetch: Fetch) -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]
        result = fetch(f"http://127.0.0.1:{port}/")
    assert result.error.code == "EXECUTION_ERROR" and "reached" in result.error.message


# --- redirects ----------------------------------------------------------------------------


def test_a_redirect_on_the_same_host_is_followed_and_on_record(
    fetch: Fetch, server: Server
) -> None:
    data = fetch(server.url("/to?/hello")).data
    assert [hop["status"] for hop in data["hops"]] == [302, 200]
    assert data["url"] == server.url("/hello")


@pytest.mark.parametrize(
    "onward",
    [
        "http://localhost:{port}/hello",
        "http://169.254.169.254/latest/meta-data/",
        "http://10.0.0.1/",
        "http://[::1]:{port}/hello",
        "//localhost:{port}/hello",
    ],
)
def test_a_redirect_to_another_host_is_not_followed_unless_allowed(
    fetch: Fetch, server: Server, onward: str
) -> None:
    result = fetch(server.url("/to?" + onward.format(port=server.server_port)))
    assert result.error.code == "PERMISSION_DENIED"
    assert [path.partition("?")[0] for _, path, _ in server.seen] == ["/to"]
    assert len(result.data["hops"]) == 1


@pytest.mark.parametrize("onward", ["http://localhost:{port}/hello", "http://10.0.0.1/"])
def test_an_allowed_host_of_a_redirect_is_checked_for_its_address_too(
    fetch: Fetch, server: Server, onward: str
) -> None:
    settings = ToolSettings(
        private_hosts=("127.0.0.1",), allowed_hosts=("127.0.0.1", "localhost", "10.0.0.1")
    )
    result = fetch(server.url("/to?" + onward.format(port=server.server_port)), settings)
    assert result.error.code == "PERMISSION_DENIED" and len(server.seen) == 1


def test_a_cookie_that_one_host_sets_is_not_sent_to_another_of_its_address(
    fetch: Fetch, server: Server
) -> None:
    allowed = ToolSettings(private_hosts=LOCAL.private_hosts, allowed_hosts=LOCAL.private_hosts)
    there = server.url("/hello", "localhost")
    assert fetch(server.url(f"/cookie?{there}"), allowed).success
    _, second = (seen for _, _, seen in server.seen)
    assert "Cookie" not in second


def test_a_redirect_to_an_allowed_host_loses_the_credentials(fetch: Fetch, server: Server) -> None:
    settings = ToolSettings(
        private_hosts=("127.0.0.1", "localhost"), allowed_hosts=("127.0.0.1", "localhost")
    )
    headers = {"Authorization": "Bearer x", "Cookie": "a=b", "X-Kept": "1"}
    result = fetch(
        server.url(f"/to?{server.url('/hello', 'localhost')}"), settings, headers=headers
    )
    assert result.success
    first, second = (seen for _, _, seen in server.seen)
    assert first["Authorization"] == "Bearer x"
    assert "Authorization" not in second and "Cookie" not in second and second["X-Kept"] == "1"


@pytest.mark.parametrize("onward", ["file:///etc/passwd", "ftp://x/", "http://0x7f000001/"])
def test_a_redirect_to_what_is_not_a_plain_url_is_refused(
    fetch: Fetch, server: Server, onward: str
) -> None:
    assert fetch(server.url(f"/to?{onward}")).error.code == "INVALID_ARGUMENTS"


def test_a_post_becomes_a_get_after_302_and_stays_one_after_307(
    fetch: Fetch, server: Server
) -> None:
    assert fetch(server.url("/to?/echo"), method="POST", body="x").data["body"] == "GET "
    assert fetch(server.url("/keep"), method="POST", body="x").data["body"] == "POST x"


def test_a_circle_of_redirects_ends(fetch: Fetch, server: Server) -> None:
    result = fetch(server.url("/loop"))
    assert result.error.code == "PERMISSION_DENIED" and "redirects" in result.error.message
    assert len(server.seen) == web_module.MAX_REDIRECTS + 1


# --- size, time, lies ---------------------------------------------------------------------


def test_a_body_of_a_gigabyte_is_cut_and_the_rest_never_read(fetch: Fetch, server: Server) -> None:
    data = fetch(server.url("/gigabyte")).data
    assert data["truncated"] and len(data["body"]) == web_module.MAX_BODY
    assert server.sent < 64 << 20


def test_a_small_body_that_unpacks_to_a_large_one_stays_in_bounds(
    fetch: Fetch, server: Server
) -> None:
    tracemalloc.start()
    try:
        data = fetch(server.url("/bomb"), headers={"X": "1"}).data
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert data["truncated"] and peak < 48 << 20


@pytest.mark.parametrize("page", ["/slow", "/silent"])
def test_a_server_that_dawdles_is_given_up(
    bench: Bench, fetch: Fetch, server: Server, page: str
) -> None:
    result = fetch(server.url(page), timeout=0.3)
    assert result.error.code == "TIMEOUT" and bench.last().status == "timeout"


@pytest.mark.parametrize("page", ["/short", "/two-lengths", "/rubbish", "/bad-packed"])
def test_a_server_that_breaks_the_protocol_is_an_error(
    fetch: Fetch, server: Server, page: str
) -> None:
    result = fetch(server.url(page))
    assert result.error.code == "EXECUTION_ERROR" and "HTTP" in result.error.message


# --- TLS ----------------------------------------------------------------------------------


def contexts(*names: str) -> tuple[SSLContext, SSLContext]:
    authority = trustme.CA()
    ours, theirs = ssl.create_default_context(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.configure_trust(ours)
    authority.issue_cert(*names).configure_cert(theirs)
    return ours, theirs


def test_a_certificate_is_checked_against_the_name(fetch: Fetch) -> None:
    ours, theirs = contexts("localhost")
    with serving(theirs) as server:
        assert fetch(server.url("/hello", "localhost", "https"), tls=ours).success
        wrong = fetch(server.url("/hello", "127.0.0.1", "https"), tls=ours)
    assert wrong.error.code == "EXECUTION_ERROR" and "certificate" in wrong.error.message


def test_a_certificate_is_checked_for_each_host_of_a_chain_of_redirects(
    fetch: Fetch,
) -> None:
    """Two hosts of one address: a connection made for one of them proves nothing of the other."""
    ours, theirs = contexts("localhost")
    allowed = ToolSettings(private_hosts=LOCAL.private_hosts, allowed_hosts=LOCAL.private_hosts)
    with serving(theirs) as server:
        other = server.url("/hello", "127.0.0.1", "https")
        url = server.url(f"/to?{other}", "localhost", "https")
        result = fetch(url, allowed, tls=ours)
    assert result.error and "certificate" in result.error.message
    assert [path for _, path, _ in server.seen] == [f"/to?{other}"]


def test_a_certificate_of_an_unknown_authority_is_refused(fetch: Fetch) -> None:
    _, theirs = contexts("localhost")
    with serving(theirs) as server:
        result = fetch(server.url("/hello", "localhost", "https"))
        assert result.error.code == "EXECUTION_ERROR" and server.seen == []


def test_a_redirect_from_https_to_http_is_refused(fetch: Fetch, server: Server) -> None:
    ours, theirs = contexts("localhost")
    with serving(theirs) as secure:
        url = secure.url(f"/to?{server.url('/hello', 'localhost')}", "localhost", "https")
        result = fetch(url, tls=ours)
    assert result.error.code == "PERMISSION_DENIED" and server.seen == []


# --- approval and headers -----------------------------------------------------------------


class Asked:
    """A gate that keeps why it was asked, and denies what was."""

    def __init__(self) -> None:
        self.reasons: list[str] = []

    async def decide(self, tool: Tool, args: Any, ctx: ToolContext, *, asked: str = "") -> Decision:
        from loom_audit.tools.calls.gate import Decision

        self.reasons.append(asked)
        return Decision("denied" if asked else "allowed", "test")


@pytest.mark.parametrize(
    ("allowed", "asks"),
    [((), True), (("127.0.0.1",), False), (("*.0.0.1",), False), (("other.org",), True)],
)
def test_a_host_off_the_allow_list_is_asked_about(
    fetch: Fetch, server: Server, allowed: tuple[str, ...], asks: bool
) -> None:
    gate = Asked()
    settings = ToolSettings(allowed_hosts=allowed, private_hosts=("127.0.0.1",))
    result = fetch(server.url("/hello"), settings, gate=gate)
    assert bool(gate.reasons[0]) is asks and result.success is not asks
    assert len(server.seen) == (0 if asks else 1)


def test_a_denied_fetch_connects_to_nobody(fetch: Fetch, server: Server) -> None:
    result = fetch(server.url("/hello"), gate=DenyAll("network"))
    assert result.error.code == "APPROVAL_DENIED" and server.seen == []


@pytest.mark.parametrize(
    ("pattern", "host", "fits"),
    [
        ("example.org", "example.org", True),
        ("example.org", "a.example.org", False),
        ("*.example.org", "a.b.example.org", True),
        ("*.example.org", "example.org", False),
        ("*.example.org", "badexample.org", False),
        ("Example.ORG.", "example.org", True),
    ],
)
def test_names_of_a_list_fit_whole_labels_only(pattern: str, host: str, fits: bool) -> None:
    assert is_listed(host, [pattern]) is fits


def test_a_host_is_taken_as_it_is_resolved() -> None:
    assert parse_target("https://EXAMPLE.org./a").host == "example.org"
    assert parse_target("https://bücher.example/").host == "xn--bcher-kva.example"
    assert parse_target("http://8.8.8.8/").port == 80
    with pytest.raises(InvalidArguments):
        parse_target("http://8.8.8.8.1/")


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil"},
        {"content-length": "3"},
        {"Transfer-Encoding": "chunked"},
        {"X": "a\r\nY: b"},
        {"X\r\nY": "b"},
        {"X Y": "b"},
        {"": "b"},
        {"X": "\u20ac"},
    ],
)
def test_headers_that_would_change_the_request_are_refused(
    fetch: Fetch, server: Server, headers: dict[str, str]
) -> None:
    result = fetch(server.url("/hello"), headers=headers)
    assert result.error.code == "INVALID_ARGUMENTS" and server.seen == []


def test_a_get_with_a_body_is_refused(fetch: Fetch, server: Server) -> None:
    assert fetch(server.url("/hello"), body="x").error.code == "INVALID_ARGUMENTS"
