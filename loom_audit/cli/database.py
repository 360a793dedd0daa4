"""Commands about the store's database: db path, db current, db upgrade, db rebuild; workspaces."""

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from loom_audit.cli import exits
from loom_audit.cli.lines import counted
from loom_audit.cli.options import Invocation, command, existing_store, store_file
from loom_audit.cli.records import plain
from loom_audit.errors import StorageFailed

if TYPE_CHECKING:
    from loom_audit.config import Settings


def add(app: typer.Typer) -> None:
    """Put these commands on the application."""
    command(app, "workspaces", section="Store", examples=("loom-audit workspaces --json",))(
        workspaces
    )
    group = typer.Typer(help="Show, check or upgrade the store's database.", no_args_is_help=True)
    command(group, "path", examples=("loom-audit db path",))(path)
    command(
        group,
        "current",
        examples=("loom-audit db current",),
        codes={exits.FAILED: "it needs an upgrade, or a newer loom-audit"},
    )(current)
    command(
        group,
        "upgrade",
        examples=("loom-audit db upgrade",),
        codes={exits.UNAVAILABLE: "it could not be upgraded and is as it was"},
    )(upgrade)
    command(group, "rebuild", examples=("loom-audit db rebuild",))(rebuild)
    app.add_typer(group, name="db", rich_help_panel="Store")


def workspaces(at: Invocation) -> None:
    """List the workspaces of the store."""
    with at.store() as store:
        for entry in store.workspaces():
            if at.output.json:
                at.output.record(plain(entry))
            else:
                at.output.line(
                    (entry.root, "bold"),
                    f"  {entry.id}  log at {entry.head}",
                    "" if entry.baseline_done else "  (baseline not finished: `loom-audit init`)",
                )


def path(at: Invocation) -> None:
    """Print where the store is.

    The data folder beside it holds its locks, change indexes and large contents.
    """
    settings = _settings(at)
    file = store_file(settings.url)
    if at.output.json:
        at.output.record(
            {
                "url": settings.url,
                "path": str(file) if file else None,
                "home": str(settings.home),
                "heads": str(settings.heads),
                "exists": file.exists() if file else None,
            }
        )
    else:
        at.output.line(str(file or settings.url))


def current(at: Invocation) -> int:
    """Print the revision of the store's tables.

    Nothing is upgraded by looking.
    """
    from loom_audit.sql.schema import REVISION

    found = _revision(_existing(_settings(at)))
    if at.output.json:
        at.output.record({"revision": found, "newest": REVISION, "up_to_date": found == REVISION})
    else:
        note = "up to date" if found == REVISION else f"the newest known here is {REVISION}"
        at.output.line(f"{found} ({note})")
    return exits.OK if found == REVISION else exits.FAILED


def upgrade(at: Invocation) -> None:
    """Bring the store's tables up to date, after a backup.

    Events are never altered by it, which is checked before it is made final.
    """
    file = _existing(_settings(at))
    before, backups = _revision(file), _backups(file)
    with at.store():
        after = _revision(file)
    made = sorted(_backups(file) - backups)
    if at.output.json:
        record = {"before": before, "after": after, "backups": [str(one) for one in made]}
        at.output.record(record)
    elif before == after:
        at.output.line(f"{after} (it was up to date)")
    else:
        at.output.line(f"{before} -> {after}; the store as it was: {', '.join(map(str, made))}")


def rebuild(at: Invocation) -> None:
    """Make the projections anew from the log, for the current workspace.

    Lists, trees and counts are derived from events; this drops and derives them again.
    """
    with at.workspace() as workspace:
        done = workspace.rebuild()
        if at.output.json:
            at.output.record({"workspace": workspace.id, "events": done})
        else:
            at.output.line(f"made anew from {counted(done, 'event')}")


def _settings(at: Invocation) -> "Settings":
    from loom_audit.config import read_settings

    return read_settings(at.shared.store)


def _existing(settings: "Settings") -> Path:
    return existing_store(settings.url, hint="`loom-audit init` makes one.")


def _backups(file: Path) -> set[Path]:
    return set(file.parent.glob(f"{file.name}.before-upgrade-*"))


def _revision(file: Path) -> str:
    from loom_audit.sql.engine import connect, driver, unavailable

    try:
        with closing(connect(str(file), "ro")) as raw:
            rows = raw.execute("SELECT version_num FROM alembic_version").fetchall()
    except driver().Error as error:
        problem = unavailable(error)
        raise StorageFailed(problem.message, hint=problem.hint, details=problem.details) from error
    return str(rows[0][0]) if rows else "none"
