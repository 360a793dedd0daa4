"""Options that several commands have, and how what was typed is read."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from loom_audit.cli.shared.parameters import Declared, option
from loom_audit.errors import InvalidArguments, InvalidPath
from loom_audit.model.imported import named_folder
from loom_audit.model.plans.request import Flag

ChooseOption = Annotated[
    list[str] | None,
    option(
        "--choose",
        metavar="PATH=current|old|merge",
        help="What to do with a path in conflict, or with each conflict in a folder; repeatable.",
    ),
]
DryRunOption = Annotated[bool, option("--dry-run", help="Print the plan, change nothing.")]
PatchOption = Annotated[
    bool, option("--patch", help="With --dry-run: print what would change as a patch.")
]
YesOption = Annotated[bool, option("--yes", "-y", help="Do not ask on a terminal.")]
SessionOption = Annotated[
    str | None, option(metavar="ID", help="In this session; by default the newest one.")
]


def flag_option(flag: Flag) -> Declared:
    """A yes or no of a request, as an option."""
    return option(f"--{flag.name}", help=flag.help)


AtOption = Annotated[
    str, option("--at", metavar="POINT", help="42, head, head~3, a time, @name, session:ID.")
]
COMMAND_LINE = "command-line"
AgentOption = Annotated[
    str, option("--agent", metavar="NAME", help="The agent that acts, by name; else you.")
]


def actor_of(agent: str, person: str) -> str:
    """The actor of what is done: the agent that was named, else the person at the command line."""
    return person if agent == COMMAND_LINE else f"agent:{agent}"


def workspace_path(root: str, text: str) -> str:
    """A path as typed, relative to the current directory when that is inside the workspace.

    Outside of it, relative to the workspace. "" is the root. InvalidPath when it leads out,
    InvalidArguments for an empty text, which a script's unset variable leaves.
    """
    if not text:
        raise InvalidArguments("a path is empty", hint="Write . for the folder you are in.")
    typed, root = os.fsencode(text), named_folder(root)
    real_root = os.path.realpath(os.fsencode(root))
    here = os.path.realpath(os.fsencode(Path.cwd()))
    inside = here == real_root or here.startswith(real_root + b"/")
    full = os.path.normpath(os.path.join(here if inside else real_root, typed))
    for base in (real_root, os.path.normpath(os.fsencode(root))):
        if full == base:
            return ""
        if full.startswith(base.rstrip(b"/") + b"/"):
            return full[len(base.rstrip(b"/")) + 1 :].decode("utf-8", "surrogateescape")
    raise InvalidPath(
        f"{text} is outside the workspace {root}",
        hint="Name a path inside it, or another workspace with --workspace.",
    )


def read_choices(root: str, texts: Sequence[str] | None) -> dict[str, Any]:
    """The choices that texts like `PATH=current|old|merge` say, by workspace path.

    InvalidArguments for another text, or one without a path.
    """
    choices = {}
    for text in texts or ():
        path, sign, choice = text.rpartition("=")
        if not sign or choice not in ("current", "old", "merge"):
            raise InvalidArguments(
                f"--choose {text}: expected PATH=current, PATH=old or PATH=merge",
                hint="current keeps what is there, old takes what was, merge writes both.",
            )
        if not path:
            raise InvalidArguments(
                f"--choose {text}: no path is named",
                hint="Name a path of the plan's conflicts, or a folder: . is the one you are in.",
            )
        choices[workspace_path(root, path)] = choice
    return choices


def folder(path: str) -> Path:
    """A folder as typed, absolute, with ~ expanded. InvalidArguments for an empty text."""
    if not path:
        raise InvalidArguments("no folder is named", hint="Write . for the one you are in.")
    return Path(path).expanduser().absolute()
