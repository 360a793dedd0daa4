"""What a store is made of: its database, locks, heads and runner, and each attachment."""

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING

from msgspec import Struct, field

from loom_audit.config import Settings, read_settings
from loom_audit.disk.access.identity import identity_at
from loom_audit.disk.looking.index import DiskChangeIndex
from loom_audit.disk.machine.git_objects import DiskObjectMirror
from loom_audit.disk.machine.heads import (
    DiskHeads,
    LastVerified,
    damaged_lines,
    keep_verified,
    logs_with_heads,
    read_verified,
)
from loom_audit.disk.machine.held import DiskHeldSessions
from loom_audit.disk.machine.locks import DiskLock
from loom_audit.disk.machine.looks import DiskLooks
from loom_audit.disk.machine.processes import LinuxProcesses
from loom_audit.disk.machine.root_identities import RootIdentities, identity_of_folder
from loom_audit.disk.machine.roots import check_root, check_target, is_in_place, is_mount_point
from loom_audit.disk.machine.transcripts import DiskTranscript
from loom_audit.disk.machine.vanished import hidden, vanished_workspace
from loom_audit.disk.workspace import DiskWorkspace
from loom_audit.disk.writing.rename import exchange_names, rename_to_absent
from loom_audit.errors import AuditError, Conflict, InvalidPath, NoWorkspace
from loom_audit.history.ground.attachment import Attachment, OnDisk, StoredLog
from loom_audit.history.ground.continuous_log import ContinuousLog
from loom_audit.history.ground.log_end import check_end, last_kept
from loom_audit.history.ground.proven_listings import ProvenListings
from loom_audit.history.ground.read_only_log import read_only
from loom_audit.history.ground.roots import accepted_scope, is_attached_to, not_named, root_of
from loom_audit.model.actors import OUTSIDE
from loom_audit.model.events import BaselineFinished, Draft, Event, TreeHead, WorkspaceAttached
from loom_audit.model.imported import is_imported, only_read
from loom_audit.model.scope import IGNORE_FILE, MAX_FILE_BYTES, TEMPORARY, check_rules
from loom_audit.ports import (
    BlobStore,
    EventFilter,
    EventLog,
    GitBuilder,
    Heads,
    HeldSessions,
    LineMaps,
    Lock,
    Marks,
    Processes,
    Projections,
    Runner,
    TranscriptFile,
    Workspace,
)
from loom_audit.sandbox import confining_runner
from loom_audit.sandbox.git.builder import ProgramGitBuilder
from loom_audit.sandbox.git.mirrored import ProgramMirroredGit
from loom_audit.sandbox.git.program_git import ProgramGit
from loom_audit.sandbox.git.restorer import ProgramGitRestorer
from loom_audit.sandbox.scratch import scratch_folder
from loom_audit.sandbox.supervised import SUPERVISOR
from loom_audit.sql.code_index import SqlCodeIndex
from loom_audit.sql.ground.clock import SystemClock
from loom_audit.sql.line_maps import SqlLineMaps
from loom_audit.sql.projections.keyframes import KEYFRAME_EVENTS
from loom_audit.sql.store.database import Database, WorkspaceEntry, open_database
from loom_audit.wiring.caches import FOLDER, LINE_MAPS, MIRROR, files_of

if TYPE_CHECKING:
    from loom_audit.sql.erasing.forgetting import Amount as Amount
    from loom_audit.sql.erasing.forgetting import Forgetting
    from loom_audit.sql.evidence.evidence import SqlEvidence

__all__ = ["Adapters", "ForgottenWorkspace", "WorkspaceEntry", "open_adapters"]


class ForgottenWorkspace(Struct, frozen=True):
    """A log that is forgotten: its last event, which says so, and whether all has gone by now."""

    event: Event
    is_finished: bool


