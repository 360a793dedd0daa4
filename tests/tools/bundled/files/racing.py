"""Run as a script: file tools in a workspace whose folder `d` keeps trading places with a link out.

Takes an order as JSON (`folder`, empty and ours; `uid`; `seconds`; `packages`), answers with
what came of each tool and what leaked. The swapper is a process of its own and never rests.
"""

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from loom_audit.api.face import Session

HERE = Path(__file__).resolve()
SECRET = "the secret outside"
OUTSIDE = {"f": SECRET, "deep/g": SECRET, "hidden name": SECRET}
Request = tuple[str, dict[str, object]]
INSIDE = {"f": "public one\n", "deep/g": "public two\n"}

SHORT: list[Request] = [
    ("read_file", {"path": "d/f"}),
    ("write_file", {"path": "d/f", "content": "public one\n"}),
    ("read_file", {"path": "d/deep/g", "encoding": "base64", "line_range": [1, 2]}),
    ("edit_file", {"path": "d/f", "old_str": "one", "new_str": "one"}),
    ("list_directory", {"path": "d"}),
    ("list_files", {"path": "", "recursive": True}),
    ("write_file", {"path": "d/deep/new/er", "content": "public"}),
    ("edit_file", {"path": "d/deep/g", "old_str": "", "new_str": "more\n"}),
    ("list_directory", {"path": "", "recursive": True, "includeHidden": True}),
    ("move_file", {"from": "d/deep/new/er", "to": "moved", "overwrite": True}),
    ("move_file", {"from": "moved", "to": "d/back", "overwrite": True}),
    ("delete_file", {"path": "d/back"}),
    ("list_files", {"path": "d", "recursive": True}),
    ("delete_file", {"path": "d/deep/new", "recursive": True}),
    ("write_file", {"path": "d/deep/g", "content": "public two\n"}),
]
LONG: list[Request] = [
    ("search_files", {"pattern": "secret", "path": "d"}),
    ("search_files", {"pattern": "secret"}),
    ("shell_execute", {"command": "cat f deep/g", "cwd": "d"}),
]  # they start processes
EVERY = 12  # rounds
ROUNDS = 24  # at least, also on a slow machine


def main() -> None:
    order = json.load(sys.stdin)
    if order["uid"] != os.geteuid():
        os.setgroups([])
        os.setgid(order["uid"])
        os.setuid(order["uid"])
    folder = Path(order["folder"])
    os.environ["LOOM_AUDIT_HOME"] = str(folder / "home")
    sys.path[:0] = [str(HERE.parents[4]), order["packages"]]
    from loom_audit.api.face import open_store

    for name, files in (("outside", OUTSIDE), ("work/d", INSIDE)):
        for path, text in files.items():
            (folder / name / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / name / path).write_text(text)
    (folder / "link").symlink_to("../outside")
    before = tree(folder / "outside")
    with open_store() as store:
        workspace = store.attach(folder / "work")
        with workspace.session("racer") as session:
            answer = race(session, folder, order["seconds"])
        events = [*workspace.log.read()]
    kinds = Counter(event.fact.kind for event in events)
    calls = sum(answer["calls"].values())
    answer["finishes"] = [calls, kinds["call.requested"], kinds["call.finished"]]
    if tree(folder / "outside") != before:
        answer["leaks"].append(f"outside: {sorted(tree(folder / 'outside').items())}")
    print(json.dumps(answer))  # noqa: T201


def race(session: "Session", folder: Path, seconds: float) -> dict[str, Any]:
    import anyio

    from loom_audit.tools.calls.call import call_tool

    outcomes: Counter[str] = Counter()
    leaks: list[str] = []

    async def one(tool: str, arguments: Mapping[str, object]) -> None:
        writer = session.writer
        result = await call_tool(session.registry, session.gate, writer, tool, arguments)
        outcomes[f"{tool} {'ok' if result.success else result.error.code}"] += 1
        said = json.dumps(result.to_dict())
        if SECRET in said or "hidden name" in said:
            if tool == "shell_execute" and result.data and result.data.get("sandbox") == "plain":
                outcomes["shell_execute unconfined"] += 1  # it may read everything, it says so
            else:
                leaks.append(f"{tool} {arguments}: {said[:500]}")

    async def rounds() -> None:
        end = time.monotonic() + seconds
        number = 0
        while time.monotonic() < end or number < ROUNDS:
            for tool, arguments in SHORT if number % EVERY else [*SHORT, *LONG]:
                await one(tool, arguments)
            number += 1

    with swapping(folder / "work"):
        anyio.run(rounds)
    calls: Counter[str] = Counter()
    for outcome, count in outcomes.items():
        if "unconfined" not in outcome:
            calls[outcome.split()[0]] += count
    return {"outcomes": outcomes, "calls": calls, "leaks": leaks}


@contextmanager
def swapping(root: Path) -> Iterator[None]:
    from loom_audit.disk.access.system import probe

    mode = "exchange" if probe().renameat2 else "rename"
    script = HERE.parents[3] / "disk" / "swapper.py"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with subprocess.Popen(
        [sys.executable, str(script), str(root), mode], stdout=subprocess.PIPE, env=environment
    ) as swapper:
        try:
            assert swapper.stdout is not None and swapper.stdout.readline() == b"ready\n"
            yield
            assert swapper.poll() is None, "the swapper has died: nothing was tested"
        finally:
            swapper.kill()


def tree(folder: Path) -> dict[str, tuple[str | None, int, int, int]]:
    found = {}
    for path in sorted(folder.rglob("*")):
        seen = path.lstat()
        text = path.read_text() if path.is_file() else None
        found[str(path)] = (text, seen.st_mode, seen.st_mtime_ns, seen.st_ino)
    return found


if __name__ == "__main__":
    main()
