"""A stand-in for another program's process: the conftest.py of tests that need one imports it."""

import subprocess
from collections.abc import Iterator

import pytest


@pytest.fixture
def client() -> Iterator[subprocess.Popen[bytes]]:
    """A process that does nothing until it is killed."""
    with subprocess.Popen(["sleep", "1000"]) as process:
        yield process
        process.kill()
