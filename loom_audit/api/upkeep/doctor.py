"""What `doctor` looks at: this machine, the store, and each workspace.

Changes nothing but files about held sessions that do not say what the logs say.
"""

import os
import shutil
import stat
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from loom_audit.api.agents.failed_hooks import waiting
from loom_audit.api.ground.held import agree
from loom_audit.api.store import AuditStore, lost_store_hint, open_store
from loom_audit.api.upkeep.checks.check import STOPPED, TIME, Check
from loom_audit.api.upkeep.checks.clients import (
    client_checks,
    failed_hooks,
    hooks_of_forgotten,
    note_heard,
)
from loom_audit.api.upkeep.checks.workspaces import git_checks, workspace_checks
from loom_audit.config import APPROVALS, Settings, read_approvals
from loom_audit.errors import AuditError
from loom_audit.history.ground.free_space import MIN_FREE_BYTES
from loom_audit.model.imported import is_imported
from loom_audit.model.signed.signed_heads import key_id
from loom_audit.model.text.display import count_text, size_text
from loom_audit.wiring.commands import confining_runner, open_runner, probe
from loom_audit.wiring.database_file import REVISION, SAFE_SQLITE, connect, driver, triggers
from loom_audit.wiring.folders import is_in_place
from loom_audit.wiring.signing import keys_of

SPACE_WARNING = 1024**3


def check_all(settings: Settings, now: datetime | None = None) -> Iterator[Check]:
    """Everything, in the order in which one thing leans on another; first what is not recorded."""
    yield from sorted(_looked_at(settings, now), key=lambda one: not one.text.startswith(STOPPED))


def _looked_at(settings: Settings, now: datetime | None) -> Iterator[Check]:
    here = now or datetime.now(UTC)
    yield _python()
    yield _sqlite()
    yield from _sandboxes()
    yield from _folders(settings)
    yield _approvals(settings)
    yield _space(settings)
    file = settings.file
    if hint := lost_store_hint(settings):
        yield Check("store", "problem", f"{file} is not there any more, or is empty", hint)
    elif file is not None and file.exists() and not file.stat().st_size:
        yield Check("store", "problem", f"{file} is empty", "Restore it from a backup.")
    elif file is not None and file.exists():
        yield from _database(file)
        yield from _workspaces(settings, here)
    else:
        yield Check("store", "warning", f"{settings.url} is not there yet", "`loom-audit init`")
    yield _heads(settings)
    yield _signing_key(settings)


def _python() -> Check:
    found = ".".join(map(str, sys.version_info[:3]))
    return Check("python", "ok", f"Python {found} on {sys.platform}")


def _sqlite() -> Check:
    module: Any = driver()
    text = f"SQLite {module.sqlite_version} ({module.__name__})"
    if module.sqlite_version_info < SAFE_SQLITE:
        safe = ".".join(map(str, SAFE_SQLITE))
        return Check(
            "sqlite",
            "warning",
            f"{text}: before {safe} concurrent checkpoints can corrupt a database",
            "Install pysqlite3, or a Python with a newer SQLite; ours are under one lock.",
        )
    return Check("sqlite", "ok", text)


def _sandboxes() -> Iterator[Check]:
    """Whether commands can run, and which backends confine them: see docs/confinement.md."""
    try:
        probe(open_runner())
    except AuditError as error:
        yield Check("commands", "problem", f"none can run: {error.message}", error.hint)
        return
    found = [*confining_runner().backends()]
    for one in found:
        name = f"sandbox {one.runner.name}"
        if one.flaw:
            yield Check(name, "warning", f"does not work: {one.flaw}", one.hint)
        else:
            yield Check(name, "ok", "works")
    chosen = next((one.runner.name for one in found if not one.flaw), "")
    if chosen:
        yield Check("sandbox", "ok", f"commands are confined by {chosen}")
    else:
        hint = "Install bubblewrap; run_code refuses to run until a sandbox works."
        yield Check("sandbox", "warning", "commands cannot be confined here", hint)


