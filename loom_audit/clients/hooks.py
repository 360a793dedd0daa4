"""What the hooks of several clients have in common: how their input is read, and answered."""

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import UNSET, Struct

from loom_audit.clients import fields
from loom_audit.clients.reports import Hook, Moment, Report, SessionTold, Verdict


class ClientHooks(Struct, frozen=True):
    """A client's hooks: when each is called, which tell nothing, and what fields they have."""

    moments: Mapping[str, Moment]
    silent: frozenset[str]
    fields: frozenset[str]

    def read(
        self, given: Mapping[str, Any], name: str, told: SessionTold, reports: Iterable[Report]
    ) -> Hook:
        """One call of a hook; what names no session gives no reports."""
        unread = fields.unknown(given, self.fields, name or "?")
        if name not in self.moments and name not in self.silent:
            unread.append(fields.label("hook", name))
        return Hook(
            name=name,
            moment=self.moments.get(name, "other"),
            session=told.session,
            reports=(told, *reports) if told.session else (),
            transcript=told.transcript,
            cwd=told.cwd,
            unread=tuple(unread),
        )


def permission(hook: Hook, verdict: Verdict) -> dict[str, Any]:
    """A verdict before a call, as Claude Code and Codex take it."""
    said: dict[str, Any] = {"hookEventName": hook.name, "permissionDecision": verdict.decision}
    if verdict.reason:
        said["permissionDecisionReason"] = verdict.reason
    if verdict.decision == "allow" and verdict.arguments is not UNSET:
        said["updatedInput"] = verdict.arguments
    return said


def decision(verdict: Verdict) -> dict[str, Any]:
    """A verdict as Gemini CLI and our plugin of opencode take it, without other arguments."""
    return {"decision": verdict.decision} | ({"reason": verdict.reason} if verdict.reason else {})
