"""Files that a confined command finds in its home directory."""

from pathlib import Path

import pytest

from loom_audit.ports import Command
from loom_audit.sandbox import CONFINING, open_runner
from tests.sandbox import backends


@pytest.mark.parametrize("backend", CONFINING)
def test_a_confined_command_finds_and_may_change_the_files_of_its_home(
    tmp_path: Path, backend: str
) -> None:
    runner = backends.working(backend)
    large = b"x" * 200_000
    command = Command(
        (
            "sh",
            "-c",
            'cat "$HOME/.one"; wc -c < "$HOME/two"; echo more >> "$HOME/.one"; cat ~/.one',
        ),
        home={".one": b"first\n", "two": large},
        read_only=True,
    )
    for _ in range(2):  # what one command did is gone for the next
        done = runner.run(str(tmp_path), command)
        assert done.stdout.split() == [b"first", b"200000", b"first", b"more"], done.stderr
    assert [*tmp_path.iterdir()] == []


def test_a_command_that_is_not_confined_has_its_user_s_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    command = Command(("sh", "-c", "ls -A ~"), home={".one": b"first\n"})
    assert open_runner("plain").run(str(tmp_path), command).stdout == b""
