"""What people read: numbers with their nouns, who did it, and what a plan will write."""

from pathlib import Path

from tests.cli.shells import Shell


def test_one_is_never_a_plural(shell: Shell, tmp_path: Path) -> None:
    (shell.workspace / "src" / "app.py").unlink()
    (shell.workspace / "src").rmdir()
    assert "\n1 file, " in shell("init").text
    ran = shell("run", "--", "touch", "new")
    assert "1 path changed" in ran.errors
    assert "2 paths as of" in shell("replay", "head", "--to", str(tmp_path / "out")).text
    shell("undo")
    assert "1 path as of" in shell("replay", "head", "--to", str(tmp_path / "again")).text
    assert "1 path, 0 lines" in shell("diff", "--stat", "head~2", "head~1").text
    assert " 1 file, " in shell("log", "--kind", "baseline.finished").text
    (shell.workspace / ".loomignore").write_text("*.o\n")
    shell("scope", "accept")
    assert "1 rule in .loomignore" in shell("doctor", code=None).text


def test_a_persons_undo_in_an_agents_session_is_listed_as_the_persons(audited: Shell) -> None:
    audited("call", "write_file", '{"path": "a.txt", "content": "x"}', "--agent", "tester")
    audited("undo")
    heads = [line for line in audited("log").text.splitlines() if line.startswith("session ")]
    assert [line.split()[-1].split(":")[0] for line in heads] == ["person", "agent"]
    assert heads[0].split()[1] == heads[1].split()[1]


def test_a_plan_says_which_file_will_hold_conflict_markers(audited: Shell) -> None:
    audited.call("edit_file", path="a.txt", old_str="two", new_str="2")
    audited.call("edit_file", path="a.txt", old_str="2", new_str="zwei")
    first = str(audited.numbers()[0])
    plan = audited("revert", first, "--choose", "a.txt=merge", "--dry-run")
    assert "a.txt  (14 B -> " in plan.text or "a.txt" in plan.text
    assert "conflict markers" in plan.text
    (record,) = audited.records("revert", first, "--choose", "a.txt=merge", "--dry-run")
    assert record["marked"] == ["a.txt"]
    other = audited.records("revert", first, "--choose", "a.txt=old", "--dry-run")[0]
    assert other["marked"] == []


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


def test_doctor_says_that_heads_kept_beside_the_store_prove_less(shell: Shell) -> None:
    for command in ("init", "status", "head"):
        shell(command)
        (check,) = [c for c in shell.records("doctor", code=None) if c["name"] == "tree heads"]
        assert check["verdict"] == "warning" and "beside the store" in check["text"]
        assert "LOOM_AUDIT_HOME" in check["hint"]
