"""What sessions, turns and calls changed on balance, in real stores."""

import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import anyio
import pytest

from loom_audit import AuditedWorkspace, Session, ToolResult
from loom_audit.api.lines import CallSet, NetFile, everyone, lines_of
from loom_audit.errors import Conflict, NotFound
from loom_audit.model.conversation import PromptSubmitted
from tests.oracles.trees import differences, tree_of

Call = Callable[..., ToolResult]


def run(session: Session, tool: str, **arguments: Any) -> int:
    """Call a tool; the call's number."""
    result = anyio.run(lambda: session.call(tool, arguments))
    assert result.success, result.error
    return session.workspace.timeline.calls()[0].seq or 0


def files(workspace: AuditedWorkspace, calls: CallSet) -> Mapping[str, NetFile]:
    return {one.path: one for one in lines_of(workspace).net(calls).files}


def lines(one: NetFile) -> list[str]:
    """The changed lines, each with its call: `+two #12`."""
    return [
        f"{line.kind}{line.content.decode().rstrip()} {one.writers[line.by].text}"
        for hunk in one.hunks
        for line in hunk.lines
        if line.kind != " "
    ]


def test_only_a_session_s_own_lines_are_its_change(workspace: AuditedWorkspace, root: Path) -> None:
    with workspace.session("one") as one, workspace.session("two") as two:
        first = run(one, "write_file", path="a.txt", content="one\n2\nthree\n")
        run(two, "write_file", path="a.txt", content="one\n2\nthree\nfour\n")
        (root / "a.txt").write_text("one\n2\nthree\nfour\nmine\n")
        last = run(one, "write_file", path="a.txt", content="2\nthree\nmine\n")
    asked = lines_of(workspace)
    own = files(workspace, asked.of_session(one.id))["a.txt"]
    assert lines(own) == [
        f"-one #{last}",
        f"-two #{first}",
        f"+2 #{first}",
        f"-four #{last}",
    ]
    assert (own.added, own.removed, own.calls) == (1, 3, (first, last))
    assert [writer.kind for writer in own.others] == ["call", "outside"]
    whole = files(workspace, everyone(asked.of_session(one.id)))["a.txt"]
    assert (whole.added, whole.removed) == (2, 2)
    other = files(workspace, asked.of_session(two.id))["a.txt"]
    assert (other.added, other.removed, other.removed_again) == (0, 0, 1)
    net = asked.net(asked.of_session(one.id))
    assert (net.added, net.removed) == (1, 3)
    assert [(one.path, one.files, one.added) for one in net.folders] == [("", 1, 1)]


def test_what_a_session_took_back_itself_is_not_a_change_of_it(
    workspace: AuditedWorkspace, session: Session
) -> None:
    run(session, "write_file", path="new", content="one\n")
    run(session, "write_file", path="a.txt", content="other\n")
    for _ in range(2):
        workspace.carry_out(workspace.plan_undo(session=session.id))
    net = lines_of(workspace).net(lines_of(workspace).of_session(session.id))
    assert (net.files, net.cancelled) == ((), ("a.txt", "new"))


def test_what_a_revert_of_an_earlier_session_brings_back_is_in_nobody_s_sum(
    workspace: AuditedWorkspace,
) -> None:
    with workspace.session("one") as one:
        number = run(one, "write_file", path="a.txt", content="one\nthree\n")
    reverted = workspace.carry_out(workspace.plan_revert([number])).call
    own = files(workspace, lines_of(workspace).of_session(reverted.session))["a.txt"]
    assert (own.added, own.removed, own.brought_back) == (0, 0, 1)
    [line] = [line for hunk in own.hunks for line in hunk.lines if line.kind == "+"]
    assert line.brought_back and line.content == b"two\n"
    assert own.writers[line.by].call == reverted.seq


def test_one_call_and_what_later_calls_made_of_it(
    workspace: AuditedWorkspace, session: Session
) -> None:
    first = run(session, "write_file", path="new", content="one\ntwo\n")
    second = run(session, "write_file", path="new", content="two\nthree\n")
    asked = lines_of(workspace)
    assert lines(files(workspace, asked.of_call(first))["new"]) == [
        f"+one #{first}",
        f"+two #{first}",
    ]
    assert lines(files(workspace, asked.of_call(second))["new"]) == [
        f"-one #{second}",
        f"+three #{second}",
    ]
    since = files(workspace, asked.between(0, workspace.log.head()))["new"]
    assert lines(since) == [f"+two #{first}", f"+three #{second}"]
    with pytest.raises(NotFound):
        asked.of_call(10_000)


