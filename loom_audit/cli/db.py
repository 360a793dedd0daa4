"""`loom-audit db`, the store's database: path, current, upgrade, rebuild."""

from pathlib import Path
from typing import Annotated

from loom_audit.cli.shared import exits
from loom_audit.cli.shared.command import Group, command
from loom_audit.cli.shared.invocation import Invocation
from loom_audit.cli.shared.parameters import option
from loom_audit.model.text.display import count_text, size_text

MOST = 50
"""The number of differences that are told; --json has all."""

_MAKE_ONE = "`loom-audit init` makes one."


@command(examples=("loom-audit db path",))
def path(invocation: Invocation) -> None:
    """Print where the store is, and how large.

    The data folder beside it holds its locks, change indexes and large contents.
    """
    from loom_audit.api.upkeep.database import size_in_words, size_on_disk

    output = invocation.output
    settings = invocation.settings
    file = settings.file
    if output.json:
        output.record(
            {
                "url": settings.url,
                "path": str(file) if file else None,
                "home": str(settings.home),
                "heads": str(settings.heads),
                "exists": file.exists() if file else None,
                "on_disk": size_on_disk(settings),
            }
        )
    else:
        output.line(str(file or settings.url))
        if file and file.exists():
            output.note((size_in_words(settings), "dim"))


@command(
    examples=("loom-audit db current",),
    codes={exits.FAILED: "it needs an upgrade, or a newer loom-audit"},
)
def current(invocation: Invocation) -> int:
    """Print the revision of the store's tables.

    Nothing is upgraded by looking.
    """
    output = invocation.output
    from loom_audit.api.upkeep.database import REVISION, revision

    found = revision(invocation.store_file(hint=_MAKE_ONE))
    if output.json:
        output.record({"revision": found, "newest": REVISION, "up_to_date": found == REVISION})
    else:
        note = "up to date" if found == REVISION else f"the newest known here is {REVISION}"
        output.line(f"{found} ({note})")
    return exits.OK if found == REVISION else exits.FAILED


@command(
    examples=("loom-audit db upgrade",),
    codes={exits.UNAVAILABLE: "it could not be upgraded and is as it was"},
)
def upgrade(invocation: Invocation) -> None:
    """Bring the store's tables up to date, after a backup.

    Events are never altered by it, which is checked before it is made final.
    """
    output = invocation.output
    from loom_audit.api.upkeep.database import backups, revision

    file = invocation.store_file(hint=_MAKE_ONE)
    before, kept = revision(file), backups(file)
    with invocation.store():
        after = revision(file)
    made = sorted(backups(file) - kept)
    if output.json:
        record = {"before": before, "after": after, "backups": [str(one) for one in made]}
        output.record(record)
    elif before == after:
        output.line(f"{after} (it was up to date)")
    else:
        output.line(f"{before} -> {after}; the store as it was: {', '.join(map(str, made))}")


@command(examples=("loom-audit db rebuild",))
def rebuild(invocation: Invocation) -> None:
    """Make this workspace's projections anew from the log.

    Lists, trees and counts are derived from events; this drops and derives them again, and says
    what was different.
    """
    output = invocation.output
    with invocation.store() as store:
        id, done, differed = store.rebuild(invocation.shared.workspace or Path.cwd())
        if output.json:
            said = [{"seq": seq, "message": message} for seq, message in differed]
            output.record({"workspace": id, "events": done, "differed": said})
            return
        for seq, message in differed[:MOST]:
            output.line("differed: ", "" if seq is None else f"event {seq}: ", message)
        if len(differed) > MOST:
            output.line(f"and {len(differed) - MOST} more")
        output.line(f"made anew from {count_text(done, 'event')}")


@command(examples=("loom-audit db caches", "loom-audit db caches --empty"))
def caches(
    invocation: Invocation,
    empty: Annotated[
        bool, option("--empty", help="Delete them first; each is made again when it is needed.")
    ] = False,
) -> None:
    """List this workspace's caches, and what losing each costs.

    They are on this machine only. None is evidence: what is read from one is compared with the
    log, or is only where to look.
    """
    output = invocation.output
    with invocation.workspace() as workspace:
        from loom_audit.api.upkeep.caches import empty_caches, sizes_of

        home, id = invocation.settings.home, workspace.id
        if empty:
            empty_caches(home, id)
        for cache, size in sizes_of(home, id):
            if output.json:
                output.record(
                    {
                        "name": cache.name,
                        "file": f"{id}{cache.ends}",
                        "bytes": size,
                        "most_bytes": cache.most_bytes,
                        "holds": cache.holds,
                        "costs": cache.costs,
                    }
                )
                continue
            most = f" of at most {size_text(cache.most_bytes)}" if cache.most_bytes else ""
            output.line(f"{cache.name:<13} {size_text(size):>9}{most}: {cache.holds}")
            output.line((f"{'':<13} lost: {cache.costs}", "dim"))


db = Group(
    "Show, upgrade or rebuild the store's database.",
    {"path": path, "current": current, "upgrade": upgrade, "rebuild": rebuild, "caches": caches},
)
