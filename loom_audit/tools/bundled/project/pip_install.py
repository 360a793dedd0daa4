"""Packages of Python into the workspace's own environment, in steps.

What must be fetched is fetched by the interpreter that ours rests on, as wheels, with the network.
What lies in the workspace runs only without: its Python, and what builds its own project.
"""

import json
import os
import re
import sys
from collections.abc import Sequence
from typing import Literal
from uuid import uuid4

from msgspec import Struct, field

from loom_audit.errors import ExecutionFailed, FileNotFound, NotFound, PermissionDenied
from loom_audit.ports import CommandResult
from loom_audit.tools.bundled.environment import (
    base_python,
    environment_of,
    is_conda,
    outside_path,
    system_program,
)
from loom_audit.tools.bundled.project.package_sources import (
    certificates,
    env_without,
    person_route,
    pip_settings,
)
from loom_audit.tools.bundled.project.requirements import (
    OwnProject,
    build_system,
    by_name,
    is_named,
    needed,
    normal_name,
)
from loom_audit.tools.bundled.text import decode
from loom_audit.tools.calls.context import ToolContext

SECONDS = 300.0
MAX_STREAM = 128 * 1024
MAX_METADATA = 4 * 1024 * 1024
VENV = ".venv"

_QUIET = ("--no-input", "--disable-pip-version-check", "--no-color", "--progress-bar=off")
_OFFLINE = ("install", *_QUIET, "--no-index", "--no-warn-script-location")
_PIP = """
import glob, os, runpy, sys
try:
    import pip
except ImportError:
    import ensurepip, sysconfig
    places = [os.path.join(os.path.dirname(ensurepip.__file__), "_bundled")]
    places += filter(None, [sysconfig.get_config_var("WHEEL_PKG_DIR")])
    found = [path for place in places for path in glob.glob(os.path.join(place, "pip-*.whl"))]
    if not found:
        sys.exit("this Python has no pip: install python3-venv or python3-pip")
    sys.path.insert(0, found[0])
runpy.run_module("pip", run_name="__main__", alter_sys=True)
"""
"""The pip of an interpreter, else the wheel of pip that comes with it."""

_HOOK = """
import importlib, json, os, sys
backend, places, hook, mark = json.loads(sys.argv[1])
sys.path[:] = [*map(os.path.abspath, places), *filter(None, sys.path)]
module, _, names = backend.partition(":")
found = importlib.import_module(module)
for name in filter(None, names.split(".")):
    found = getattr(found, name)
ask = getattr(found, hook, None)
print("\\n" + mark, json.dumps(list(ask() if ask else [])))
"""
"""Asks a backend what it needs besides, as PEP 517 and 660 have it."""

_AND_REMOVE = 'folder=$1; shift; "$@"; ended=$?; rm -rf "$folder"; exit $ended'


class Installation(Struct):
    """What was done to the environment `folder` of a workspace, and how the last step ended."""

    folder: str
    python: str
    done: CommandResult | None = None
    installed: list[dict[str, str]] = field(default_factory=list)


