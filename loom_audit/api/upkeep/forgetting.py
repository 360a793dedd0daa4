"""Forgetting a workspace: everything in its log is erased, and that it was stays on record."""

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from loom_audit.api.agents.connect import is_connected, settings_file
from loom_audit.api.store import AuditStore
from loom_audit.api.upkeep.database import backups
from loom_audit.clients.known import CLIENTS
from loom_audit.errors import Conflict, InvalidArguments, NoWorkspace
from loom_audit.history.record.forgetting import check_unused, record_forgotten
from loom_audit.model.events import WorkspaceForgotten
from loom_audit.model.imported import is_imported
from loom_audit.ports import OnProgress, Progress
from loom_audit.wiring.adapters import Adapters, ForgottenWorkspace
from loom_audit.wiring.caches import discard_all

if TYPE_CHECKING:
    from loom_audit.wiring.adapters import Amount

__all__ = [
    "Forgettable",
    "ForgottenWorkspace",
    "forget_workspace",
    "forgettable",
    "forgotten_workspaces",
]


class Forgettable(Struct, frozen=True):
    """A workspace that can be forgotten, and how much would go, or is still to go where it was
    `begun`.

    `connected` are the clients that run our hook in its folder, `copies` the backups of the whole
    store, which hold it too.
    """

    id: str
    root: str
    amount: "Amount"
    begun: bool
    connected: tuple[str, ...]
    copies: tuple[str, ...]


def forgettable(store: AuditStore, named: str | Path) -> Forgettable:
    """What would go with the workspace of this folder or id; nothing is changed.

    NoWorkspace; InvalidArguments for a path in a workspace; Conflict while it is in use.
    """
    adapters = store.adapters
    id, root, begun = _named(adapters, str(named))
    if not begun:
        attachment = adapters.attachment(id)
        if attachment.is_undo_running:
            raise Conflict("an undo is still running there", hint="Wait for it.")
        check_unused(attachment)
    connected = (one for one in CLIENTS if is_connected(one, settings_file(one, root)))
    file = adapters.settings.file
    return Forgettable(
        id=id,
        root=root,
        amount=adapters.forgetting(id).amount(),
        begun=begun,
        connected=() if is_imported(root) else (*connected,),
        copies=() if file is None else (*sorted(map(str, backups(file))),),
    )


def forget_workspace(
    store: AuditStore, named: str | Path, *, reason: str = "", report: OnProgress | None = None
) -> ForgottenWorkspace:
    """Erase all that is on record of a workspace, but that it was forgotten, by whom and why.

    What was interrupted is finished. Errors as `forgettable`; Conflict, too, while another is
    forgotten, and, when only that is left to do, while somebody reads what was erased in the file
    of the store; Corrupt where a log of the store cannot be read, since then it is not known what
    else names a content.
    """
    adapters = store.adapters
    with ExitStack() as stack:
        stack.callback(adapters.lock.acquire("forgetting"))
        return _forget(store, forgettable(store, named), reason, report)


def _forget(
    store: AuditStore, told: Forgettable, reason: str, report: OnProgress | None
) -> ForgottenWorkspace:
    adapters, id = store.adapters, told.id
    if not told.begun:
        _put_on_record(store, told, reason)
    adapters.keep_head(adapters.log(id).tree_head())  # before anything goes
    forgetting = adapters.forgetting(id)
    done = 0
    while True:
        with _locked(adapters):  # given up each time, so that others need not wait for all of it
            freed = forgetting.erase_some()
            if freed is None:
                forgetting.erase_rows()
                break
        done += freed
        if report is not None:
            report(Progress("erasing", done, told.amount.size, "bytes"))
    discard_all(adapters.settings.home, id)
    if not forgetting.write_anew():
        raise Conflict(
            "somebody reads the store, so that its file still holds what was erased",
            hint="Close what has it open, and do it again: that is all that is left to do.",
        )
    forgetting.finish()
    return next(one for one in adapters.forgotten() if one.event.log == id)


def _put_on_record(store: AuditStore, told: Forgettable, reason: str) -> None:
    adapters, workspace = store.adapters, store.workspace(told.id)
    with suppress(NoWorkspace):  # what a crash left in a folder that is gone goes too
        workspace.recover()
    with _locked(adapters):
        check_unused(adapters.attachment(told.id))
        amount = adapters.forgetting(told.id).amount()
        holds = workspace.timeline.holds()
        fact = WorkspaceForgotten(told.root, reason, amount.payloads, amount.contents, amount.size)
        record_forgotten(adapters.log(told.id), fact, actor=store.actor)
    for held in holds:
        adapters.held.discard(held.session)


def _named(adapters: Adapters, named: str) -> tuple[str, str, bool]:
    """The id and the folder of a workspace, and whether forgetting it was begun."""
    for one in adapters.forgotten():
        root = _root_of(one)
        is_of_root = root in (named, os.path.abspath(named))
        if named == one.event.log or (is_of_root and not one.is_finished):
            if one.is_finished:
                raise NoWorkspace(f"the workspace {named} is forgotten already")
            return one.event.log, root, True
    found = adapters.find(named)
    if named != found.id and found.root not in (named, os.path.realpath(named)):
        raise InvalidArguments(
            f"{named} is in the workspace {found.root}", hint="Name that one, if it is meant."
        )
    return found.id, found.root, False


def _root_of(forgotten: ForgottenWorkspace) -> str:
    return getattr(forgotten.event.fact, "root", "")


@contextmanager
def _locked(adapters: Adapters) -> Iterator[None]:
    """Nobody puts a content into the store within the block, or begins a workspace.

    An undo puts contents before it takes the workspace lock. Locks are taken in their usual order.
    """
    with ExitStack() as stack:
        stack.enter_context(adapters.lock.hold("attach"))
        ids = sorted(one.id for one in adapters.workspaces())
        for name in ("undo", "workspace"):
            for id in ids:
                stack.enter_context(adapters.lock.hold(f"{name}-{id}", timeout=60.0))
        yield


def forgotten_workspaces(store: AuditStore) -> Sequence[ForgottenWorkspace]:
    """The workspaces that are forgotten, oldest first."""
    return store.adapters.forgotten()
