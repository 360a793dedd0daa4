"""Whatever goes wrong, what was printed says what to do next."""

import re

from tests.cli.shells import Shell
from tests.cli.test_cli_terminal import at_terminal


def test_the_program_named_alone_prints_its_help(shell: Shell) -> None:
    alone = shell(code=2)
    assert "Take back:\n" in alone.text and "rollback" in alone.text
    assert alone.errors.startswith("error: loom-audit needs a command\n")
    assert shell("--json", "db", code=2).text == ""


def test_an_option_without_its_value_is_of_the_command_it_was_given_to(shell: Shell) -> None:
    refused = shell("--store", "x.db", "run", "--agent", code=125)
    assert "`loom-audit run --help`" in refused.errors
    assert "`loom-audit log --help`" in shell("log", "--tool", code=2).errors


def test_an_unknown_option_of_run_is_not_mistaken_silently_for_the_command(audited: Shell) -> None:
    refused = audited("run", "--titel", "x", "--", "true", code=127)
    assert "Command not found: --titel" in refused.errors
    assert "`loom-audit run --help`" in refused.errors


def test_where_no_workspace_is_the_error_names_what_lists_them(audited: Shell) -> None:
    for words in (("--workspace", "typo", "log"), ("--workspace", "/", "log")):
        refused = audited(*words, code=4)
        assert "`loom-audit workspaces` lists" in refused.errors and "--workspace" in refused.errors


def test_a_path_that_never_was_is_told_from_one_that_is_gone(audited: Shell) -> None:
    audited.call("write_file", path="sp ace.txt", content="x")
    audited.call("delete_file", path="sp ace.txt")
    for command in ("cat", "ls"):
        assert "nothing is on record for nowhere" in audited(command, "nowhere", code=4).errors
        gone = audited(command, "sp ace.txt", code=4).errors
        assert "sp ace.txt did not exist at " in gone
        assert "`loom-audit history 'sp ace.txt'`" in gone
    for workspace in ("", "."):
        assert "the workspace is a directory" in audited("cat", workspace, code=2).errors
    assert "`loom-audit ls src`" in audited("cat", "src", code=2).errors


def test_nothing_to_print_is_said_on_standard_error(audited: Shell) -> None:
    for words, said in (
        (("diff",), "no differences"),
        (("ls", "--at", "1"), "nothing was there at 1"),
        (("session",), "no sessions yet"),
    ):
        ran = audited(*words)
        assert (ran.text, ran.errors) == ("", f"{said}\n")
        assert audited(*words, "--json").errors == ""


def test_a_conflict_says_what_each_choice_does(audited: Shell) -> None:
    audited.call("write_file", path="a.txt", content="1\n")
    first = audited.numbers()[-1]
    audited.call("write_file", path="a.txt", content="2\n")
    second = audited.numbers()[-1]
    refused = audited("revert", str(first), code=5)
    assert f"a.txt: same lines changed later by call {second}\n" in refused.text
    for said in ("PATH=current keeps it", "PATH=old takes what was", "PATH=merge writes both"):
        assert said in refused.errors


def test_a_question_that_is_not_answered_changes_nothing_and_says_so(audited: Shell) -> None:
    audited.call("write_file", path="new.txt", content="x")
    code, printed = at_terminal(audited, "undo", answer=b"\x04", after=b"]: ")
    assert "\nnothing was changed\n" in printed
    assert code == 130 and (audited.workspace / "new.txt").exists()


def test_nothing_to_take_back_points_to_the_log(audited: Shell) -> None:
    for verb in ("undo", "redo"):
        refused = audited(verb, code=4)
        assert f"nothing to {verb}" in refused.errors and "`loom-audit log`" in refused.errors


def test_a_file_is_printed_on_a_terminal_without_a_line_too_many(audited: Shell) -> None:
    _, printed = at_terminal(audited, "cat", "a.txt")
    assert printed == (audited.workspace / "a.txt").read_text()


def test_on_a_narrow_terminal_a_call_stays_on_one_line(audited: Shell) -> None:
    audited.call("write_file", path="n.txt", content="x")
    audited.extra["NO_COLOR"] = "1"
    audited("undo")
    for columns in (72, 80):
        _, printed = at_terminal(audited, "log", columns=columns)
        assert all(len(line) <= columns for line in printed.split("\n")), printed
        assert re.search(r"ok write_file n.txt  \[1 path; taken back by \d+\]\n", printed)


def test_accepting_the_scope_says_that_it_is_accepted(audited: Shell) -> None:
    assert "accepted" not in audited("scope").text.splitlines()[0]
    assert audited("scope", "accept").text.startswith("accepted; from now on this holds\n")


def test_what_a_moved_repository_became_is_not_undone_and_the_way_on_is_said(
    audited: Shell,
) -> None:
    (audited.workspace / ".git").mkdir()
    (audited.workspace / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    audited("run", "--", "sh", "-c", "mv .git git-backup; echo more >> a.txt")
    number = audited.numbers()[-1]
    (record,) = audited.records("show", str(number))
    assert record["coverage"] == "partial"
    before = audited.tree()
    for words in (("undo",), ("revert", str(number)), ("rollback", "head~1")):
        refused = audited(*words, code=5)
        assert (
            f".git is not on record: vanished; what appeared then or later is not deleted (call \
{number})"
            in refused.text
        )
        assert "nothing was written: git-backup, git-backup/HEAD cannot be taken back safely" in (
            refused.errors
        )
        assert "put that back yourself" in refused.errors
        assert "--choose PATH=current" in refused.errors
        assert audited.tree() == before
    kept = [f"--choose={path}=current" for path in ("git-backup", "git-backup/HEAD")]
    audited("undo", *kept)
    assert audited.tree() == before | {"a.txt": ("file", 0o644, b"one\ntwo\nthree\n")}