def _folders(settings: Settings) -> Iterator[Check]:
    for name, folder in (("data folder", settings.home), ("locks", settings.home / "locks")):
        if folder.exists():
            yield _private(name, folder, 0o700)
    file = settings.file
    for suffix in ("", "-wal", "-shm"):
        if file is not None and Path(f"{file}{suffix}").exists():
            yield _private(f"store{suffix}", Path(f"{file}{suffix}"), 0o600)


def _private(name: str, path: Path, wanted: int) -> Check:
    found = path.stat()
    mode = stat.S_IMODE(found.st_mode)
    label = f"{path} is {mode:04o}"
    if found.st_uid != os.getuid():
        return Check(name, "problem", f"{path} belongs to user {found.st_uid}", "chown it.")
    if mode & 0o077:
        return Check(name, "problem", f"{label}: others can read it", f"chmod {wanted:o} '{path}'")
    if not os.access(path, os.R_OK | os.W_OK):
        return Check(name, "problem", f"{label}: not writable", f"chmod {wanted:o} '{path}'")
    return Check(name, "ok", label)


def _approvals(settings: Settings) -> Check:
    """Whether anybody is asked before a call."""
    try:
        policy = read_approvals(settings)
    except AuditError as error:
        return Check("approvals", "problem", error.message, error.hint)
    if policy is None:
        text = f"nothing is asked: there is no {settings.configuration / APPROVALS}"
        return Check("approvals", "warning", text, "`loom-audit approvals init` writes rules.")
    return Check("approvals", "ok", f"asked by {count_text(len(policy.rules), 'rule')}")


def _space(settings: Settings) -> Check:
    above = next(p for p in (settings.home, *settings.home.parents) if p.exists())
    free = shutil.disk_usage(above).free
    text = f"{size_text(free)} free where the store lies"
    if free < MIN_FREE_BYTES:
        return Check("space", "problem", text, "Free some: a full disk stops every recorded call.")
    if free < SPACE_WARNING:
        return Check("space", "warning", text, "Free some before it stops every recorded call.")
    return Check("space", "ok", text)


def _database(file: Path) -> Iterator[Check]:
    try:
        with closing(connect(str(file), "ro")) as raw:
            journal = raw.execute("PRAGMA journal_mode").fetchone()[0]
            rows = raw.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'")
            there = dict(rows.fetchall())
            revision = raw.execute("SELECT version_num FROM alembic_version").fetchone()[0]
    except Exception as error:  # noqa: BLE001 - any error of any driver is what we came to report
        yield Check("store", "problem", f"cannot be read: {error}", "`loom-audit salvage --to DIR`")
        return
    yield _is("store journal", journal == "wal", f"journal mode {journal}", "It must be WAL.")
    newer = f"revision {revision}, newest known {REVISION}"
    hint = "Upgrade loom-audit." if str(revision) > REVISION else "`loom-audit db upgrade`"
    yield _is("store revision", revision == REVISION, newer, hint)
    missing = [name for name, sql in triggers().items() if there.get(name) != sql]
    text = f"{len(triggers()) - len(missing)} of {len(triggers())} append-only triggers"
    if more := sorted(there.keys() - triggers().keys()):
        text += f", and others: {', '.join(more)}"
    good = not missing and not more
    yield _is("store triggers", good, text, "Somebody altered the store: verify it.")
    yield from _settings(file)


def _settings(file: Path) -> Iterator[Check]:
    """The settings our own writer connection runs with."""
    wanted = {"synchronous": 2, "foreign_keys": 1, "recursive_triggers": 1, "trusted_schema": 0}
    try:
        with closing(connect(str(file), "rw")) as raw:
            found = {name: raw.execute(f"PRAGMA {name}").fetchone()[0] for name in wanted}
    except Exception as error:  # noqa: BLE001 - any error of any driver is what we came to report
        yield Check("store settings", "problem", f"cannot be written: {error}", "Check its rights.")
        return
    text = ", ".join(f"{name}={value}" for name, value in found.items())
    yield _is("store settings", found == wanted, text, "They must be 2, 1, 1, 0.")


def _is(name: str, good: bool, text: str, hint: str) -> Check:
    return Check(name, "ok", text) if good else Check(name, "problem", text, hint)


