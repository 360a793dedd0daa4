"""What is told of a client's calls, in any order, beside a plain account of what may be made of it.

The account knows the steps and the events as they lie in the log, and nothing of how they came.
"""

import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from loom_audit import AuditStore
from loom_audit.api.agents.clients import Hooks
from loom_audit.api.agents.reading import read_transcripts
from loom_audit.model.events import (
    CallFinished,
    CallReported,
    CallRequested,
    ChangesAttributed,
    CoverageLowered,
    Event,
    FilesChanged,
)
from loom_audit.model.files import FileState
from tests.given.ticks import tick
from tests.processes.hooked import HookedClaude

Key = tuple[str, str]
Step = tuple[Any, ...]

LEVELS = ("none", "partial", "full")
INFERRED = ("unknown", "cancelled", "interrupted")

COMMANDS = {"named": "echo > {}", "unnamed": "make"}


@dataclass
class OneCall:
    """What was told and done of a call, by the steps."""

    begun_in_time: bool = False
    hooked: bool = False
    told_to_begin: bool = False
    names: set[str] = field(default_factory=set)
    statuses: set[str] = field(default_factory=set)
    contents: dict[str, set[str | None]] = field(default_factory=dict)
    may_be_full: bool = False


@dataclass
class OnRecord:
    """What the log says of a call by now."""

    level: str = ""
    reasons: set[str] = field(default_factory=set)
    status: str = ""
    inferred: bool = False
    replaced: int = 0


