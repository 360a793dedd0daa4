"""The main job from a shell: record, look, take back, prove. Real processes throughout."""

import json
from pathlib import Path

from tests.cli.shells import Shell, walk


def test_a_recorded_session_can_be_seen_compared_undone_and_redone(real: Shell) -> None:
    audited = real
    before = audited.tree()
    audited.call("write_file", path="b.txt", content="new\n")
    audited("run", "--", "sh", "-c", "echo more >> a.txt; chmod 600 src/app.py")
    after = audited.tree()
    log = audited.records("log")
    assert [record["tool"] for record in log] == ["run", "write_file"]
    assert sorted(log[0]["paths"]) == ["a.txt", "src/app.py"]
    assert all(record["status"] == "ok" for record in log)
    assert {record["coverage"] for record in log} == {"full"}

    shown = audited("show", str(log[0]["seq"])).text
    assert "+more" in shown
    assert "argv" in shown
    assert "echo more" in log[0]["summary"]
    assert "echo more" in shown

    patch = audited("diff", "--call", str(log[0]["seq"]), "a.txt").text
    assert "+more" in patch
    assert "app.py" not in patch

    audited("undo")
    audited("undo")
    assert audited.tree() == before
    audited("redo")
    audited("redo")
    assert audited.tree() == after


def test_a_dry_run_changes_neither_disk_nor_log(audited: Shell) -> None:
    audited.call("write_file", path="b.txt", content="new\n")
    (number,) = audited.numbers()
    disk, events = audited.tree(), audited("log", "--events", "--json", "-n", "0").text
    for arguments in (
        ("undo",),
        ("revert", str(number)),
        ("rollback", "head~1"),
        ("rollback", "head~1", "b.txt", "--outside"),
    ):
        assert "will change:" in audited(*arguments, "--dry-run").text
        (plan,) = audited.records(*arguments, "--dry-run")
        assert plan["carried_out"] is False
        assert [change["path"] for change in plan["changes"]] == ["b.txt"]
        assert audited.tree() == disk
        assert audited("log", "--events", "--json", "-n", "0").text == events


def test_revert_keeps_a_later_edit_of_the_same_file_by_merging(audited: Shell) -> None:
    text = "".join(f"line {n}\n" for n in range(30))
    audited.call("write_file", path="long.txt", content=text)
    audited.call("edit_file", path="long.txt", old_str="line 2\n", new_str="LINE TWO\n")
    audited.call("edit_file", path="long.txt", old_str="line 25\n", new_str="LINE 25\n")
    first_edit = audited.numbers()[1]
    audited("revert", str(first_edit))
    expected = text.replace("line 25\n", "LINE 25\n")
    assert (audited.workspace / "long.txt").read_text() == expected


def test_a_conflict_writes_nothing_and_names_the_call_until_a_choice_is_made(
    audited: Shell,
) -> None:
    audited.call("edit_file", path="a.txt", old_str="two", new_str="2")
    audited.call("edit_file", path="a.txt", old_str="2", new_str="zwei")
    first, second = audited.numbers()
    disk = audited.tree()
    refused = audited("revert", str(first), code=5)
    assert f"call {second}" in refused.text
    assert "--choose" in refused.errors
    assert audited.tree() == disk
    (plan,) = audited.records("revert", str(first), "--dry-run", code=5)
    assert plan["blocked"][0]["path"] == "a.txt"
    assert plan["blocked"][0]["calls"] == [second]

    audited("revert", str(first), "--choose", "a.txt=merge")
    merged = (audited.workspace / "a.txt").read_text()
    assert "<<<<<<<" in merged
    assert "zwei" in merged
    audited("undo")
    assert audited.tree() == disk
    audited("revert", str(first), "--choose", "a.txt=old")
    assert (audited.workspace / "a.txt").read_text() == "one\ntwo\nthree\n"