def _workspaces(settings: Settings, now: datetime) -> Iterator[Check]:
    try:
        with open_store(settings.url) as store:
            heard: dict[str, dict[str, datetime]] = {}
            failed = {one.client: 0 for one in waiting(settings)}
            roots = list[str]()
            for entry in store.workspaces():
                name = f"workspace {entry.root}"
                if is_imported(entry.root):
                    continue
                if not is_in_place(entry.root):
                    yield Check(name, "warning", "is gone", "`loom-audit replay` rebuilds it.")
                    continue
                workspace = store.workspace(entry.id)
                yield from _guarded(name, partial(workspace_checks, workspace, now))
                yield from _guarded(name, partial(git_checks, workspace))
                yield from _guarded(name, partial(note_heard, workspace, heard, failed))
                roots.append(entry.root)
            yield failed_hooks(settings, waiting(settings), failed)
            yield from client_checks(settings, now, roots, heard, failed)
            yield from _guarded("forgotten", partial(hooks_of_forgotten, store, roots))
            yield from _guarded("logs", partial(_missing, store.adapters.missing_logs))
            yield from _guarded("forgotten", partial(_forgotten, store))
            yield from _guarded("held sessions", partial(_held, store))
    except AuditError as error:
        yield Check("store", "problem", error.message, error.hint)


def _guarded(name: str, checks: Callable[[], Sequence[Check]]) -> Sequence[Check]:
    try:
        return checks()
    except AuditError as error:
        return [Check(name, "problem", error.message, error.hint)]


def _missing(missing_logs: Callable[[], Sequence[str]]) -> Sequence[Check]:
    missing = missing_logs()
    if not missing:
        return []
    text = f"not in the store as far as heads of them were kept: {', '.join(missing[:5])}"
    return [Check("logs", "problem", text, "Restore the store from a backup; verify it.")]


def _forgotten(store: AuditStore) -> Sequence[Check]:
    """Which workspaces are forgotten, and whether erasing one was interrupted."""
    checks = []
    for one in store.adapters.forgotten():
        name, id = f"workspace {getattr(one.event.fact, 'root', '')}", one.event.log
        text = f"forgotten {one.event.at:{TIME}} by {one.event.actor}, log {id}"
        if one.is_finished:
            checks.append(Check(name, "ok", text))
        else:
            hint = f"`loom-audit workspaces forget {id}` finishes it."
            checks.append(Check(name, "problem", f"{text}: erasing it was interrupted", hint))
    return checks


def _held(store: AuditStore) -> Sequence[Check]:
    """Whether hooks read of held sessions what the logs say; what they read is put right."""
    if unlike := agree(store):
        folder = store.adapters.settings.home / "held"
        text = f"{count_text(len(unlike), 'file')} in {folder} said else"
        return [Check("held sessions", "warning", text, "Put right, as the logs say.")]
    return [Check("held sessions", "ok", "hooks read of them what the logs say")]


def _signing_key(settings: Settings) -> Check:
    name = "signing key"
    try:
        ring = keys_of(settings).read()
    except AuditError as error:
        return Check(name, "problem", error.message, error.hint)
    if ring is None:
        return Check(
            name, "ok", "none, so that no head is signed: `loom-audit keys init` makes one"
        )
    text = f"{key_id(ring.current.public)} in {settings.keys}"
    if ring.next is not None:
        hint = "`loom-audit keys rotate` goes on with it."
        return Check(name, "warning", f"{text}: putting another in its place was interrupted", hint)
    return Check(name, "ok", text)


def _heads(settings: Settings) -> Check:
    kept = len(list(settings.heads.glob("*.heads")))
    text = f"{count_text(kept, 'file') if kept else 'none kept yet'} in {settings.heads}"
    if settings.home in settings.heads.parents:
        return Check(
            "tree heads",
            "warning",
            f"{text}, beside the store",
            "Who can replace the store can replace them: leave LOOM_AUDIT_HOME unset,"
            " or keep what `loom-audit head` prints elsewhere.",
        )
    return Check("tree heads", "ok", text)
