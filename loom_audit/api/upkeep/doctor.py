"""What `doctor` looks at: this machine, the store, and each workspace.

Changes nothing but files about held sessions that do not say what the logs say.
"""

import os
import shlex
import shutil
import stat
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

from loom_audit.api.agents.connect import (
    connected_since,
    installed_clients,
    is_connected,
    settings_file,
)
from loom_audit.api.agents.failed_hooks import FailedSession, failures_of, last_words, waiting
from loom_audit.api.agents.heard import heard_clients
from loom_audit.api.agents.launcher import CLIENT
from loom_audit.api.ground.held import agree
from loom_audit.api.ground.watched import watched_text
from loom_audit.api.store import AuditStore, lost_store_hint, open_store
from loom_audit.api.upkeep.git_mirror import mirror_state
from loom_audit.api.workspace import AuditedWorkspace
from loom_audit.clients.known import CLIENTS
from loom_audit.clients.programs import PROGRAMS
from loom_audit.config import APPROVALS, Settings, read_approvals
from loom_audit.errors import AuditError
from loom_audit.history.ground.free_space import MIN_FREE_BYTES
from loom_audit.model.imported import is_imported
from loom_audit.model.records import untold_last
from loom_audit.model.scope import IGNORE_FILE
from loom_audit.model.text.display import count_text, first_few, size_text, visible
from loom_audit.ports import CallFilter, EventFilter
from loom_audit.wiring.commands import confining_runner, open_runner, probe
from loom_audit.wiring.database_file import REVISION, SAFE_SQLITE, connect, driver, triggers
from loom_audit.wiring.folders import is_in_place, most_watches

Verdict = Literal["ok", "warning", "problem"]

_TIME = "%Y-%m-%d %H:%M:%SZ"
_MANY_MINUTES = 120
"""From so many minutes on it is said at what time a client was heard, not how long ago."""

SPACE_WARNING = 1024**3
_STOPPED = "nothing is recorded: "


class Check(Struct, frozen=True):
    """A check has looked at one thing and says what was found, and what to do about it."""

    name: str
    verdict: Verdict
    text: str
    hint: str = ""


def check_all(settings: Settings, now: datetime | None = None) -> Iterator[Check]:
    """Everything, in the order in which one thing leans on another; first what is not recorded."""
    yield from sorted(_looked_at(settings, now), key=lambda one: not one.text.startswith(_STOPPED))


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
                yield from _guarded(name, partial(_workspace, workspace, now))
                yield from _guarded(name, partial(_git, workspace))
                yield from _guarded(name, partial(_hear, workspace, heard, failed))
                roots.append(entry.root)
            yield _failed(settings, waiting(settings), failed)
            yield from _clients(settings, now, roots, heard, failed)
            yield from _guarded("forgotten", partial(_forgotten_hooks, store, roots))
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


def _git(workspace: AuditedWorkspace) -> Sequence[Check]:
    """Which repositories could not be told last, and whether the objects of all are whole."""
    last = next(untold_last(workspace.timeline.calls(CallFilter(limit=_LOOKED))), None)
    checks = []
    if last is not None:
        call, reasons = last
        hint = "What is found once it is told again may be of any call since."
        checks = [
            Check(
                f"git of {workspace.root}",
                "warning",
                f"{one} (before or after call {call.seq})",
                hint,
            )
            for one in reasons
        ]
    if (state := mirror_state(workspace)) is not None:
        verdict: Verdict = "problem" if state.damaged else "ok" if state.is_whole else "warning"
        name = f"git objects of {workspace.root}"
        checks.append(Check(name, verdict, state.text, state.hint))
    return checks


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
        text = f"forgotten {one.event.at:{_TIME}} by {one.event.actor}, log {id}"
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


def _hear(
    workspace: AuditedWorkspace, heard: dict[str, dict[str, datetime]], failed: dict[str, int]
) -> Sequence[Check]:
    """Note by client when it was heard in a workspace, and which failed."""
    for client, count in failures_of(workspace).items():
        failed[client] = failed.get(client, 0) + count
    for client, at in heard_clients(workspace).items():
        heard.setdefault(client, {})[workspace.root] = at
    return []


