"""install_package: pip and npm, into the workspace's own environment and nowhere else."""

import json
import os
import re
from collections.abc import Mapping, Sequence
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
from loom_audit.tools.bundled.environment import environment_of, outside_path, program
from loom_audit.tools.bundled.process import (
    SCAN_SECONDS,
    killed_error,
    output_text,
    process_data,
    result_of,
)
from loom_audit.tools.bundled.project.package_sources import (
    certificates,
    env_without,
    npm_settings,
    person_route,
)
from loom_audit.tools.bundled.project.pip_install import MAX_STREAM, SECONDS, VENV, install
from loom_audit.tools.bundled.project.requirements import OwnProject, is_named, own_project
from loom_audit.tools.calls.context import ToolContext
from loom_audit.tools.calls.models import Arguments, NonEmpty, Output
from loom_audit.tools.calls.result import ToolResult
from loom_audit.tools.calls.tool import Preview, Tool

NODE_FOLDERS = ("package.json", "package-lock.json", "node_modules")
STEPS = 8
"""Commands at most, each with its own time: what builds the project is fetched in two."""

_NODE = re.compile(
    r"(?:@[a-z0-9-][a-z0-9._-]*/)?[A-Za-z0-9][A-Za-z0-9._-]*(?:@[A-Za-z0-9.^~<>=*+-]+)?"
)
_ARCHIVE = re.compile(r"\.(?:whl|zip|tar|tgz|tbz|txz|tar\.\w+)$", re.IGNORECASE)
_WORK = (
    "Looking in",
    "Ignoring ",
    "Processing ",
    "Collecting ",
    "Installing collected",
    "Successfully inst",
)
"""How lines of pip begin that say again what is told."""
_NPM_INSTALL = ("install", "--no-audit", "--no-fund", "--no-update-notifier", "--no-global")


class InstallInput(Arguments):
    manager: Annotated[Literal["pip", "npm"], Field(description="What installs them")]
    packages: Annotated[
        list[NonEmpty],
        Field(
            description="By name: `name`, `name[extra]>=1,<2`; the project itself as `.` or "
            "`-e .[extra]`; for npm `@scope/name@version`",
            min_length=1,
            max_length=50,
        ),
    ]
    dev: Annotated[bool, Field(description="As a development dependency (npm)")] = False


class Installed(Output):
    name: str
    version: str


class InstallOutput(Output):
    """`installed` is what is there now that was asked for, or had to come with it (pip).

    `environment` is the folder of the workspace that changed.
    """

    manager: str
    packages: list[str]
    environment: str
    installed: list[Installed]
    exit_code: int | None
    stdout: str
    stderr: str
    sandbox: str


class InstallPackage(Tool):
    """Installs packages into the workspace's own environment."""

    name = "install_package"
    description = (
        "Install packages into the workspace's own environment: by pip, as wheels, into its .venv "
        "(made when absent), by npm into its package.json. Asks first."
    )
    input = InstallInput
    output = InstallOutput
    effect = "execute"
    timeout_seconds = SECONDS + SCAN_SECONDS
    confinement = "preferred"

    def limit(self, args: InstallInput) -> float:
        return (STEPS if args.manager == "pip" else 1) * SECONDS + SCAN_SECONDS

    def requires_approval(self, args: InstallInput, ctx: ToolContext) -> bool | str:
        return f"installs {', '.join(args.packages):.500} and may run what they bring"

    def preview(self, args: InstallInput, ctx: ToolContext) -> Preview:
        names, own = _sorted_out(args)
        where = "package.json and node_modules"
        if args.manager == "pip":
            where = environment_of(os.path.realpath(str(ctx.workspace))) or VENV
        text = f"{args.manager} installs into {where}, with the network:\n"
        text += "".join(f"  {package}\n" for package in names)
        if own is not None:
            text += "  the project itself, built without the network, and what it says it needs\n"
        if args.manager == "npm" and ctx.exists(".npmrc"):
            text += "The workspace's .npmrc has a say in where they come from.\n"
        return Preview(text)

    async def execute(self, args: InstallInput, ctx: ToolContext) -> ToolResult:
        names, own = _sorted_out(args)
        root = os.path.realpath(str(ctx.workspace))
        if args.manager == "npm":
            await ctx.in_thread(lambda: _check_folders(root))
            done = await _npm(args, ctx, root)
            where = "node_modules"
            installed = await _node_versions(args, ctx) if not done.exit_code else []
        else:
            made = await install(ctx, root, names, own)
            assert made.done is not None
            done, where, installed = made.done, made.folder, made.installed
        data = {
            "manager": args.manager,
            "packages": args.packages,
            "environment": where,
            "installed": installed,
            **process_data(done, InstallOutput.model_fields),
        }
        output = output_text(done)
        error = _error(args, done)
        if error is None:
            told = ", ".join(f"{one['name']} {one['version']}" for one in installed)
            lines = [f"installed into {where}: {told or 'nothing new'}"]
            lines += [line for line in output.splitlines() if not line.startswith(_WORK)]
            output = "\n".join(lines)
        return result_of(error, output, data)


