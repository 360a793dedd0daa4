"""What a confined command may see beside its workspace: a minimal system, and its programs.

Of /etc only what programs need, by name: user 0 could read the rest also without capabilities.
Programs are where PATH and this interpreter say, with the libraries beside them. A home
directory is never shown as a whole, only such folders in it.
"""

import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from loom_audit.ports import Command

SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
CONFIGURATION = (
    "alternatives",
    "ca-certificates",
    "fonts",
    "group",
    "hosts",
    "java",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "localtime",
    "mime.types",
    "nsswitch.conf",
    "os-release",
    "passwd",
    "perl",
    "pki/ca-trust/extracted",
    "pki/tls/certs",
    "protocols",
    "python3",
    "resolv.conf",
    "services",
    "ssl/certs",
    "ssl/openssl.cnf",
)
"""Names in /etc; `java` also as java-17-openjdk and the like."""

DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
NEIGHBOURS = ("lib", "lib32", "lib64", "libexec", "include", "versions", "version", "pyvenv.cfg")
"""What belongs to the programs in the folder next to it; `share` holds a person's own things."""

PASSED_VARIABLES = (
    "PATH",
    "LANG",
    "LANGUAGE",
    "TZ",
    "TERM",
    "COLORTERM",
    "NO_COLOR",
    "FORCE_COLOR",
    "COLUMNS",
    "LINES",
    "USER",
    "LOGNAME",
    "SHELL",
    "CI",
    "EDITOR",
    "PAGER",
    "SOURCE_DATE_EPOCH",
    "VIRTUAL_ENV",
    "CONDA_PREFIX",
    "PYENV_ROOT",
    "PYENV_VERSION",
    "PYTHONPATH",
    "PYTHONHASHSEED",
    "PYTHONDONTWRITEBYTECODE",
    "PYTHONUNBUFFERED",
    "PYTHONUTF8",
    "PYTHONIOENCODING",
    "PYTHONWARNINGS",
    "NODE_ENV",
    "NODE_OPTIONS",
    "NODE_PATH",
    "NVM_DIR",
    "JAVA_HOME",
    "GOROOT",
    "GOFLAGS",
    "RUSTUP_HOME",
    "RUSTUP_TOOLCHAIN",
    "RUST_BACKTRACE",
    "MAKEFLAGS",
    "CFLAGS",
    "CXXFLAGS",
    "LDFLAGS",
    "CC",
    "CXX",
    "PKG_CONFIG_PATH",
    "LD_LIBRARY_PATH",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "GIT_AUTHOR_NAME",
    "GIT_AUTHOR_EMAIL",
    "GIT_COMMITTER_NAME",
    "GIT_COMMITTER_EMAIL",
)
"""Variables of ours that a confined command gets; no keys, no tokens, no agents' sockets."""

_INTERPRETER = re.compile(r"(python|pypy|node)[0-9.]*")
_MOST_LINKS = 8


def environment(command: Command, home: str) -> dict[str, str]:
    """The whole environment of a confined command, whose home directory is `home`."""
    given = command.environment
    if given is None:
        ours = {k: v for k, v in os.environ.items() if k in PASSED_VARIABLES or k.startswith("LC_")}
        given = {"PATH": "/usr/local/bin:/usr/bin:/bin", **ours, "HOME": home, "TMPDIR": home}
        given["GIT_CONFIG_NOSYSTEM"] = "1"  # git stops at a file that is there and closed to it
    return {**given, **command.variables}


def bare_environment() -> dict[str, str]:
    """The variables that this interpreter needs to start, and none other of ours."""
    path = os.environ.get("LD_LIBRARY_PATH")
    return {"PATH": os.defpath, **({"LD_LIBRARY_PATH": path} if path else {})}