class Adapters(Struct, frozen=True):
    """An open database with the locks, indexes and heads that belong to it."""

    settings: Settings
    database: Database
    lock: Lock
    runner: Runner
    logs: dict[str, EventLog] = field(default_factory=dict)
    listings: ProvenListings = field(default_factory=ProvenListings)

    @property
    def blobs(self) -> BlobStore:
        """The contents of the store."""
        return self.database.blobs

    @property
    def processes(self) -> Processes:
        """The processes of this machine, as far as they can be seen."""
        hook = str(self.settings.hooks / "hook_client.py")
        return LinuxProcesses(supervised=SUPERVISOR, reporting=hook)

    def transcript(self, path: str) -> TranscriptFile:
        """The file in which a client writes down a session, read as it grows."""
        return DiskTranscript(Path(path))

    def log(self, id: str) -> EventLog:
        """The log of an id, one object for each; appends are checked, heads kept as it grows."""
        if id not in self.logs:
            self.logs[id] = self._checked(id)
        return self.logs[id]

    def check_recording(self, id: str) -> None:
        """Raise Corrupt where nothing may be recorded in a log.

        What is stored does not fit together then.
        """
        log = self._checked(id)
        log.check()
        accepted_scope(log, self.projections(id), None)

    def check_end(self, id: str) -> None:
        """Raise Corrupt where a log ends before what its tables or its kept heads tell of."""
        log = self.database.event_log(id)
        check_end(log, self.projections(id), last_kept(log, self.heads(id)))

    def _checked(self, id: str) -> ContinuousLog:
        return ContinuousLog(
            self.database.event_log(id),
            self.heads(id),
            self.projections(id),
            keyframe=KEYFRAME_EVENTS,
            one_by_one=RLock(),
        )

    def heads(self, id: str) -> Heads:
        """The tree heads of a log that are kept outside the store."""
        return DiskHeads(self.settings.heads, id)

    @property
    def held(self) -> HeldSessions:
        """The sessions that are held, for hooks that no process of ours answers."""
        return DiskHeldSessions(self.settings.home / "held")

    def projections(self, id: str) -> Projections:
        """The tables that follow a log. NotFound for a log that the store does not have."""
        return self.database.projections(id)

    def workspaces(self) -> Sequence[WorkspaceEntry]:
        """The workspaces of the store, oldest first, imported logs among them."""
        return self.database.workspaces()

    def forgotten(self) -> Sequence[ForgottenWorkspace]:
        """The logs that end with being forgotten, oldest first. Corrupt."""
        return [self._forgotten_workspace(id) for id in self.database.forgotten()]

    def _forgotten_workspace(self, id: str) -> ForgottenWorkspace:
        log = self.database.event_log(id)
        [event] = log.read(EventFilter.only(log.head()))
        return ForgottenWorkspace(event, self.forgetting(id).is_finished)

    def marks(self, id: str) -> Marks:
        """What people noted of a log while they read it."""
        return self.database.marks(id)

    def forgetting(self, id: str) -> "Forgetting":
        """What erases the log of this id, or tells how much that would be."""
        from loom_audit.sql.erasing.forgetting import Forgetting

        return Forgetting(self.database, id)

    def line_maps(self, id: str) -> LineMaps:
        """Which version wrote which lines, as it was found out before."""
        return SqlLineMaps(self.settings.home / FOLDER / f"{id}.lines.db")

    def find(self, id_or_path: str | Path) -> WorkspaceEntry:
        """The workspace of an id, of a path at or below its root, or of the start of an id.

        NoWorkspace where there is none, with the path where it was moved to; InvalidPath for a NUL
        character. Corrupt where the log of the workspace that holds the path says that it is of
        another folder, and where a log is of a folder that holds the path and the table does not
        say so.
        """
        entries = self.workspaces()
        text = str(id_or_path)
        if "\0" in text:
            raise InvalidPath("the path holds a NUL character", hint="No name on disk has one.")
        named = [entry for entry in entries if text and entry.id.startswith(text)]
        named = [entry for entry in entries if entry.root == text and is_imported(text)] or named
        if len(named) == 1 and (named[0].id == text or not os.path.lexists(text)):
            return named[0]
        for id in self.database.forgotten():
            if id == text:
                raise NoWorkspace(
                    f"the workspace {id} is forgotten",
                    hint="`loom-audit workspaces` says when and why; `loom-audit verify "
                    f"--workspace {id}` checks its leaves and its tree.",
                    details={"forgotten": id},
                )
        path = Path(os.path.realpath(text))
        for entry in entries:
            root = Path(entry.root)
            if is_imported(entry.root):
                continue
            if path == root or (root in path.parents and os.path.lexists(text)):
                self._check_root(entry)
                return entry
        self._refuse_unnamed(text, path, entries)
        for folder in (path, *path.parents):
            if moved := self.moved_to(str(folder), entries):
                text = f"{folder} is the workspace {moved.root}, moved"
                raise NoWorkspace(text, hint=_MOVE, details={"moved": moved.root})
        there = os.path.lexists(text)
        raise NoWorkspace(
            f"{text} is in no workspace under audit"
            if there
            else f"there is no {text}, and no workspace has such an id",
            hint="Run `loom-audit init` in the directory you want to put under audit.",
        )

    @property
    def root_identities(self) -> RootIdentities:
        """The identities that the folders of workspaces were found to have."""
        return RootIdentities(self.settings.home / FOLDER)

    def moved_to(
        self, folder: str, entries: Sequence[WorkspaceEntry] | None = None
    ) -> WorkspaceEntry | None:
        """The workspace that has left its place and is this folder by its identity; else None."""
        known = self.workspaces() if entries is None else entries
        gone = [one for one in known if not is_imported(one.root) and not is_in_place(one.root)]
        identity = identity_of_folder(folder) if gone else ""
        if not identity:
            return None
        kept = self.root_identities.kept
        return next((entry for entry in gone if identity in kept(entry.id)), None)

    def _check_root(self, entry: WorkspaceEntry) -> None:
        log = self.database.event_log(entry.id)
        if not is_attached_to(log, entry.root):
            raise not_named(entry.id, root_of(log) or "no folder")

    def _refuse_unnamed(self, text: str, path: Path, entries: Sequence[WorkspaceEntry]) -> None:
        """CORRUPT where a log says that it is of this path, or has this id, and is not named so."""
        named = {entry.id: entry for entry in entries}
        forgotten = self.database.forgotten()
        for id in self.database.logs():
            if id in forgotten:
                continue
            root = root_of(self.database.event_log(id))
            if root is None or not (id == text or Path(root) in (path, *path.parents)):
                continue
            if id not in named:
                raise not_named(id, root)
            self._check_root(named[id])

    def attach(
        self, path: str | Path, *, ignore: str | None, max_file_bytes: int | None
    ) -> Attachment:
        """The attachment of a directory, with a new log when it has none yet.

        Conflict for other rules than those accepted, and for a workspace that was moved here; the
        limit is that of the first attach. InvalidPath for what cannot be a workspace.
        """
        with self.lock.hold("attach"):
            entries = self.workspaces()
            real = os.path.realpath(path)
            for entry in entries:
                if entry.root == real:
                    _refuse_other_rules(entry, ignore)
                    return self.attachment(entry.id)
            self._refuse_unnamed("", Path(real), entries)
            root = check_root(path, store_dir=self.settings.home, others=_folders(entries))
            if moved := self.moved_to(root, entries):
                raise Conflict(f"{root} is the workspace {moved.root}, moved", hint=_MOVE)
            if ignore is None:
                ignore = _read_ignore(root)
            else:
                check_rules(ignore)
            fact = WorkspaceAttached(root, ignore, max_file_bytes or MAX_FILE_BYTES)
            id = self._begin_log(Draft(fact, "", OUTSIDE))
        return self.attachment(id)

    def _begin_log(self, *drafts: Draft) -> str:
        """The id of a new log, which begins with these; one that was begun and left is taken."""
        known = logs_with_heads(self.settings.heads)
        left = [log for log in self.database.empty_logs() if log not in known]
        id = left[0] if left else self.database.create_log()
        self.database.event_log(id).append(drafts)
        return id

    def imported_log(self, root: str) -> str:
        """The id of the log of transcripts that name this folder, a new log when there is none."""
        with self.lock.hold("attach"):
            for entry in self.workspaces():
                if entry.root == root:
                    self._check_root(entry)
                    return entry.id
            facts = (WorkspaceAttached(root, "", MAX_FILE_BYTES), BaselineFinished(0, 0))
            return self._begin_log(*(Draft(fact, "", OUTSIDE) for fact in facts))

    def attachment(self, id: str) -> Attachment:
        """The directory of a log with everything that belongs to it.

        A directory that is gone answers every look at it with NoWorkspace. Corrupt where the log
        says that it is of another folder. A log that was imported answers appends with NoWorkspace
        too.
        """
        entry = self.find(id)
        self._check_root(entry)
        log = self.log(id)
        if is_imported(entry.root):
            log = read_only(log, only_read(entry.root))
        tables = self.projections(id)
        stored = StoredLog(
            log=log,
            blobs=self.blobs,
            tables=tables,
            reading=tables,
            lock=self.lock,
            clock=SystemClock(),
            free_bytes=self.free_bytes,
            holds=self.held,
        )
        on_disk = OnDisk(
            workspace=self._workspace_of(entry),
            index=DiskChangeIndex(self.settings.home / FOLDER / f"{id}.db"),
            looks=DiskLooks(self.settings.home / FOLDER / f"{id}.looks"),
            processes=self.processes,
            runner=self.runner,
            code=SqlCodeIndex(self.settings.home / FOLDER / f"{id}.code.db"),
            git=None if is_imported(entry.root) else ProgramGit(entry.root, identity_at),
            mirror=DiskObjectMirror(entry.root, self.settings.home / FOLDER / f"{id}{MIRROR}"),
            mirrored_git=ProgramMirroredGit(entry.root),
            git_restorer=ProgramGitRestorer(entry.root, identity_at, exchange_names),
            git_builder=ProgramGitBuilder(entry.root, identity_at, rename_to_absent),
        )
        return Attachment(stored, on_disk)

    def _workspace_of(self, entry: WorkspaceEntry) -> Workspace:
        """The folder of a log: there, deleted on record, gone, hidden by a mount, or none."""
        if is_imported(entry.root):
            return vanished_workspace(entry.root, only_read)
        if is_in_place(entry.root):
            mounted = is_mount_point(entry.root)
            if self._is_hidden(entry, mounted=mounted):
                return vanished_workspace(entry.root, hidden)
            workspace = self.disk_workspace(entry.root)
            with suppress(AuditError):  # where it cannot be kept, a move is not proven by it
                identity = workspace.identity("")
                self.root_identities.keep(entry.id, identity, mounted=mounted)
            return workspace
        if not os.path.lexists(entry.root) and _is_on_record_as_deleted(self.projections(entry.id)):
            return DiskWorkspace(entry.root, deleted=True)
        return vanished_workspace(entry.root)

    def _is_hidden(self, entry: WorkspaceEntry, *, mounted: bool) -> bool:
        """Whether something was mounted or unmounted there, and nothing on record is in it."""
        if self.root_identities.was_mount_point(entry.id) in (None, mounted):
            return False
        recorded = {path.partition("/")[0] for path in self.projections(entry.id).tree()}
        there = (os.path.lexists(os.path.join(entry.root, name)) for name in recorded)
        return bool(recorded) and not any(there)

    def disk_workspace(self, root: str) -> DiskWorkspace:
        """The directory at a path, which never holds the store."""
        return DiskWorkspace(root, exclude=(str(self.settings.home),))

    def free_bytes(self) -> int:
        """The bytes that are free where the store lives."""
        return shutil.disk_usage(self.settings.home).free

    def empty_workspace(self, path: str | Path) -> DiskWorkspace:
        """A new or empty directory as a workspace to replay into.

        Conflict for any other directory, and for one in a workspace or in the store.
        """
        target = Path(path)
        roots = _folders(self.workspaces())
        check_target(target, store_dir=self.settings.home, others=roots)
        if target.exists() and (not target.is_dir() or any(target.iterdir())):
            hint = f"Name a new folder. Delete {TEMPORARY}… there: a killed writing left it."
            raise Conflict(f"{target} is not an empty directory", hint=hint)
        target.mkdir(parents=True, exist_ok=True)
        return DiskWorkspace(str(target))

    def git_builder_at(self, target: str, root: str) -> GitBuilder:
        """What builds a git folder in a new directory; git is not taken from the workspace."""
        return ProgramGitBuilder(target, identity_at, rename_to_absent, safe_from=root)

    @contextmanager
    def scratch(self) -> Iterator[Workspace]:
        """A new directory of the system's temporary ones, deleted at the end of the block."""
        with scratch_folder() as folder:
            made = DiskWorkspace(folder)
            try:
                yield made
            finally:
                made.close()

    def keep_head(self, head: TreeHead) -> None:
        """Append a tree head to the log's file outside the store, durably."""
        self.heads(head.log).keep(head)

    def kept_heads(self, id: str) -> Sequence[TreeHead]:
        """The tree heads of a log that are kept outside the store, oldest first. StorageFailed."""
        return self.heads(id).kept()

    def damaged_heads(self, id: str) -> Sequence[str]:
        """The lines among the kept heads of a log that cannot be read."""
        return damaged_lines(self.settings.heads, id)

    def keep_verified(self, id: str, size: int, code: int) -> None:
        """Keep beside the heads that all of a log was verified now, with the exit code."""
        keep_verified(self.settings.heads, id, LastVerified(SystemClock().now(), size, code))

    def last_verified(self, id: str) -> LastVerified | None:
        """When all of a log was verified last; None when it never was."""
        return read_verified(self.settings.heads, id)

    def rebuild(self, id: str) -> int:
        """Make the projections of a log anew, and give how many events it has; what is told by
        them or beside them of lines and calls is forgotten.
        """
        for file in files_of(self.settings.home, id, LINE_MAPS):
            file.unlink(missing_ok=True)
        return self.database.projections(id).rebuild()

    def missing_logs(self) -> Sequence[str]:
        """The logs that the store does not hold, or not up to the last head kept of them."""
        kept = {
            log: max((head.size for head in self.kept_heads(log)), default=0)
            for log in logs_with_heads(self.settings.heads)
        }
        held = {entry.id: entry.head or 0 for entry in self.workspaces()}
        held |= {id: self.database.event_log(id).head() for id in self.database.forgotten()}
        return [log for log, size in kept.items() if held.get(log, -1) < size]

    def evidence(self, id: str) -> "SqlEvidence":
        """The rows of one log as they lie there, for verification; to be closed."""
        from loom_audit.sql.evidence.evidence import open_evidence

        return open_evidence(self.database, id)

    def close(self) -> None:
        """Close the database; contents put since the last append are lost."""
        self.database.close()


