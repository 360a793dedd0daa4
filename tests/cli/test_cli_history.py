"""`history`: every change of a path with its call."""

import os
import signal
from pathlib import Path

from tests.cli.shells import Shell


def test_a_history_names_the_calls(audited: Shell) -> None:
    audited.sh("echo new > a.txt")
    (audited.workspace / "a.txt").write_text("outside")
    audited.call("write_file", path="a.txt", content="x")
    audited("undo")
    write, undo = audited.numbers()[-2:]
    text = audited("history", "a.txt").text.splitlines()
    assert f"call {undo}" in text[0] and f"call {write}" in text[1]
    assert "outside" in text[2] and "call" not in text[2]
    assert f"command, call {audited.numbers()[0]}" in text[3]
    records = audited.records("history", "a.txt")
    assert [record["call"] for record in records] == [undo, write, None, audited.numbers()[0], None]


def test_a_history_names_all_calls_that_may_have_made_a_change(audited: Shell) -> None:
    os.mkfifo(audited.home / "go")
    os.mkfifo(audited.home / "told")
    go, told = (str(audited.home / name) for name in ("go", "told"))
    loop = f"(while read x; do echo x >> log; echo > {told}; done <> {go}) >&- 2>&- & echo $!"
    pid = int(audited("run", "--keep", "--", "sh", "-c", loop).text)
    try:
        audited("run", "--", "sh", "-c", f"echo > {go}; read x < {told}")
        Path(go).write_text("x\n")
        Path(told).read_text()
        audited("run", "--", "touch", "more")
    finally:
        os.kill(pid, signal.SIGKILL)
    kept, shared = audited.numbers()[-3:-1]
    outside, during = audited("history", "log").text.splitlines()
    assert outside.endswith(f"outside  or call {kept}")
    assert during.endswith(f"command, call {shared}, or call {kept}")


def test_a_moved_file_says_where_it_came_from_and_went(audited: Shell) -> None:
    audited.sh("mv a.txt moved.txt")
    assert "moved from a.txt" in audited("history", "moved.txt").text.splitlines()[-1]
    assert "moved to moved.txt" in audited("history", "a.txt").text.splitlines()[0]
    (came,) = audited.records("history", "moved.txt")
    assert came["moved"] == "a.txt"
    assert audited.records("history", "a.txt")[-1]["moved"] is None


def test_the_history_of_git_says_what_calls_changed_of_it(audited: Shell) -> None:
    git = "git -c user.name=ann -c user.email=ann@example.org"
    audited.sh(f"git init -q -b main; {git} commit -q --allow-empty -m c1; git branch feat")
    ran = audited("run", "--", "sh", "-c", "git branch -qD feat; git config alias.x '!sh'")
    assert "0 paths changed; config changed: it can run code as you" in ran.errors
    assert "branch feat deleted (was " in ran.errors
    made, changed = (call.splitlines() for call in _by_event(audited("history", ".git").text))
    assert changed[2].startswith("  branch feat deleted (was ")
    assert changed[1] == "  config changed: it can run code as you"
    assert made[1].startswith("  git repository new or replaced: HEAD main")
    [record] = audited.records("history", ".git/config", "-n", "1")
    assert record["git"]["runs_code"] == ["config"]
    assert audited.records("history", "feat")[0]["seq"] == record["seq"]


def test_the_history_of_a_nested_git_folder_is_of_that_repository(audited: Shell) -> None:
    audited.sh("git init -q -b main; git init -q -b main vendor/lib")
    audited("run", "--", "sh", "-c", "git config a.b c; cd vendor/lib; git config a.b c")
    of_all, below = (audited("history", one).text for one in (".git", "vendor/lib/.git"))
    said = "vendor/lib: config changed: it can run code as you"
    assert said in of_all and said in below
    assert "\n  config changed" in of_all and "\n  config changed" not in below
    [record] = audited.records("history", "vendor/lib/.git/config", "-n", "1")
    assert record["git"]["folder"] == "vendor/lib"


def _by_event(text: str) -> list[str]:
    """What is listed of git by event, oldest first."""
    found: list[str] = []
    for line in text.splitlines(keepends=True):
        if line.strip()[:1].isdigit():
            found.append("")
        found[-1] += line
    return [one for one in reversed(found) if "\n  " in one]


def test_a_history_calls_a_redo_and_a_rollback_by_their_names(audited: Shell) -> None:
    audited("run", "--", "sh", "-c", "echo more >> a.txt")
    audited("undo")
    audited("redo")
    audited("rollback", "3", "a.txt")
    lines = audited("history", "a.txt").text.splitlines()
    assert [line.split(", call")[0].split()[-1] for line in lines[:3]] == [
        "rollback",
        "redo",
        "undo",
    ]
