"""A real HTTP server on loopback whose paths misbehave in the ways the tests name."""

import gzip
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

BOMB = gzip.compress(bytes(64 << 20))


class Pages(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: "Server"

    def log_message(self, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        self.server.seen.append((self.command, self.path, dict(self.headers)))
        size = int(self.headers.get("Content-Length", 0))
        body = self.rfile.read(size)
        name = self.path.partition("?")[0].strip("/").replace("-", "_")
        getattr(self, f"page_{name}", self.page_missing)(body)

    do_POST = do_GET

    def say(self, body: bytes, *, status: int = 200, **headers: str) -> None:
        self.send_response(status)
        headers.setdefault("Content_Type", "text/plain; charset=utf-8")
        headers.setdefault("Content_Length", str(len(body)))
        for key, value in headers.items():
            self.send_header(key.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def page_missing(self, body: bytes) -> None:
        self.say(b"nothing here", status=404)

    def page_hello(self, body: bytes) -> None:
        self.say("grüß dich".encode())

    def page_echo(self, body: bytes) -> None:
        self.say(self.command.encode() + b" " + body)

    def page_latin(self, body: bytes) -> None:
        self.say("grüß".encode("latin-1"), Content_Type="text/html; charset=ISO-8859-1")

    def page_odd_charset(self, body: bytes) -> None:
        self.say(b"plain", Content_Type="text/html; charset=zip")

    def page_article(self, body: bytes) -> None:
        """What there is to read stands behind 64 KB of style and script."""
        style = b"<style>" + b"a{b:c}" * 6000 + b"</style>"
        script = b"<script>" + b"if(a<b){}" * 4000 + b"</script>"
        text = b"<h1>News</h1><p>The <b>first</b> word.<p>See <a href='/more?a=1&amp;b=2'>more</a>."
        head = b"<html><head><title>An &eacute;vent</title>" + style + script
        page = head + b"</head><body><nav>Home</nav>" + text + b"</body></html>"
        self.say(page, Content_Type="text/html; charset=utf-8")

    def page_binary(self, body: bytes) -> None:
        self.say(bytes(range(256)), Content_Type="application/octet-stream")

    def page_to(self, body: bytes) -> None:
        where = self.path.partition("?")[2]
        self.say(b"", status=302, Location=where)

    def page_cookie(self, body: bytes) -> None:
        where = self.path.partition("?")[2]
        self.say(b"", status=302, Location=where, Set_Cookie="session=secret; Path=/")

    def page_keep(self, body: bytes) -> None:
        self.say(b"", status=307, Location="/echo")

    def page_loop(self, body: bytes) -> None:
        self.say(b"", status=302, Location="/loop")

    def page_slow(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "1000")
        self.end_headers()
        for _ in range(200):
            try:
                self.wfile.write(b".")
                self.wfile.flush()
            except OSError:
                return
            if self.server.over.wait(0.05):
                return

    def page_silent(self, body: bytes) -> None:
        self.server.over.wait(10)

    def page_gigabyte(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Content-Length", str(1 << 30))
        self.end_headers()
        chunk = b"x" * 65536
        for _ in range(1 << 14):
            try:
                self.wfile.write(chunk)
            except OSError:
                self.close_connection = True
                return
            self.server.sent += len(chunk)

    def page_short(self, body: bytes) -> None:
        self.say(b"only this", Content_Length="1000")
        self.close_connection = True
        self.wfile.flush()
        self.connection.shutdown(socket.SHUT_RDWR)

    def page_long(self, body: bytes) -> None:
        self.say(b"four" + b" and much more", Content_Length="4")
        self.close_connection = True

    def page_two_lengths(self, body: bytes) -> None:
        self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nContent-Length: 9\r\n\r\nfour")
        self.close_connection = True

    def page_rubbish(self, body: bytes) -> None:
        self.wfile.write(b"\x00\xff not http at all\r\n\r\n")
        self.close_connection = True

    def page_bomb(self, body: bytes) -> None:
        self.say(BOMB, Content_Encoding="gzip")

    def page_packed(self, body: bytes) -> None:
        self.say(gzip.compress(b"unpacked"), Content_Encoding="gzip")

    def page_bad_packed(self, body: bytes) -> None:
        self.say(b"no gzip", Content_Encoding="gzip")


class Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, address: str, tls: ssl.SSLContext | None) -> None:
        if ":" in address:
            self.address_family = socket.AF_INET6
        super().__init__((address, 0), Pages)
        if tls:
            self.socket = tls.wrap_socket(self.socket, server_side=True)
        self.seen: list[tuple[str, str, dict[str, str]]] = []
        self.sent = 0
        self.over = threading.Event()

    def handle_error(self, request: object, client_address: object) -> None:
        pass  # a client that refuses our certificate is what some tests are about

    def url(self, path: str, host: str = "127.0.0.1", scheme: str = "http") -> str:
        return f"{scheme}://{host}:{self.server_port}{path}"


@contextmanager
def serving(tls: ssl.SSLContext | None = None, address: str = "127.0.0.1") -> Iterator[Server]:
    server = Server(address, tls)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.over.set()
        server.shutdown()
        server.server_close()
        thread.join(5)
        time.sleep(0)
