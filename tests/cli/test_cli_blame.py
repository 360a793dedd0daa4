"""`blame`: which call wrote each line."""

from loom_audit.model.text.display import columns
from tests.cli.shells import Shell


def test_each_line_is_printed_with_the_call_that_wrote_it(audited: Shell) -> None:
    audited.call("edit_file", path="a.txt", old_str="two", new_str="2")
    [edit] = audited.numbers()
    lines = audited("blame", "a.txt").text.splitlines()
    assert "not known before #" in lines[0] and lines[0].endswith("1) one")
    assert lines[1].startswith(f"#{edit}  person:") and lines[1].endswith("2) 2")
    [only] = audited("blame", "a.txt", "-L", "2,+1").text.splitlines()
    assert only.endswith("2) 2")
    point = str(audited.records("show", str(edit))[0]["requested"] - 1)
    [run] = audited.records("blame", "a.txt", "--at", point)
    assert (run["first"], run["last"], run["by"]["kind"]) == (1, 3, "unknown")
    assert audited("blame", "a.txt", "--full").text.splitlines() == lines


def test_json_has_a_record_for_each_run_with_its_text(audited: Shell) -> None:
    audited.call("write_file", path="new", content="one\ntwo\n")
    audited.call("write_file", path="new", content="other\n")
    audited("undo", "--yes")
    write, _, undo = audited.numbers()
    [run] = audited.records("blame", "new")
    assert (run["first"], run["last"], run["text"]) == (1, 2, "one\ntwo\n")
    assert (run["by"]["call"], run["brought_back"]["call"]) == (write, undo)


def test_porcelain_is_read_as_git_writes_it(audited: Shell) -> None:
    audited.call("write_file", path="sp ace", content="one\ntwo\nlast")
    audited.call("write_file", path="sp ace", content="one\n2\nlast")
    first, second = audited.numbers()
    text = audited("blame", "--porcelain", "sp ace").text.splitlines()
    assert text[0] == f"{first:040d} 1 1 1" and text[1].startswith("author person:")
    assert f"{second:040d} 2 2 1" in text and f"{first:040d} 3 3 1" in text
    assert [line[1:] for line in text if line.startswith("\t")] == ["one", "2", "last"]
    assert [line for line in text if line.startswith("summary")] == [
        "summary write_file: sp ace",
        "summary write_file: sp ace",
    ]
    assert text.count("filename sp ace") == 3


def test_what_cannot_be_blamed_says_why_and_what_to_do(audited: Shell) -> None:
    audited.sh("head -c 9 /dev/zero > binary")
    for words, code, said in (
        (("nothing",), 4, "nothing is on record"),
        ((".",), 2, "is a directory"),
        (("src",), 2, "is a directory"),
        (("binary",), 2, "cannot be told: binary"),
        (("a.txt", "-L", "9"), 2, "has only 3 lines"),
        (("a.txt", "-L", "3,2"), 2, "the last line is before the first"),
        (("a.txt", "-L", "x"), 2, "not a range of lines"),
        (("a.txt", "-L", "0"), 2, "not a range of lines"),
    ):
        ran = audited("blame", *words, code=code)
        assert said in ran.errors and "hint: " in ran.errors, words


def test_edits_that_are_not_on_record_are_said_and_stay_so(audited: Shell) -> None:
    audited.call("write_file", path="b.txt", content="one\n")
    head = audited.records("status")[0]["head"]
    assert "not on record" not in audited("blame", "b.txt").errors
    (audited.workspace / "b.txt").write_text("one\nmine\n")
    told = audited("blame", "b.txt")
    assert told.text.count("\n") == 1
    assert (
        "b.txt has changes on disk that are not on record: `loom-audit diff b.txt`" in told.errors
    )
    assert "not on record" not in audited("blame", "b.txt", "--at", str(head - 1)).errors
    (audited.workspace / "b.txt").unlink()
    assert "not on record" in audited("blame", "b.txt").errors
    assert audited.records("status")[0]["head"] == head


def test_the_lines_of_writers_with_long_and_wide_names_stand_below_each_other(
    audited: Shell,
) -> None:
    audited.call("write_file", path="c.txt", content="one\ntwo\nthree\n")
    for agent, old in (("日本語の代理人", "one"), ("a-name-that-is-very-very-long-indeed", "two")):
        audited("run", "--agent", agent, "--", "sed", "-i", f"s/{old}/x/", "c.txt")
    lines = audited("blame", "c.txt").text.splitlines()
    assert len({columns(line.partition(")")[0]) for line in lines}) == 1
