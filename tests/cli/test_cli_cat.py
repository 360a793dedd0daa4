"""`cat` and `ls`: files and folders as they were."""

from pathlib import Path

from loom_audit import open_store
from loom_audit.model.events import ContentFound, Draft
from loom_audit.model.files import FileState
from tests.cli.shells import Shell


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


def test_a_path_that_never_was_is_told_from_one_that_is_gone(audited: Shell) -> None:
    audited.call("write_file", path="sp ace.txt", content="x")
    audited.call("delete_file", path="sp ace.txt")
    for command in ("cat", "ls"):
        assert "nothing is on record for nowhere" in audited(command, "nowhere", code=4).errors
        gone = audited(command, "sp ace.txt", code=4).errors
        assert "sp ace.txt did not exist at " in gone
        assert "`loom-audit history 'sp ace.txt'`" in gone
    assert "a path is empty" in audited("cat", "", code=2).errors
    assert "the workspace is a directory" in audited("cat", ".", code=2).errors
    assert "`loom-audit ls src`" in audited("cat", "src", code=2).errors


def test_what_was_written_into_a_file_too_late_is_listed_and_printed(audited: Shell) -> None:
    now = audited("cat", "a.txt").stdout
    with open_store(str(audited.database)) as store:
        workspace = store.workspace(audited.workspace)
        blob = workspace.blobs.put(b"late\n")
        found = ContentFound("a.txt", FileState("file", blob, 0o644, 5), "written too late")
        (event,) = workspace.log.append([Draft(found, "", "outside")])
    assert "a.txt, 5 B: written too late" in audited("log", "--events").text
    assert audited("cat", "a.txt", "--at", str(event.seq)).stdout == b"late\n"
    assert audited("cat", "a.txt").stdout == now, "at the head, unless its number is named"