def readable(command: Command, root: str, hidden: Sequence[str]) -> list[str]:
    """The existing paths outside the workspace that a command may read, outermost only, sorted.

    A path that `command.readable` names in a hidden folder is left out.
    """
    # not of command.variables, which a call's arguments may set
    path = (os.environ if command.environment is None else command.environment).get("PATH", "")
    asked = [os.path.abspath(path) for path in command.readable]
    kept = [path for path in asked if not is_within(os.path.realpath(path), hidden)]
    programs = _programs(path, root)
    paths = {*kept, *programs, *SYSTEM, *configuration(), *interpreter()}
    return _outermost(
        path for path in paths if os.path.exists(path) and not is_within(path, [root])
    )


def configuration() -> Iterator[str]:
    """The paths of /etc that a confined command sees."""
    for name in CONFIGURATION:
        yield f"/etc/{name}"
    try:
        yield from (f"/etc/{name}" for name in os.listdir("/etc") if name.startswith("java-"))
    except OSError:
        return


def interpreter() -> list[str]:
    """The paths that this interpreter needs to run, and the folder of the supervisor."""
    needed = [str(Path(__file__).parent)]
    for prefix in (sys.prefix, sys.base_prefix, sys.base_exec_prefix):
        needed += (
            [f"{prefix}/{n}" for n in ("bin", *NEIGHBOURS)] if _is_too_wide(prefix) else [prefix]
        )
    return needed


def _programs(path: str, root: str) -> Iterator[str]:
    folders = [os.path.normpath(f) for f in path.split(":") if f.startswith("/")]
    for folder in dict.fromkeys(folders):
        if not _leads_through(folder, root):
            yield from _program_folder(folder)
        for name in ("python3", "python", "node"):
            yield from _interpreter_folder(f"{folder}/{name}")
    for name in (".venv", "venv", "env"):
        yield from _interpreter_folder(f"{root}/{name}/bin/python")


def _program_folder(folder: str) -> Iterator[str]:
    if is_within(folder, SYSTEM) or _is_too_wide(folder):
        return
    yield folder
    beside = os.path.dirname(folder)
    if not _is_too_wide(beside):
        yield from (f"{beside}/{name}" for name in NEIGHBOURS)


def _interpreter_folder(program: str) -> Iterator[str]:
    """The programs' folder that an interpreter is a link into.

    The link may be an agent's: it shows nothing but where an interpreter is installed.
    """
    real = os.path.realpath(program)
    folder, name = os.path.split(real)
    installed = os.path.basename(folder) == "bin" and _INTERPRETER.fullmatch(name)
    if os.path.islink(program) and installed and os.path.isfile(real) and os.access(real, os.X_OK):
        yield from _program_folder(folder)
        for way in _ways(program):
            # the same folder under the name of a version, as uv and pyenv link to it
            if way != folder and os.path.realpath(os.path.dirname(way)) == os.path.dirname(folder):
                yield from _program_folder(way)


def _ways(program: str) -> Iterator[str]:
    """The folders through which a chain of links leads to a program, but for its own."""
    for _ in range(_MOST_LINKS):
        if not os.path.islink(program):
            return
        place = os.path.realpath(os.path.dirname(program))
        program = os.path.normpath(os.path.join(place, os.readlink(program)))
        if os.path.basename(os.path.dirname(program)) == "bin":
            yield os.path.dirname(program)


def _leads_through(path: str, root: str) -> bool:
    """Whether a path is in the workspace or reached through it, where an agent may put links."""
    ways = (path, *map(str, Path(path).parents))
    return any(is_within(os.path.realpath(way), [root]) for way in ways)


def _is_too_wide(path: str) -> bool:
    """Whether a path is the home directory, or above it, or all of a machine's."""
    home = os.path.realpath(Path.home())
    real = os.path.realpath(path)
    return is_within(home, [real]) or (os.path.dirname(real) == "/" and real not in SYSTEM)


def is_within(path: str, folders: Iterable[str]) -> bool:
    """Whether a path is one of the folders or below one."""
    return any(path == f or path.startswith(f.rstrip("/") + "/") for f in folders)


def _outermost(paths: Iterable[str]) -> list[str]:
    kept: list[str] = []
    for path in sorted(paths):
        if not is_within(path, kept):
            kept.append(path)
    return kept
