"""An interrupted undo is finished but for what a person changed since, and what goes with that."""

import asyncio
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from subprocess import run as run_command
from typing import Literal

import pytest

from loom_audit import AuditedWorkspace, Session, open_store
from loom_audit.errors import NotFound
from loom_audit.history.ground.writer import Writer
from loom_audit.history.record.call import OpenCall
from loom_audit.history.record.drift import record_drift
from loom_audit.history.record.recovery import RecoveredCall
from loom_audit.model.events import FilesChanged, SessionStarted
from loom_audit.model.files import FileChange, FileState
from tests.oracles.trees import Entry, tree_of
from tests.processes.ordinary_user import ordinary_session
from tests.processes.stopped import die_after, killed_after, roll_back

Tree = dict[bytes, Entry]


def run(workspace: AuditedWorkspace, *commands: str) -> list[int]:
    """Each command as a call of its own; their numbers."""
    found = []
    for command in commands:
        with workspace.session("agent") as session:
            session.run(["sh", "-e", "-c", command])
        found.append(workspace.timeline.calls()[0].seq or 0)
    return found


def record(session: Session, command: str) -> None:
    """Record what a command changes that is run as whoever we are."""
    with session.recording("command"):
        run_command(["sh", "-p", "-e", "-c", command], cwd=session.workspace.root, check=True)


def stop_undo(root: Path, written: int = 1) -> None:
    killed_after(written, root, lambda one: one.carry_out(one.plan_undo()))


def finish(workspace: AuditedWorkspace) -> RecoveredCall:
    """Finish what was interrupted; nothing is left unrecorded then, and all is verified."""
    told = workspace.status().kept
    [waiting] = workspace.recover()
    assert waiting.kept == told
    [done] = workspace.recover("continue")
    assert {*told} <= {*done.kept}
    assert workspace.recover() == [] and workspace.leftovers() == []
    with workspace.attachment.exclusive():
        record_drift(workspace.attachment)
    assert workspace.status().drift == () and workspace.verify().ok
    return done


def kept(done: RecoveredCall) -> dict[str, str]:
    return {note.path: note.reason for note in done.kept}


SINCE = "since the undo stopped"


def test_a_person_who_deleted_one_of_the_paths_keeps_it_deleted(
    workspace: AuditedWorkspace, root: Path
) -> None:
    [number] = run(workspace, "echo 2 > a.txt; echo 2 > src/main.py")
    stop_undo(root)
    (root / "a.txt").unlink()
    done = finish(workspace)
    assert kept(done) == {"a.txt": f"it was deleted {SINCE}"}
    assert not (root / "a.txt").exists() and "hello" in (root / "src/main.py").read_text()
    assert done.call.reverts == (number,)
    workspace.carry_out(workspace.plan_redo())
    assert (root / "src/main.py").read_text() == "2\n" and not (root / "a.txt").exists()


def test_a_revert_of_some_paths_that_was_interrupted_took_them_back_in_part(
    workspace: AuditedWorkspace, root: Path
) -> None:
    [number] = run(workspace, "echo 2 > a.txt; echo 2 > src/main.py; echo 2 > c")
    paths = ["a.txt", "src/main.py"]
    killed_after(1, root, lambda one: one.carry_out(one.plan_revert([number], paths=paths)))
    done = finish(workspace).call
    assert workspace.timeline.call(number).taken_back_in_part == dict.fromkeys(paths, done.seq)
    workspace.carry_out(workspace.plan_revert([number]))
    assert not (root / "c").exists()
    assert workspace.timeline.call(number).call.undone_by is not None


def test_a_person_who_made_a_folder_there_keeps_it_with_all_that_is_in_it(
    workspace: AuditedWorkspace, root: Path
) -> None:
    run(workspace, "echo 2 > a.txt; rm -r src")
    stop_undo(root)
    (root / "a.txt").unlink()
    (root / "a.txt").mkdir()
    (root / "a.txt" / "mine").write_text("mine\n")
    assert [*kept(finish(workspace))] == ["a.txt"]
    assert (root / "a.txt" / "mine").read_text() == "mine\n" and (root / "src/main.py").exists()