def _failed(
    settings: Settings, waiting: Sequence[FailedSession], failed: Mapping[str, int]
) -> Check:
    """Whether hooks could not be handed over, and why as far as the warm process said."""
    if not waiting:
        known = sum(failed.values())
        text = f"{count_text(known, 'hook')} on record as failed" if known else "none failed"
        return Check("hooks", "ok", text)
    said = last_words(settings)
    text = first_few(waiting, 3, lambda one: one.text)
    hint = (
        f"`loom-audit daemon` said last: {said}"
        if said
        else "Nothing started that answers them: was loom-audit installed then?"
    )
    return Check("hooks", "warning", f"{text}; not on record yet", f"{hint} {_BY_HAND}")


_LOOKED = 20
"""The number of calls among which the last one is searched after which git was looked at."""

_BY_HAND = (
    "The next hook puts them on record, or `loom-audit daemon` now, which says what is wrong."
)


def _clients(
    settings: Settings,
    now: datetime,
    roots: Sequence[str],
    heard: Mapping[str, Mapping[str, datetime]],
    failed: Mapping[str, int],
) -> Iterator[Check]:
    """Which clients run our hook, and when each was heard last, by the place."""
    installed = installed_clients()
    for client in CLIENTS:
        told = heard.get(client, {})
        connected = [
            one for one in (None, *roots) if is_connected(client, settings_file(client, one))
        ]
        if connected:
            last = {one: _heard_since(settings.hooks, client, one, told) for one in connected}
            is_whole = settings.hooks.joinpath(CLIENT).is_file()
            fails = client in failed
            yield _connection(now, client, last, is_whole=is_whole, fails=fails)
        elif told or client in installed:
            newest = max(told, key=lambda root: told[root], default="")
            text = f"{_ago(now, told[newest])} in {visible(newest)}" if told else "never heard"
            yield Check(f"client {client}", "ok", f"not connected, {text}")


def _connection(
    now: datetime,
    client: str,
    last: Mapping[str | None, datetime | None],
    *,
    is_whole: bool,
    fails: bool,
) -> Check:
    """Whether a client that is connected in these places, None for all, is heard in each.

    `is_whole` says whether what its hook runs is there, `fails` whether hooks of it failed.
    """
    name, is_silent = f"client {client}", None in last.values()
    places = (
        f"{'all projects' if one is None else visible(one)}"
        f" ({_ago(now, at) or 'nothing heard yet'})"
        for one, at in [*last.items()][:5]
    )
    text = f"connected for {', '.join(places)}"
    if not is_whole:
        hint = f"`loom-audit connect {client}`: what its hook runs is not there any more."
        return Check(name, "problem", text, hint)
    if is_silent and fails:
        return Check(name, "warning", f"{text}: its hooks run, and fail", _BY_HAND)
    if is_silent:
        started = f"Start `{PROGRAMS[client]}` there: its first call is recorded."
        return Check(name, "warning", text, CLIENTS[client].trust or started)
    return Check(name, "ok", text)


def _heard_since(
    hooks: Path, client: str, root: str | None, told: Mapping[str, datetime]
) -> datetime | None:
    """When a client was heard last in a folder, or in any, since it was connected for it."""
    since = connected_since(hooks, settings_file(client, root))
    times = [*told.values()] if root is None else [told[root]] if root in told else []
    return max((at for at in times if at.timestamp() >= since), default=None)


def _ago(now: datetime, at: datetime | None) -> str:
    """How long ago a client was heard; "" for never."""
    if at is None:
        return ""
    minutes = max(0, round((now - at).total_seconds() / 60))
    if minutes < _MANY_MINUTES:
        return f"heard {count_text(minutes, 'minute')} ago"
    return f"heard {at:{_TIME}}"