def test_a_turn_goes_from_one_prompt_to_the_next(
    workspace: AuditedWorkspace, session: Session
) -> None:
    run(session, "write_file", path="new", content="before\n")
    session.writer.record(PromptSubmitted("do one"))
    first = run(session, "write_file", path="new", content="before\none\n")
    session.writer.record(PromptSubmitted("do two"))
    second = run(session, "write_file", path="new", content="two\n")
    asked = lines_of(workspace)
    turns = asked.turns(session.id)
    assert [turn.prompt for turn in turns] == ["", "do one", "do two"]
    found = [files(workspace, asked.of_turn(session.id, turn.seq))["new"] for turn in turns]
    assert lines(found[1]) == [f"+one #{first}"]
    assert lines(found[2]) == [f"-before #{second}", f"-one #{second}", f"+two #{second}"]
    with pytest.raises(NotFound):
        asked.of_turn(session.id, 1)


def test_a_subagent_s_lines_are_those_of_the_session_that_contains_it(
    workspace: AuditedWorkspace, session: Session
) -> None:
    with workspace.session("sub", parent=session.id) as sub:
        number = run(sub, "write_file", path="new", content="sub\n")
    asked = lines_of(workspace)
    own = files(workspace, asked.of_session(session.id))["new"]
    assert own.calls == (number,)
    assert files(workspace, asked.of_session(session.id, within=False)) == {}


def test_what_may_be_another_session_s_is_in_nobody_s_sum(
    workspace: AuditedWorkspace, root: Path
) -> None:
    sessions = workspace.session("one"), workspace.session("two")
    with sessions[0] as one, sessions[1] as two, one.recording("a"), two.recording("b"):
        (root / "a.txt").write_text("one\nboth\n")
    for session in (one, two):
        own = files(workspace, lines_of(workspace).of_session(session.id))["a.txt"]
        assert (own.added, own.removed, own.shared) == (0, 0, 3)


def test_what_one_of_a_session_s_own_calls_did_is_the_session_s_whichever_it_was(
    workspace: AuditedWorkspace, session: Session, root: Path
) -> None:
    with session.recording("one"), session.recording("two"):
        (root / "a.txt").write_text("one\nboth\n")
    calls = sorted(one.seq or 0 for one in workspace.timeline.calls())
    asked = lines_of(workspace)
    own = files(workspace, asked.of_session(session.id))["a.txt"]
    by = f"one of #{calls[0]}, #{calls[1]}"
    assert lines(own) == [f"-two {by}", f"-three {by}", f"+both {by}"]
    assert (own.added, own.removed, own.shared, own.calls) == (1, 2, 0, tuple(calls))
    of_one = files(workspace, asked.of_call(calls[0]))["a.txt"]
    assert (of_one.added, of_one.removed, of_one.shared) == (0, 0, 3)


def test_a_line_that_may_be_a_session_s_is_not_counted_as_removed_of_others(
    workspace: AuditedWorkspace, root: Path
) -> None:
    sessions = workspace.session("one"), workspace.session("two")
    with sessions[0] as one, sessions[1] as two:
        with one.recording("a"), two.recording("b"):
            (root / "new").write_text("both\n")
        run(one, "shell_execute", command="echo > new")
        run(one, "write_file", path="other", content="mine\n")
        with one.recording("c"), two.recording("d"):
            (root / "other").write_text("")
    own = files(workspace, lines_of(workspace).of_session(one.id))
    assert [own[name].shared for name in ("new", "other")] == [1, 1]
    assert [(own[name].removed, own[name].removed_again) for name in own] == [(0, 0), (0, 0)]


def test_what_others_made_or_deleted_is_neither_created_nor_deleted_by_a_session(
    workspace: AuditedWorkspace, root: Path
) -> None:
    with workspace.session("one") as one, workspace.session("two") as two:
        run(one, "shell_execute", command="true")
        for name in ("appended", "deleted", "ran", "moved"):
            (root / name).write_text("mine\n")
        commands = ("echo more >> appended", "rm deleted", "chmod 755 ran", "mv moved elsewhere")
        for command in (*commands, "echo three >> a.txt", "touch short"):
            run(one, "shell_execute", command=command)
        run(two, "shell_execute", command="rm a.txt short")
    own = files(workspace, lines_of(workspace).of_session(one.id))
    told = {
        path: (one.own_before is not None, one.own_after is not None, one.old_path, one.mode)
        for path, one in own.items()
    }
    assert told == {
        "a.txt": (True, True, "a.txt", None),
        "appended": (True, True, "appended", None),
        "deleted": (True, False, "deleted", None),
        "elsewhere": (True, True, "moved", None),
        "ran": (True, True, "ran", (0o644, 0o755)),
        "short": (False, True, "short", None),
    }
    other = files(workspace, lines_of(workspace).of_session(two.id))
    assert [one.own_after for one in other.values()] == [None] * len(other)
    assert own["a.txt"].after is None


