"""What lies in `<data folder>/hooks/`: the hook client, and how the warm process is started."""

import os
import sys
import tempfile
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

from loom_audit.clients.known import CLIENTS
from loom_audit.clients.reports import Hook, Verdict
from loom_audit.config import Settings
from loom_audit.errors import InvalidArguments
from loom_audit.hook_client import REASON
from loom_audit.wiring.files import audit_errors, check_own_filesystem

SOCKET = "daemon.sock"
CLIENT = "hook_client.py"
LOADED = "hook.py"
_RUN = b"""import sys
sys.path.insert(0, __file__.rpartition("/")[0])
from hook import run
run(sys.argv[1:], %r)
"""
"""What is run: it loads the rest as it was compiled once, which takes a third of the time.

The rest knows no client: it is given by client and hook how a call is denied.
"""

START = "daemon"

_PACKAGE = Path(__file__).parents[2]


def check_lasting(settings: Settings) -> None:
    """Whether clients can be connected to this program; nothing is written.

    InvalidArguments where the interpreter, this program or the data folder is temporary, or other
    machines may write the store too.
    """
    for what, path in (
        ("the data folder", str(settings.home)),
        ("the interpreter", _interpreter()),
        ("this installation", sys.prefix),
    ):
        _check_lasting(what, path)
    check_home(settings)


def launcher_words(settings: Settings) -> Sequence[str]:
    """The words that a client's settings run: the hook client, at a place that stays.

    To them the client's name is added, and `--strict`. Nothing is written.
    """
    return (_interpreter(), "-I", "-S", str(settings.hooks / CLIENT))


def _interpreter() -> str:
    """The interpreter, which is not one of a virtual environment."""
    return os.path.realpath(getattr(sys, "_base_executable", sys.executable))


def write_launcher(settings: Settings) -> None:
    """Write the copy of the hook client, and how the warm process is started."""
    folder = settings.hooks
    with audit_errors(str(folder)):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _put(folder / LOADED, (_PACKAGE / CLIENT).read_bytes())
        _put(folder / CLIENT, _RUN % (_denials(),))
        _put(folder / START, b"".join(os.fsencode(word) + b"\0" for word in _start(settings)))


def _denials() -> dict[tuple[bytes, bytes], bytes]:
    """By client and hook before a call what denies it, with a word in the place of the reason."""
    denied = Verdict("deny", REASON.decode())
    return {
        (client.name.encode(), event.encode()): client.answer(Hook(event, "before", ""), denied)
        for client in CLIENTS.values()
        for event, moment in client.moments.items()
        if moment == "before"
    }


def _start(settings: Settings) -> list[str]:
    """The variables that the warm process is given, and the words that start it."""
    home = os.environ.get("LOOM_AUDIT_HOME")
    named = [f"LOOM_AUDIT_HOME={Path(home).expanduser()}"] if home else []
    program = [sys.executable, "-I", "-m", "loom_audit", "daemon"]
    return [*named, f"LOOM_AUDIT_STORE={settings.url}", *program]


def check_home(settings: Settings) -> None:
    """InvalidArguments where other machines may write the store too; nothing is written."""
    home = settings.home
    check_own_filesystem(next(one for one in (home, *home.parents) if one.exists()))


def build_id() -> str:
    """The id of the build of this program that lies on disk now: another after an upgrade."""
    seen = sha256()
    for path in sorted(_PACKAGE.rglob("*.py")):
        found = path.stat()
        seen.update(f"{path}\0{found.st_size}\0{found.st_mtime_ns}\0".encode("utf-8", "replace"))
    return seen.hexdigest()[:16]


def _check_lasting(what: str, path: str) -> None:
    from platformdirs import user_cache_path

    real = os.path.realpath(path)
    for folder in (tempfile.gettempdir(), str(user_cache_path())):
        if (real + os.sep).startswith(os.path.realpath(folder) + os.sep):
            raise InvalidArguments(
                f"{what} is in a temporary folder: {real}",
                hint="Install loom-audit where it stays (`uv tool install .` or `pipx install .` "
                "in a clone of it), and keep its data there.",
            )


def _put(file: Path, content: bytes) -> None:
    """Write a file whole, or leave it as it is."""
    if file.exists() and file.read_bytes() == content:
        return
    written = file.with_suffix(f".{os.getpid()}")
    written.write_bytes(content)
    written.chmod(0o600)
    written.replace(file)
