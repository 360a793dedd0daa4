"""Which programs a project's commands find: its own environment's first, never those of ours.

A project's folders stand in front of PATH of a confined command only: what an agent can write
must not be found by a program that runs outside of the sandbox, nor where we look for one of ours.
"""

import os
import re
import shutil
import sys
from collections.abc import Iterator, Mapping

from msgspec import Struct

from loom_audit.tools.bundled.git_head import head_of
from loom_audit.tools.calls.context import ToolContext
from loom_audit.tools.calls.places.area import safe_folders, search_path

ENVIRONMENTS = (".venv", "venv", "env", ".conda")
"""Where a project keeps its environment for Python, the usual place first."""

CONDA = "conda-meta"
"""What a folder holds that conda has made."""

NODE = "node_modules/.bin"
SYSTEM = "/usr/bin:/bin:/usr/local/bin:/run/current-system/sw/bin"

NO_EDITOR = "echo 'no editor opens here: -m gives the text, --no-edit keeps it' >&2; false"
"""What git starts to ask a person for a text, so that it does not wait for one."""

_VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


class Programs(Struct, frozen=True):
    """What a command of a project finds.

    `variables` are the command's. `told` are lines of what a model must know of them.
    `confined` says whether the command runs confined, `head` where the repository is before it.
    """

    variables: Mapping[str, str]
    confined: bool
    head: str
    told: tuple[str, ...] = ()


async def find_programs(ctx: ToolContext) -> Programs:
    """Return what a command finds that runs as the tool of this call and the settings say."""
    return await ctx.in_thread(lambda: _programs(ctx))


def system_program(name: str) -> str:
    """Return the path of a program that every system has, such as `sh`; else its name."""
    return shutil.which(name, path=SYSTEM) or name


def program(name: str, ctx: ToolContext) -> str:
    """Return the path of a person's program, found where no agent can put one; else its name."""
    return _first_outside(name, ctx) or name


def environment_of(root: str) -> str | None:
    """Return the folder in which a workspace has an environment for Python, if it has one."""
    for name in ENVIRONMENTS:
        if os.path.exists(f"{root}/{name}/bin/python") and _is_inside(root, f"{name}/bin"):
            return name
    return None


def is_conda(root: str, name: str) -> bool:
    """Return whether an environment of the workspace is one of conda."""
    return os.path.isdir(f"{root}/{name}/{CONDA}")


def base_python() -> str:
    """Return the interpreter that ours rests on: without the packages of our environment."""
    return str(getattr(sys, "_base_executable", sys.executable))


def python_of(ctx: ToolContext, *, own: bool = True) -> tuple[str, ...]:
    """Return the words that start a project's Python.

    With `own` that of the workspace's environment; else the first of PATH that is neither in the
    workspace nor in our environment, else the one that ours rests on, without what a person added.
    """
    root = os.path.realpath(str(ctx.workspace))
    name = environment_of(root) if own else None
    if name is not None:
        return (f"{root}/{name}/bin/python",)
    found = _first_outside("python3", ctx)
    return (_behind_shim(found, root),) if found else (base_python(), "-I")


def _behind_shim(program: str, root: str) -> str:
    """The program that a shim of pyenv would start, which is a script that takes some 100 ms.

    The shim itself where that is not certain: then pyenv decides.
    """
    folder, name = os.path.split(program)
    pyenv = os.path.dirname(folder)
    if os.path.basename(folder) != "shims":
        return program
    version = os.environ.get("PYENV_VERSION", "")
    for place in (f"{root}/.python-version", f"{pyenv}/version"):
        version = version or _first_word(place)
    started = f"{pyenv}/versions/{version}/bin/{name}"
    return started if _VERSION.fullmatch(version) and os.path.exists(started) else program


def _first_word(path: str) -> str:
    """The first word of a file; empty for an absent one."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        return next(iter(os.read(descriptor, 200).decode("utf-8", "replace").split()), "")
    except OSError:
        return ""
    finally:
        os.close(descriptor)


def _programs(ctx: ToolContext) -> Programs:
    root = os.path.realpath(str(ctx.workspace))
    own, confined = environment_of(root), ctx.is_confined
    folders = [f"{own}/bin"] if own else []
    folders += [NODE] if _is_inside(root, NODE) else []
    given = ctx.environment.get("PATH") or os.environ.get("PATH", os.defpath)
    path = [*_without_ours(given)]
    told = [folder for folder in folders if f"{root}/{folder}" not in path]
    if confined:
        path = [*(f"{root}/{folder}" for folder in folders), *path]
    if shutil.which("python3", path=os.pathsep.join(path)) is None:
        path.append(os.path.dirname(base_python()))
    variables = {"PATH": os.pathsep.join(path)}
    if "GIT_EDITOR" not in ctx.environment:
        variables["GIT_EDITOR"] = NO_EDITOR
    if (active := os.environ.get("VIRTUAL_ENV")) and not [*_without_ours(f"{active}/bin")]:
        variables["VIRTUAL_ENV"] = ""  # what installs there takes an empty text for none
    if confined and own:
        variables["CONDA_PREFIX" if is_conda(root, own) else "VIRTUAL_ENV"] = f"{root}/{own}"
    return Programs(
        variables,
        confined,
        head_of(root),
        (f"[not on PATH, as nothing confines the command: {', '.join(told)}]",)
        if told and not confined
        else (),
    )


def outside_path(ctx: ToolContext) -> str:
    """Return PATH without our environment, and without what lies where an agent can write."""
    path = search_path(ctx.workspace, ctx.scratch_dir)["PATH"]
    return os.pathsep.join(_without_ours(path)) or os.defpath


def _first_outside(name: str, ctx: ToolContext) -> str | None:
    """The path of a program in the folders of `outside_path`; None where none holds it."""
    folders = os.pathsep.join(safe_folders(ctx.workspace, ctx.scratch_dir, holding=name))
    holding = os.pathsep.join(_without_ours(folders)) if folders else ""
    return shutil.which(name, path=holding or outside_path(ctx))


def _without_ours(path: str) -> Iterator[str]:
    """The folders of a path but that of the virtual environment that we run in."""
    own = _identity(os.path.join(sys.prefix, "bin")) if sys.prefix != sys.base_prefix else None
    for folder in path.split(os.pathsep):
        if own is None or _identity(folder) != own:
            yield folder


def _identity(folder: str) -> tuple[int, int] | None:
    """What tells a folder from every other one, by whichever path; None where none is."""
    try:
        seen = os.stat(folder)
    except OSError:
        return None
    return seen.st_dev, seen.st_ino


def _is_inside(root: str, folder: str) -> bool:
    """Whether a folder of the workspace is there and does not lead out of it."""
    path = os.path.join(root, folder)
    return os.path.isdir(path) and os.path.realpath(path).startswith(root.rstrip("/") + "/")