def test_a_file_in_place_of_a_folder_that_comes_back_keeps_out_what_was_in_it(
    workspace: AuditedWorkspace, root: Path
) -> None:
    run(workspace, "echo 2 > a.txt; rm -r src")
    killed_after(1, root, lambda one: one.carry_out(one.plan_undo()))
    shutil.rmtree(root / "src", ignore_errors=True)
    (root / "src").write_text("mine\n")
    done = finish(workspace)
    assert kept(done) == {
        "src": f"it was made {SINCE}",
        "src/main.py": "src is not a folder any more",
    }
    assert (root / "src").read_text() == "mine\n"
    assert (root / "a.txt").read_bytes() == b"one\ntwo\nthree\n"


@pytest.mark.parametrize("known", [True, False], ids=["one of its files", "a file of their own"])
def test_a_folder_stays_that_holds_what_a_person_wrote(
    workspace: AuditedWorkspace, root: Path, known: bool
) -> None:
    run(workspace, "echo 2 > a.txt; mkdir -p d/e; for n in 1 2 3; do echo $n > d/e/$n; done")
    stop_undo(root)
    theirs = "d/e/3" if known else "d/e/mine"
    (root / "d" / "e").mkdir(parents=True, exist_ok=True)
    (root / theirs).write_text("mine\n")
    done = finish(workspace)
    holds = {"d/e": f"it holds {theirs}, which stays", "d": "it holds d/e, which stays"}
    assert kept(done) == (holds | {theirs: f"it was changed {SINCE}"} if known else holds)
    assert {path.name for path in root.rglob("*")} >= {Path(theirs).name, "e", "d"}
    assert (root / theirs).read_text() == "mine\n" and len([*(root / "d/e").iterdir()]) == 1


@pytest.mark.parametrize("as_before", [True, False], ids=["as before", "as it will be"])
def test_what_a_person_wrote_that_is_as_before_or_as_it_will_be_is_the_undos(
    workspace: AuditedWorkspace, root: Path, as_before: bool
) -> None:
    old = tree_of(root)
    run(workspace, "echo 2 > a.txt; echo 2 > src/main.py")
    stop_undo(root)
    for path in ("a.txt", "src/main.py"):
        (root / path).write_bytes(b"2\n" if as_before else old[path.encode()][2])
    done = finish(workspace)
    assert done.kept == () and tree_of(root) == old and done.call.status == "ok"


@pytest.mark.parametrize("end", ["source", "target"])
def test_both_ends_of_a_move_stay_where_a_person_wrote_one(
    workspace: AuditedWorkspace, root: Path, end: str
) -> None:
    with workspace.session("agent") as session:
        call = OpenCall(session.writer, "two", {}, "write", call_id="c1")
        with call:
            call.edit("src/main.py", b"2\n")
            call.move("a.txt", "moved.txt")
    killed_after(1, root, lambda one: one.carry_out(one.plan_undo()))
    there = {path: (root / path).exists() for path in ("a.txt", "moved.txt")}
    theirs = "moved.txt" if end == "source" else "a.txt"
    (root / theirs).write_text("mine\n")
    done = finish(workspace)
    assert (root / theirs).read_text() == "mine\n" and theirs in kept(done)
    assert "hello" in (root / "src/main.py").read_text()
    if not any(there.values()):  # it was between both ends
        assert end == "source" or kept(done)["moved.txt"] == (
            "it was to become a.txt, which was changed since; what it held is on record"
        )
        workspace.carry_out(workspace.plan_redo())
        assert end == "source" or (root / "moved.txt").read_bytes() == b"one\ntwo\nthree\n"
    elif there["moved.txt"] and end == "target":
        assert kept(done)["moved.txt"] == "it is moved with a.txt, which stays"
        assert (root / "moved.txt").read_bytes() == b"one\ntwo\nthree\n"
    assert (root / theirs).read_text() == "mine\n"