def test_a_moved_file_is_one_file_with_its_own_lines(
    workspace: AuditedWorkspace, session: Session
) -> None:
    run(session, "shell_execute", command="mkdir d && mv a.txt d/b.txt")
    added = run(session, "shell_execute", command="echo four >> d/b.txt; chmod 600 d/b.txt")
    found = files(workspace, lines_of(workspace).of_session(session.id))
    assert {path for path in found if found[path].hunks} == {"d/b.txt"}
    own = found["d/b.txt"]
    assert (own.old_path, lines(own), own.mode) == ("a.txt", [f"+four #{added}"], (0o644, 0o600))
    assert "a.txt" not in found
    new = run(session, "write_file", path="new", content="new\n")
    run(session, "shell_execute", command="mv new newer")
    own = files(workspace, lines_of(workspace).of_session(session.id))["newer"]
    assert (own.old_path, own.before, lines(own)) == ("newer", None, [f"+new #{new}"])


def test_a_file_that_was_not_recorded_for_a_while_is_told_as_far_as_it_is_known(
    workspace: AuditedWorkspace, session: Session, root: Path
) -> None:
    run(session, "write_file", path="a.txt", content="one\n")
    for rules in ("a.txt\n", ""):
        (root / ".loomignore").write_text(rules)
        workspace.accept_scope()
        run(session, "shell_execute", command="echo more >> a.txt")
    own = files(workspace, lines_of(workspace).of_session(session.id))["a.txt"]
    assert (own.reason, own.hunks) == ("it was not recorded for a while", ())
    [first, last] = lines_of(workspace).blame("a.txt").runs
    assert (first.by.kind, first.last, last.by.call) == (
        "unknown",
        2,
        workspace.timeline.calls()[0].seq,
    )


def test_a_file_that_was_left_out_before_a_session_wrote_it_had_been_there(
    workspace: AuditedWorkspace, session: Session, root: Path
) -> None:
    run(session, "shell_execute", command="true")
    for rules in ("a.txt\n", ""):
        (root / ".loomignore").write_text(rules)
        workspace.accept_scope()
        run(session, "shell_execute", command="echo more >> a.txt")
    run(session, "write_file", path="a.txt", content="one\n")
    calls = lines_of(workspace).of_session(session.id)
    for asked in (calls, everyone(calls)):
        own = files(workspace, asked)["a.txt"]
        assert own.before is not None and own.reason == "it was not recorded for a while"
    with pytest.raises(Conflict, match=r"a\.txt"):
        lines_of(workspace).difference(calls)


def test_what_others_changed_again_of_a_file_is_told_and_what_was_changed_back_is_not(
    workspace: AuditedWorkspace, root: Path
) -> None:
    for name in ("mode", "back", "gone", "old", "both"):
        (root / name).write_text("")
    with workspace.session("one") as one, workspace.session("two") as two:
        run(one, "shell_execute", command="chmod 700 mode back both; rm gone; mv old new")
        run(one, "shell_execute", command="chmod 644 back")
        run(two, "shell_execute", command="chmod 600 mode back; touch gone; mv new newer")
        run(two, "shell_execute", command="chmod 600 both")
        run(one, "shell_execute", command="chmod 711 both")
    asked = lines_of(workspace)
    net = asked.net(asked.of_session(one.id))
    found = {file.path: (file.again, file.mode) for file in net.files}
    assert found == {
        "mode": (("mode",), None),
        "gone": (("kind",), None),
        "newer": (("path",), None),
        "both": ((), (0o644, 0o711)),
    }
    assert net.cancelled == ("back",)


def test_an_equal_part_that_comes_later_above_another_leaves_it_its_name(
    workspace: AuditedWorkspace, session: Session, root: Path
) -> None:
    (root / "equal").write_text("".join(f"{n}\n" for n in range(40)))
    edit = {"path": "equal", "old_str": "30\n", "new_str": "30\nsame\n"}
    run(session, "edit_file", **edit)
    [first] = files(workspace, lines_of(workspace).of_session(session.id))["equal"].named
    run(session, "edit_file", **(edit | {"old_str": "10\n", "new_str": "10\nsame\n"}))
    above, below = files(workspace, lines_of(workspace).of_session(session.id))["equal"].named
    assert below == first and above != first


