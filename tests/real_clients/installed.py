"""The real clients, as npm and PyPI have them: pinned versions in a cache beside the person's own.

`LATEST=1` takes the newest ones instead. The cache is `$XDG_CACHE_HOME/loom-audit-clients`; what is
there once is not asked for again.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

NPM: Mapping[str, str] = {
    "@anthropic-ai/claude-code": "2.1.328",
    "@openai/codex": "0.169.0",
    "opencode-ai": "1.18.33",
    "@google/gemini-cli": "0.61.0",
}
PYPI: Mapping[str, str] = {
    "mcp": "2.3.0",
    "pydantic-ai-slim[openai,mcp]": "2.68.0",
    "openai-agents": "0.24.0",
}
LATEST = os.environ.get("LATEST") == "1"
ROOT = Path(__file__).parents[2]
INSTALLING = 900.0
"""Seconds that an installation may take."""


def cache() -> Path:
    """The folder that holds what is installed and the runs' folders; no temporary one.

    A client refuses some of its parts, and we our launcher, where the home is a temporary folder.
    """
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    folder = Path(base) / "loom-audit-clients"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def from_npm(package: str) -> Path:
    """The folder of the commands that a package brings."""
    npm, node = shutil.which("npm"), shutil.which("node")
    if npm is None or node is None:
        pytest.skip("needs node and npm: apt-get install npm")
    wanted = f"{package}@{'latest' if LATEST else NPM[package]}"
    with _installed("npm", wanted) as place:
        if place is not None:
            _run(npm, "install", "--no-audit", "--no-fund", "--prefix", str(place), wanted)
    return _place("npm", wanted) / "node_modules" / ".bin"


def from_pypi(package: str) -> Path:
    """A Python that has a package, and not ours."""
    wanted = package if LATEST else f"{package}=={PYPI[package]}"
    with _installed("pypi", wanted) as place:
        if place is not None:
            _run(sys.executable, "-m", "venv", str(place))
            _run(str(place / "bin" / "pip"), "install", "--quiet", wanted)
    return _place("pypi", wanted) / "bin" / "python"


def with_ours(python: Path) -> Path:
    """The same Python with this checkout, and of what it needs what is not there already."""
    packages = next((python.parents[1] / "lib").glob("python*/site-packages"))
    (packages / "checkout.pth").write_text("".join(f"{path}\n" for path in _ours()))
    return python


def _ours() -> list[str]:
    return [str(ROOT), *(path for path in sys.path if path.endswith("site-packages"))]


def our_python() -> Path:
    """A Python with this checkout and what it needs, at a stable path."""
    wanted = f"{sys.version}\n{sys.prefix}\n{ROOT}"
    with _installed("ours", wanted) as place:
        if place is not None:
            _run(sys.executable, "-m", "venv", "--without-pip", str(place))
            with_ours(place / "bin" / "python")
            command = place / "bin" / "loom-audit"
            command.write_text(
                f"#!{place}/bin/python\nimport sys\nfrom loom_audit.cli import main\n"
                "sys.exit(main())\n"
            )
            command.chmod(0o755)
    return _place("ours", wanted) / "bin" / "python"


def _place(kind: str, wanted: str) -> Path:
    return cache() / f"{kind}-{hashlib.sha256(wanted.encode()).hexdigest()[:16]}"


@contextmanager
def _installed(kind: str, wanted: str) -> Iterator[Path | None]:
    """The folder to install into, one process at a time; None when it is there already."""
    place = _place(kind, wanted)
    with (cache() / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = place / "installed"
        if done.exists():
            yield None
            return
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        yield place
        done.write_text(f"{wanted}\n")


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALLING)
    assert done.returncode == 0, f"{command}: {done.stdout}\n{done.stderr}"
