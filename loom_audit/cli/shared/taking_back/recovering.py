"""Versions of a file that are kept anywhere: listed, and one put back by a plan."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from loom_audit.cli.shared import exits
from loom_audit.cli.shared.invocation import Invocation
from loom_audit.errors import NotFound, NoWorkspace
from loom_audit.model.text.display import size_text, visible

if TYPE_CHECKING:
    from loom_audit.api.face import AuditedWorkspace
    from loom_audit.api.upkeep.restoring import KeptVersion, Restoring


def recover_file(
    invocation: Invocation, path: str, take: int | None, *, dry_run: bool, yes: bool
) -> int:
    """List the versions of a file, or put back the one of this number.

    NotFound where nobody has kept one, or none of this number; NoWorkspace to put one back where no
    workspace holds the file.
    """
    from loom_audit.api.upkeep.restoring import plan_restoring, versions_of

    file = Path(path).absolute()
    with _workspace_of(invocation, file) as workspace:
        versions = versions_of(file, workspace)
        if not versions:
            raise NotFound(
                f"nobody has kept a version of {visible(str(file))}",
                hint="Looked at were transcripts that name its repository, git's objects and the "
                "log of its workspace. `opencode export` writes a transcript to import.",
            )
        if take is None:
            return _print_versions(invocation, versions)
        if take > len(versions):
            raise NotFound(f"there is no version {take}", hint="List them without --take.")
        if workspace is None:
            raise NoWorkspace(
                f"{file.parent} is in no workspace under audit",
                hint="Put it under audit with `loom-audit init`; then what is put back is on "
                "record, and can be taken back.",
            )
        plan = plan_restoring(workspace, file, versions[take - 1])
        return _carry_out(invocation, workspace, plan, dry_run=dry_run, yes=yes)


@contextmanager
def _workspace_of(invocation: Invocation, file: Path) -> Iterator["AuditedWorkspace | None"]:
    """The workspace that holds a file; None where there is none, or no store."""
    found: AuditedWorkspace | None = None
    with ExitStack() as stack:
        with suppress(NoWorkspace):
            store = stack.enter_context(invocation.store())
            found = store.workspace(invocation.shared.workspace or file.parent)
        yield found


def _print_versions(invocation: Invocation, versions: Sequence["KeptVersion"]) -> int:
    output = invocation.output
    for number, version in enumerate(versions, 1):
        at = version.at.strftime("%Y-%m-%d %H:%M:%SZ") if version.at else ""
        if output.json:
            record = {
                "number": number,
                "at": version.at.isoformat() if version.at else None,
                "origin": version.origin,
                "differs": version.differs,
                "size": len(version.content),
                "sha256": version.digest,
            }
            output.record(record)
            continue
        output.line(
            f"{number:>4}  {at:<20}  {size_text(len(version.content)):>9}  {version.origin}"
        )
        if version.differs:
            output.line((f"      {version.differs}", "yellow"))
    output.note("`--take N` puts one back, after its plan was shown")
    return exits.OK


def _carry_out(
    invocation: Invocation,
    workspace: "AuditedWorkspace",
    plan: "Restoring",
    *,
    dry_run: bool,
    yes: bool,
) -> int:
    from loom_audit.api.upkeep.restoring import restore

    output, version = invocation.output, plan.version
    letter = "A" if plan.before is None else "M"
    old = "" if plan.before is None else f"{size_text(len(plan.before))} -> "
    told = {"path": plan.path, "origin": version.origin, "differs": version.differs}
    if not output.json:
        output.line(f"  {letter} {visible(plan.path)}  ({old}{size_text(len(version.content))})")
        output.line(f"  {version.origin}")
        if version.differs:
            output.line((f"  {version.differs}", "yellow"))
    if not plan.changes or dry_run:
        if output.json:
            output.record({**told, "changes": plan.changes, "call": None})
        elif not plan.changes:
            output.note("it is so already")
        return exits.OK
    output.stdout.flush()  # what cannot be shown is not done
    if not yes and output.interactive and not _confirmed(invocation):
        output.note("nothing was changed")
        return exits.FAILED
    call = restore(workspace, plan)
    if output.json:
        output.record({**told, "changes": True, "call": call.seq})
    else:
        output.line((f"restore is call {call.seq}", "green"), "; `loom-audit undo` takes it back")
    return exits.OK


def _confirmed(invocation: Invocation) -> bool:
    try:
        return click.confirm("Put it back?", default=False, err=True)
    except click.Abort:
        invocation.output.note("")
        raise
