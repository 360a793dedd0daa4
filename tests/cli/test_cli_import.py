"""`import`: transcripts of other programs, in logs of their own."""

from pathlib import Path

import pytest

from tests.cli.shells import Shell

RECORDINGS = Path(__file__).parent.parent / "data" / "clients"
CLAUDE = str(RECORDINGS / "claude-code/session.jsonl")
LOG = ("--workspace", "import:/home/dev/projects/claude")
READING = [
    ("log",),
    ("log", "--events"),
    ("show", "10"),
    ("diff", "8", "head"),
    ("cat", "notes.txt"),
    ("cat", "/home/dev/projects/claude/notes.txt"),
    ("ls", "-r"),
    ("history", "notes.txt"),
    ("blame", "notes.txt"),
    ("session",),
    ("verify",),
    ("head",),
]
WRITING = [
    ("undo", "--yes"),
    ("revert", "10", "--yes"),
    ("rollback", "8", "--yes"),
    ("checkpoint", "here"),
    ("scope", "accept"),
    ("status",),
    ("call", "read_file", '{"path": "notes.txt"}'),
]


def test_an_import_says_what_is_new_and_where_it_is(shell: Shell) -> None:
    (done,) = shell.records("import", CLAUDE)
    assert (done["calls"], done["client"], done["skipped"]) == (9, "claude-code", [])
    assert done["root"] == "import:/home/dev/projects/claude"
    again = shell("import", CLAUDE).text
    assert "0 new calls in 1 session" in again and done["root"] in again
    assert [each["root"] for each in shell.records("workspaces")] == [done["root"]]


def test_an_imported_log_is_read_like_any_other(shell: Shell) -> None:
    shell("import", CLAUDE)
    for command in READING:
        assert shell(*LOG, *command).text
    assert shell(*LOG, "cat", "notes.txt").stdout == b"one\nTWO\nthree\nfour\n"


def test_a_call_says_when_it_happened_by_its_transcript(shell: Shell) -> None:
    shell("import", CLAUDE)
    (call,) = shell.records(*LOG, "show", "10")
    assert call["occurred_at"] == "2026-11-22T09:00:25.290000Z"
    assert "occurred   2026-11-22" in shell(*LOG, "show", "10").text


LISTS = {
    "calls": ("log",),
    "calls found by a path": ("log", "--path", "notes.txt"),
    "events": ("log", "--events"),
    "sessions": ("session",),
    "changes of a path": ("history", "notes.txt"),
    "one call": ("show", "10"),
    "one event": ("show", "8"),
}


UNTOLD = {"workspace.attached", "baseline.finished", "session.ended"}
"""What no transcript tells the time of."""


@pytest.mark.parametrize("listed", LISTS)
def test_each_list_has_the_client_s_time_beside_that_of_the_import(
    shell: Shell, listed: str
) -> None:
    shell("import", CLAUDE)
    words = LISTS[listed]
    records = shell.records(*LOG, *words)
    told = [one for one in records if one["occurred_at"] is not None]
    assert {one.get("kind") for one in records if one not in told} <= UNTOLD
    at = str(told[0].get("at") or told[0].get("started_at"))
    assert told[0]["occurred_at"].startswith("2026-11-22T09:") and at > told[0]["occurred_at"]
    text = shell(*LOG, *words).text
    assert "2026-11-22 09:" in text and at[:10] in text
    if words[0] != "show":
        rows = [line for line in text.splitlines() if at[:10] in line]
        timeless = [row for row in rows if "told 2026-11-22 09:" not in row]
        assert rows and all(any(kind in row for kind in UNTOLD) for row in timeless)


def test_the_calls_of_a_session_have_the_client_s_times(shell: Shell) -> None:
    shell("import", CLAUDE)
    [session] = shell.records(*LOG, "session")
    head, *calls = shell(*LOG, "session", session["id"]).text.splitlines()
    assert calls and all("told 2026-11-22 09:" in line for line in (head, *calls))


def test_what_writes_is_refused_with_a_hint_and_changes_nothing(shell: Shell) -> None:
    shell("import", CLAUDE)
    before = shell(*LOG, "head").text
    for command in WRITING:
        refused = shell(*LOG, *command, code=4)
        assert "can only be read" in refused.errors and "loom-audit init" in refused.errors
    assert "can only be read" in shell(*LOG, "run", "--", "true", code=None).errors
    assert shell(*LOG, "head").text == before


def test_a_file_that_cannot_be_imported_does_not_stop_the_others(shell: Shell) -> None:
    ran = shell("import", str(shell.workspace / "a.txt"), CLAUDE, "absent", code=1)
    assert "a.txt is not a transcript" in ran.errors and "absent" in ran.errors
    assert "9 new calls" in ran.text
    shell("import", "absent", code=4)
    shell("import", str(shell.workspace / "a.txt"), code=2)
    shell("import", CLAUDE, "--client", "nobody", code=2)


