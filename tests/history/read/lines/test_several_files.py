"""Who wrote each line, and the own net change, where files come to each other's paths."""

import subprocess
from pathlib import Path

import pytest

from loom_audit import AuditedWorkspace, AuditStore, Session
from loom_audit.api.lines import everyone, lines_of
from loom_audit.errors import Conflict
from loom_audit.model.conversation import PromptSubmitted
from tests.history.read.lines.test_net_change import files, lines, run
from tests.oracles.trees import differences, tree_of
from tests.oracles.worlds import World


def check_net(
    workspace: AuditedWorkspace, world: World, who: str, session: Session, until: int
) -> None:
    """Compare the lines that a session wrote and removed, and their sums, with what is known."""
    asked = lines_of(workspace)
    net = asked.net(asked.of_session(session.id, until=until))
    told: dict[str, list[str]] = {" ": [], "+": [], "-": []}
    for line in (line for file in net.files for hunk in file.hunks for line in hunk.lines):
        told[line.kind].append(line.content.decode())
    assert (sorted(told["+"]), sorted(told["-"])) == (world.wrote(who), world.removed(who)), who
    assert (net.added, net.removed) == (len(told["+"]), len(told["-"]))


def check_blame(workspace: AuditedWorkspace, world: World, sessions: dict[str, Session]) -> None:
    """Compare who wrote each line of each file with what is known."""
    names = {session.id: who for who, session in sessions.items()}
    for path, known in world.files.items():
        blame = lines_of(workspace).blame(path)
        writers = [
            {"call": names.get(run.by.session), "unknown": "nobody"}.get(run.by.kind, run.by.kind)
            for run in blame.runs
            for _ in range(run.first, run.last + 1)
        ]
        texts = [text.decode() for text in blame.texts]
        assert [*zip(texts, writers, strict=True)] == known, path


def check_patch(workspace: AuditedWorkspace, calls_of: Session, root: Path, place: Path) -> None:
    """Apply the patch of the own change to what was before it, and compare the files."""
    asked = lines_of(workspace)
    calls = asked.of_session(calls_of.id)
    workspace.replay(calls.after, place)
    patch = b"".join(asked.patch(calls))
    if patch:
        subprocess.run(["git", "apply", "-"], cwd=place, input=patch, check=True)
    kept = {name for name in differences(tree_of(place), tree_of(root)) if name != b"d"}
    assert kept == set()


def check_world(store: AuditStore, root: Path, seed: int, steps: int, place: Path) -> None:
    world = World(root, seed)
    workspace = store.attach(root)
    alone = seed % 3 == 0
    with workspace.session("one") as one, workspace.session("two") as two:
        sessions = {"one": one, "two": two}
        for _ in range(steps):
            who = "one" if alone else world.random.choice(["one", "one", "one", "two", "outside"])
            if who == "outside":
                world.change(who)
                continue
            before = world.state()
            with sessions[who].recording("edit"):
                world.change(who)
                if seed % 2:
                    world.change(who)
            listed = workspace.timeline.calls()[0].changed
            if listed and world.random.random() < 0.3:
                workspace.carry_out(workspace.plan_undo(session=sessions[who].id))
                world.set(before)
        with two.recording("last"):
            pass  # what came from outside is on record
        until = workspace.log.head()
        for who, session in sessions.items():
            check_net(workspace, world, who, session, until)
        check_blame(workspace, world, sessions)
    if alone:
        check_patch(workspace, one, root, place)


@pytest.fixture
def bare(root: Path) -> Path:
    (root / "src" / "main.py").unlink()
    (root / "src").rmdir()
    (root / "a.txt").unlink()
    return root


@pytest.mark.few(1)
@pytest.mark.parametrize("seed", [3, 101, 106])
def test_lines_are_told_as_they_are_known_where_files_move_over_each_other(
    store: AuditStore, bare: Path, seed: int, tmp_path: Path
) -> None:
    check_world(store, bare, seed, 25, tmp_path / "place")


@pytest.mark.deep
@pytest.mark.parametrize("seed", range(200, 260))
def test_lines_are_told_as_they_are_known_in_many_such_histories(
    store: AuditStore, bare: Path, seed: int, tmp_path: Path
) -> None:
    check_world(store, bare, seed, 40, tmp_path / "place")


