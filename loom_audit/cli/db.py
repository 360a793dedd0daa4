"""`loom-audit db`, the store's database: path, current, upgrade, rebuild."""

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from loom_audit.cli.shared import exits
from loom_audit.cli.shared.command import Group, command
from loom_audit.cli.shared.invocation import Invocation, existing_store, store_file
from loom_audit.cli.shared.lines import counted
from loom_audit.errors import StorageFailed

if TYPE_CHECKING:
    from loom_audit.config import Settings


@command(examples=("loom-audit db path",))
def path(invocation: Invocation) -> None:
    """Print where the store is.

    The data folder beside it holds its locks, change indexes and large contents.
    """
    settings = _settings(invocation)
    file = store_file(settings.url)
    if invocation.output.json:
        invocation.output.record(
            {
                "url": settings.url,
                "path": str(file) if file else None,
                "home": str(settings.home),
                "heads": str(settings.heads),
                "exists": file.exists() if file else None,
            }
        )
    else:
        invocation.output.line(str(file or settings.url))


@command(
    examples=("loom-audit db current",),
    codes={exits.FAILED: "it needs an upgrade, or a newer loom-audit"},
)
def current(invocation: Invocation) -> int:
    """Print the revision of the store's tables.

    Nothing is upgraded by looking.
    """
    from loom_audit.sql.schema import REVISION

    found = _revision(_existing(_settings(invocation)))
    if invocation.output.json:
        invocation.output.record(
            {"revision": found, "newest": REVISION, "up_to_date": found == REVISION}
        )
    else:
        note = "up to date" if found == REVISION else f"the newest known here is {REVISION}"
        invocation.output.line(f"{found} ({note})")
    return exits.OK if found == REVISION else exits.FAILED


@command(
    examples=("loom-audit db upgrade",),
    codes={exits.UNAVAILABLE: "it could not be upgraded and is as it was"},
)
def upgrade(invocation: Invocation) -> None:
    """Bring the store's tables up to date, after a backup.

    Events are never altered by it, which is checked before it is made final.
    """
    file = _existing(_settings(invocation))
    before, backups = _revision(file), _backups(file)
    with invocation.store():
        after = _revision(file)
    made = sorted(_backups(file) - backups)
    if invocation.output.json:
        record = {"before": before, "after": after, "backups": [str(one) for one in made]}
        invocation.output.record(record)
    elif before == after:
        invocation.output.line(f"{after} (it was up to date)")
    else:
        invocation.output.line(
            f"{before} -> {after}; the store as it was: {', '.join(map(str, made))}"
        )


@command(examples=("loom-audit db rebuild",))
def rebuild(invocation: Invocation) -> None:
    """Make the projections anew from the log, for the current workspace.

    Lists, trees and counts are derived from events; this drops and derives them again.
    """
    with invocation.workspace() as workspace:
        done = workspace.rebuild()
        if invocation.output.json:
            invocation.output.record({"workspace": workspace.id, "events": done})
        else:
            invocation.output.line(f"made anew from {counted(done, 'event')}")


db = Group(
    "Show, check or upgrade the store's database.",
    {"path": path, "current": current, "upgrade": upgrade, "rebuild": rebuild},
)


def _settings(invocation: Invocation) -> "Settings":
    from loom_audit.config import read_settings

    return read_settings(invocation.shared.store)


def _existing(settings: "Settings") -> Path:
    return existing_store(settings.url, hint="`loom-audit init` makes one.")


def _backups(file: Path) -> set[Path]:
    return set(file.parent.glob(f"{file.name}.before-upgrade-*"))


def _revision(file: Path) -> str:
    from loom_audit.sql.driver import connect, driver, write_error

    try:
        with closing(connect(str(file), "ro")) as raw:
            rows = raw.execute("SELECT version_num FROM alembic_version").fetchall()
    except driver().Error as error:
        problem = write_error(error)
        raise StorageFailed(problem.message, hint=problem.hint, details=problem.details) from error
    return str(rows[0][0]) if rows else "none"