def _forgotten_hooks(store: AuditStore, roots: Sequence[str]) -> Sequence[Check]:
    """Clients that run our hook in folders that were forgotten, where nothing is recorded."""
    forgotten = (getattr(one.event.fact, "root", "") for one in store.adapters.forgotten())
    return [
        Check(
            f"client {client}",
            "warning",
            f"runs our hook in {visible(root)}, which is not under audit any more",
            f"`cd {shlex.quote(visible(root))} && loom-audit connect --remove {client}`",
        )
        for root in sorted({one for one in forgotten if one and not is_imported(one)})
        if not any(Path(root).is_relative_to(one) for one in roots)
        for client in CLIENTS
        if is_connected(client, settings_file(client, root))
    ]


def _workspace(workspace: AuditedWorkspace, now: datetime) -> Sequence[Check]:
    name = f"workspace {workspace.root}"
    if error := workspace.why_stopped():
        return [Check(name, "problem", f"{_STOPPED}{error.message}", error.hint)]
    checks = [_baseline(workspace, name), _clock(workspace, name, now), _scope(workspace, name)]
    checks.append(_watch(workspace, name))
    checks.append(Check(name, "ok", watched_text(watched=workspace.attachment.is_watched)))
    waiting = workspace.status().interrupted
    if waiting:
        text = count_text(len(waiting), "interrupted call")
        checks.append(Check(name, "warning", text, "`loom-audit recover`"))
    if left := workspace.leftovers():
        text = f"temporary files of interrupted calls: {first_few(left, 5, visible)}"
        checks.append(Check(name, "warning", text, "`loom-audit recover`, when nothing runs here."))
    return checks


def _baseline(workspace: AuditedWorkspace, name: str) -> Check:
    head = workspace.log.head()
    kinds = ("baseline.finished",)
    done = next(iter(workspace.timeline.events(EventFilter(kinds=kinds, limit=1))), None)
    if done is None:
        return Check(name, "warning", "the baseline is not finished", "`loom-audit init` goes on.")
    return Check(name, "ok", f"log at {head}, baseline at {done.seq}")


def _clock(workspace: AuditedWorkspace, name: str, now: datetime) -> Check:
    newest = EventFilter(newest_first=True, limit=1)
    last = next(iter(workspace.timeline.events(newest)), None)
    if last is not None and last.at > now + timedelta(seconds=2):
        return Check(
            name,
            "problem",
            f"the clock says {now:{_TIME}}, the last event is of {last.at:{_TIME}}",
            "Set the clock: points given as a time would name the wrong events.",
        )
    return Check(name, "ok", "the clock is not behind the log")


def _watch(workspace: AuditedWorkspace, name: str) -> Check:
    """Whether commands can be told what changed, so that they need not look at everything."""
    states = workspace.attachment.stored.reading.tree().values()
    folders = 1 + sum(1 for state in states if state.kind == "directory")
    most = most_watches()
    flaw = workspace.attachment.on_disk.workspace.watch().flaw
    hint = "It works all the same: recorded commands take longer."
    if not flaw and most is not None and folders > most:
        flaw = f"it has {count_text(folders, 'folder')}, and {most:,} may be watched"
        hint = f"`sysctl fs.inotify.max_user_watches={2 * folders}`"
    if flaw:
        return Check(name, "warning", f"every command looks at all of it: {flaw}", hint)
    return Check(name, "ok", f"{count_text(folders, 'folder')} can be watched between commands")


def _scope(workspace: AuditedWorkspace, name: str) -> Check:
    file = Path(workspace.root) / IGNORE_FILE
    text = file.read_text("utf-8", "replace") if file.is_file() and not file.is_symlink() else ""
    if text != workspace.scope.ignore:
        return Check(
            name,
            "warning",
            f"{IGNORE_FILE} is not the one that was accepted, which is still in force",
            "`loom-audit scope accept` when it is right.",
        )
    rules = sum(1 for line in text.splitlines() if line.strip() and not line.startswith("#"))
    return Check(name, "ok", f"{count_text(rules, 'rule')} in {IGNORE_FILE}, accepted")


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