def test_rollback_keeps_what_came_from_outside_unless_told(audited: Shell) -> None:
    audited("checkpoint", "start", "--note", "before all")
    audited.call("write_file", path="tool.txt", content="t\n")
    (audited.workspace / "mine.txt").write_text("my own\n")
    audited.call("read_file", path="a.txt")
    shown = audited("rollback", "@start")
    assert "mine.txt" in shown.text.split("kept")[1]
    assert not (audited.workspace / "tool.txt").exists()
    assert (audited.workspace / "mine.txt").read_text() == "my own\n"
    audited("rollback", "@start", "--outside")
    assert not (audited.workspace / "mine.txt").exists()
    audited("undo")
    assert (audited.workspace / "mine.txt").read_text() == "my own\n"


def test_a_point_is_rebuilt_byte_for_byte_elsewhere(audited: Shell, tmp_path: Path) -> None:
    (audited.workspace / "link").symlink_to("a.txt")
    (audited.workspace / "empty").mkdir()
    audited.sh("head -c 5000 /dev/urandom > blob.bin; chmod 750 src")
    then = audited.tree()
    audited.sh("rm -rf src link")
    audited("replay", "head~1", "--to", str(tmp_path / "then"))
    assert walk(tmp_path / "then") == then
    audited("replay", "head", "--to", str(tmp_path / "then"), code=5)


def test_status_names_drift_and_leaves_no_trace(audited: Shell) -> None:
    assert audited("status").text.endswith("the disk is as the log says\n")
    events = audited("log", "--events", "--json").text
    (audited.workspace / "a.txt").write_text("changed\n")
    assert "M a.txt" in audited("status").text
    assert audited("status", "--exit-code", code=1).text
    (found,) = audited.records("status")
    assert [change["path"] for change in found["drift"]] == ["a.txt"]
    assert "+changed" in audited("diff").text
    assert audited("log", "--events", "--json").text == events


def test_a_file_is_printed_as_it_was_also_after_its_deletion(audited: Shell) -> None:
    content = bytes(range(256)) * 4
    (audited.workspace / "data.bin").write_bytes(content)
    audited.sh("true")
    audited.sh("rm data.bin")
    assert audited("cat", "data.bin", "--at", "head~1").stdout == content
    missing = audited("cat", "data.bin", code=4)
    assert "hint: " in missing.errors
    history = audited.records("history", "data.bin")
    assert [(r["before"] is None, r["after"] is None) for r in history] == [
        (False, True),
        (True, False),
    ]
    assert "data.bin" in audited("ls", "--at", "head~1").text
    assert "data.bin" not in audited("ls").text


def test_paths_are_typed_relative_to_where_one_is(audited: Shell) -> None:
    inside = audited.workspace / "src"
    assert audited("cat", "app.py", cwd=inside).text == "print('hello')\n"
    assert [r["path"] for r in audited.records("ls")] == ["a.txt", "src"]
    outside = audited("--workspace", str(audited.workspace), "ls", "src", cwd=Path("/"))
    assert "app.py" in outside.text


def test_log_filters_and_shows_the_facts_below(audited: Shell) -> None:
    audited.call("write_file", path="b.txt", content="1\n")
    audited.call("read_file", path="b.txt")
    audited("call", "read_file", '{"path": "nope.txt"}', code=4)
    tools = [r["tool"] for r in audited.records("log", "--oldest-first")]
    assert tools == ["write_file", "read_file", "read_file"]
    assert len(audited.records("log", "--tool", "read_file")) == 2
    assert len(audited.records("log", "--status", "error")) == 1
    assert len(audited.records("log", "--path", "b.txt")) == 1
    assert len(audited.records("log", "-n", "2")) == 2
    assert audited.records("log", "--since", "2999-01-01") == []
    assert len(audited.records("log", "--until", "2999-01-01")) == 3
    numbers = audited.numbers()
    assert [r["seq"] for r in audited.records("log", "--from", str(numbers[0]))] == [
        numbers[2],
        numbers[1],
    ]
    assert [r["seq"] for r in audited.records("log", "--to", str(numbers[0]))] == [numbers[0]]
    events = audited.records("log", "--events", "--oldest-first", "-n", "0")
    assert [r["seq"] for r in events] == list(range(1, len(events) + 1))
    kinds = audited.records("log", "--kind", "files.changed", "--path", "b.txt")
    assert [r["paths"] for r in kinds] == [["b.txt"]]
    assert {r["id"] for r in audited.records("log")} <= {r["id"] for r in events}
    sessions = audited.records("session")
    assert len(sessions) == 3
    assert audited("session", sessions[0]["id"]).text.count("read_file") == 1


