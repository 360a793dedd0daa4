"""What is done as an ordinary user, whoever started the tests."""

import codecs
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from loom_audit import AuditedWorkspace, Session, builtin_registry, open_store

NOBODY = 65534


@contextmanager
def ordinary_user(*, ordinary: bool = True) -> Iterator[Path]:
    """A directory of an ordinary user, as whom this process runs in the block.

    Not `ordinary` it stays whose it is.
    """
    folder = Path(tempfile.mkdtemp())
    root, groups = ordinary and os.geteuid() == 0, os.getgroups()
    if root:
        os.chown(folder, NOBODY, NOBODY)
        os.setgroups([])
        os.setegid(NOBODY)
        os.seteuid(NOBODY)
    try:
        yield folder
    finally:
        if root:
            os.seteuid(0)
            os.setegid(0)
            os.setgroups(groups)
        subprocess.run(["chmod", "-R", "u+rwx", str(folder)], check=False)
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def ordinary_session(
    files: Mapping[str, str], monkeypatch: pytest.MonkeyPatch, *, ordinary: bool = True
) -> Iterator[Session]:
    """A session of an ordinary user in a workspace of these files."""
    builtin_registry()  # its modules are imported while we may read them
    codecs.lookup("ascii")
    with ordinary_user(ordinary=ordinary) as folder:
        monkeypatch.setenv("LOOM_AUDIT_HOME", str(folder / "home"))
        for path, text in files.items():
            (folder / "w" / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / "w" / path).write_text(text)
        with open_store() as store, store.attach(folder / "w").session("tester") as session:
            yield session


@pytest.fixture
def session(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Session]:
    """A session of an ordinary user in a workspace of the `FILES` of a module of tests."""
    with ordinary_session(request.module.FILES, monkeypatch) as session:
        yield session


def run(session: Session, *commands: str) -> AuditedWorkspace:
    """Run shell commands, each as one call, with the rights of the account that they are of."""
    for command in commands:
        with session.recording("command"):
            subprocess.run(
                ["sh", "-p", "-e", "-c", command], cwd=session.workspace.root, check=True
            )
    return session.workspace
