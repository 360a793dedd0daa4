"""`python -m tests.tools.answers.corpus`: the answers of one session, as a model is sent them.

What differs from run to run and from machine to machine is written as a word in its place, and of
many lines alike the first and the last are kept.
"""

import json
import os
import re
import subprocess
import tempfile
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import anyio
from msgspec.structs import replace

from loom_audit.api.face import Session, open_store
from loom_audit.tools.calls.call import call_tool
from loom_audit.tools.calls.gate import ApprovalGate, DenyAll
from loom_audit.tools.calls.messages import ToolCall, tool_messages
from loom_audit.tools.calls.settings import ToolSettings
from tests.given.pictures import PNG
from tests.given.python import lay_python
from tests.tools.answers.asked import (
    BINARY,
    CHANGED,
    ELSEWHERE,
    FILES,
    GOING_ON,
    LOOKED_AT,
    NINTH,
    PROJECT,
    REFUSED,
    RUN,
    TAKEN_BACK,
    UNCONFINED,
)
from tests.tools.bundled.web.web_server import serving

FILE = Path(__file__).with_name("answers.txt")
SETTINGS = ToolSettings(private_hosts=("127.0.0.1",), allowed_hosts=("127.0.0.1",))
WORDS = [
    (r"\b[0-9a-f]{64}\b", "HASH"),
    (r"\b[0-9a-f]{40}\b|\b[0-9a-f]{12}\b", "COMMIT"),
    (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d)?(\.\d+)?(Z|[+-]\d\d:\d\d)?", "TIME"),
    (r"(?<=in )\d+\.\d+ ?s", "SECONDS"),
    (r"(?<=taken back by #)\d+|(?<=Took back call )\d+|(?m:^)#\d+(?= TIME)", "NUMBER"),
    (r"(?<=Older ones: before=)\d+", "NUMBER"),
    (r"(?<=HEAD main )[0-9a-f]{7} → [0-9a-f]{7}\b", "COMMIT → COMMIT"),
    (r"(?<=127\.0\.0\.1:)\d+", "PORT"),
]
MOST_LINES, MOST_SIGNS = 14, 300


def answers(folder: Path) -> str:
    """Each answer below what was asked; `folder` is empty, the store that of this process."""
    root = folder / "shop"
    lay_project(root)
    os.environ["PATH"] = f"{lay_python(folder / 'programs')}:{os.environ['PATH']}"
    told: list[str] = []
    with (
        serving() as server,
        open_store() as store,
        store.attach(root).session("tester") as session,
    ):
        allowed = session.gate
        not_now = DenyAll(reason="Not before the release")
        for gate, settings, asked in [
            (allowed, SETTINGS, LOOKED_AT + CHANGED + RUN + PROJECT + TAKEN_BACK + GOING_ON),
            (allowed, replace(SETTINGS, confinement="off"), UNCONFINED),
            (allowed, SETTINGS, NINTH),
            (allowed, SETTINGS, ELSEWHERE),
            (not_now, SETTINGS, REFUSED),
        ]:
            for _ in range(8 if asked is NINTH else 0):
                anyio.run(session.call, *NINTH[0])
            for tool, arguments in asked:
                given = json.loads(json.dumps(arguments).replace("SERVER", server.url("")))
                id = f"call_{len(told) + 1:02}"
                content = anyio.run(ask, session, gate, settings, ToolCall(id, tool, given))
                told.append(section(tool, arguments, normal(content, root)))
    return "\n".join(told)


def lay_project(root: Path) -> None:
    """A small shop in a repository with one commit."""
    for name, text in FILES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, newline="")
    (root / "program").write_bytes(BINARY)
    (root / "logo.png").write_bytes(PNG)
    for words in (
        "init --quiet --initial-branch=main",
        "config user.name Ann",
        "config user.email ann@example.org",
        "add --all",
        "commit --quiet --message=first",
    ):
        subprocess.run(["git", *words.split()], cwd=root, check=True)


async def ask(session: Session, gate: ApprovalGate, settings: ToolSettings, call: ToolCall) -> str:
    """What the model is sent as the answer."""
    result = await call_tool(
        session.registry,
        gate,
        session.writer,
        call.name,
        call.arguments,
        call_id=call.id,
        settings=settings,
        past=partial(session.workspace.own_calls, session.writer),
    )
    [message] = tool_messages([call], [result])
    content: str = message["content"]
    return content


def section(tool: str, arguments: Any, content: str) -> str:
    shown = shortened(json.dumps(arguments, ensure_ascii=False))
    body = "\n".join(f"  {line}".rstrip() for line in content.split("\n"))
    return f">>> {tool} {shown}\n{body}\n"


def normal(content: str, root: Path) -> str:
    """The answer, the same wherever and whenever it was given."""
    content = content.replace(str(root), "ROOT").replace(str(root.parent), "FOLDER")
    for pattern, word in WORDS:
        content = re.sub(pattern, word, content)
    lines = [shortened(line) for line in content.split("\n")]
    kept: list[str] = []
    for _, run in groupby(lines, lambda line: re.sub(r" *\d+", "0", line)):
        same = [*run]
        few = len(same) <= MOST_LINES
        kept += same if few else [*same[:3], f"⟨ {len(same) - 6} more of the kind ⟩", *same[-3:]]
    return "\n".join(kept)


def shortened(line: str) -> str:
    if len(line) <= MOST_SIGNS:
        return line
    return f"{line[:100]}⟨ {len(line) - 200} signs ⟩{line[-100:]}"


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        os.environ["LOOM_AUDIT_HOME"] = str(Path(folder) / "home")
        FILE.write_text(answers(Path(folder)))