class Pip(Struct):
    """One installation. `required` steps run confined or not at all."""

    ctx: ToolContext
    root: str
    to: Installation
    required: bool

    async def install(self, names: Sequence[str], own: OwnProject | None) -> Installation:
        """Install packages by name, and the workspace's own project when it is given.

        The steps end with the first that fails. FileNotFound, InvalidArguments, NotFound.
        """
        wanted = [*names]
        if own is not None:
            if not await self._build(own):
                return self.to
            name = self.to.installed[-1]
            wanted += needed(await self._metadata(name["name"], name["version"]), own.extras)
        if wanted:
            wheels = self._new_folder()
            if await self._fetch(wanted, wheels):
                await self._install(wanted, wheels)
        return self.to

    async def _build(self, own: OwnProject) -> bool:
        """Build and install the project without network and without what it needs."""
        system = build_system(await self._pyproject())
        wheels = self._new_folder()
        built_with = f"{wheels}/built-with"
        if not await self._prepare(system.requires, wheels, built_with):
            return False
        variable = f"PYTHONPATH={built_with}"
        mark = f"asked-{uuid4().hex}"
        hook = f"get_requires_for_build_{'editable' if own.editable else 'wheel'}"
        order = json.dumps([system.backend, [*system.path], hook, mark])
        if not await self._run(variable, self._python, "-c", _HOOK, order):
            return False
        if not await self._prepare(self._answer(mark), wheels, built_with):
            return False
        options = ("--no-deps", "--no-build-isolation", "--use-pep517", *self._guard)
        kind = ("--editable",) if own.editable else ()
        words = (*self._own_pip, *_OFFLINE, *options, *kind, self.root)
        if not await self._run(variable, *words, removed=wheels):
            return False
        self.to.installed += versions_in(decode(self._last.stdout))
        if not self.to.installed:
            raise ExecutionFailed("pip installed the project and does not say what it is called")
        return True

    async def _prepare(self, asked: Sequence[str], wheels: str, built_with: str) -> bool:
        """Fetch what builds the project and put it into a folder of its own."""
        if not asked:
            return True
        words = (*_OFFLINE, f"--find-links={wheels}", f"--target={built_with}", "--", *asked)
        return await self._fetch(asked, wheels) and await self._run(*self._own_pip, *words)

    def _answer(self, mark: str) -> list[str]:
        """What the project's backend said that it needs besides, which nobody vouches for."""
        line = decode(self._last.stdout).rpartition(f"\n{mark} ")[2].partition("\n")[0]
        try:
            said = json.loads(line)
        except ValueError:
            said = None
        if not isinstance(said, list) or not all(isinstance(one, str) for one in said):
            raise ExecutionFailed("what builds the project does not say what it needs for it")
        return by_name(said, "to build it")

    async def _fetch(self, asked: Sequence[str], wheels: str) -> bool:
        """Fetch wheels of what is asked for and of what it needs, with the network."""
        settings = await self.ctx.in_thread(pip_settings)
        variables = {f"PIP_{n.upper().replace('-', '_')}": v for n, v in settings.items()}
        variables |= person_route()
        built = [name for name in self.ctx.settings.build_packages if is_named(name)]
        verb, into = ("wheel", "--wheel-dir") if built else ("download", "--dest")
        options = [f"{into}={wheels}", "--only-binary=:all:"]
        options += [f"--no-binary={name}" for name in built]
        if self.to.python != _version() and not built:
            options += [f"--python-version={self.to.python}"]
        return await self._run(
            *(f"{name}={value}" for name, value in variables.items()),
            base_python(),
            "-I",
            "-c",
            _PIP,
            verb,
            *_QUIET,
            *options,
            "--",
            *asked,
            network=True,
            readable=certificates(variables, "PIP_CERT"),
        )

    async def _install(self, asked: Sequence[str], wheels: str) -> None:
        words = (*_OFFLINE, *self._guard, f"--find-links={wheels}", "--only-binary=:all:")
        if await self._run(*self._own_pip, *words, "--", *asked, removed=wheels):
            self.to.installed += versions_in(decode(self._last.stdout))

    async def _run(
        self,
        *words: str,
        network: bool = False,
        readable: tuple[str, ...] = (),
        removed: str = "",
    ) -> bool:
        """Run one step, and delete the folder `removed` at its end; False when the step failed."""
        last = [system_program("sh"), "-c", _AND_REMOVE, "sh", removed] if removed else []
        self.to.done = await self.ctx.run(
            *last,
            *env_without("PIP_", "PYTHON"),
            f"PIP_CONFIG_FILE={os.devnull}",
            "PIP_NO_CACHE_DIR=1",
            *words,
            timeout=SECONDS,
            limit=MAX_STREAM,
            network=network,
            confinement="required" if self.required else None,
            environment={"PATH": await self.ctx.in_thread(lambda: outside_path(self.ctx))},
            readable=readable,
        )
        return not (self._last.exit_code or self._last.timed_out)

    @property
    def _last(self) -> CommandResult:
        assert self.to.done is not None
        return self.to.done

    @property
    def _python(self) -> str:
        return f"{self.root}/{self.to.folder}/bin/python"

    @property
    def _own_pip(self) -> tuple[str, ...]:
        """The words that run pip for the environment: its own, else that of our base for it."""
        site = f"{self.root}/{self._site}"
        if os.path.isdir(f"{site}/pip"):
            return (self._python, "-I", "-m", "pip")
        return (base_python(), "-I", "-c", _PIP, "--python", self._python)

    @property
    def _guard(self) -> tuple[str, ...]:
        """The option against installing elsewhere; conda's environments are not virtual ones."""
        return () if is_conda(self.root, self.to.folder) else ("--require-virtualenv",)

    @property
    def _site(self) -> str:
        return f"{self.to.folder}/lib/python{self.to.python}/site-packages"

    def _new_folder(self) -> str:
        """A folder that nobody can have put anything into."""
        scratch = self.ctx.scratch_dir or f"{self.root}/{self.to.folder}"
        return f"{scratch}/wheels-{uuid4().hex}"

    async def _pyproject(self) -> str:
        try:
            return decode(await self.ctx.read("pyproject.toml", MAX_METADATA))
        except FileNotFound:
            if await self.ctx.in_thread(lambda: self.ctx.exists("setup.py")):
                return ""
        raise NotFound(
            "the workspace is not a project: it has neither pyproject.toml nor setup.py",
            hint="Name packages instead.",
        )

    async def _metadata(self, name: str, version: str) -> str:
        for entry in await self.ctx.list(self._site):
            stem, dot, kind = entry.name.rpartition(".")
            told, _, number = stem.rpartition("-")
            same = (normal_name(told), number) == (normal_name(name), version)
            if dot and kind == "dist-info" and same:
                return decode(await self.ctx.read(f"{entry.path}/METADATA", MAX_METADATA))
        raise ExecutionFailed(f"pip installed {name} {version}, and it is not there")


