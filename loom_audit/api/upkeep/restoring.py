"""Versions of a file that some program has kept, and one of them put back by a plan."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path

from msgspec import Struct

from loom_audit.api.agents.finding import find_transcripts
from loom_audit.api.agents.importing import told_in
from loom_audit.api.ground.session_record import SessionRecord
from loom_audit.api.store import repository_of
from loom_audit.api.upkeep.git_objects import GitObjects
from loom_audit.api.workspace import AuditedWorkspace
from loom_audit.clients.known import CLIENTS
from loom_audit.clients.reports import CallBegan, CallEnded
from loom_audit.errors import AuditError, Conflict, NotFound
from loom_audit.history.ground.writer import new_id
from loom_audit.history.record.call import OpenCall
from loom_audit.history.told.reported_tree import FILE_MODE, ReportedTree
from loom_audit.model.files import BlobId, FileState
from loom_audit.model.records import Call

AS_TOLD = "as a client told it: line ends and permission bits may differ"
AS_IN_GIT = "as git has it: filters and its rules for line ends may have changed it"
MOST = 100
_EARLIEST = datetime.fromtimestamp(0, UTC)


class KeptVersion(Struct, frozen=True):
    """A version of a file: when it was, who has kept it, how it may differ; "" for exactly."""

    at: datetime | None
    origin: str
    differs: str
    mode: int
    content: bytes

    @property
    def digest(self) -> str:
        """The content's SHA-256 in hex."""
        return sha256(self.content).hexdigest()


class Restoring(Struct, frozen=True):
    """Putting back a version would replace `before`, what is there now; None for nothing."""

    path: str
    version: KeptVersion
    before: bytes | None

    @property
    def changes(self) -> bool:
        """Whether the file is not what the version is."""
        return self.before != self.version.content


def versions_of(
    file: Path,
    workspace: AuditedWorkspace | None,
    environment: Mapping[str, str] = os.environ,
) -> Sequence[KeptVersion]:
    """The versions of a file that are kept anywhere, the newest first, each content once.

    They are from transcripts that name the file's repository, git's objects, and the log of its
    workspace.
    """
    target = Path(os.path.realpath(file.parent)) / file.name
    root = Path(workspace.root) if workspace is not None else None
    found = [*_told(target, environment), *_in_git(target, root)]
    if workspace is not None:
        found += _recorded(target, workspace)
    # of equal contents the one that is exact stands, then the latest
    found.sort(key=lambda one: (not one.differs, one.at or _EARLIEST), reverse=True)
    once = {version.digest: version for version in reversed(found)}
    newest = sorted(once.values(), key=lambda one: one.at or _EARLIEST, reverse=True)
    return newest[:MOST]


def plan_restoring(workspace: AuditedWorkspace, file: Path, version: KeptVersion) -> Restoring:
    """Plan to put a version back now. InvalidPath outside of the workspace."""
    disk = workspace.attachment.on_disk.workspace
    path = disk.relative(os.path.join(os.path.realpath(file.parent), file.name))
    before = None if disk.stamp(path) is None else disk.read(path)
    return Restoring(path, version, before)


def restore(workspace: AuditedWorkspace, plan: Restoring) -> Call:
    """Put a version back, on record. Conflict when the file is not what it was for the plan."""

    def new(old: bytes | None) -> bytes:
        if old != plan.before:
            raise Conflict(
                f"{plan.path} changed since this plan was made",
                hint="Look at the new plan and decide again.",
            )
        return plan.version.content

    by, attachment = workspace.actor, workspace.attachment
    told = {"path": plan.path, "origin": plan.version.origin, "differs": plan.version.differs}
    call_id = new_id()
    with (
        SessionRecord(workspace.adapters, attachment, by, by, f"restore {plan.path}") as writer,
        OpenCall(writer, "restore", told, "write", call_id=call_id) as call,
    ):
        mode = plan.version.mode if plan.before is None else None
        call.edit(plan.path, new, mode=mode, final=True)
        call.result["output"] = f"Restored {plan.path}, {plan.version.origin}"
    return attachment.stored.reading.call(writer.session, call_id)


# --- where versions are -----------------------------------------------------------------------


class _Contents:
    """Contents by their hash, in memory."""

    def __init__(self) -> None:
        self._by_hash: dict[str, bytes] = {}

    def put(self, content: bytes, *, similar_to: BlobId | None = None) -> BlobId:
        blob = BlobId(sha256(content).hexdigest())
        self._by_hash[blob] = content
        return blob

    def get(self, blob: BlobId) -> bytes:
        return self._by_hash[blob]


def _told(target: Path, environment: Mapping[str, str]) -> Iterator[KeptVersion]:
    for found in find_transcripts(target, environment).found:
        with suppress(AuditError):
            yield from _told_in(Path(found.file), found.client, found.cwd, str(target))


def _told_in(file: Path, client: str, root: str, target: str) -> Iterator[KeptVersion]:
    """The versions of a file that one transcript tells."""
    contents = _Contents()
    states: dict[str, FileState] = {}
    tree = ReportedTree(contents, root, states)
    wanted = tree.relative(target, root)
    if wanted is None:
        return
    cwds: dict[str, str] = {}
    for report in told_in(file, client):
        if isinstance(report, CallBegan):
            cwds[report.call_id] = report.cwd
        if not isinstance(report, CallEnded):
            continue
        cwd = cwds.pop(report.call_id, root)
        mine = [one for one in report.files if wanted == tree.relative(one.path, cwd)]
        changes = tree.follow(mine, cwd)
        about = f"{CLIENTS[client].title}, {report.tool or 'a call'} {report.call_id}"
        for when, changed in (("before", changes.before), ("after", changes.made)):
            for change in changed:
                state = change.after
                if change.path == wanted and state is not None and state.blob is not None:
                    raw = contents.get(state.blob)
                    yield KeptVersion(report.at, f"{when} {about}", AS_TOLD, FILE_MODE, raw)


def _in_git(target: Path, workspace: Path | None) -> Iterator[KeptVersion]:
    root = repository_of(target.parent)
    if not (root / ".git").exists():
        return
    # a submodule's git folder is in that of a repository above it, in the same workspace
    is_inside = workspace is not None and root.is_relative_to(workspace)
    objects = GitObjects(root, workspace if workspace is not None and is_inside else root)
    seen: set[str] = set()
    for version in objects.versions(str(target.relative_to(root))):
        if version.object in seen:
            continue
        seen.add(version.object)
        content = objects.content(version)
        if content is not None:
            yield KeptVersion(version.at, version.where, AS_IN_GIT, version.mode, content)


def _recorded(target: Path, workspace: AuditedWorkspace) -> Iterator[KeptVersion]:
    timeline = workspace.timeline
    path = os.path.relpath(target, workspace.root)
    for recorded in timeline.history(path):
        states = (recorded.change.after, recorded.change.before)
        for state, when, ago in zip(states, ("after", "before"), (0, 1), strict=True):
            if state is None or state.kind != "file" or state.blob is None:
                continue
            with suppress(NotFound):
                content = timeline.content(state)
                origin = f"on record {when} event {recorded.seq}"
                at = recorded.at - timedelta(microseconds=ago)
                yield KeptVersion(at, origin, "", state.mode, content)
