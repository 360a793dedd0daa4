"""A workspace whose folder was moved or copied elsewhere: its log goes on there."""

import os
from pathlib import Path

from msgspec.structs import replace

from loom_audit.api.agents.connect import take_along
from loom_audit.api.store import AuditStore
from loom_audit.api.workspace import AuditedWorkspace
from loom_audit.errors import Conflict, InvalidArguments
from loom_audit.history.ground.attachment import Attachment, session_lock
from loom_audit.history.ground.writer import Writer
from loom_audit.history.look.capture import look_once
from loom_audit.model.events import WorkspaceAttached
from loom_audit.model.imported import is_imported, only_read
from loom_audit.model.text.display import first_few, visible
from loom_audit.wiring.adapters import Adapters, WorkspaceEntry
from loom_audit.wiring.folders import check_root, identity_of_folder, is_mount_point

BY_HANDLE, BY_LISTING = "handle", "listing"
"""How it is known that a folder is the workspace: it is the same one, or all in it is equal."""


def move_workspace(
    store: AuditStore, old: str | Path, new: str | Path, *, same: bool = False
) -> AuditedWorkspace:
    """Let the log of the workspace that was at `old` go on at `new`, on record.

    It is the same folder by its identity; or, for a copy or another disk, all in it is equal to
    what is on record and the person says that it is the `same`. NoWorkspace; InvalidPath;
    Conflict for both in place, for what differs, and while a process records there.
    """
    adapters = store.adapters
    with adapters.lock.hold("attach"):
        entry = _entry(adapters, old)
        root = _target(adapters, entry, new)
        attachment = adapters.attachment(entry.id)
        with attachment.exclusive():
            _check_unused(attachment)
            proven = identity_of_folder(root) in adapters.root_identities.kept(entry.id)
            on_disk = replace(attachment.on_disk, workspace=adapters.disk_workspace(root))
            there = replace(attachment, on_disk=on_disk)
            if not proven:
                _check_equal(there, entry.root, same=same)
                attachment.on_disk.index.clear()  # its stamps are of other files
            rules = attachment.scope
            proof = BY_HANDLE if proven else BY_LISTING
            fact = WorkspaceAttached(root, rules.ignore, rules.max_file_bytes, entry.root, proof)
            Writer(attachment, session="", actor=store.actor).record(fact)
        identity = identity_of_folder(root)
        adapters.root_identities.keep(entry.id, identity, mounted=is_mount_point(root))
        take_along(adapters.settings.hooks, entry.root, root)
    return store.workspace(entry.id)


def _entry(adapters: Adapters, old: str | Path) -> WorkspaceEntry:
    named = os.path.abspath(old)
    for entry in adapters.workspaces():
        if entry.root in (named, os.path.realpath(old)) or entry.id == str(old):
            if is_imported(entry.root):
                raise only_read(entry.root)
            return entry
    return adapters.find(old)


def _target(adapters: Adapters, entry: WorkspaceEntry, new: str | Path) -> str:
    others = [one.root for one in adapters.workspaces() if not is_imported(one.root)]
    root = check_root(new, store_dir=adapters.settings.home, others=others)
    if root == entry.root:
        raise InvalidArguments(f"{root} is where the workspace is on record already")
    if root in others:
        raise Conflict(
            f"{root} is a workspace of its own", hint="`loom-audit workspaces` lists them."
        )
    if (there := _still_in_place(adapters, entry, root)) is not None:
        raise Conflict(
            f"both {there} and {root} are in place",
            hint="Only one can go on: put the new one under audit with `loom-audit init`, or "
            "move the old one away first.",
        )
    return root


def _still_in_place(adapters: Adapters, entry: WorkspaceEntry, new: str) -> str | None:
    """What is in the place of the old folder; None for nothing, or a link that was left there.

    A link to where the folder is, when that is not the new one, leaves it in place.
    """
    if not os.path.lexists(entry.root):
        return None
    leads_to = os.path.realpath(entry.root)
    known = adapters.root_identities.kept(entry.id)
    if leads_to == entry.root or (leads_to != new and identity_of_folder(leads_to) in known):
        return leads_to
    return None


def _check_unused(attachment: Attachment) -> None:
    """Conflict while a process of ours records there, or takes something back."""
    held = [
        one.id
        for one in attachment.stored.tables.open_sessions()
        if attachment.stored.lock.is_held(session_lock(one.id))
    ]
    if held or attachment.is_undo_running:
        which = f"session {held[0]}" if held else "an undo"
        raise Conflict(f"{which} is still running there", hint="Wait for it, or end it.")


def _check_equal(there: Attachment, old: str, *, same: bool) -> None:
    """Conflict unless all on disk is as on record, and the person says that it is the same."""
    found = look_once(there, anew=True)
    paths = [change.path for change in found.changes] + [one.path for one in found.untracked]
    root = there.on_disk.workspace.root
    if paths:
        raise Conflict(
            f"{root} is another folder than {old} was, and {first_few(paths, 3, visible)} "
            "differs from what is on record",
            hint="Put it under audit with `loom-audit init`, or make it equal first.",
            details={"paths": paths[:100]},
        )
    if not same:
        raise Conflict(
            f"{root} is another folder than {old} was; all in it is equal to what is on record",
            hint="If it is a copy, or on another disk, say so with --same.",
        )
