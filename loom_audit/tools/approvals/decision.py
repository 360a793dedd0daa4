"""Whether a call may run: by rule, earlier answer, question, its answer, and another look.

Nothing here waits or asks: these are functions over plain data. `asking_gate.py` asks about our
calls without holding a thread, `api/agents/client_approvals.py` while a hook waits.
"""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from loom_audit.model.events import ApprovalRequested, CallDecided
from loom_audit.model.files import FileState, parents
from loom_audit.model.text.cutting import cut
from loom_audit.tools.approvals.policy import Action, Policy, Subject
from loom_audit.tools.approvals.preview import MAX_PREVIEW, approval_hash
from loom_audit.tools.calls.gate import Decision
from loom_audit.tools.calls.tool import Preview

DEFAULT = "policy:approvals.toml#default"


class Ruling(Struct, frozen=True):
    """What the rules say of a call: what is to be done, by which of them, and why.

    `rule` is the name of the rule that matched, "" where none did; then `action` is the default.
    """

    action: Action | None
    by: str
    why: str
    rule: str = ""

    @property
    def decided(self) -> Decision | None:
        """What the rules decide alone; None when somebody is to be asked, or the tool."""
        if self.action is None or self.action == "ask":
            return None
        return Decision("allowed" if self.action == "allow" else "denied", self.by, self.why)


def ruling(policy: Policy, subject: Subject) -> Ruling:
    """The ruling of the first rule that matches, else of the default."""
    rule = policy.rule_for(subject)
    if rule is not None:
        return Ruling(rule.action, rule.name, rule.why, rule.name)
    why = f"no rule is about it; the default is {policy.default}"
    return Ruling(policy.default, DEFAULT, why)


def reason_to_ask(ruled: Ruling, asked: str) -> str:
    """The reason to ask somebody: of a rule, of what the tool itself `asked`, else of the default.

    "" where nobody is to be asked.
    """
    if ruled.rule:
        return ruled.why
    return asked or ("no rule is about it" if ruled.action == "ask" else "")


class ShownCall(Struct, frozen=True):
    """A call of ours as it is put to somebody: `args` are its parsed `arguments`."""

    tool: str
    args: Any
    arguments: Any
    preview: Preview

    def hash(self) -> str:
        """The hash of what an answer to the question holds for (`approval_hash`)."""
        states, text = self.preview.states, self.preview.text
        if states is None and text:  # what was shown is all there is to hold to
            return approval_hash(self.tool, {"arguments": self.arguments, "shown": text}, {})
        return approval_hash(self.tool, self.arguments, states or {})

    def question(self, call_id: str, reason: str, rule: str, number: int) -> ApprovalRequested:
        """The question about the call, the `number`th of those about it."""
        text = cut(self.preview.text, MAX_PREVIEW)
        return ApprovalRequested(
            call_id, self.tool, self.arguments, reason, rule, text, self.hash(), number
        )


def reason_to_ask_again(shown: ShownCall, now: ShownCall, answer: CallDecided) -> str:
    """The reason why a yes to what was shown is none to the call as it is now; "" for none."""
    if answer.arguments is None:
        changed = now.hash() != shown.hash()
        return "what it would change has changed since it was shown" if changed else ""
    more = _changes_more(shown.preview, now.preview)
    return "the arguments put in place change what was not shown" if more else ""


def _changes_more(shown: Preview, now: Preview) -> bool:
    """Whether a path would change, be it absent, that was not shown as it is."""
    if now.states is None:
        return bool(now.text) and now.text != shown.text
    seen = shown.states or {}
    return any(path not in seen or seen[path] != state for path, state in now.states.items())


def changed_paths(states: Mapping[str, FileState | None]) -> list[str]:
    """The paths a call would change, without the folders that are only made for others."""
    above = {folder for path in states for folder in parents(path)}
    return [path for path, state in states.items() if state is not None or path not in above]