def open_adapters(
    url: str | os.PathLike[str] | None = None, settings: Settings | None = None
) -> Adapters:
    """Open or make the store of this URL, by default LOOM_AUDIT_STORE or the user's own.

    AuditUnavailable when it cannot be opened, InvalidArguments for a folder or the URL of another
    database.
    """
    chosen = settings or read_settings(url)
    chosen.home.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = DiskLock(chosen.home / "locks")
    hidden = [str(path) for path in (chosen.home, chosen.heads, chosen.configuration)]
    return Adapters(chosen, open_database(chosen.url, lock=lock), lock, confining_runner(hidden))


_MOVE = "`loom-audit workspaces move OLD NEW` takes its record along."


def _folders(entries: Sequence[WorkspaceEntry]) -> list[str]:
    """The folders that are under audit, which those of imported logs are not."""
    return [entry.root for entry in entries if not is_imported(entry.root)]


def _refuse_other_rules(entry: WorkspaceEntry, ignore: str | None) -> None:
    if ignore is not None and ignore != entry.ignore:
        raise Conflict(
            f"{entry.root} is under audit with other rules",
            hint="Write them to .loomignore, then run `loom-audit scope accept`.",
        )


def _is_on_record_as_deleted(projections: Projections) -> bool:
    """Whether nothing is left in the tree, and it was not empty from the beginning."""
    return not projections.tree() and any(True for _ in projections.changes())


def _read_ignore(root: str) -> str:
    file = Path(root) / IGNORE_FILE
    if file.is_symlink() or not file.is_file():
        return ""
    return file.read_text("utf-8", "replace")
