"""`serve` and `proxy` give their address when it can be asked, and only then."""

import json
import signal
import socket
import subprocess
import sys

import pytest

from tests.cli.shells import Shell

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
        [sys.executable, "-m", "loom_audit", server, "--port", str(port), "--json"],
        cwd=audited.workspace,
        env=audited.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    said = json.loads(process.stdout.readline())
    assert said["url"].rstrip("/") == f"http://127.0.0.1:{port}"
    with socket.create_connection(("127.0.0.1", port), timeout=60) as asked:
        asked.sendall(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
        assert asked.recv(5) == b"HTTP/"
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM, errors
    assert b"Traceback" not in errors
