"""What the commands print and how they end, about the store of `readers`."""

import json
import shutil
from collections.abc import Iterable

from loom_audit.cli.shared.exits import exit_code
from tests.cli.shells import Ran
from tests.integrity.asking.ask_python import files_in
from tests.integrity.asking.readers import Answer, Made, Opened, Reader, Readers

ONLY = {3: "AUDIT_UNAVAILABLE", 6: "CORRUPT"}
"""What exit codes mean that stand for one code only."""


def commands(made: Made) -> Readers:
    return Readers(
        {**_each(_verified(made)), "replay": _replay(made.middle)},
        {**_each(_lists(made)), "doctor": _doctor},
    )


def _verified(made: Made) -> Iterable[str]:
    first, last, middle = made.numbers[0], made.numbers[-1], made.middle
    session = f"session:{made.sessions[-1]}"
    yield from (f"show {number}" for number in made.numbers)
    yield from (f"show {middle} --json", "show 1", f"show {last + 1}")
    yield from ("cat src/0.py", "cat src/1.py --at @v1", f"cat new.txt --at {middle}")
    yield from (f"cat src/0.py --at {made.time}", f"rollback {made.time} --dry-run")
    yield from ("cat src/0.py --at head~4", "cat out/made.bin --raw")
    yield from ("ls -r", f"ls --at {middle}", "ls src --at @v1 --json")
    yield from ("diff", "diff --raw", "diff --name-only", "diff --stat", "diff --json")
    yield from (f"diff {first} {last}", f"diff {first} {last} --raw", f"diff {first} head --stat")
    yield from (f"diff {middle}", f"diff head {middle} --name-only", "diff @v1 head src --json")
    yield from (f"diff --call {number} --raw" for number in made.numbers[::4])
    yield from ("undo --dry-run", "undo --dry-run --json", "redo --dry-run")
    yield from (f"revert {first} --dry-run", f"revert {session} --dry-run")
    yield from (f"rollback {middle} --dry-run", "rollback head~2 --dry-run --json")
    yield from ("rollback @v1 --dry-run --outside", f"rollback {session} --dry-run")


def _lists(made: Made) -> Iterable[str]:
    yield from ("log", "log --json", "log --events", "log --events --json", "log --search src")
    yield from ("log --path src", "log --status ok", f"log --from {made.middle}")
    yield from ("session", f"session {made.sessions[0]}", "history src --below", "checkpoint")
    yield from ("status", "status --rehash", "status --json", "approvals", "workspaces")
    yield from ("head", "verify", "verify --json")


def _each(lines: Iterable[str]) -> dict[str, Reader]:
    return {line: _command(*line.split()) for line in lines}


def _command(*arguments: str) -> Reader:
    return lambda opened: _answer(opened, arguments, opened.shell(*arguments, code=None))


def _answer(opened: Opened, arguments: tuple[str, ...], ran: Ran) -> Answer:
    failed = any(line.startswith(('{"error": ', "error: ")) for line in ran.errors.splitlines())
    code = _error_code(opened, arguments, ran) if failed else ""
    return Answer((ran.code, ran.stdout, ran.errors), code, tuple(ran.text.splitlines()))


def _error_code(opened: Opened, arguments: tuple[str, ...], ran: Ran) -> str:
    """The code of the error that it ended with; text does not name it, and JSON does."""
    if ran.code in ONLY:
        return ONLY[ran.code]
    again = ran if "--json" in arguments else opened.shell(*arguments, "--json", code=None)
    said = [json.loads(line) for line in again.errors.splitlines() if line.startswith("{")]
    code = str(said[-1]["error"]["code"]) if said else "none with --json"
    return code if ran.code == again.code == exit_code(code) else f"{code}, not as {again.code}"


def _replay(point: int) -> Reader:
    def ask(opened: Opened) -> Answer:
        target = opened.shell.home.parent / "replayed"
        arguments = ("replay", str(point), "--to", str(target))
        ran = opened.shell(*arguments, code=None)
        files = files_in(target) if ran.code == 0 else None
        shutil.rmtree(target, ignore_errors=True)
        answer = _answer(opened, arguments, ran)
        shutil.rmtree(target, ignore_errors=True)
        return Answer((answer.said, files), answer.code, answer.lines)

    return ask


def _doctor(opened: Opened) -> Answer:
    ran = opened.shell("doctor", code=None)
    lines = [line for line in ran.text.splitlines() if "space:" not in line]
    return Answer((ran.code, lines, ran.errors))