def test_run_gives_the_commands_own_exit_code_and_streams(audited: Shell) -> None:
    ran = audited("run", "--", "sh", "-c", "cat; echo err >&2; exit 7", code=7, stdin=b"in\n")
    assert ran.text == "in\n"
    assert "err\n" in ran.errors
    assert audited("run", "--", "sh", "-c", "kill -TERM $$", code=143)
    assert audited("run", "--", "no-such-command-xyz", code=127)
    assert [r["status"] for r in audited.records("log")] == ["error"] * 3


def test_run_passes_the_commands_own_options_on(audited: Shell) -> None:
    assert audited("run", "echo", "--json", "--store", "x", "-n").text == "--json --store x -n\n"


def test_run_fails_with_125_outside_a_workspace(shell: Shell) -> None:
    refused = shell("run", "--", "touch", "made", code=125)
    assert "hint: " in refused.errors
    assert not (shell.workspace / "made").exists()


def test_a_failed_call_prints_why_and_exits_by_its_error(audited: Shell) -> None:
    failed = audited("call", "read_file", '{"path": "/etc/passwd"}', code=2)
    assert failed.errors.startswith("error: ")
    assert "Error" not in failed.text
    (result,) = audited.records("call", "read_file", '{"path": "nope"}', code=4)
    assert result["error"]["code"] == "FILE_NOT_FOUND"
    assert [r["status"] for r in audited.records("log")] == ["error", "error"]


def test_call_reads_its_arguments_from_standard_input(audited: Shell) -> None:
    arguments = json.dumps({"path": "in.txt", "content": "x" * 10}).encode()
    audited("call", "write_file", "-", stdin=arguments)
    assert (audited.workspace / "in.txt").read_text() == "x" * 10
    assert "JSON" in audited("call", "write_file", "{nope", code=2).errors


def test_attaching_again_changes_nothing(audited: Shell) -> None:
    events = audited("log", "--events", "--json").text
    (again,) = audited.records("init")
    assert again["files"] == 2
    assert audited("log", "--events", "--json").text == events
    assert [r["root"] for r in audited.records("workspaces")] == [str(audited.workspace)]


def test_the_store_named_before_or_after_the_command_is_used(shell: Shell, tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 'other' / 'audit.db'}"
    shell("--store", store, "init")
    assert shell("status", "--store", store)
    assert "hint: " in shell("status", code=4).errors


def test_errors_with_json_are_one_object(audited: Shell) -> None:
    failed = audited("show", "9999", "--json", code=4)
    assert failed.stdout == b""
    assert json.loads(failed.errors)["error"]["code"] == "NOT_FOUND"
    assert json.loads(audited("undo", "--json", code=4).errors)["error"]["code"] == "NOT_FOUND"


