"""`history`: every change of a path with its call."""

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