def test_the_names_of_a_file_stay_together(workspace: AuditedWorkspace, root: Path) -> None:
    (root / "one").write_text("old\n")
    os.link(root / "one", root / "two")
    run(workspace, "true")
    run(workspace, "echo new > one; for n in 1 2 3; do echo new > z$n; done")
    plan = workspace.plan_undo()
    assert {"one", "two"} <= {change.path for change in plan.changes}
    stop_undo(root)
    (root / "two").unlink()
    (root / "two").write_text("mine\n")
    first = (root / "one").read_text()
    done = finish(workspace)
    assert (root / "two").read_text() == "mine\n" and (root / "one").read_text() == first
    assert kept(done)["two"] == f"it was changed {SINCE}"
    if first == "new\n":
        assert kept(done)["one"] == "a hard link of two, which stays"
    assert not (root / "z1").exists()


def test_a_fifo_in_place_of_a_file_keeps_no_one_from_finishing_or_leaving(
    workspace: AuditedWorkspace, root: Path
) -> None:
    for end in ("continue", "abandon"):
        run(workspace, "echo 2 > a.txt; echo 2 > src/main.py; echo x > other")
        stop_undo(root, 2)
        (root / "a.txt").unlink()
        os.mkfifo(root / "a.txt")
        if end == "continue":
            assert kept(finish(workspace)) == {"a.txt": "not a file but a fifo: a.txt"}
            assert not (root / "other").exists()
        else:
            [left] = workspace.recover("abandon")
            assert left.call.coverage.reasons == ("outcome unknown: a.txt",)
        assert (root / "a.txt").is_fifo()
        (root / "a.txt").unlink()
        (root / "a.txt").write_text("new\n")
        run(workspace, "true")


def test_a_fifo_in_a_folder_that_comes_back_is_not_moved_aside(
    workspace: AuditedWorkspace, root: Path
) -> None:
    run(workspace, "echo 2 > a.txt; rm -r src")
    stop_undo(root)
    (root / "src").mkdir(exist_ok=True)
    (root / "src" / "main.py").unlink(missing_ok=True)
    os.mkfifo(root / "src" / "main.py")
    assert kept(finish(workspace)) == {"src/main.py": "not a file but a fifo: src/main.py"}
    assert [path.name for path in (root / "src").iterdir()] == ["main.py"]


@pytest.mark.parametrize("end", ["continue", "abandon"])
def test_what_cannot_be_read_stays_and_keeps_no_one_from_ending_it(
    monkeypatch: pytest.MonkeyPatch, end: Literal["continue", "abandon"]
) -> None:
    files = {"a": "a\n", "b": "b\n", "c": "c\n"}
    with ordinary_session(files, monkeypatch) as session:
        workspace, root = session.workspace, Path(session.workspace.root)
        record(session, "for n in a b c; do echo new > $n; done")
        stop_undo(root)
        (root / "b").unlink()
        (root / "b").write_text("mine\n")
        (root / "b").chmod(0)
        unreadable = "it cannot be read, so what is there is not known"
        assert [(one.path, one.reason) for one in workspace.status().kept] == [("b", unreadable)]
        [done] = workspace.recover(end)
        assert ("b", "unknown") in done.outcomes
        (root / "b").chmod(0o644)
        assert (root / "b").read_text() == "mine\n"
        if end == "continue":
            assert kept(done) == {"b": unreadable}
            assert (root / "a").read_text() == "a\n" and (root / "c").read_text() == "c\n"
        else:
            assert done.call.coverage.reasons == ("outcome unknown: b",)
        record(session, "true")
        assert workspace.status().drift == () and workspace.verify().ok


