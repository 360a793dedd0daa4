"""`show`: texts once, long ones counted, sizes that tell something."""

from loom_audit.cli.show import result_lines
from tests.cli.shells import Shell


def test_an_output_is_shown_once(audited: Shell) -> None:
    audited.sh("seq 1 20000")
    shown = audited("show", str(audited.numbers()[-1])).text
    assert shown.count("\n    | 20000\n") == 1 and "\\n" not in shown
    assert "    exit_code: 0\n" in shown and "stdout" not in shown and "survivors" not in shown


def test_a_long_text_that_the_output_does_not_hold_is_counted() -> None:
    data = {"stdout": "1234567\n" * 1000, "stderr": "short", "matches": list(range(1000))}
    assert result_lines({"success": True, "output": "cut", "data": data}) == [
        "  output: cut",
        "  data:",
        "    stdout: (1000 lines, 7.8 KiB; --json has it)",
        "    stderr: short",
        "    matches: (1000 entries; --json has them)",
    ]


def test_a_result_that_says_nothing_shows_nothing() -> None:
    assert result_lines({"success": True, "output": "", "data": {"a": 1}}) == [
        "  data:",
        "    a: 1",
    ]
    assert result_lines({"success": True, "output": "", "data": {}}) == []


def test_a_long_list_in_a_result_is_counted(audited: Shell) -> None:
    names = [f"file-{i:04}.txt" for i in range(300)]
    audited.sh(f"touch {' '.join(names)}")
    audited.call("list_directory")
    number = str(audited.numbers()[-1])
    assert max(map(len, audited("show", number).text.splitlines())) < 500
    assert names[-1] in str(audited.records("show", number)[0]["result"]["data"])


def test_an_edit_that_hardly_changes_the_size_says_by_how_much(audited: Shell) -> None:
    audited.call("write_file", path="big.txt", content="x" * 20_000)
    audited.call("write_file", path="big.txt", content="x" * 20_013)
    assert "M big.txt  (19.5 KiB, +13 B)" in audited("show", str(audited.numbers()[-1])).text
    audited.call("write_file", path="big.txt", content="y" * 20_013)
    shown = audited("show", str(audited.numbers()[-1]), "--no-diff").text
    assert "M big.txt  (19.5 KiB)" in shown