async def install(
    ctx: ToolContext, root: str, names: Sequence[str], own: OwnProject | None
) -> Installation:
    """Install into the workspace's environment, which is made when there is none.

    PermissionDenied for an environment that lies elsewhere or is none, and for the project itself
    where nothing confines what builds it.
    """
    if own is not None and ctx.settings.confinement == "off":
        raise PermissionDenied(
            "the project itself is built confined or not at all, and tools.toml says off",
            hint="A person can run `pip install` in a terminal.",
        )
    folder = await ctx.in_thread(lambda: environment_of(root)) or VENV
    await ctx.in_thread(lambda: check_environment(root, folder))
    required: Literal["required"] | None = "required" if own is not None else None
    if not await ctx.in_thread(lambda: os.path.lexists(os.path.join(root, folder))):
        done = await ctx.run(
            *env_without("PIP_", "PYTHON"),
            base_python(),
            "-I",
            "-m",
            "venv",
            folder,
            timeout=SECONDS,
            limit=MAX_STREAM,
            confinement=required,
        )
        if done.exit_code or done.timed_out:
            return Installation(folder, _version(), done)
    python = await ctx.in_thread(lambda: _python_version(root, folder))
    return await Pip(ctx, root, Installation(folder, python), own is not None).install(names, own)


def check_environment(root: str, folder: str) -> None:
    """Raise PermissionDenied when an environment lies elsewhere, or is none."""
    top = os.path.realpath(root)
    for name in ("", "/bin", "/lib", "/lib64", "/pyvenv.cfg"):
        real = os.path.realpath(os.path.join(top, folder + name))
        if not real.startswith(top + os.sep):
            raise PermissionDenied(
                f"{folder}{name} leads out of the workspace",
                hint="Remove the link; packages are installed in the workspace only.",
            )
    if not os.path.lexists(os.path.join(top, folder)):
        return
    python = os.path.join(top, folder, "bin/python")
    if is_conda(top, folder) and os.path.realpath(python).startswith(top + os.sep):
        return
    if not (os.path.exists(os.path.join(top, folder, "pyvenv.cfg")) and os.path.exists(python)):
        raise PermissionDenied(
            f"{folder} is there and is not a Python environment", hint="Remove it."
        )


def versions_in(stdout: str) -> list[dict[str, str]]:
    """Return the packages that pip says it has installed, as `name` and `version`."""
    found = re.search(r"^Successfully installed (.*)$", stdout, re.MULTILINE)
    pairs = (word.rpartition("-") for word in (found[1].split() if found else ()))
    return [{"name": name, "version": version} for name, _, version in pairs]


def _python_version(root: str, folder: str) -> str:
    """The version of an environment's Python, as its folders tell, which nothing has to run for."""
    try:
        names = sorted(os.listdir(f"{root}/{folder}/lib"))
    except OSError:
        names = []
    found = [m[1] for name in names if (m := re.fullmatch(r"python(3\.[0-9]+)", name))]
    return found[-1] if found else _version()


def _version() -> str:
    return f"{sys.version_info.major}.{sys.version_info.minor}"