def test_where_no_file_can_be_imported_no_store_is_made(shell: Shell) -> None:
    strange = str(shell.workspace / "a.txt")
    for files, code in (([strange], 2), (["absent"], 4), ([strange, "absent"], 1)):
        shell("import", *files, code=code)
        assert not shell.home.exists()
    shell("import", CLAUDE, "--client", "nobody", code=2)
    shell("import", CLAUDE, "--client", "gemini", code=2)
    assert not shell.home.exists()


def test_damaged_lines_are_named(shell: Shell) -> None:
    file = shell.workspace / "t.jsonl"
    file.write_bytes(b'{"torn\n' + Path(CLAUDE).read_bytes())
    assert "line 1 skipped: torn line" in shell("import", str(file)).text


def test_a_folder_with_a_log_of_transcripts_is_healthy(audited: Shell) -> None:
    audited("import", CLAUDE)
    told = audited("doctor", code=None).text
    assert "is gone" not in told and "import:" not in told
    assert audited("status").text


def test_found_lists_the_transcripts_that_name_this_repository_and_imports_none(
    shell: Shell, tmp_path: Path
) -> None:
    repository = shell.workspace
    (repository / ".git").mkdir()
    (repository / "deep").mkdir()
    shell.extra |= {"HOME": str(tmp_path), "CLAUDE_CONFIG_DIR": "", "CODEX_HOME": ""}
    told = (RECORDINGS / "claude-code/session.jsonl").read_bytes()
    mine = tmp_path / ".claude/projects/lossy-name"
    mine.mkdir(parents=True)
    (mine / "here.jsonl").write_bytes(
        told.replace(b"/home/dev/projects/claude", str(repository / "deep").encode())
    )
    (mine / "elsewhere.jsonl").write_bytes(told)
    (mine / "beside.jsonl").write_bytes(
        told.replace(b"/home/dev/projects/claude", f"{repository}-2".encode())
    )
    (mine / "broken.jsonl").write_bytes(b"\x00")
    codex = tmp_path / ".codex/sessions/2026/11/22"
    codex.mkdir(parents=True)
    rollout = (RECORDINGS / "codex/rollout.jsonl").read_bytes()
    (codex / "rollout-1.jsonl").write_bytes(
        rollout.replace(b"/home/dev/projects/codex", str(repository).encode())
    )
    gemini = tmp_path / ".gemini/tmp/shop/chats"
    gemini.mkdir(parents=True)
    chat = (RECORDINGS / "gemini/session.jsonl").read_bytes()
    (gemini / "session-1.jsonl").write_bytes(
        chat.replace(b"/home/dev/projects/gemini", str(repository).encode())
    )
    found = shell.records("import", "--found")
    assert {(Path(one["file"]).name, one["client"]) for one in found} == {
        ("here.jsonl", "claude-code"),
        ("rollout-1.jsonl", "codex"),
        ("session-1.jsonl", "gemini"),
    }
    ran = shell("import", "--found")
    assert "here.jsonl" in ran.text and "broken.jsonl" in ran.errors
    assert not shell.database.exists()
    shell("import", code=2)
    shell("import", "--found", CLAUDE, code=2)


def test_found_says_so_when_there_is_nothing(shell: Shell, tmp_path: Path) -> None:
    shell.extra |= {"HOME": str(tmp_path), "CLAUDE_CONFIG_DIR": "", "CODEX_HOME": ""}
    ran = shell("import", "--found")
    assert not ran.text and "none of 0 transcripts" in ran.errors


def test_recover_lists_the_versions_of_a_file_and_puts_one_back(
    audited: Shell, tmp_path: Path
) -> None:
    audited.extra |= {"HOME": str(tmp_path), "CLAUDE_CONFIG_DIR": "", "CODEX_HOME": ""}
    audited.sh("echo new > a.txt; rm src/*")
    found = audited.records("import", "--recover", "a.txt")
    assert [one["number"] for one in found] == [1, 2]
    assert "puts one back" in audited("import", "--recover", "a.txt").errors
    audited("import", "--recover", "a.txt", "--take", "2", "--dry-run")
    assert (audited.workspace / "a.txt").read_bytes() == b"new\n"
    done = audited("import", "--recover", "a.txt", "--take", "2", "--yes").text
    assert "M a.txt" in done and "restore is call" in done
    audited("undo", "--yes")
    assert (audited.workspace / "a.txt").read_bytes() == b"new\n"


def test_recover_says_what_is_missing(shell: Shell, tmp_path: Path) -> None:
    shell.extra |= {"HOME": str(tmp_path), "CLAUDE_CONFIG_DIR": "", "CODEX_HOME": ""}
    assert "nobody has kept" in shell("import", "--recover", "a.txt", code=4).errors
    shell("import", CLAUDE, "--take", "1", code=2)
    shell("import", "--recover", "a.txt", CLAUDE, code=2)
