"""Random mixes of edits, moves and all that takes back, against plain sets of what stands."""

from collections.abc import Collection, Mapping
from pathlib import Path
from random import Random

import anyio
import pytest

from loom_audit import AuditedWorkspace, AuditStore, Session
from loom_audit.errors import Conflict, NotFound
from loom_audit.model.plans.planning import Plan
from loom_audit.ports import CallFilter
from tests.oracles.standing import Done, Standing

FILES = ("a", "b", "c")
"""Each is named by its first letter, wherever it is moved."""
EDITS = 8


def slot(file: str, n: int) -> str:
    return f"{file} {n}\n"


class Mix:
    """Edits of two sessions, each of a line of its own, and what a person takes back of them."""

    def __init__(self, workspace: AuditedWorkspace, root: Path, seed: int) -> None:
        self.workspace, self.root, self.draw = workspace, root, Random(seed)
        for file in FILES:
            (root / file).write_text("".join(slot(file, n) + "\n\n\n" for n in range(EDITS)))
        workspace.status()
        self.account = Standing()
        self.lines: dict[int, int] = {}
        self.moves: dict[int, tuple[str, str]] = {}
        self.trees = [(workspace.log.head(), self.tree())]
        self.sessions = [workspace.session("one"), workspace.session("two")]
        self.did: list[str] = []

    def tree(self) -> dict[str, str]:
        """What is in the files, by path."""
        return {one.name: one.read_text() for one in sorted(self.root.iterdir())}

    def path(self, file: str) -> str:
        """Where a file is, by the moves that stand."""
        moves = [n for n, (one, _) in self.moves.items() if one == file]
        stand = [n for n in moves if self.account.stands(n, file)]
        return self.moves[stand[-1]][1] if stand else file

    # --- steps ----------------------------------------------------------------------------

    def edit(self) -> None:
        """One call marks its own line of some files."""
        n = len(self.lines)
        if n == EDITS:
            return
        files = self.draw.sample(FILES, self.draw.randint(1, 3))
        session: Session = self.draw.choice(self.sessions)
        with session.recording("work"):
            for file in files:
                path = self.root / self.path(file)
                old = path.read_text()
                path.write_text(old.replace(slot(file, n), slot(file, n) + f"call {n}\n"))
        self.lines[self._add(session, {file: (self.path(file),) for file in files})] = n

    def move(self) -> None:
        """One call moves a file to a name that nothing ever had."""
        file = self.draw.choice(FILES)
        session: Session = self.draw.choice(self.sessions)
        source, target = self.path(file), f"{file}{len(self.moves)}"
        asked = {"from": source, "to": target}
        assert anyio.run(lambda: session.call("move_file", asked)).success
        self.moves[self._add(session, {file: (source, target)})] = (file, target)

    def _add(self, session: Session, paths: Mapping[str, tuple[str, ...]]) -> int:
        [call] = self.workspace.timeline.calls(CallFilter(limit=1))
        number = call.seq or 0
        self.account.calls.append(Done(number, call.requested, session.id, "", paths))
        self.did.append(f"{number}: {call.tool} of {paths} in {session.id[-4:]}")
        return number

    def undo(self) -> None:
        self._newest(self.draw.choice([None, None, *(one.id for one in self.sessions)]), "undo")

    def redo(self) -> None:
        self._newest(None, "redo")

    def _newest(self, session: str | None, verb: str) -> None:
        wanted = self.account.newest(session, redo=verb == "redo")
        plan = self._plan_newest(session, verb)
        assert (plan and plan.calls) == (wanted and (wanted.number,)), (verb, plan)
        if plan and wanted:
            self._take_back(verb, plan, [wanted], {wanted.number: wanted.files})

    def _plan_newest(self, session: str | None, verb: str) -> Plan | None:
        plan = self.workspace.plan_redo if verb == "redo" else self.workspace.plan_undo
        try:
            return plan(session=session)
        except NotFound:
            return None

    def revert(self) -> None:
        """One call or some, as a whole or a path of them."""
        most = min(len(self.account.calls), self.draw.choice([1, 1, 1, 2, 3]))
        calls = self.draw.sample(self.account.calls, most)
        known = sorted({path for one in calls for paths in one.paths.values() for path in paths})
        paths = self.draw.sample(known, min(1, len(known))) if self.draw.random() < 0.5 else []
        files = {path[0] for path in paths} or {*FILES}
        within = {
            one.number: [
                file
                for file in one.files & files
                if not paths or self._is_asked(one, file, paths, calls)
            ]
            for one in calls
        }
        numbers = [one.number for one in calls]
        plan = self.workspace.plan_revert(numbers, paths=paths)
        self._take_back(f"revert {numbers} {paths}", plan, calls, within)

    def _is_asked(self, one: Done, file: str, paths: Collection[str], calls: list[Done]) -> bool:
        """Whether a call changed a file at one of these paths, or where the calls moved it."""
        moved = [{*two.paths[file]} for two in calls if len(two.paths.get(file, ())) > 1]
        reached = {*paths}
        for _ in moved:
            reached.update(*(ends for ends in moved if not ends.isdisjoint(reached)))
        return not reached.isdisjoint(one.paths.get(file, ()))

    def revert_session(self) -> None:
        session = self.draw.choice(self.sessions).id
        calls = [one for one in self.account.calls if one.session == session and one.paths]
        if calls:
            plan = self.workspace.plan_revert([f"session:{session}"])
            within = {one.number: one.files for one in calls}
            self._take_back(f"revert session {session[-4:]}", plan, calls, within)

    def rollback(self) -> None:
        """To a point, of all or of one file, by any of the names that it had since."""
        point, tree = self.draw.choice(self.trees)
        files = self.draw.choice([(), (), (self.draw.choice(FILES),)])
        calls = [one for one in self.account.calls if one.requested > point]
        names = {
            path
            for file in files
            for one in calls
            for path in (*one.paths.get(file, ()), self.path(file))
        }
        paths = [self.draw.choice(sorted(names))] if names else [*map(self.path, files)]
        plan = self.workspace.plan_rollback(point, paths=paths)
        within = {one.number: files or FILES for one in calls}
        self._take_back(f"rollback {point} {paths}", plan, calls, within)
        now = {path: text for path, text in self.tree().items() if path[0] in (files or FILES)}
        then = {path: text for path, text in tree.items() if path[0] in (files or FILES)}
        assert now == then, "as at the point"

    def _take_back(
        self, verb: str, plan: Plan, calls: list[Done], within: Mapping[int, Collection[str]]
    ) -> None:
        expected = self.account.taking(calls, within)
        before, head = self.tree(), self.workspace.log.head()
        if plan.blocked and self.moves:  # a file that was moved again
            with pytest.raises(Conflict):
                self.workspace.carry_out(plan)
            assert (self.tree(), self.workspace.log.head()) == (before, head)
            return
        assert not plan.blocked, (verb, plan.blocked)
        if plan.is_empty:
            with pytest.raises(Conflict):
                self.workspace.carry_out(plan)
            assert (self.tree(), self.workspace.log.head()) == (before, head)
            assert not self.matters(expected), (verb, "is refused", expected.takes)
            self.did.append(f"-: {verb} is refused")
            return
        done = self.workspace.carry_out(plan)
        call = done.call
        self.did.append(f"{call.seq}: {verb} takes {expected.takes} in {call.session[-4:]}")
        assert verb in ("undo", "redo") or self.matters(expected), (verb, "changes nothing")
        paths = {
            file: tuple(path for path in done.changed if path[0] == file)
            for file in FILES
            if any(path[0] == file for path in done.changed)
        }
        number = call.seq or 0
        kind = verb.partition(" ")[0]
        self.account.calls.append(
            Done(number, call.requested, call.session, kind, paths, expected.takes)
        )

    def matters(self, new: Done) -> bool:
        """Whether an edit or a move is in effect, or no longer, once this is taken back."""
        return any(
            self.account.stands(number, file) != (self.account.by(number, file, (new,)) is None)
            for number in (*self.lines, *self.moves)
            for file in FILES
        )

    # --- looks ----------------------------------------------------------------------------

    def check(self) -> None:
        """What stands is on disk, it is said so of each call, and the next plans go by it."""
        tree = self.tree()
        self.trees.append((self.workspace.log.head(), tree))
        assert tree.keys() == {self.path(file) for file in FILES}
        listed = {call.seq: call for call in self.workspace.timeline.calls(CallFilter(limit=None))}
        for one in self.account.calls:
            for file in one.paths if one.number in self.lines else ():
                there = f"call {self.lines[one.number]}\n" in tree[self.path(file)]
                assert there == self.account.stands(one.number, file), (one.number, file)
            whole = self._check_said(one, listed[one.number].undone_by)
            by = set() if whole else {*self._gone(one).values()}
            assert {*listed[one.number].undone_in_part_by} == by, (one.number, "listed")
        for session in (None, self.sessions[0].id):
            for verb in ("undo", "redo"):
                wanted = self.account.newest(session, redo=verb == "redo")
                plan = self._plan_newest(session, verb)
                assert (plan and plan.calls) == (wanted and (wanted.number,)), (verb, session)

    def _gone(self, one: Done) -> dict[str, int]:
        """The paths of a call at which it is taken back, each with what did."""
        return {
            path: by
            for file, paths in one.paths.items()
            for path in paths
            if (by := self.account.by(one.number, file)) is not None
        }

    def _check_said(self, one: Done, listed: int | None) -> bool:
        """Whether a call is taken back as a whole, which its details and the list say alike."""
        gone, detail = self._gone(one), self.workspace.timeline.call(one.number)
        changed = {path for paths in one.paths.values() for path in paths}
        whole = gone.keys() == changed if changed else not self.account.is_in_effect(one)
        said = dict(detail.taken_back_in_part)
        assert said == ({} if whole else gone), (one.number, gone)
        assert (detail.call.undone_by is not None) == whole == (listed is not None), one.number
        if whole and gone:
            assert listed == detail.call.undone_by, one.number
            assert self.moves or listed == max(gone.values()), (one.number, gone)
        return whole

    STEPS = (edit, edit, undo, redo, revert, revert, revert_session, rollback)

    def play(self, steps: int, *, moves: bool) -> None:
        """So many steps, each checked, and the log verified at the end."""
        with self.sessions[0], self.sessions[1]:
            self.edit()
            for _ in range(steps):
                self.draw.choice((*self.STEPS, Mix.move) if moves else self.STEPS)(self)
                self.check()
        assert self.workspace.verify().findings == ()


@pytest.mark.few(1)
@pytest.mark.parametrize("moves", [False, True])
@pytest.mark.parametrize(
    "seeds",
    [
        range(2),
        *(
            pytest.param(range(n, n + 25), marks=pytest.mark.deep, id=f"from {n}")
            for n in range(0, 500, 25)
        ),
    ],
)
def test_what_stands_is_on_disk_and_said_and_what_the_next_plans_go_by(
    store: AuditStore, tmp_path: Path, seeds: range, moves: bool
) -> None:
    for seed in seeds:
        root = tmp_path / f"mix {seed}"
        root.mkdir()
        Mix(store.attach(root), root, seed).play(12, moves=moves)
