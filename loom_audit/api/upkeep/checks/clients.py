"""What `doctor` says of clients: which run our hook, when each was heard, and which failed."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path

from loom_audit.api.agents.connect import (
    connected_since,
    installed_clients,
    is_connected,
    settings_file,
)
from loom_audit.api.agents.failed_hooks import FailedSession, failures_of, last_words
from loom_audit.api.agents.heard import heard_clients
from loom_audit.api.agents.launcher import CLIENT
from loom_audit.api.store import AuditStore
from loom_audit.api.upkeep.checks.check import TIME, Check
from loom_audit.api.workspace import AuditedWorkspace
from loom_audit.clients.known import CLIENTS
from loom_audit.clients.programs import PROGRAMS
from loom_audit.config import Settings
from loom_audit.model.imported import is_imported
from loom_audit.model.text.display import count_text, first_few, visible

_MANY_MINUTES = 120
"""From so many minutes on it is said at what time a client was heard, not how long ago."""

_BY_HAND = (
    "The next hook puts them on record, or `loom-audit daemon` now, which says what is wrong."
)


def note_heard(
    workspace: AuditedWorkspace, heard: dict[str, dict[str, datetime]], failed: dict[str, int]
) -> Sequence[Check]:
    """Note by client when it was heard in a workspace, and which failed."""
    for client, count in failures_of(workspace).items():
        failed[client] = failed.get(client, 0) + count
    for client, at in heard_clients(workspace).items():
        heard.setdefault(client, {})[workspace.root] = at
    return []


def failed_hooks(
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


def client_checks(
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
    return f"heard {at:{TIME}}"


def hooks_of_forgotten(store: AuditStore, roots: Sequence[str]) -> Sequence[Check]:
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
