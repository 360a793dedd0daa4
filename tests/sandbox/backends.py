"""Which backends this machine lets work."""

import functools
import shutil

import pytest

from loom_audit.errors import AuditError
from loom_audit.ports import Runner
from loom_audit.sandbox import open_runner, probe


@functools.cache
def flaw(name: str) -> str:
    """Why a backend does not work here; empty when it does."""
    try:
        probe(open_runner(name))
    except AuditError as error:
        return f"{error.message} {error.details.get('stderr', '')}"
    return ""


def working(name: str) -> Runner:
    """The backend of that name; the test is skipped, and says why, where it does not work."""
    check_installed(name)
    if found := flaw(name):
        pytest.skip(f"{name} does not work on this machine: {found}")
    return open_runner(name)


def check_installed(name: str) -> None:
    if name == "bubblewrap" and shutil.which("bwrap") is None:
        pytest.skip("needs bubblewrap: apt-get install bubblewrap")