def test_the_lines_over_which_another_file_moved_are_removed(
    workspace: AuditedWorkspace, root: Path
) -> None:
    with workspace.session("one") as one:
        made = run(one, "write_file", path="new", content="new\n")
        number = run(one, "shell_execute", command="mv new src/main.py; mv a.txt new")
        asked = lines_of(workspace)
        calls = asked.of_session(one.id)
        assert (asked.net(calls).added, asked.net(calls).removed) == (1, 1)
        [main] = [one for one in asked.net(calls).files if one.path == "src/main.py"]
        assert lines(main) == [f"-print('hello') #{number}", f"+new #{made}"]
        assert main.before and main.after and main.calls == (made, number)
        whole = asked.net(everyone(calls))
        assert (whole.added, whole.removed) == (1, 1)
        undone = workspace.carry_out(workspace.plan_undo(session=one.id)).call
    [run_of_main] = asked.blame("src/main.py").runs
    assert (run_of_main.by.kind, run_of_main.by.event) == ("unknown", 2)
    assert run_of_main.brought_back and run_of_main.brought_back.call == undone.seq
    own = files(workspace, asked.between(undone.requested - 1, workspace.log.head()))
    assert (own["src/main.py"].added, own["src/main.py"].brought_back) == (0, 1)


def test_a_new_file_where_another_was_moved_away_has_its_lines_alone(
    workspace: AuditedWorkspace, session: Session
) -> None:
    first = run(session, "write_file", path="a.txt", content="one\ntwo\n")
    last = run(session, "shell_execute", command="mv a.txt b.txt; echo two > a.txt")
    own = files(workspace, lines_of(workspace).of_session(session.id))
    assert [lines(own[path]) for path in ("a.txt", "b.txt")] == [
        [f"+two #{last}"],
        [f"-three #{first}"],
    ]
    [found] = lines_of(workspace).blame("a.txt").runs
    assert found.by.call == last


def test_a_patch_is_refused_where_somebody_made_a_file_anew_that_was_moved_away(
    workspace: AuditedWorkspace, root: Path
) -> None:
    with workspace.session("one") as one:
        run(one, "shell_execute", command="mv a.txt b.txt")
        (root / "a.txt").write_text("somebody's\n")
        run(one, "shell_execute", command="echo more > more")
    asked = lines_of(workspace)
    with pytest.raises(Conflict, match=r"a\.txt was changed by outside"):
        asked.difference(asked.of_session(one.id))


def test_what_is_done_across_a_prompt_belongs_to_the_turn_in_which_it_is_done(
    workspace: AuditedWorkspace, session: Session, root: Path
) -> None:
    session.writer.record(PromptSubmitted("do one"))
    with session.recording("slow"), workspace.session("part", parent=session.id) as part:
        run(part, "write_file", path="first", content="first\n")
        session.writer.record(PromptSubmitted("do two"))
        (root / "slow").write_text("slow\n")
        run(part, "write_file", path="second", content="second\n")
    asked = lines_of(workspace)
    found = [
        set(files(workspace, asked.of_turn(session.id, turn.seq)))
        for turn in asked.turns(session.id)
    ]
    assert found == [set(), {"first"}, {"slow", "second"}]
    session.writer.record(PromptSubmitted("do three"))
    whole = set(files(workspace, asked.of_session(session.id)))
    assert whole == {"first", "second", "slow"}


@pytest.mark.parametrize(
    ("own", "others", "mode"),
    [
        ("chmod 755 a.txt", 0o600, None),
        ("rm a.txt; echo > a.txt; chmod 755 a.txt", None, (0o644, 0o755)),
    ],
)
def test_a_mode_is_the_calls_where_they_made_it_what_it_is(
    own: str,
    others: int | None,
    mode: tuple[int, int] | None,
    workspace: AuditedWorkspace,
    root: Path,
) -> None:
    with workspace.session("one") as one:
        for command in own.split("; "):
            run(one, "shell_execute", command=command)
        if others:
            (root / "a.txt").chmod(others)
        run(one, "shell_execute", command="echo > new")
    found = files(workspace, lines_of(workspace).of_session(one.id))
    assert (found["a.txt"].mode if "a.txt" in found else None) == mode


def test_what_was_binary_and_is_as_it_was_is_not_a_change(
    workspace: AuditedWorkspace, session: Session
) -> None:
    run(session, "shell_execute", command="cp a.txt b.txt; head -c 9 /dev/zero > a.txt")
    run(session, "shell_execute", command="cat b.txt > a.txt")
    assert set(files(workspace, lines_of(workspace).of_session(session.id))) == {"b.txt"}


def test_an_empty_file_that_became_a_folder_is_a_change(
    workspace: AuditedWorkspace, root: Path
) -> None:
    (root / "empty").touch()
    with workspace.session("one") as one:
        run(one, "shell_execute", command="true")
        point = workspace.log.head()
        run(one, "shell_execute", command="rm empty; mkdir empty")
    found = files(workspace, lines_of(workspace).between(point, workspace.log.head()))
    assert found["empty"].after and found["empty"].after.kind == "directory"
