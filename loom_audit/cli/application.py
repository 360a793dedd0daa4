"""The Typer application: every command with its place in the help."""

from collections.abc import Iterable, Sequence
from types import ModuleType
from typing import Any

import typer
from typer.core import TyperGroup

from loom_audit.cli import (
    approvals,
    approve,
    call,
    cat,
    checkpoint,
    db,
    demo,
    deny,
    diff,
    doctor,
    head,
    history,
    init,
    log,
    ls,
    proxy,
    recover,
    redo,
    replay,
    revert,
    rollback,
    run,
    salvage,
    scope,
    serve,
    session,
    show,
    status,
    undo,
    verify,
    workspaces,
)
from loom_audit.cli.shared.invocation import PROGRAM, SharedOptions
from loom_audit.cli.shared.options import JsonOption, StoreOption, WorkspaceOption

COMMANDS: Sequence[tuple[str, ModuleType, str]] = (
    ("init", init, "Record"),
    ("run", run, "Record"),
    ("call", call, "Record"),
    ("scope", scope, "Record"),
    ("approvals", approvals, "Approve"),
    ("approve", approve, "Approve"),
    ("deny", deny, "Approve"),
    ("log", log, "Look"),
    ("show", show, "Look"),
    ("session", session, "Look"),
    ("diff", diff, "Look"),
    ("cat", cat, "Look"),
    ("ls", ls, "Look"),
    ("history", history, "Look"),
    ("status", status, "Look"),
    ("undo", undo, "Take back"),
    ("redo", redo, "Take back"),
    ("revert", revert, "Take back"),
    ("rollback", rollback, "Take back"),
    ("recover", recover, "Take back"),
    ("checkpoint", checkpoint, "Take back"),
    ("replay", replay, "Take back"),
    ("head", head, "Prove"),
    ("verify", verify, "Prove"),
    ("doctor", doctor, "Prove"),
    ("salvage", salvage, "Prove"),
    ("workspaces", workspaces, "Store"),
    ("db", db, "Store"),
    ("serve", serve, "Reach"),
    ("demo", demo, "Reach"),
    ("proxy", proxy, "Reach"),
)
"""Every command: its name, its module, its section of the help. The module holds the command by
that name, a `Command` or a `Group` of them."""

SECTIONS = tuple(dict.fromkeys(section for _, _, section in COMMANDS))


class Sections(TyperGroup):
    """The list of commands in the help, under the headings they were registered with."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        for title in SECTIONS:
            rows = list(self._rows(ctx, title))
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows, col_max=14)

    def _rows(self, ctx: Any, title: str) -> Iterable[tuple[str, str]]:
        for name in self.list_commands(ctx):
            found = self.get_command(ctx, name)
            if found is not None and getattr(found, "rich_help_panel", None) == title:
                yield name, found.get_short_help_str(70)


app = typer.Typer(
    name=PROGRAM,
    cls=Sections,
    help="Flight recorder and time machine for AI-agent workspaces.",
    epilog="A point is 42, head, head~3 (calls back), a time, @checkpoint or session:ID.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def _version(wanted: bool) -> None:
    if wanted:
        from loom_audit import __version__

        typer.echo(f"{PROGRAM} {__version__}")
        raise typer.Exit


@app.callback()
def root(
    ctx: typer.Context,
    store: StoreOption = None,
    workspace: WorkspaceOption = None,
    json: JsonOption = False,
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True),
) -> None:
    """Flight recorder and time machine for AI-agent workspaces."""
    ctx.obj = SharedOptions(store, workspace, json)


for _name, _module, _section in COMMANDS:
    getattr(_module, _name).add_to(app, _name, _section)
