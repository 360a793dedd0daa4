"""install_package: pip and npm, into the workspace's own environment and nowhere else."""

import configparser
import json
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from loom_audit.errors import (
    AuditError,
    ExecutionFailed,
    FileNotFound,
    InvalidArguments,
    PermissionDenied,
)
from loom_audit.ports import CommandResult
from loom_audit.tools.bundled.process import (
    SCAN_SECONDS,
    killed_error,
    output_text,
    process_data,
    result_of,
)
from loom_audit.tools.bundled.text import decode
from loom_audit.tools.calls.context import ToolContext
from loom_audit.tools.calls.models import Arguments, NonEmpty, Output
from loom_audit.tools.calls.result import ToolResult
from loom_audit.tools.calls.tool import Preview, Tool

SECONDS = 300.0
MAX_STREAM = 128 * 1024
VENV = ".venv"

_VERSION = r"(?:===|~=|==|!=|<=|>=|<|>)\s*[A-Za-z0-9.*+!_-]+"
_PYTHON = re.compile(
    r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"
    r"(?:\[[A-Za-z0-9._, -]+\])?"
    rf"\s*(?:{_VERSION}(?:\s*,\s*{_VERSION})*)?"
)
"""A requirement by name (PEP 508), without addresses and markers."""

_NODE = re.compile(
    r"(?:@[a-z0-9-][a-z0-9._-]*/)?[A-Za-z0-9][A-Za-z0-9._-]*(?:@[A-Za-z0-9.^~<>=*+-]+)?"
)
_PIP_INSTALL = (
    "-I",
    "-m",
    "pip",
    "install",
    "--no-input",
    "--disable-pip-version-check",
    "--require-virtualenv",
    "--no-color",
    "--progress-bar=off",
)
_NPM_INSTALL = ("npm", "install", "--no-audit", "--no-fund", "--no-update-notifier", "--no-global")
_ARCHIVE = re.compile(r"\.(?:whl|zip|tar|tgz|tbz|txz|tar\.\w+)$", re.IGNORECASE)

PIP_SETTINGS = (
    "index-url",
    "extra-index-url",
    "trusted-host",
    "no-index",
    "find-links",
    "proxy",
    "cert",
)
"""Where packages come from: what is taken of the person's own configuration of pip."""

NPM_SETTINGS = ("registry", "proxy", "https_proxy", "noproxy", "strict_ssl", "cafile")
PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY")
CERTIFICATES = (
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "NODE_EXTRA_CA_CERTS",
)
"""Who is trusted, where a company's proxy signs what it passes on: files or folders."""


class InstallInput(Arguments):
    manager: Annotated[Literal["pip", "npm"], Field(description="What installs them")]
    packages: Annotated[
        list[NonEmpty],
        Field(
            description="By name: `name`, `name[extra]>=1,<2`; for npm `@scope/name@version`",
            min_length=1,
            max_length=50,
        ),
    ]
    dev: Annotated[bool, Field(description="As a development dependency (npm)")] = False


class Installed(Output):
    name: str
    version: str


class InstallOutput(Output):
    """`installed` is what is there now that was asked for, or had to come with it (pip)."""

    manager: str
    packages: list[str]
    installed: list[Installed]
    exit_code: int | None
    stdout: str
    stderr: str
    sandbox: str


