"""Who wrote each line: asked of a file at a point, and of what a set of calls changed."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from loom_audit.errors import Conflict, InvalidArguments, NotFound
from loom_audit.history.read.lines.chains import files_changed_by
from loom_audit.history.read.lines.contents import Contents
from loom_audit.history.read.lines.descent import Descent
from loom_audit.history.read.lines.followed import (
    FileVersions,
    FollowedFile,
    follow,
    window,
    with_maps,
)
from loom_audit.history.read.lines.kept_sums import net_by_sums
from loom_audit.history.read.lines.recorded_steps import RecordedSteps
from loom_audit.history.read.timeline import Timeline
from loom_audit.model.authorship.blame import Blame
from loom_audit.model.authorship.call_set import CallSet, Turn
from loom_audit.model.authorship.net import FileSteps, NetFile, net_file
from loom_audit.model.authorship.net_change import Most, NetChange, net_change
from loom_audit.model.authorship.part_names import with_names
from loom_audit.model.authorship.versions import Version, brought_back
from loom_audit.model.conversation import PromptSubmitted
from loom_audit.model.events import SessionStarted
from loom_audit.model.files import FileChange, FileState
from loom_audit.model.records import RecordedChange
from loom_audit.model.text.display import visible
from loom_audit.model.text.git_patch import git_patch
from loom_audit.ports import EventFilter, LineMaps, OnProgress

_PAGE = 200
_FILES_AT_ONCE = 64
"""The number of files whose contents are read at once."""


def check_range(first: int, last: int | None) -> None:
    """Refuse lines that cannot be. InvalidArguments."""
    if first < 1 or (last is not None and last < first):
        raise InvalidArguments(
            f"lines {first} to {last} are none", hint="Lines are counted from 1."
        )


class Lines(Struct, frozen=True):
    """Tells of one log who wrote the lines of its files; changes nothing.

    `key` is that by which the parts of a change are named; without it they have no names. `maps`
    keeps the maps of long files; without it each is made anew.
    """

    timeline: Timeline
    contents: Contents
    key: bytes = b""
    maps: LineMaps | None = None

    # --- one file -------------------------------------------------------------------------

    def blame(
        self,
        path: str,
        at: int | None = None,
        *,
        first: int = 1,
        last: int | None = None,
        full: bool = False,
    ) -> Blame:
        """Who wrote the lines `first` to `last` of a file, by default all, as it is at a point.

        The tables suggest which events changed the file, and each of those is checked; for `full`
        every event of the log is read, and no line map. NotFound where the path has no state there,
        InvalidArguments for a folder, and for lines that cannot be; Corrupt.
        """
        check_range(first, last)
        return self.window(self.follow(self.versions(path, at, full=full)), first, last)

    def versions(self, path: str, at: int | None = None, *, full: bool = False) -> FileVersions:
        """The verified versions of a file up to a point, with a line map where one is kept.

        As `blame`; for `full` no map is used. NotFound, InvalidArguments, Corrupt.
        """
        seq = self.timeline.proven.head() if at is None else at
        state = self.timeline.state(path, seq)
        if state is None and path:
            raise NotFound(f"{visible(path)} did not exist at {seq}")
        if state is None or state.kind in ("directory", "opaque"):
            raise InvalidArguments(
                f"{visible(path) or 'the workspace'} is a directory",
                hint="Name a file: `loom-audit ls` lists them.",
            )
        versions = self._descent(full=full).versions(path, seq, state)
        file = FileVersions(path, seq, state, versions)
        return file if full or self.maps is None else with_maps(file, self.maps)

    def follow(self, file: FileVersions, progress: OnProgress | None = None) -> FollowedFile:
        """Follow the lines of a file over its versions, and keep maps of them."""
        return follow(file, self.contents.lines, self.maps, progress)

    def window(self, file: FollowedFile, first: int, last: int | None = None) -> Blame:
        """Who wrote the lines `first` to `last` of a file whose lines were followed."""
        return window(file, self.contents.lines, self.maps, first, last)

    def _descent(self, *, full: bool = False) -> Descent:
        proven, tables = self.timeline.proven, self.timeline.projections
        suggest = None if full else self._listed
        return Descent(proven, RecordedSteps(proven, tables), suggest)

    def _listed(self, path: str, before: int) -> Iterator[Sequence[RecordedChange]]:
        """The changes of a path as the tables have them, in pages, the newest first."""
        while page := self.timeline.history(path, before=before, limit=_PAGE):
            yield page
            if len(page) < _PAGE:
                return
            before = page[-1].seq

    # --- sets of calls --------------------------------------------------------------------

    def of_call(self, number: int) -> CallSet:
        """One call, by any of its events. NotFound, Corrupt."""
        call = self.timeline.verified.call_at(number)
        listed = self.timeline.listed_changes([call.requested])
        last = max((one.seq for one in listed), default=0)
        until = self._head() if call.seq is None else max(call.seq, last)
        return CallSet(call.requested - 1, until, requests=frozenset({call.requested}))

    def of_session(self, id: str, *, until: int | None = None, within: bool = True) -> CallSet:
        """The calls of a session, unless not asked for `within` also those of its subagents.

        The end is that of the session, or the log's while the session is open. NotFound, Corrupt.
        """
        session = self.timeline.verified.session(id)
        end = (session.ended or self._head()) if until is None else until
        sessions = frozenset({id})
        return CallSet(session.started - 1, end, sessions=sessions, within=within)

    def turns(self, session: str) -> tuple[Turn, ...]:
        """What a session did from each prompt to the next, oldest first. NotFound, Corrupt."""
        listed = self.timeline.verified.session(session)
        end = listed.ended or self._head()

        def is_prompt(envelope: Mapping[str, Any]) -> bool:
            own = envelope.get("session", "") == session
            return own and envelope.get("kind") == PromptSubmitted.kind

        found = [
            Turn(session, event.seq, end, event.at, event.fact.text, 0)
            for event in self.timeline.proven.events(listed.started - 1, end, is_prompt)
            if isinstance(event.fact, PromptSubmitted)
        ]
        began = Turn(session, listed.started, end, listed.started_at, "", 0)
        turns = [began, *found]
        return tuple(
            replace(turn, number=n, until=turns[n + 1].seq - 1 if n + 1 < len(turns) else end)
            for n, turn in enumerate(turns)
        )

    def of_turn(self, session: str, seq: int) -> CallSet:
        """The calls from one prompt to the next, by the event of the first. NotFound, Corrupt."""
        for turn in self.turns(session):
            if turn.seq == seq:
                return CallSet(turn.seq, turn.until, sessions=self._running(session, turn.seq))
        raise NotFound(f"no turn of session {session} begins with event {seq}")

    def between(self, after: int, until: int, *, session: str | None = None) -> CallSet:
        """The calls between two points, of all sessions or of one with those within it."""
        sessions = None if session is None else self._running(session, after)
        return CallSet(after, until, sessions=sessions)

    def _running(self, session: str, after: int) -> frozenset[str]:
        """A session with those within it that began up to an event. Corrupt."""
        found = {session}
        kinds = EventFilter(before=after + 1, kinds=(SessionStarted.kind,))
        for event in self.timeline.log.read(kinds):
            if isinstance(event.fact, SessionStarted) and event.fact.parent in found:
                found.add(event.session)
        return frozenset(found)

    def _head(self) -> int:
        return self.timeline.proven.head()

    # --- own net change -------------------------------------------------------------------

    def net(
        self,
        calls: CallSet,
        *,
        paths: Collection[str] | None = None,
        context: int = 3,
        max_lines: int = 3000,
        max_file_lines: int = 1000,
        by_sums: bool = False,
    ) -> NetChange:
        """What the calls changed on balance, in each file and in all.

        Sums are those of all files. Hunks are given of the files in order of path, of those `paths`
        alone where they are named, until `max_lines` lines of hunks; of none that has more than
        `max_file_lines`. With `by_sums` the sums of files whose hunks are not given are as they
        were kept, where they were: which files those are is read from the log. Corrupt.
        """
        most = Most(max_lines, max_file_lines, paths)
        meant, steps = self._steps(calls)
        own = [self._with_earlier(one, meant) for one in steps if one.own or one.shared]
        if by_sums and self.maps is not None:
            files = net_by_sums(own, self._net_files, self.maps, (context, self.key), most)
        else:
            files = self._net_files(own, context)
        return net_change(meant, sorted(files, key=lambda one: one.path), most)

    def difference(self, calls: CallSet) -> tuple[FileChange, ...]:
        """How the states at the two points differ in the files that the calls changed.

        Conflict where somebody else changed one of them too, so that there is no tree that the
        calls alone made; not for everyone. NotFound, Corrupt.
        """
        changes = self.timeline.diff(calls.after, calls.until)
        if calls.everyone:
            return changes
        _, found = self._steps(calls)
        paths: set[str] = set()
        for one in found:
            if one.own or one.shared:
                paths.update(path for step in one.versions for path in (step.old_path, step.path))
        for one in found:  # also of other files that came to where one of these was
            for n, step in enumerate(one.versions):
                if n not in one.own and not paths.isdisjoint((step.old_path, step.path)):
                    raise _not_alone_error(step)
        return tuple(change for change in changes if change.path in paths)

    def patch(self, calls: CallSet) -> Iterator[bytes]:
        """The `difference` as git writes it, with binary contents; `git apply` takes it to the
        state before.

        Conflict, as there; TooLarge for a content that was recorded by its hash only. NotFound,
        Corrupt.
        """
        for change in self.difference(calls):
            yield git_patch(change, self._content(change.before), self._content(change.after))

    def _content(self, state: FileState | None) -> bytes | None:
        if state is None or state.kind not in ("file", "symlink"):
            return None
        return self.timeline.content(state)

    def _steps(self, calls: CallSet) -> tuple[CallSet, list[FileSteps]]:
        proven = self.timeline.proven
        steps = RecordedSteps(proven, self.timeline.projections)

        def before(path: str) -> FileState | None:
            return self.timeline.state(path, calls.after) if calls.after else None

        return files_changed_by(proven, steps, calls, before)

    def _net_files(self, some: Sequence[FileSteps], context: int) -> list[NetFile]:
        """The own net change of each file, from contents that are read many at once."""
        found: list[NetFile] = []
        for at in range(0, len(some), _FILES_AT_ONCE):
            batch = some[at : at + _FILES_AT_ONCE]
            read = self.contents.reader_of(state for one in batch for state in one.states)
            for one in batch:
                file = net_file(one, read, start=_first(one), context=context)
                found.append(with_names(file, self.key))
        return found

    def _with_earlier(self, steps: FileSteps, calls: CallSet) -> FileSteps:
        """The steps, after those before the point to which an undo among them leads back."""
        versions = steps.versions
        if not any(one.taken_back and one.taken_back.reaches(calls.after) for one in versions):
            return steps
        first, descent = versions[0], self._descent()
        earlier = descent.brought_back(first) if first.before is None else ()
        if not earlier:
            earlier = descent.versions(first.old_path, calls.after, first.before)
        return replace(
            steps,
            versions=(*earlier, *versions),
            begin=len(earlier) - 1,
            own=frozenset(n + len(earlier) for n in steps.own),
            shared=frozenset(n + len(earlier) for n in steps.shared),
        )


def _first(steps: FileSteps) -> int:
    """The version at which the walk begins: what a later one brings back stood there at the
    earliest.
    """
    later = range(steps.begin + 1, len(steps.versions))
    sources = (brought_back(steps.versions, n) for n in later)
    start = min((one.index for one in sources if one), default=steps.begin)
    return min(start, steps.begin)


def _not_alone_error(step: Version) -> Conflict:
    return Conflict(
        f"the own change is not one tree: {visible(step.path)} was changed by "
        f"{step.writer.text} too",
        hint="Without --own the patch has everybody's changes between the two points.",
        details={"path": step.path, "event": step.seq},
    )
