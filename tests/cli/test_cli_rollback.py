"""`rollback`: to a point, without what came from outside."""

from tests.cli.shells import Shell


def test_rollback_keeps_what_came_from_outside_unless_told(audited: Shell) -> None:
    audited("checkpoint", "start", "--note", "before all")
    audited.call("write_file", path="tool.txt", content="t\n")
    (audited.workspace / "mine.txt").write_text("my own\n")
    audited.call("read_file", path="a.txt")
    shown = audited("rollback", "@start", code=7)
    assert "mine.txt" in shown.text.split("kept")[1]
    assert not (audited.workspace / "tool.txt").exists()
    assert (audited.workspace / "mine.txt").read_text() == "my own\n"
    audited("rollback", "@start", "--outside")
    assert not (audited.workspace / "mine.txt").exists()
    audited("undo")
    assert (audited.workspace / "mine.txt").read_text() == "my own\n"


def test_a_rollback_of_a_path_that_never_was_is_refused(audited: Shell) -> None:
    audited.call("write_file", path="src/new.py", content="x")
    audited.call("delete_file", path="src/new.py")
    (audited.workspace / "mine.txt").write_text("by hand\n")
    refused = audited("rollback", "head~1", "nosuchpath", "--json", code=4)
    assert '"NOT_FOUND"' in refused.errors and "nosuchpath" in refused.errors
    assert audited("rollback", "head~1", "src", "nosuchpath", "--yes", code=4).errors
    for known in ("src", "src/new.py", "a.txt", "mine.txt", "."):
        code = 7 if known in ("mine.txt", ".") else 0
        audited("rollback", "head~1", known, "--dry-run", code=code)


def test_what_changed_nothing_is_not_said_to_be_undoable(audited: Shell) -> None:
    audited.call("write_file", path="b.txt", content="x")
    point = str(audited.numbers()[-1])
    done = audited("rollback", point, "--yes")
    assert "nothing on disk will change" in done.text and "loom-audit undo" not in done.errors
    assert str(audited.numbers()[-1]) == point


def test_a_rollback_that_would_change_nothing_is_not_recorded(audited: Shell) -> None:
    before = audited.tree()
    (audited.workspace / "a.txt").unlink()
    (head,) = audited.records("head")
    audited("rollback", "head", "--yes", code=7)
    assert audited.records("head") == [head]
    audited("rollback", "head", "--outside", "--yes")
    assert audited.tree() == before
