"""The Typer application: every command with its place in the help."""

from collections.abc import Iterable
from typing import Any

import typer
from typer.core import TyperGroup

from loom_audit.cli import (
    approvals,
    database,
    files,
    keeping,
    looking,
    proving,
    proxying,
    recording,
    serving,
    showing,
    taking_back,
)
from loom_audit.cli.options import PROGRAM, JsonOption, Shared, StoreOption, WorkspaceOption

SECTIONS = ("Record", "Approve", "Look", "Take back", "Prove", "Store", "Reach")


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
    ctx.obj = Shared(store, workspace, json)


for _group in (
    recording,
    approvals,
    looking,
    showing,
    files,
    taking_back,
    keeping,
    proving,
    database,
    serving,
    proxying,
):
    _group.add(app)