def test_a_reader_that_leaves_is_no_error(audited: Shell) -> None:
    (audited.workspace / "many").mkdir()
    for n in range(2000):
        (audited.workspace / "many" / f"a-rather-long-name-to-fill-the-pipe-{n:05}").touch()
    audited.sh("true")
    import subprocess
    import sys

    process = subprocess.Popen(
        [sys.executable, "-m", "loom_audit", "ls", "-r"],
        cwd=audited.workspace,
        env=audited.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait(30) == 141
    process.stderr.close()


def test_output_works_in_a_locale_that_is_not_utf8(audited: Shell) -> None:
    audited.real = audited.started = True
    audited.extra = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    name = "n\u00e4me\u2192.txt"
    (audited.workspace / name).write_text("\u00e4\n")
    shown = audited("status")
    assert shown.stdout.isascii()
    assert "A n\\xe4me\\u2192.txt" in shown.text
    audited("run", "--", "sh", "-c", 'test -z "$LOOM_AUDIT_ENCODING$PYTHONIOENCODING"')
    (found,) = [r for r in audited.records("ls") if r["path"].startswith("n")]
    assert found["path"] == name
    assert audited("cat", name).stdout == "\u00e4\n".encode()


def test_what_a_choice_keeps_is_not_taken_back(audited: Shell) -> None:
    audited.call("edit_file", path="a.txt", old_str="two", new_str="2")
    audited.call("edit_file", path="a.txt", old_str="2", new_str="zwei")
    first, second = audited.numbers()
    for verb in (("revert", str(first)), ("revert", str(first), str(second)), ("rollback", "3")):
        (plan,) = audited.records(*verb, "--choose", "a.txt=current", "--yes")
        assert plan["changes"] == [] and plan["reverts"] == []
    (undone,) = audited.records("undo", "--choose", "a.txt=current", "--yes")
    assert undone["reverts"] == []
    calls = {call["seq"]: call for call in audited.records("log", "-n", "0")}
    assert calls[first]["undone_by"] is None and calls[second]["undone_by"] is None
    assert audited("redo", code=4).errors
    audited("undo", "--yes")
    assert (audited.workspace / "a.txt").read_text() == "one\n2\nthree\n"


def test_a_call_is_taken_back_only_with_all_its_paths(audited: Shell) -> None:
    audited.sh("echo 1 > x.txt; echo 1 > y.txt")
    (call,) = audited.numbers()
    (part,) = audited.records("undo", "--choose", "x.txt=current", "--yes")
    assert part["reverts"] == [] and [one["path"] for one in part["changes"]] == ["y.txt"]
    assert (audited.workspace / "x.txt").exists()
    sessions = {one["seq"]: one["session"] for one in audited.records("log")}
    assert sessions[part["call"]] == sessions[call]
    audited("redo", "--yes")
    assert (audited.workspace / "y.txt").exists()
    (whole,) = audited.records("undo", "--yes")
    assert whole["reverts"] == [call]
    assert not (audited.workspace / "x.txt").exists()


def test_an_event_from_outside_kept_by_choice_is_not_taken_back(audited: Shell) -> None:
    (audited.workspace / "a.txt").write_text("by hand\n")
    audited.sh("true")
    changed = audited.records("log", "--events", "--kind", "files.changed", "-n", "0")
    (event,) = [one["seq"] for one in changed if one["origin"] == "outside"]
    verb = ("revert", str(event), "--dry-run")
    assert audited.records(*verb)[0]["reverts"] == [event]
    assert audited.records(*verb, "--choose", "a.txt=current")[0]["reverts"] == []


def test_a_rollback_of_a_path_that_never_was_is_refused(audited: Shell) -> None:
    audited.call("write_file", path="src/new.py", content="x")
    audited.call("delete_file", path="src/new.py")
    (audited.workspace / "mine.txt").write_text("by hand\n")
    refused = audited("rollback", "head~1", "nosuchpath", "--json", code=4)
    assert '"NOT_FOUND"' in refused.errors and "nosuchpath" in refused.errors
    assert audited("rollback", "head~1", "src", "nosuchpath", "--yes", code=4).errors
    for known in ("src", "src/new.py", "a.txt", "mine.txt", "."):
        audited("rollback", "head~1", known, "--dry-run")
