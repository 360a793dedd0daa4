"""What opening, reading and appending to a store may import: nothing slow to start."""

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
SLOW = {
    "alembic",
    "fastapi",
    "httpx",
    "jinja2",
    "jsonschema",
    "pydantic",
    "rich",
    "sqlalchemy",
    "sqlmodel",
}

STEPS = {
    "import loom_audit": "import loom_audit",
    "open, attach": "store = loom_audit.open_store(); workspace = store.attach('here')",
    "a command": "session = workspace.session(agent='a').__enter__()\n"
    "session.run(['sh', '-c', 'echo one > a.txt'])",
    "a block": "with session.recording('block'): open('here/a.txt', 'a').write('two')",
    "a function": "session.tool(lambda: open('here/b.txt', 'w').write('b'))()\n"
    "session.__exit__(None, None, None)",
    "log": "calls = list(workspace.timeline.calls()); assert len(calls) == 3",
    "show": "workspace.timeline.call(calls[0].seq)",
    "status": "assert not workspace.status().drift",
    "plan": "plan = workspace.plan_undo()",
    "undo": "workspace.carry_out(plan); assert not os.path.exists('here/b.txt')",
    "a point": "workspace.timeline.tree(workspace.timeline.point('head~1'))",
    "checkpoint": "workspace.checkpoint('c')",
    "verify": "assert not workspace.verify().findings",
    "rebuild": "workspace.rebuild()",
    "close, open again": "store.close(); loom_audit.open_store().close()",
}


def test_what_opens_reads_and_appends_imports_nothing_slow(tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    program = "import json, os, sys\n"
    for name, step in STEPS.items():
        program += f"{step}\nprint(json.dumps([{name!r}, [*sys.modules]]))\n"
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={**os.environ, "LOOM_AUDIT_HOME": str(tmp_path / "home"), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    loaded = dict(json.loads(line) for line in done.stdout.splitlines())
    assert [*loaded] == [*STEPS]
    slow = {name: sorted(SLOW & {*modules}) for name, modules in loaded.items()}
    assert slow == {name: [] for name in STEPS}
    assert "loom_audit.sql.store.event_log" in loaded["open, attach"]


def test_reading_a_file_by_a_tool_imports_nothing_slow(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\n")
    program = (
        "import asyncio, sys, loom_audit\n"
        "session = loom_audit.open_store().attach('.').session(agent='a').__enter__()\n"
        "result = asyncio.run(session.call('read_file', {'path': 'a.txt'}))\n"
        "assert result.success, result\n"
        "print(*sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={
            **os.environ,
            "LOOM_AUDIT_HOME": f"{tmp_path}-home",
            "PYTHONPATH": str(ROOT),
        },
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert not SLOW & {*done.stdout.split()}
