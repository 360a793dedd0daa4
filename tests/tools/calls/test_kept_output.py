"""An answer that is cut: all of it is kept where the model can page through it and search it."""

import re

from loom_audit.tools.calls.result import MAX_OUTPUT
from tests.tools.conftest import Bench


def test_a_long_output_says_where_all_of_it_is_and_can_be_paged_and_searched(bench: Bench) -> None:
    result = bench.call("shell_execute", {"command": "seq 10000"}, call_id="call 1/x")
    assert len(result.output.encode()) <= MAX_OUTPUT and result.message_truncated
    assert result.data["truncated"] is False and len(result.data["stdout"].split()) == 10_000
    [said] = re.findall(r"\n\[… \d+ of \d+ bytes left out; (.*) …\]\n", result.output)
    assert said == "all of it is scratch://output/call_1_x.txt, for read_file and search_files"
    path = "scratch://output/call_1_x.txt"
    pages = ""
    offset: int | None = 0
    while offset is not None:
        page = bench.call("read_file", {"path": path, "offset": offset, "limit": 9_000})
        pages += page.output.partition("\n[bytes")[0] if page.data["truncated"] else page.output
        offset = page.data["next_offset"]
    assert pages.split() == [str(n) for n in range(1, 10_001)]
    found = bench.call("search_files", {"path": path, "pattern": "^5432$"})
    assert found.output == f"{path}:5432: 5432"


def test_a_short_output_is_not_kept(bench: Bench) -> None:
    result = bench.call("shell_execute", {"command": "seq 10"})
    assert result.data["truncated"] is False and not result.message_truncated
    listed = bench.call("list_directory", {"path": "scratch://."})
    assert "output" not in listed.output


def test_of_what_the_command_was_cut_at_itself_the_answer_names_the_way(bench: Bench) -> None:
    result = bench.call("shell_execute", {"command": "seq 200000"})
    assert result.data["truncated"] is True
    assert "[cut: the command wrote 1288895 bytes; `COMMAND > $SCRATCH_DIR/out` keeps all" in (
        result.output
    )


def test_what_is_kept_of_an_output_that_was_cut_itself_is_not_called_all_of_it(
    bench: Bench,
) -> None:
    result = bench.call("shell_execute", {"command": "seq 200000"}, call_id="c1")
    path = "scratch://output/c1.txt"
    assert f"left out; what was kept is {path}, for read_file and search_files …]" in result.output
    found = bench.call("search_files", {"path": path, "pattern": "left out", "context": 1})
    above, said, below = found.output.splitlines()
    first, last = (int(line.rpartition(" ")[2]) for line in (above, below))
    assert f"{path}:{first + 1}: [… " in said  # where it is missing, between two whole lines
    lost = sum(len(f"{n}\n") for n in range(first + 1, last))
    assert said.endswith(f"[… {lost} of 1288895 bytes left out …]")


def test_where_it_cannot_be_kept_the_answer_says_so(bench: Bench) -> None:
    bench.call("shell_execute", {"command": "touch $SCRATCH_DIR/output"})
    result = bench.call("shell_execute", {"command": "seq 10000"})
    assert result.success and "left out; it could not be kept: " in result.output
    assert len(result.output.encode()) <= MAX_OUTPUT
