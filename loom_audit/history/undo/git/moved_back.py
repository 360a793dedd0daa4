"""A `.git` that a plan renames back comes as it is now, so that what changed in it blocks that.

Its hooks and settings run code as the person: what a call changed of them after it moved the folder
away would be armed at its old place.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from shlex import quote

from msgspec import Struct, field

from loom_audit.history.ground.attachment import Attachment
from loom_audit.history.look.git.changes import look_at_git
from loom_audit.history.record.git.whole import content_kept
from loom_audit.history.undo.selection import Selection
from loom_audit.model.events import Event
from loom_audit.model.files import FileState
from loom_audit.model.git.record import (
    BROKEN,
    MODULES,
    GitChanged,
    GitState,
    changed_files,
    changed_names,
    is_beside,
    is_led_to,
    is_run_by_git,
    is_setting,
)
from loom_audit.model.git.ways import is_derived
from loom_audit.model.git.words import git_words
from loom_audit.model.git_points import git_folder, git_path
from loom_audit.model.plans.git_things import GitThing
from loom_audit.model.plans.planning import Plan
from loom_audit.model.plans.verdicts import Note
from loom_audit.model.text.display import first_few, visible
from loom_audit.ports import EventFilter

NOT_KNOWN = "what git has in it now is not on record"
BY_WHOLE_PATH = "its settings lead to it by its whole path, and what is there now is not on record"


class GitOnRecord(Struct):
    """The repositories by folder as the log has them, folded from all of its changes of git.

    `gone` are the states in which they went, `first` their first looks, each with its seq.
    `changed_by` are the requests of the calls that made one of the changes of which a plan takes
    some back, or may have.
    """

    now: dict[str, GitState] = field(default_factory=dict)
    gone: dict[str, list[tuple[int, GitState]]] = field(default_factory=dict)
    first: list[tuple[int, GitChanged]] = field(default_factory=list)
    changed_by: set[int] = field(default_factory=set)

    def follow(self, seq: int, fact: GitChanged) -> None:
        """Take over what a fact says."""
        state = self.now.setdefault(fact.folder, GitState())
        if fact.is_gone:
            self.gone.setdefault(fact.folder, []).append((seq, _copied(state)))
        if fact.is_first:
            self.first.append((seq, fact))
        state.follow(fact)

    def forget(self) -> None:
        """Take over that what a fact said was erased: nothing is compared with what was before."""
        self.now, self.gone = {}, {}

    def after(self, seq: int, facts: Iterable[GitChanged]) -> "GitOnRecord":
        """It after facts of a seq, which this one is not changed by."""
        made = GitOnRecord(
            {folder: _copied(state) for folder, state in self.now.items()},
            {folder: [*states] for folder, states in self.gone.items()},
            [*self.first],
        )
        for fact in facts:
            made.follow(seq, fact)
        return made

    def before_it_went(self, folder: str, identity: str, first: int) -> GitState:
        """The state at a folder before it went there, the first time after an event if it did."""
        went = [one for one in self.gone.get(folder, ()) if not identity or one[1].is_of(identity)]
        later = [state for seq, state in went if seq > first]
        return later[0] if later else went[-1][1] if went else GitState()


def _copied(state: GitState) -> GitState:
    return GitState(state.identity, {**state.names}, {**state.files})


def git_events(attachment: Attachment, on_record: GitOnRecord) -> Iterator[Event]:
    """All events of git of the log, each once `on_record` has followed it."""
    for event in attachment.stored.log.read(EventFilter(kinds=(GitChanged.kind,))):
        if isinstance(event.fact, GitChanged):
            on_record.follow(event.seq, event.fact)
        else:
            on_record.forget()
        yield event


def renamed_back_notes(
    attachment: Attachment,
    plan: Plan,
    selection: Selection,
    things: Sequence[GitThing],
    on_record: GitOnRecord,
) -> Iterator[Note]:
    """What keeps a plan from renaming a `.git` back: git has something else in it than it had when
    it went, but for what the plan takes back of that; none where that was chosen.

    `things` are the repositories that would come back, were they not there by another name.
    """
    sources = {move.target: move.source for move in plan.moves}
    back = [
        change.path
        for change in plan.changes
        if change.after is not None
        and change.after.kind == "opaque"
        and git_folder(change.path) is not None
        and change.path in sources
        and plan.request.choices.get(change.path) != "old"
    ]
    if not back:
        return
    if not on_record.now:  # the plan leaves git, and did not need it yet
        for _ in git_events(attachment, on_record):
            pass
    found = [look.change for look in look_at_git(attachment) if look.change is not None]
    seen = on_record.after(attachment.stored.log.head() + 1, found)
    requested = [call.requested for call in selection.calls]
    first = selection.since if selection.rollback else min(requested, default=0)
    for path in back:
        folder, source = git_folder(path) or "", sources[path]
        whole = next((one for one in things if one.folder == folder and one.is_whole), None)
        if said := _what_differs(attachment, plan, seen, (folder, source), (first, whole)):
            asked = f"--choose {visible(quote(path))}=old"
            yield Note(path, f"git in {visible(source)}: {said}; {asked} brings it back with that")


def _what_differs(
    attachment: Attachment,
    plan: Plan,
    seen: GitOnRecord,
    way: tuple[str, str],
    expected: tuple[int, GitThing | None],
) -> str:
    (folder, source), (first, whole) = way, expected
    above = git_folder(source)
    now = GitState() if above is None else seen.now.get(above, GitState())
    was = seen.before_it_went(folder, now.identity, first)
    if whole is not None:
        beside = {path: file for path, file in was.files.items() if is_beside(path)}
        was = GitState().after(whole.as_change)
        was.files.update(beside)  # what is built has none of it, and what is renamed has all
    if not (was.names or now.names):
        return ""
    config = content_kept(attachment.stored, was.files.get("config")) or b""
    if above is None:
        return _differing_files(plan, source, was, config)
    known = attachment.process.last_seen.git.repositories.get(above)
    if not now.names or (known is not None and known.answer == "failed"):
        return NOT_KNOWN
    names = tuple(
        one
        for one in changed_names(was.names, now.names)
        if not (is_derived(("name", one.name)) or one.name.startswith(("worktree ", MODULES)))
    )
    files = [
        one for one in changed_files(was.files, now.files) if not is_derived(("file", one.path))
    ]
    if not (names or files):
        place = f"{attachment.on_disk.workspace.root}/{git_path(folder)}"
        inside = f"{place}/".encode("utf-8", "surrogateescape")
        return BY_WHOLE_PATH if inside in config or _is_said(place, config) else ""
    head = now.names.get("HEAD", "")
    fact = GitChanged(now.identity, names, tuple(files), "outside", head)
    return first_few([*git_words(fact)], 5)


def _differing_files(plan: Plan, source: str, was: GitState, config: bytes) -> str:
    """What differs in a folder that is not called `.git`: files of it are on record as such."""
    found = {
        change.path[len(source) + 1 :]: change.before
        for change in plan.changes
        if change.path.startswith(f"{source}/") and change.before is not None
    }
    if not found:
        return NOT_KNOWN  # it is left out there
    files = {path: one for path, one in found.items() if one.kind != "directory"}
    run = {path for path in files if is_run_by_git(path) and not path.endswith(".sample")}
    run |= {path for path in was.files if is_setting(path)}
    led_to = {path.rpartition("/")[0] for path in was.files if is_led_to(path)} - {""}
    said = b"\n".join(line.partition(b"=")[2] or line for line in config.split(b"\n"))
    for path, one in files.items():
        folder = path.rpartition("/")[0]
        is_there = folder in led_to or _is_said(folder or ".git", said)
        if ((one.mode or 0) & 0o111 and is_there) or (is_led_to(path) and _is_said(path, said)):
            run.add(path)
    differing = sorted(one for one in run if _told(files.get(one)) != _told(was.files.get(one)))
    differing += sorted(_differing_refs(files, was))
    return f"changed: {first_few(differing, 5, visible)}" if differing else ""


def _is_said(path: str, said: bytes) -> bool:
    """Whether values of settings may name a path of the git folder."""
    name = re.escape(path.encode("utf-8", "surrogateescape"))
    return re.search(rb"(?<![\w.-])" + name + rb"(?![\w./-])", said) is not None


def _told(state: FileState | None) -> tuple[object, ...]:
    return (state.kind, state.blob, state.mode) if state else ()


def _differing_refs(files: Mapping[str, FileState], was: GitState) -> Iterator[str]:
    """HEAD and the refs in files of their own that name something else."""
    for path, state in files.items():
        if path != "HEAD" and not path.startswith("refs/"):
            continue
        value = was.names.get(path, "")
        plain = " ".join(value.split(" ")[:2]) if value.startswith("ref: ") else value
        if value != BROKEN and state.blob != sha256(f"{plain}\n".encode()).hexdigest():
            yield path
