"""What `doctor` looks at in one workspace."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path

from loom_audit.api.ground.watched import watched_text
from loom_audit.api.upkeep.checks.check import STOPPED, TIME, Check, Verdict
from loom_audit.api.upkeep.git_mirror import mirror_state
from loom_audit.api.workspace import AuditedWorkspace
from loom_audit.model.records import untold_last
from loom_audit.model.scope import IGNORE_FILE
from loom_audit.model.text.display import count_text, first_few, visible
from loom_audit.ports import CallFilter, EventFilter
from loom_audit.wiring.folders import most_watches

_LOOKED = 20
"""The number of calls among which the last one is searched after which git was looked at."""


def workspace_checks(workspace: AuditedWorkspace, now: datetime) -> Sequence[Check]:
    """Whether a workspace is recorded, and what keeps that from being whole. AuditError."""
    name = f"workspace {workspace.root}"
    if error := workspace.why_stopped():
        return [Check(name, "problem", f"{STOPPED}{error.message}", error.hint)]
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


def git_checks(workspace: AuditedWorkspace) -> Sequence[Check]:
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
            f"the clock says {now:{TIME}}, the last event is of {last.at:{TIME}}",
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
