"""`serve` and `proxy` give their address when it can be asked, and only then."""

import http.client
import json
import re
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO
from urllib.parse import urlencode, urlsplit

import pytest

from tests.cli.shells import Shell
from tests.processes.forked import begun_by

SERVERS = ("serve", "proxy")


@pytest.mark.parametrize("server", SERVERS)
def test_on_a_taken_port_no_address_is_given(audited: Shell, server: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for form in ((), ("--json",)):
            refused = audited(server, "--port", str(port), *form, code=4)
            assert refused.text == ""
            assert f"cannot listen on 127.0.0.1:{port}: Address already in use" in refused.errors
            assert "--port" in refused.errors


@pytest.mark.parametrize("server", SERVERS)
def test_the_address_that_is_given_answers_until_told_to_end(audited: Shell, server: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    process = subprocess.Popen(
        [*begun_by(), server, "--port", str(port), "--json"],
        cwd=audited.workspace,
        env=audited.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    said = json.loads(process.stdout.readline())
    name = "127.0.0.1" if server == "proxy" else r"[0-9a-f]{20}\.localhost"
    assert re.fullmatch(rf"http://{name}:{port}/?", said["url"])
    with socket.create_connection(("127.0.0.1", port), timeout=60) as asked:
        asked.sendall(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
        assert asked.recv(5) == b"HTTP/"
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM, errors
    assert b"Traceback" not in errors


def test_a_proxy_told_a_second_time_waits_for_no_provider_and_prints_no_traceback(
    audited: Shell,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with socket.create_server(("127.0.0.1", 0)) as provider:
        provider.settimeout(60)
        keys = {"URL": f"http://127.0.0.1:{provider.getsockname()[1]}", "MODEL": "m"}
        process = subprocess.Popen(
            [sys.executable, "-m", "loom_audit", "proxy", "--port", str(port), "--json"],
            env=audited.environment | {f"LOOM_PROXY_ORACLE_{k}": v for k, v in keys.items()},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert process.stdout is not None
        process.stdout.readline()
        asking = http.client.HTTPConnection("127.0.0.1", port)
        question = json.dumps({"messages": [{"role": "user", "content": "x"}]})
        asking.request("POST", "/proxy/oracle", question, {"Content-Type": "application/json"})
        with provider.accept()[0]:
            process.send_signal(signal.SIGINT)
            while True:
                try:
                    socket.create_connection(("127.0.0.1", port)).close()
                except ConnectionError:
                    break  # it has been told
                # a flood takes all its descriptors, and what it then says fills the pipe
                time.sleep(0.02)
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=60)
        asking.close()
    assert process.returncode == 128 + signal.SIGINT
    assert b"Traceback" not in errors, errors.decode()


BROWSER = """#!{python}
import json, os, sys
from urllib.parse import unquote, urlsplit
file = unquote(urlsplit(sys.argv[1]).path)
seen = {{"argv": sys.argv, "file": file, "mode": os.stat(file).st_mode, "text": open(file).read()}}
with open({told!r}, "w") as told:
    json.dump(seen, told)
"""


@contextmanager
def serving(shell: Shell, *words: str, **environment: str) -> Iterator[IO[str]]:
    """`loom-audit serve` on a free port; what it prints."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    process = subprocess.Popen(
        [*begun_by(), "serve", "--port", str(port), *words],
        cwd=shell.workspace,
        env={**shell.environment, **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        yield process.stdout
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)


def sign_in(url: str, **form: str) -> int:
    """The status of what is answered to a token."""
    where = urlsplit(url)
    assert where.port is not None
    asked = http.client.HTTPConnection("127.0.0.1", where.port, timeout=60)
    kind = "application/x-www-form-urlencoded"
    headers = {"Host": where.netloc, "Origin": "null", "Content-Type": kind}
    asked.request("POST", "/sign-in", urlencode(form), headers)
    return asked.getresponse().status


def command_lines() -> str:
    """Those of all processes, which every account can read."""
    found = []
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append(process.read_bytes())
        except (FileNotFoundError, ProcessLookupError):
            continue
    return b"\n".join(found).decode("utf-8", "replace")


@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="asks Linux's /proc")
def test_a_browser_is_opened_signed_in_and_the_token_is_on_no_command_line(
    audited: Shell, tmp_path: Path
) -> None:
    program, told = tmp_path / "browser", tmp_path / "told.json"
    program.write_text(BROWSER.format(python=sys.executable, told=str(told)))
    program.chmod(0o700)
    with serving(audited, "--open", "--json", BROWSER=str(program)) as printed:
        said = json.loads(printed.readline())
        with socket.create_connection(("127.0.0.1", urlsplit(said["url"]).port), timeout=60) as up:
            up.sendall(b"GET / HTTP/1.0\r\nHost: x\r\n\r\n")
            assert up.recv(5) == b"HTTP/"  # it answers once the browser was started
        seen = json.loads(told.read_text())
        assert stat.S_IMODE(seen["mode"]) == 0o600
        assert f'action="{said["url"]}sign-in"' in seen["text"]
        (token,) = re.findall(r'name="token" value="([^"]+)"', seen["text"])
        lines = command_lines()
        for secret in (token, said["token"]):
            assert secret not in lines and secret not in " ".join(seen["argv"])
        assert Path(seen["file"]).exists()
        assert sign_in(said["url"], token=token) == 200
        assert not Path(seen["file"]).exists()
        assert sign_in(said["url"], token=token) == 403


def test_the_file_for_the_browser_goes_with_the_server(audited: Shell, tmp_path: Path) -> None:
    home = Path(audited.environment["LOOM_AUDIT_HOME"])
    told = tmp_path / "told"
    with serving(audited, "--open", BROWSER=f"sh -c 'cat %s > {told}'") as printed:
        port = urlsplit(printed.readline().split()[2]).port
        with socket.create_connection(("127.0.0.1", port), timeout=60) as up:
            up.sendall(b"GET / HTTP/1.0\r\nHost: x\r\n\r\n")
            assert up.recv(5) == b"HTTP/"  # it answers once the browser was started
        assert [*home.glob("sign-in-*")] != []
    assert [*home.glob("sign-in-*")] == []


def test_the_terminal_says_how_to_get_in_and_each_time_somebody_did(audited: Shell) -> None:
    with serving(audited) as printed:
        first, second, third = (printed.readline() for _ in range(3))
        url = re.search(r"http://\S+", first)
        token = re.search(r"works once: (\S+)$", second)
        assert url and token and "Ctrl-C ends it" in first
        port = urlsplit(url[0]).port
        assert f"ssh -L {port}:127.0.0.1:{port} HOST" in third
        assert sign_in(url[0], token=token[1], name="Ada \x1b[31m") == 200
        again = re.fullmatch(
            r"a browser signed in as Ada (.*); for one more: (\S+)\n", said := printed.readline()
        )
        assert again, said
        assert "\x1b" not in said
        assert sign_in(url[0], token=token[1]) == 403
        assert sign_in(url[0], token=again[2]) == 200
        assert "a browser signed in; for one more: " in printed.readline()