def test_a_folder_that_was_opened_is_closed_around_what_a_person_wrote_in_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    files = {"d/a": "a\n", "d/b": "b\n"}
    with ordinary_session(files, monkeypatch) as session:
        workspace, root = session.workspace, Path(session.workspace.root)
        (root / "d").chmod(0o555)
        record(session, "true")
        change = "chmod 755 d; echo new > d/a; echo new > d/b; echo new > d/c; chmod 555 d"
        record(session, change)
        stop_undo(root)
        assert (root / "d").stat().st_mode & 0o777 == 0o755, "it was opened"
        assert workspace.status().kept == ()
        (root / "d" / "b").write_text("mine\n")
        [done] = workspace.recover("continue")
        assert kept(done) == {"d/b": f"it was changed {SINCE}"}
        assert (root / "d").stat().st_mode & 0o777 == 0o555
        assert {one.name: one.read_text() for one in (root / "d").iterdir()} == {
            "a": "a\n",
            "b": "mine\n",
        }
        assert workspace.status().drift == () and workspace.verify().ok


def test_a_call_of_which_all_stays_is_not_taken_back(
    workspace: AuditedWorkspace, root: Path
) -> None:
    point = workspace.log.head()
    one, two = run(workspace, "echo 2 > a.txt", "for n in 1 2 3; do echo $n > z$n; done")
    killed_after(1, root, roll_back(point))
    (root / "a.txt").write_text("mine\n")
    done = finish(workspace)
    assert [*kept(done)] == ["a.txt"] and done.call.reverts == (two,)
    standing = {call.seq for call in workspace.timeline.calls() if call.undone_by is None}
    assert one in standing and two not in standing


def test_a_call_of_which_all_stays_under_another_name_is_not_taken_back(
    workspace: AuditedWorkspace, root: Path
) -> None:
    (one,) = run(workspace, "echo 2 > a.txt")
    (two,) = run(workspace, "for n in 1 2 3; do echo $n > z$n; done")
    run(workspace, "mv a.txt c.txt")
    killed_after(1, root, lambda it: it.carry_out(it.plan_revert([one, two])))
    (root / "c.txt").write_text("mine\n")
    done = finish(workspace)
    assert [*kept(done)] == ["c.txt"] and done.call.reverts == (two,)


def test_where_all_stays_nothing_is_taken_back_and_the_call_says_so(
    workspace: AuditedWorkspace, root: Path
) -> None:
    [number] = run(workspace, "echo 2 > a.txt; echo 2 > src/main.py")
    stop_undo(root)
    for path in ("a.txt", "src/main.py"):
        (root / path).write_text("mine\n")
    done = finish(workspace)
    assert (done.call.status, done.call.reverts) == ("error", ())
    assert "nothing was taken back" in done.call.error and len(done.kept) == 2
    assert {call.seq for call in workspace.timeline.calls() if not call.undone_by} >= {number}
    with pytest.raises(NotFound):
        workspace.plan_redo()


def test_an_event_from_outside_that_is_taken_back_counts_as_far_as_it_is(
    workspace: AuditedWorkspace, root: Path
) -> None:
    (root / "a.txt").write_text("2\n")
    (root / "src" / "main.py").write_text("2\n")
    run(workspace, "true")
    changes = [e for e in workspace.log.read() if isinstance(e.fact, FilesChanged)]
    outside = changes[-1].seq
    killed_after(1, root, lambda it: it.carry_out(it.plan_revert([outside])))
    (root / "a.txt").write_text("mine\n")
    done = finish(workspace)
    assert done.call.reverts == (outside,) and [*kept(done)] == ["a.txt"]