class Play:
    """One or more sessions of a client, and what others do beside it. Steps are carried out."""

    def __init__(
        self,
        store: AuditStore,
        root: Path,
        folder: Path,
        hook: int,
        client: subprocess.Popen[bytes],
    ) -> None:
        self.store, self.root, self.client = store, root, client
        self.workspace = store.attach(root)
        self.client_is_there = True
        self.hook = hook
        self.calls: dict[Key, OneCall] = {}
        self.timely: Key | None = None
        self.asked: dict[Key, tuple[str, dict[str, Any]]] = {}
        self.seen = 0
        self.tree: dict[str, FileState | None] = {}
        self.record: dict[Key, OnRecord] = {}
        self.requests: dict[int, Key] = {}
        self.numbers: dict[int, Key] = {}
        self.found: dict[int, FilesChanged] = {}
        self.attributed: set[tuple[int, str, int]] = set()
        self.waits = True
        self.hooks = Hooks(store)
        self.sessions = {
            name: HookedClaude(self._answer, root, folder / f"{name}.jsonl", name)
            for name in ("s", "t")
        }
        self.others = self.workspace.start_foreign_session("client", id="o")
        self.looks = 0
        for one in self.sessions.values():
            one.hook("SessionStart", source="startup")
        self.account_for(())

    def _answer(self, data: bytes) -> bytes:
        if not self.client_is_there:
            return b""
        return self.hooks.answer("claude-code", data, hook=self.hook, is_there=lambda: self.waits)

    # --- the steps ------------------------------------------------------------------------

    def carry_out(self, step: Step) -> None:
        """One step, and the account of what came on record by it."""
        self.timely, self.waits = None, True
        name, *given = step
        getattr(self, f"_{name}")(*given)
        self.account_for(step)

    def _call(self, session: str, id: str) -> OneCall:
        return self.calls.setdefault((session, id), OneCall())

    def _words(self, session: str, id: str, tool: str, path: str) -> tuple[str, dict[str, Any]]:
        """The tool and the arguments of a call, which stay as they are told first."""
        arguments: dict[str, Any] = {"file_path": str(self.root / path), "content": "1"}
        if tool in COMMANDS:
            arguments = {"command": COMMANDS[tool].format(path)}
        found = self.asked.setdefault(
            (session, id), ("Bash" if tool in COMMANDS else "Write", arguments)
        )
        if found[0] == "Write":
            self._call(session, id).names.add(Path(found[1]["file_path"]).name)
        elif ">" in found[1]["command"]:
            self._call(session, id).names.add(found[1]["command"].split()[-1])
        return found

    def _asks(self, session: str, id: str, tool: str, path: str) -> None:
        self._call(session, id)
        self.sessions[session].asks(id, *self._words(session, id, tool, path))

    def _before(self, session: str, id: str, tool: str, path: str, waits: bool) -> None:
        words, call = self._words(session, id, tool, path), self._call(session, id)
        self.waits = waits
        if self.client_is_there:
            new = (session, id) not in self.record and not self._is_requested(session, id)
            self.sessions[session].before(id, *words)
            call.begun_in_time |= new and waits and not call.told_to_begin
            call.told_to_begin = call.hooked = True

    def _is_requested(self, session: str, id: str) -> bool:
        return (session, id) in self.requests.values()

    def _after(self, session: str, id: str, how: str, path: str, waits: bool) -> None:
        tool, arguments = self.asked.get((session, id), ("Bash", {"command": "make"}))
        if not self.client_is_there:
            return
        self.waits = waits
        call = self._call(session, id)
        key = (session, id)
        if call.begun_in_time and waits and not self._is_finished(key):
            call.may_be_full = True
            self.timely = key
        call.statuses.add("ok")
        call.hooked = True
        self.sessions[session].after(id, tool, arguments, self._told(call, how, path))

    def _is_finished(self, key: Key) -> bool:
        return key in self.record

    def _tells(self, session: str, id: str, how: str, path: str) -> None:
        call, one = self._call(session, id), self.sessions[session]
        if how in ("error", "denied"):
            call.statuses.add(how)
            call.may_be_full |= how == "denied" and not self._is_finished((session, id))
            block = {"type": "tool_result", "tool_use_id": id, "content": how, "is_error": True}
            more = {"toolDenialKind": "rule"} if how == "denied" else {}
            one.write("user", block, toolUseResult="Error: Exit code 2", **more)
        else:
            call.statuses.add("ok")
            one.told(id, self._told(call, how, path))

    def _told(self, call: OneCall, how: str, path: str) -> dict[str, Any]:
        """A response that tells of a file with its content, without it, or of none."""
        if how == "ok":
            return {"stdout": "", "stderr": ""}
        told: dict[str, Any] = {"filePath": str(self.root / path)}
        call.contents.setdefault(path, set()).add(None if how == "path" else how)
        if how != "path":
            told |= {"type": "create", "content": how, "originalFile": None}
        return told

    def _esc(self, session: str) -> None:
        self.sessions[session].write(
            "user", {"type": "text", "text": "[Request interrupted by user]"}
        )

    def _stop(self, session: str) -> None:
        if self.client_is_there:
            self.sessions[session].hook("Stop", stop_hook_active=False)

    def _end(self, session: str) -> None:
        if self.client_is_there:
            self.sessions[session].hook("SessionEnd", reason="exit")

    def _write(self, path: str, content: str) -> None:
        """Somebody writes: a call, another program or a person."""
        (self.root / path).write_text(content)

    def _does(self, path: str, content: str) -> None:
        """The same, at a time that is later than all before it and earlier than all after it."""
        tick(self.root)
        self._write(path, content)
        tick(self.root)

    def _delete(self, path: str) -> None:
        (self.root / path).unlink(missing_ok=True)

    def _look(self) -> None:
        """A call of another session, all of which is seen."""
        self.looks += 1
        self.others.begin_call(f"o{self.looks}", "Bash", {"command": "true"})
        self.account_for(("look",))
        self.timely = ("o", f"o{self.looks}")
        self.calls[self.timely] = _seen()
        self.others.end_call(f"o{self.looks}")

    def _beside(self, open: bool) -> None:
        """A call of another session that stays open beside these, or the end of such a one."""
        ids = [
            id for one, id in self.requests.values() if one == "o" and ("o", id) not in self.record
        ]
        if open and not ids:
            self.looks += 1
            self.calls["o", f"o{self.looks}"] = OneCall(True, hooked=True, told_to_begin=True)
            self.others.begin_call(f"o{self.looks}", "Bash", {"command": "true"})
        elif ids and not open:
            self.timely = ("o", ids[0])
            self.calls[self.timely] = _seen()
            self.others.end_call(ids[0])

    def _reads(self) -> None:
        """The warm process reads the transcripts."""
        assert self.hooks.settle() == []

    def _another(self) -> None:
        """The warm process is killed; the next hook is answered by another."""
        self.hooks = Hooks(self.store)

    def _gone(self) -> None:
        """The client's process is gone, and nobody hears anything of it but by its transcripts."""
        self.client_is_there = False
        self.client.kill()
        self.client.wait()

    def _settles(self) -> None:
        """A person undoes something, before which it is settled."""
        read_transcripts(self.workspace)
        self.workspace.recover()

    def finish(self) -> None:
        """All is read once more, from the log, and nothing is found that is not as it was said."""
        for step in (("reads",), ("gone",), ("reads",), ("settles",), ("look",)):
            self.carry_out(step)
        for number, key in self.numbers.items():
            call, one = self.workspace.timeline.call(number).call, self.record[key]
            assert (call.coverage.level, call.status) == (one.level, one.status)
        assert self.workspace.verify().findings == ()

    # --- the account ----------------------------------------------------------------------

    def account_for(self, step: Step) -> None:
        """What came on record since the last time, held against the steps."""
        events = [event for event in self.workspace.log.read() if event.seq > self.seen]
        for event in events:
            self.seen = event.seq
            self._account_for(event)
        self._compare(step)

    def _account_for(self, event: Event) -> None:
        fact = event.fact
        match fact:
            case CallRequested():
                self.requests[event.seq] = (event.session, fact.call_id)
            case CallFinished():
                key = (event.session, fact.call_id)
                assert key not in self.record, "a call has one finish"
                self.record[key] = OnRecord(
                    fact.coverage.level, {*fact.coverage.reasons}, fact.status, fact.inferred
                )
                self.numbers[event.seq] = key
            case CallReported():
                one = self.record[event.session, fact.call_id]
                if fact.replaces is not None:
                    one.replaced += 1
                    assert one.inferred and one.replaced == 1, "only what was inferred, and once"
                    assert self.numbers[fact.replaces] == (event.session, fact.call_id)
                    one.status = fact.status
            case CoverageLowered():
                for number in fact.calls:
                    one = self.record[self.numbers[number]]
                    one.level = min(one.level, fact.coverage.level, key=LEVELS.index)
                    one.reasons |= {*fact.coverage.reasons}
            case FilesChanged():
                self._account_for_changes(event, fact)
            case ChangesAttributed():
                self._account_for_told(fact)

    def _account_for_changes(self, event: Event, fact: FilesChanged) -> None:
        """They are what is on disk and was not on record, and whose they may be."""
        self.found[event.seq] = fact
        for change in fact.changes:
            assert change.before == self.tree.get(change.path), "not a second time"
            assert change.before != change.after
            self.tree[change.path] = change.after
            assert self._content(change.after) == self._on_disk(change.path), "as it is on disk"
        if fact.origin != "command" or fact.causes:
            return
        own = (event.session, fact.call_id or "")
        call = self.calls[own]
        for change in fact.changes:
            told = change.path in call.names or change.path in call.contents
            assert own == self.timely or told, "what nobody saw is its own only where it says so"
            assert own == self.timely or call.told_to_begin, "and where it was seen to begin"

    def _account_for_told(self, fact: ChangesAttributed) -> None:
        """A candidate more, of what is on record as nobody's or as shared, once."""
        told, found = self.calls[self.requests[fact.call]], self.found[fact.event]
        assert found.origin == "outside" or found.causes, "nothing that is a call's own"
        assert fact.call not in found.causes
        after = {change.path: change.after for change in found.changes}
        for path in fact.paths:
            assert (fact.event, path, fact.call) not in self.attributed, "once"
            self.attributed.add((fact.event, path, fact.call))
            if "this content" in fact.grounds:
                assert self._content(after[path]) in told.contents[path] - {None}
            else:
                assert path in told.contents or path in told.names
                assert path in after

    def _compare(self, step: Step) -> None:
        """What is said of each call by now, and of the tree."""
        projections = self.workspace.timeline.projections
        for key, one in self.record.items():
            call = projections.call(*key)
            assert call.coverage.level == one.level, (key, step)
            assert {*call.coverage.reasons} == one.reasons, (key, step)
            assert call.status == one.status, (key, step)
            told = self.calls[key]
            assert one.level != "full" or told.may_be_full, (key, step)
            assert one.level == "none" or told.hooked or "denied" in told.statuses, (key, step)
            if one.inferred and not one.replaced:
                assert one.status in INFERRED, (key, step)
            else:
                assert one.status in told.statuses, (key, step)
        there = {path: state for path, state in self.tree.items() if state is not None}
        assert self.workspace.timeline.tree() == there, step

    def _content(self, state: FileState | None) -> str | None:
        if state is None or state.blob is None:
            return None
        return self.workspace.attachment.stored.blobs.get(state.blob).decode()

    def _on_disk(self, path: str) -> str | None:
        try:
            return (self.root / path).read_text()
        except FileNotFoundError:
            return None


def _seen() -> OneCall:
    """A call that reports itself, and is looked at before and after."""
    return OneCall(
        begun_in_time=True, hooked=True, told_to_begin=True, statuses={"ok"}, may_be_full=True
    )
