"""A store of many workspaces, as Python code sees it."""

import getpass
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from loom_audit.api.workspace import AuditedWorkspace
from loom_audit.config import Settings, read_settings
from loom_audit.errors import AuditError, Corrupt
from loom_audit.model.actors import PERSON
from loom_audit.model.events import TreeHead, WorkspaceAttached
from loom_audit.model.scope import MAX_FILE_BYTES
from loom_audit.model.text.display import count_text
from loom_audit.ports import OnProgress
from loom_audit.wiring import folders
from loom_audit.wiring.adapters import Adapters, WorkspaceEntry, open_adapters
from loom_audit.wiring.heads import logs_with_heads

if TYPE_CHECKING:
    from loom_audit.history.check.verification import Verification
    from loom_audit.history.ground.attachment import Attachment


def open_store(
    url: str | os.PathLike[str] | None = None, *, actor: str | None = None
) -> "AuditStore":
    """Open the store of this URL or path, by default LOOM_AUDIT_STORE or the user's own.

    Made when it is not there; AUDIT_UNAVAILABLE when it is from a newer version or locked,
    INVALID_ARGUMENTS for a folder.
    `actor` goes on record for what is done outside of sessions, as `person:ada`; by default
    that is the person who runs this process.
    """
    return AuditStore(open_adapters(url), actor=actor)


def person() -> str:
    """The actor name of whoever runs this process."""
    try:
        return PERSON + getpass.getuser()
    except (KeyError, OSError):
        return f"{PERSON}unknown"


def check_root(path: str | Path, url: str | None = None) -> None:
    """INVALID_PATH or CONFLICT for a directory that cannot be put under audit in this store.

    Asked before the store is made, so that none is made in a directory that is then refused.
    """
    folders.check_root(path, store_dir=read_settings(url).home, others=())


def repository_of(path: Path) -> Path:
    """The git repository that holds a path, or the path where none does."""
    here = Path(os.path.realpath(path))
    return next((one for one in (here, *here.parents) if (one / ".git").exists()), here)


def lost_store_hint(settings: Settings) -> str:
    """What to do where a store was that is not there, or is empty, as the heads kept of it say.

    Empty where no store is known to have been.
    """
    file = settings.file
    if file is None or (file.exists() and file.stat().st_size):
        return ""
    lost = logs_with_heads(settings.heads)
    if not lost:
        return ""
    return (
        f"It held {count_text(len(lost), 'log')}, of which heads are kept in {settings.heads}."
        " Restore it from a backup, or name where it is with --store."
    )


class AuditStore:
    """A store of many workspaces. A context manager; safe to use from several threads."""

    def __init__(self, adapters: Adapters, *, actor: str | None = None) -> None:
        self.adapters = adapters
        self.actor = actor or person()

    @property
    def url(self) -> str:
        """The URL of the store's database."""
        return self.adapters.settings.url

    @property
    def home(self) -> Path:
        """The data folder, which commands under confinement do not see."""
        return self.adapters.settings.home

    @property
    def notice(self) -> str:
        """What a person should know about how the store was opened; mostly empty."""
        return self.adapters.database.notice

    def attach(
        self,
        path: str | Path,
        *,
        report: OnProgress | None = None,
        ignore: str | None = None,
        max_file_bytes: int | None = None,
        actor: str | None = None,
    ) -> "AuditedWorkspace":
        """Put a directory under audit and take its baseline; idempotent, resumable.

        `ignore` is the text of the scope's rules, by default what `.loomignore` says now. Files
        over `max_file_bytes` are recorded by hash; another number than before changes that from
        here on, on record, as done by `actor` or else the store's.
        INVALID_PATH and CONFLICT for directories that cannot be workspaces.
        """
        from loom_audit.history.record.listings.baseline import accept_scope, take_baseline

        attachment = self.adapters.attach(path, ignore=ignore, max_file_bytes=max_file_bytes)
        rules = attachment.scope
        if max_file_bytes is not None and (limit := max_file_bytes or MAX_FILE_BYTES) != (
            rules.max_file_bytes
        ):
            fact = WorkspaceAttached(attachment.on_disk.workspace.root, rules.ignore, limit)
            accept_scope(attachment, fact, actor=actor or self.actor)
        take_baseline(attachment, report)
        return self.workspace(attachment.stored.log.id)

    def workspaces(self) -> Sequence[WorkspaceEntry]:
        """Every attached directory, oldest first."""
        return self.adapters.workspaces()

    def why_cut_off(self, entries: Iterable[WorkspaceEntry]) -> Mapping[str, AuditError]:
        """Why the log of each of these workspaces that lost its end records nothing, by id."""
        found: dict[str, AuditError] = {}
        for entry in entries:
            try:
                self.adapters.check_end(entry.id)
            except AuditError as error:
                found[entry.id] = error
        return found

    def workspace(self, id_or_path: str | Path) -> "AuditedWorkspace":
        """The attached workspace of this id, or the one that holds the path. NO_WORKSPACE."""
        return AuditedWorkspace(self.adapters, self.adapters.find(id_or_path), self.actor)

    def verify_forgotten(
        self,
        id: str,
        *,
        quick: bool = False,
        sample: int | None = None,
        against: Sequence[TreeHead] = (),
        report: OnProgress | None = None,
    ) -> "Verification":
        """Check the log of a workspace that is forgotten: leaves, tree, and that the rest is gone.

        The heads are those kept outside the store, and those given. NotFound.
        """
        from loom_audit.api.ground.verification import verify

        def attachment() -> "Attachment":
            return self.adapters.attachment(id)

        return verify(self.adapters, id, attachment, against, quick, sample, report)

    def rebuild(self, id_or_path: str | Path) -> tuple[str, int, Sequence[tuple[int | None, str]]]:
        """Make everything that is derived from a workspace's log anew, the table that names it too.

        Its id, how many events it has, and where the tables were not what the log makes: the event,
        if it is known, and what. NO_WORKSPACE.
        """
        try:
            id = self.adapters.find(id_or_path).id
        except Corrupt as error:
            if "log" not in error.details:
                raise
            id = error.details["log"]
        with closing(self.adapters.evidence(id)) as evidence:
            differed = list(evidence.differences())
        return id, self.adapters.rebuild(id), differed

    def close(self) -> None:
        """Close the store; nothing of it is read or recorded afterwards."""
        self.adapters.close()

    def __enter__(self) -> "AuditStore":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
