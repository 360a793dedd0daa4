"""The command line: every command with its place in the help, each loaded when it is used."""

from collections.abc import Sequence
from importlib import import_module
from keyword import iskeyword
from typing import Any

import click
from click.shell_completion import CompletionItem

from loom_audit.cli import VERSION_TEXT
from loom_audit.cli.shared.command import shared_parameters, spelled_nearly
from loom_audit.cli.shared.invocation import PROGRAM, SharedOptions

COMMANDS: Sequence[tuple[str, str, str]] = (
    ("init", "Record", "Put a folder under audit."),
    ("run", "Record", "Run a command and record what it changed."),
    ("connect", "Record", "Record every call of a client, through its own hooks."),
    ("call", "Record", "Call one bundled tool and print its result."),
    ("tools", "Record", "List the tools, or show one whole."),
    (
        "watch",
        "Record",
        "Record what you and other programs change as it happens, until Ctrl-C.",
    ),
    ("import", "Record", "Put transcripts of other programs on record, in logs of their own."),
    ("scope", "Record", "Show what is recorded, or accept .loomignore."),
    ("approvals", "Approve", "List the calls that wait for an answer."),
    ("approve", "Approve", "Let a call run that waits for an answer."),
    ("deny", "Approve", "Refuse a call that waits for an answer; the model is told so."),
    ("hold", "Approve", "Let no call of a session run until it is released."),
    ("release", "Approve", "Let a held session go on."),
    ("log", "Look", "List the calls on record, newest first."),
    ("find", "Look", "Find words in calls, prompts, messages and outside changes."),
    ("show", "Look", "Show one call whole, or any other event."),
    ("session", "Look", "List the sessions, show one, or end one."),
    ("diff", "Look", "Compare two points, or the log with the disk."),
    ("cat", "Look", "Print a recorded file as it was at a point."),
    ("git", "Look", "Ask git about a repository of the workspace as it was at a point."),
    ("ls", "Look", "List what a folder of the workspace held at a point."),
    ("history", "Look", "List every change of one path, newest first."),
    ("blame", "Look", "Name for each line of a file the call that wrote it."),
    ("status", "Look", "Compare the disk with the log, naming every drift."),
    ("undo", "Take back", "Take back the newest call not yet taken back."),
    ("redo", "Take back", "Bring back what the newest undo took back."),
    (
        "revert",
        "Take back",
        "Take back the named calls, or paths of them, and keep the later ones.",
    ),
    ("rollback", "Take back", "Bring the workspace, or the paths, back to a point."),
    ("recover", "Take back", "Close the calls of processes that are gone."),
    ("checkpoint", "Take back", "Give a point a name, or list the names."),
    ("replay", "Take back", "Rebuild a point in another, empty folder."),
    ("head", "Prove", "Print the Merkle root over all events."),
    ("heads", "Prove", "Sign the heads of a store's logs, and hand them over."),
    ("keys", "Prove", "Make, list or rotate the key by which a store signs its heads."),
    ("verify", "Prove", "Recompute everything and report all that is wrong."),
    ("doctor", "Prove", "Check this machine, the store and the workspaces."),
    ("salvage", "Prove", "Get everything readable out of a damaged store."),
    ("workspaces", "Store", "List the workspaces, say where one is now, or forget one."),
    ("db", "Store", "Show, upgrade or rebuild the store's database."),
    ("mcp", "Reach", "Serve the tools to a client of the Model Context Protocol."),
    ("serve", "Reach", "Serve the dashboard on this machine only."),
    ("daemon", "Reach", "Answer agents' hooks; the first hook starts this by itself."),
    ("demo", "Reach", "Record a real agent session and show what can be done."),
    ("completion", "Reach", "Print what completes commands and options in a shell."),
    ("proxy", "Reach", "Serve web search and the oracle to the tools, which hold no keys."),
)
"""Every command: its name, its section of the help, and the first sentence of its help.

The module of that name holds the command by that name, a `Command` or a `Group` of them; its
docstring begins with that sentence, so that the list is printed without loading it.
"""

SECTIONS = tuple(dict.fromkeys(section for _, section, _ in COMMANDS))


class Commands(click.Group):
    """The commands, each loaded when it is asked for, listed under the headings of their help."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for name, _, _ in COMMANDS]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.list_commands(ctx):
            return None
        attribute = f"{cmd_name}_" if iskeyword(cmd_name) else cmd_name
        module = import_module(f"loom_audit.cli.{attribute}")
        found: click.Command = getattr(module, attribute).as_click(cmd_name)
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        typed, names = args[0], self.list_commands(ctx)
        if typed == "help" and not ctx.resilient_parsing:
            asked = next((name for name in args[1:] if name in names), "")
            meant = " ".join(part for part in (PROGRAM, asked, "--help") if part)
            ctx.fail(f"No such command 'help'. It is `{meant}`.")
        # click looks for near names among those that are loaded, which are none
        near = [] if typed in names or typed.startswith("-") else spelled_nearly(typed, names)
        if near and not ctx.resilient_parsing:
            meant = " or ".join(map(repr, near))
            ctx.fail(f"No such command {typed!r}. Did you mean {meant}?")
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        if incomplete.startswith("-"):
            return super().shell_complete(ctx, incomplete)
        found = ((name, summary) for name, _, summary in COMMANDS if name.startswith(incomplete))
        return [CompletionItem(name, help=summary) for name, summary in found]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title in SECTIONS:
            with formatter.section(title):
                rows = [(name, summary) for name, section, summary in COMMANDS if section == title]
                formatter.write_dl(rows, col_max=14)


def _keep_shared_options(**given: Any) -> None:
    click.get_current_context().obj = SharedOptions(**given)


app = Commands(
    PROGRAM,
    callback=_keep_shared_options,
    params=[*shared_parameters()],
    help="Flight recorder and time machine for AI-agent workspaces.",
    epilog="A point is 42, head, head~3 (calls back), a time, @checkpoint or session:ID.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
click.version_option(VERSION_TEXT, message="%(version)s", help="Print the version.")(app)