def _error(args: InstallInput, done: CommandResult) -> AuditError | None:
    if done.timed_out:
        return killed_error(f"{args.manager} was", SECONDS)
    if done.exit_code == 127:
        return ExecutionFailed(f"{args.manager} is not installed", hint="Install it first.")
    if not done.exit_code:
        return None
    hint = ""
    if args.manager == "pip" and b"No matching distribution" in done.stderr:
        hint = (
            "Only wheels are taken: check the name and the version. A person can name what may "
            "be built without one: `build_packages` in tools.toml."
        )
    return ExecutionFailed(f"{args.manager} failed with exit code {done.exit_code}", hint=hint)


def _sorted_out(args: InstallInput) -> tuple[list[str], OwnProject | None]:
    """What is installed by name, and the project itself when it is among it.

    InvalidArguments for an option, an address, another path or an archive.
    """
    names, own = list[str](), None
    for package in _joined(args.packages):
        if args.manager == "pip" and (found := own_project(package)) is not None:
            own = found
            continue
        fits = is_named(package) if args.manager == "pip" else _is_of_npm(package)
        if not fits:
            raise InvalidArguments(
                f"{package!r:.100} is not the name of a package",
                hint="Addresses, paths and options are not taken, of a file of requirements its "
                "lines; examples: requests>=2, name[extra], `.` and `-e .[extra]` for the project "
                "itself; for npm @scope/name@^1.",
                details={"package": package[:300]},
            )
        names.append(package)
    if args.dev and args.manager == "pip":
        raise InvalidArguments("pip knows no dev packages", hint="Leave dev out.")
    return names, own


def _joined(packages: Sequence[str]) -> list[str]:
    """The packages, with `-e` put before the one that follows it."""
    joined: list[str] = []
    for package in packages:
        if joined and joined[-1] in ("-e", "--editable"):
            package = f"{joined.pop()} {package}"
        joined.append(package)
    return joined


def _is_of_npm(package: str) -> bool:
    named = _NODE.fullmatch(package) is not None and len(package) <= 300
    return named and not _ARCHIVE.search(package)


def _check_folders(root: str) -> None:
    """PermissionDenied when what npm would write to lies elsewhere."""
    for name in NODE_FOLDERS:
        real = os.path.realpath(os.path.join(root, name))
        if not real.startswith(root + os.sep):
            raise PermissionDenied(
                f"{name} leads out of the workspace",
                hint="Remove the link; packages are installed in the workspace only.",
            )


async def _npm(args: InstallInput, ctx: ToolContext, root: str) -> CommandResult:
    settings = await ctx.in_thread(npm_settings)
    variables = {f"npm_config_{name}": value for name, value in settings.items()}
    variables |= person_route()
    return await ctx.run(
        *env_without("npm_", "NPM_"),
        *(f"{name}={value}" for name, value in variables.items()),
        program("npm", ctx),
        *_NPM_INSTALL,
        f"--prefix={root}",
        "--save-dev" if args.dev else "--save-prod",
        "--",
        *args.packages,
        timeout=SECONDS,
        limit=MAX_STREAM,
        network=True,
        final=True,
        environment={"PATH": await ctx.in_thread(lambda: outside_path(ctx))},
        readable=certificates(variables, "npm_config_cafile"),
    )


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