class InstallPackage(Tool):
    """Installs packages into the workspace's own environment."""

    name = "install_package"
    description = (
        "Install packages by name into the workspace's own environment: pip into its .venv "
        "(made when absent), npm into its package.json. Asks first."
    )
    input = InstallInput
    output = InstallOutput
    effect = "execute"
    timeout_seconds = SECONDS + SCAN_SECONDS
    confinement = "preferred"

    def requires_approval(self, args: InstallInput, ctx: ToolContext) -> bool | str:
        return f"installs {', '.join(args.packages):.500} and may run what they bring"

    def preview(self, args: InstallInput, ctx: ToolContext) -> Preview:
        _check(args)
        where = "package.json and node_modules" if args.manager == "npm" else VENV
        text = f"{args.manager} installs into {where}, with the network:\n"
        text += "".join(f"  {package}\n" for package in args.packages)
        if args.manager == "npm" and ctx.exists(".npmrc"):
            text += "The workspace's .npmrc has a say in where they come from.\n"
        return Preview(text)

    async def execute(self, args: InstallInput, ctx: ToolContext) -> ToolResult:
        _check(args)
        root = str(ctx.workspace)
        await ctx.in_thread(lambda: _check_folders(root, args.manager))
        if args.manager == "npm":
            done = await _npm(args, ctx, root)
            installed = await _node_versions(args, ctx) if not done.exit_code else []
        else:
            made = await _make_environment(ctx, root)
            done = made or await _pip(args, ctx, root)
            installed = _python_versions(decode(done.stdout))
        data = {
            "manager": args.manager,
            "packages": args.packages,
            "installed": installed,
            **process_data(done, InstallOutput.model_fields),
        }
        output = output_text(done)
        error: AuditError | None = None
        if done.timed_out:
            error = killed_error(f"{args.manager} was", SECONDS)
        elif done.exit_code == 127:
            error = ExecutionFailed(f"{args.manager} is not installed", hint="Install it first.")
        elif done.exit_code:
            error = ExecutionFailed(f"{args.manager} failed with exit code {done.exit_code}")
        else:
            names = ", ".join(f"{one['name']} {one['version']}" for one in installed)
            output = f"installed: {names or 'nothing new'}\n{output}"
        return result_of(error, output, data)


def _check(args: InstallInput) -> None:
    """InvalidArguments for an option, an address, a path or an archive."""
    rule = _NODE if args.manager == "npm" else _PYTHON
    for package in args.packages:
        if not rule.fullmatch(package) or _ARCHIVE.search(package) or len(package) > 300:
            raise InvalidArguments(
                f"{package!r:.100} is not the name of a package",
                hint="Addresses, paths and options are not taken; "
                "examples: requests>=2, name[extra]; for npm @scope/name@^1.",
                details={"package": package[:300]},
            )
    if args.dev and args.manager == "pip":
        raise InvalidArguments("pip knows no dev packages", hint="Leave dev out.")


def _check_folders(root: str, manager: str) -> None:
    """PermissionDenied when what would be written to lies elsewhere."""
    names = ["package.json", "package-lock.json", "node_modules"]
    if manager == "pip":
        names = [VENV, f"{VENV}/bin", f"{VENV}/lib", f"{VENV}/lib64", f"{VENV}/pyvenv.cfg"]
    top = os.path.realpath(root)
    for name in names:
        real = os.path.realpath(os.path.join(top, name))
        if not real.startswith(top + os.sep):
            raise PermissionDenied(
                f"{name} leads out of the workspace",
                hint="Remove the link; packages are installed in the workspace only.",
            )
    if manager == "pip" and os.path.lexists(os.path.join(top, VENV)):
        for name in ("pyvenv.cfg", "bin/python"):
            if not os.path.exists(os.path.join(top, VENV, name)):
                raise PermissionDenied(
                    f"{VENV} is there and is not a Python environment", hint="Remove it."
                )


async def _make_environment(ctx: ToolContext, root: str) -> CommandResult | None:
    """Make the environment when there is none; what went wrong, if anything did."""
    if await ctx.in_thread(lambda: os.path.lexists(os.path.join(root, VENV))):
        return None
    done = await ctx.run(
        *_env_without("PIP_", "PYTHON"),
        sys.executable,
        "-I",
        "-m",
        "venv",
        VENV,
        timeout=SECONDS,
        limit=MAX_STREAM,
    )
    return done if done.exit_code or done.timed_out else None


async def _pip(args: InstallInput, ctx: ToolContext, root: str) -> CommandResult:
    settings = await ctx.in_thread(_pip_settings)
    variables = {f"PIP_{n.upper().replace('-', '_')}": v for n, v in settings.items()}
    variables |= _route() | {"PIP_CONFIG_FILE": os.devnull, "PIP_NO_CACHE_DIR": "1"}
    return await ctx.run(
        *_env_without("PIP_", "PYTHON"),
        *(f"{name}={value}" for name, value in variables.items()),
        f"{root}/{VENV}/bin/python",
        *_PIP_INSTALL,
        "--",
        *args.packages,
        timeout=SECONDS,
        limit=MAX_STREAM,
        network=True,
        final=True,
        readable=_certificates(variables, "PIP_CERT"),
    )


