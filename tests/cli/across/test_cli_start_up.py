"""What a command may import: nothing slow to start but what is its job."""

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.api.test_start_up import ROOT, SLOW

COMMANDS = (
    "init",
    "run -- touch b.txt",
    "log",
    "log --search touch",
    "show 5",
    "status",
    "diff",
    "diff --stat",
    "cat a.txt",
    "ls",
    "history a.txt",
    "blame a.txt",
    "session",
    "checkpoint here",
    "head",
    "undo --dry-run",
    "undo --yes",
    "redo --yes",
    "revert 5 --dry-run",
    "rollback @here --dry-run",
    "replay @here --to ../there",
    "recover",
    "scope",
    "approvals",
    "workspaces",
    "verify",
    "doctor",
    "db path",
    "db current",
    "db rebuild",
    """call write_file '{"path": "c.txt", "content": "one"}'""",
    """call edit_file '{"path": "c.txt", "old_str": "one", "new_str": "two"}'""",
    """call read_file '{"path": "c.txt"}'""",
    """call delete_file '{"path": "c.txt"}'""",
)

PROGRAM = """
import contextlib, io, json, shlex, sys
from loom_audit.cli import main
for command in json.load(sys.stdin):
    with contextlib.redirect_stdout(io.StringIO()):
        try:
            main(shlex.split(command))
        except SystemExit as error:
            code = error.code
    print(json.dumps([command, code, [*sys.modules]]))
"""


def test_commands_that_record_look_and_take_back_import_nothing_slow(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    (work / "a.txt").write_text("one\n")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=work,
        env={**os.environ, "LOOM_AUDIT_HOME": str(tmp_path / "home"), "PYTHONPATH": str(ROOT)},
        input=json.dumps(COMMANDS),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    ran = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(command, code) for command, code, _ in ran] == [(each, 0) for each in COMMANDS]
    slow = {command: sorted(SLOW & {*modules}) for command, _, modules in ran}
    assert slow == {command: [] for command in COMMANDS}
