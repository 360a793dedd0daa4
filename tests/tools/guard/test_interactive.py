"""What waits for a person at a terminal is told so, and what needs none runs."""

import pytest

from loom_audit.errors import InvalidArguments
from loom_audit.tools.guard.interactive import check_terminal
from tests.tools.conftest import Bench


@pytest.mark.parametrize(
    ("command", "hint"),
    [
        ("vim notes.txt", "edit_file"),
        ("cd src && nano main.py", "edit_file"),
        ("/usr/bin/vi x", "edit_file"),
        ("top", "-bn1"),
        ("htop", "ps aux"),
        ("watch ls", "itself"),
        ("watch -n 1 ls", "itself"),
        ("python", "-c"),
        ("make && python3.11", "-c"),
        ("node", "-e"),
        ("git rebase -i HEAD~2", "paths"),
        ("git add --patch", "paths"),
        ("if true; then git stash -p; fi", "paths"),
    ],
)
def test_a_program_for_a_person_is_refused_with_a_word(command: str, hint: str) -> None:
    with pytest.raises(InvalidArguments, match="waits for a person") as raised:
        check_terminal(command)
    assert hint in raised.value.hint


@pytest.mark.parametrize(
    "command",
    [
        "vim -es -c 'normal dd' -c wq notes.txt",
        "printf 'dd:wq\\n' | vi notes.txt",
        "emacs --batch -l x.el",
        "nano --version",
        "top -bn1",
        "python x.py",
        "python3 - < x.py",
        "python <<'E'\nprint(1)\nE",
        "echo 'print(1)' | python3",
        "cat x | (python3)",
        "which vim; man git; less notes.txt",
        "git add -A; git commit -m x; git rebase main",
        "yes | git add -p",
        "GIT_SEQUENCE_EDITOR=: git rebase -i HEAD~2",
        "echo vim",
        "",
        "'",
    ],
)
def test_what_needs_nobody_runs(command: str) -> None:
    check_terminal(command)


def test_it_is_on_record_and_nothing_of_it_ran(bench: Bench) -> None:
    for tool, arguments in [
        ("bash", {"command": "touch made; vim notes.txt"}),
        ("run_code", {"language": "bash", "code": "touch made; vim notes.txt"}),
    ]:
        result = bench.call(tool, arguments)
        assert result.error.code == "INVALID_ARGUMENTS" and "edit_file" in result.error.hint
    assert not (bench.root / "made").exists() and len(bench.finished()) == 2