def test_a_file_that_took_the_place_of_another_names_the_parts_of_both(
    workspace: AuditedWorkspace, session: Session
) -> None:
    run(session, "shell_execute", command="mv src/main.py a.txt && echo more >> a.txt")
    own = files(workspace, lines_of(workspace).of_session(session.id))["a.txt"]
    parts = {part.part for hunk in own.hunks for part in hunk.runs}
    assert own.removed and own.added and len(parts) > 1 and parts <= {*own.named}


def test_a_binary_content_has_no_lines_and_says_so(
    workspace: AuditedWorkspace, session: Session
) -> None:
    run(session, "shell_execute", command="head -c 9 /dev/zero > a.txt")
    own = files(workspace, lines_of(workspace).of_session(session.id))["a.txt"]
    assert (own.reason, own.added, own.hunks) == ("binary", 0, ())


def test_hunks_are_left_out_past_the_budget_and_sums_are_not(
    workspace: AuditedWorkspace, session: Session
) -> None:
    for name in "abc":
        run(session, "write_file", path=name, content="line\n" * 10)
    asked = lines_of(workspace)
    calls = asked.of_session(session.id)
    net = asked.net(calls, max_lines=25)
    assert [(one.omitted, one.added) for one in net.files] == [(False, 10), (False, 10), (True, 10)]
    net = asked.net(calls, paths=["c"], max_lines=25)
    assert [one.omitted for one in net.files] == [True, True, False]
    assert asked.net(calls, max_file_lines=9).files[0].hunks == ()


SCRIPT = r"""
printf 'zero\none\n2\nthree' > a.txt
mkdir deep && printf 'x\n' > 'deep/sp ace.txt' && printf 'y\n' > "$(printf 'n\303\251w\tname')"
head -c 300 /dev/urandom > new.bin; head -c 100 /dev/urandom > data.bin; rm gone.bin
chmod 755 src/main.py; touch empty; ln -sf elsewhere link; rm was_link; echo file > was_link
rm -r folder; echo now a file > folder; rm crlf.txt
"""


@pytest.fixture
def varied(store: Any, root: Path) -> AuditedWorkspace:
    for name in ("data.bin", "gone.bin"):
        (root / name).write_bytes(bytes(range(256)) * 3)
    (root / "link").symlink_to("a.txt")
    (root / "was_link").symlink_to("a.txt")
    (root / "folder").mkdir()
    (root / "folder" / "inside").write_text("inside\n")
    (root / "crlf.txt").write_bytes(b"a\r\nb\r\n")
    workspace: AuditedWorkspace = store.attach(root)
    return workspace


@pytest.mark.parametrize("own", [True, False])
def test_git_applies_the_patch_of_a_session_to_what_was_before_it(
    own: bool, varied: AuditedWorkspace, tmp_path: Path, root: Path
) -> None:
    with varied.session("one") as one:
        point = varied.log.head()
        run(one, "shell_execute", command=SCRIPT)
        run(one, "write_file", path="src/main.py", content="print('hello')\nmore\n")
    asked = lines_of(varied)
    calls = asked.of_session(one.id)
    patch = b"".join(asked.patch(calls if own else everyone(calls)))
    before = tmp_path / "before"
    varied.replay(point, before)
    git = ["git", "-c", "core.fileMode=true", "apply", "-"]
    done = subprocess.run(git, cwd=before, input=patch, capture_output=True)
    assert done.returncode == 0, done.stderr
    assert differences(tree_of(before), tree_of(root)) == {}
    back = subprocess.run([*git[:-1], "-R", "-"], cwd=root, input=patch, capture_output=True)
    assert back.returncode == 0, back.stderr


def test_a_patch_of_what_is_not_one_tree_is_refused_with_whose_change_is_in_it(
    workspace: AuditedWorkspace, root: Path
) -> None:
    with workspace.session("one") as one:
        run(one, "write_file", path="a.txt", content="one\n")
        run(one, "write_file", path="new", content="one\n")
        with workspace.session("two") as two:
            number = run(two, "write_file", path="new", content="one\ntwo\n")
    asked = lines_of(workspace)
    with pytest.raises(Conflict, match=f"new was changed by #{number}"):
        asked.difference(asked.of_session(one.id))
    assert {one.path for one in asked.difference(everyone(asked.of_session(one.id)))} == {
        "a.txt",
        "new",
    }
