"""What a command imports before and while it does its work."""

import subprocess
import sys

from tests.api.test_start_up import ROOT, SLOW
from tests.cli.shells import Shell

PROGRAM = """
import sys
from loom_audit.cli import main
try:
    main(sys.argv[1:])
except SystemExit as end:
    code = end.code
print(*sys.modules, file=sys.stderr)
sys.exit(code)
"""


def loaded(shell: Shell, *arguments: str) -> set[str]:
    """The modules in a process of its own when the command has ended."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments],
        cwd=shell.workspace,
        env={**shell.environment, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    *said, modules = done.stderr.splitlines()
    assert done.returncode == 0, (arguments, said, done.stdout)
    return {*modules.split()}


def test_no_command_imports_what_its_job_does_not_need(audited: Shell) -> None:
    for line in (
        "run -- touch b", "run -- touch c", "log", "log --json", "log --events", "show --json 1",
        "diff head~1 head", "history b", "ls", "cat a.txt", "status", "session", "approvals",
        "undo --dry-run", "undo --yes", "redo --yes", "rollback --yes head~1",
        "head", "verify", "verify --json", "recover", "workspaces", "scope",
        "checkpoint d", "db path", "db current", "db rebuild", "doctor",
    ):  # fmt: skip
        found = (SLOW | {"asyncio"}) & loaded(audited, *line.split())
        # Typer checks arguments with pydantic; our own modules may not (a contract says so)
        assert found <= {"pydantic"}, line