def test_what_one_of_two_interrupted_undos_made_is_not_somebody_elses(
    workspace: AuditedWorkspace, root: Path
) -> None:
    """No undo begins while another waits, so they are written as they would be on record."""
    run(workspace, "echo 2 > a.txt; echo 2 > src/main.py", "echo 3 > a.txt; echo 3 > src/main.py")
    states: dict[str, list[FileState | None]] = {}
    for event in workspace.log.read():
        for change in event.fact.changes if isinstance(event.fact, FilesChanged) else ():
            states.setdefault(change.path, []).append(change.after)
    first, second, third = zip(states["a.txt"], states["src/main.py"], strict=True)
    for n, (before, after) in enumerate(((third, second), (third, first))):
        writer = Writer(workspace.attachment, session=f"s{n}", actor="person:ada")
        writer.record(SessionStarted("ada"))
        pid = os.fork()
        if not pid:
            changes = [
                FileChange(path, old, new)
                for path, old, new in zip(("a.txt", "src/main.py"), before, after, strict=True)
            ]
            _apply_and_die(root, f"s{n}", changes)
        os.waitpid(pid, 0)
        if not n:  # as it was, so that the second one begins from there
            (root / "a.txt").write_text("3\n")
            (root / "src" / "main.py").write_text("3\n")
    head = workspace.log.head()
    assert len(workspace.status().interrupted) == 2
    done = workspace.recover("continue")
    assert [one.call.session for one in done] == ["s0", "s1"]
    assert (root / "a.txt").read_bytes() == b"one\ntwo\nthree\n"
    assert [*kept(done[0])] == ["a.txt", "src/main.py"] and done[1].kept == ()
    later = [e.fact for e in workspace.log.read() if e.seq > head]
    origins = {fact.origin for fact in later if isinstance(fact, FilesChanged)}
    assert origins == {"undo"} and workspace.verify().ok


def _apply_and_die(root: Path, session: str, changes: list[FileChange]) -> None:
    """Die after the first of two paths is written, in an undo of an earlier release's kind."""

    try:
        die_after(1)
        with open_store() as store:
            writer = Writer(store.workspace(root).attachment, session=session, actor="person:ada")
            with OpenCall(writer, "undo", {"target": "1"}, "write", call_id="c") as call:
                call.apply(changes, final=True)
    finally:
        os._exit(1)


def test_a_tool_that_writes_where_an_undo_was_stopped_takes_nothing_of_it_for_an_outsiders(
    workspace: AuditedWorkspace, root: Path
) -> None:
    run(workspace, "echo 2 > a.txt; echo 2 > src/main.py")
    with workspace.session("other") as session:
        head = workspace.log.head()
        stop_undo(root)
        back = next(one for one in ("a.txt", "src/main.py") if (root / one).read_text() != "2\n")
        asyncio.run(session.call("write_file", {"path": back, "content": "tool\n"}))
    found = [e.fact for e in workspace.log.read() if e.seq > head]
    origins = [fact.origin for fact in found if isinstance(fact, FilesChanged)]
    assert origins == ["undo", "tool"]
    done = finish(workspace)
    assert kept(done) == {back: f"it was changed {SINCE}"}
    assert (root / back).read_text() == "tool\n"


def test_what_one_of_two_interrupted_tools_made_is_not_somebody_elses(
    workspace: AuditedWorkspace, root: Path
) -> None:
    def write(content: str) -> Callable[[AuditedWorkspace], object]:
        def act(one: AuditedWorkspace) -> None:
            with one.session("agent") as session:
                arguments = {"path": "a.txt", "content": content}
                asyncio.run(session.call("write_file", arguments))

        return act

    with workspace.session("other") as session:
        head = workspace.log.head()
        killed_after(1, root, write("first\n"))
        (root / "a.txt").write_bytes(b"one\ntwo\nthree\n")
        pid = os.fork()
        if not pid:
            try:
                die_after(1)
                with open_store() as store:
                    attachment = store.workspace(root).attachment
                    writer = Writer(attachment, session="dead", actor="agent:x")
                    writer.record(SessionStarted("x"))
                    with OpenCall(writer, "w", {}, "write", call_id="c2") as call:
                        call.edit("a.txt", b"second\n")
            finally:
                os._exit(1)
        os.waitpid(pid, 0)
        assert (root / "a.txt").read_text() == "second\n"
        workspace.recover()
        assert session.run(["true"]).files_changed == ()
    found = [e.fact for e in workspace.log.read() if e.seq > head]
    changed = [(f.origin, f.call_id) for f in found if isinstance(f, FilesChanged)]
    assert changed == [("tool", "c2")], "nobody else wrote it"
    assert workspace.verify().ok