async def _npm(args: InstallInput, ctx: ToolContext, root: str) -> CommandResult:
    settings = await ctx.in_thread(_npm_settings)
    variables = {f"npm_config_{name}": value for name, value in settings.items()} | _route()
    return await ctx.run(
        *_env_without("npm_", "NPM_"),
        *(f"{name}={value}" for name, value in variables.items()),
        *_NPM_INSTALL,
        f"--prefix={root}",
        "--save-dev" if args.dev else "--save-prod",
        "--",
        *args.packages,
        timeout=SECONDS,
        limit=MAX_STREAM,
        network=True,
        final=True,
        readable=_certificates(variables, "npm_config_cafile"),
    )


def _env_without(*prefixes: str) -> list[str]:
    """`env` that takes away our variables of these kinds: one could redirect the installation."""
    names = sorted(n for n in os.environ if n.startswith(prefixes))
    return ["env", *(word for name in names for word in ("-u", name))]


def _route() -> dict[str, str]:
    """The person's proxies, and the certificates that their connections are checked by."""
    names = [*CERTIFICATES, *(name for upper in PROXIES for name in (upper, upper.lower()))]
    return {name: os.environ[name] for name in names if os.environ.get(name)}


def _certificates(variables: Mapping[str, str], own: str) -> tuple[str, ...]:
    """What the variables name that a confined command must be able to read."""
    named = [variables[name] for name in (*CERTIFICATES, own) if name in variables]
    return tuple(path for path in named if os.path.isabs(path))


def _pip_settings() -> dict[str, str]:
    """The person's own: their files, then PIP_* of ours (pip's documentation, Configuration)."""
    home = Path.home()
    configured = os.environ.get("XDG_CONFIG_HOME") or home / ".config"
    files = [Path("/etc/pip.conf"), home / ".pip/pip.conf", Path(configured) / "pip/pip.conf"]
    named = os.environ.get("PIP_CONFIG_FILE")
    files = [] if named == os.devnull else [*files, *([Path(named)] if named else [])]
    parser = configparser.RawConfigParser()
    try:
        parser.read(files, "utf-8")
    except (configparser.Error, UnicodeDecodeError) as error:
        raise ExecutionFailed(
            f"pip's configuration cannot be read: {error}"[:500],
            hint="Correct it: `pip config debug`.",
        ) from error
    found: dict[str, str] = {}
    for section in ("global", "install"):
        if parser.has_section(section):
            found |= {k: v for k, v in parser.items(section) if k in PIP_SETTINGS}
    for name in PIP_SETTINGS:
        given = os.environ.get(f"PIP_{name.upper().replace('-', '_')}")
        found |= {name: given} if given else {}
    return {name: " ".join(value.split()) for name, value in found.items()}


def _npm_settings() -> dict[str, str]:
    """Where the person's npm gets packages; no tokens: what packages run could read them."""
    found: dict[str, str] = {}
    try:
        lines = (Path.home() / ".npmrc").read_text("utf-8", "replace").splitlines()
    except OSError:
        lines = []  # most people have none
    for line in lines:
        name, equals, value = line.partition("=")
        name = name.strip().replace("-", "_")
        if equals and name in NPM_SETTINGS:
            found[name] = value.strip().strip('"')
    for name, value in os.environ.items():
        if name.lower().startswith("npm_config_") and name.lower()[11:] in NPM_SETTINGS:
            found[name.lower()[11:]] = value
    return found


def _python_versions(stdout: str) -> list[dict[str, str]]:
    found = re.search(r"^Successfully installed (.*)$", stdout, re.MULTILINE)
    pairs = (word.rpartition("-") for word in (found[1].split() if found else ()))
    return [{"name": name, "version": version} for name, _, version in pairs]


async def _node_versions(args: InstallInput, ctx: ToolContext) -> list[dict[str, str]]:
    return [
        one for package in args.packages if (one := await _node_version(package, ctx)) is not None
    ]


async def _node_version(package: str, ctx: ToolContext) -> dict[str, str] | None:
    name = package[0] + package[1:].partition("@")[0]
    try:
        said: Any = json.loads(await ctx.read(f"node_modules/{name}/package.json", MAX_STREAM))
    except (FileNotFound, ValueError):
        return None
    version = said.get("version") if isinstance(said, Mapping) else None
    return {"name": name, "version": version} if isinstance(version, str) else None
