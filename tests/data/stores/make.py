"""Makes the store of a release: `python tests/data/stores/make.py VERSION`, once per release.

It records one of everything a log can hold in `WORKSPACE`, which must not exist, and leaves
in the folder of the version the store, a head kept elsewhere, and the tree at every call as
it lay on disk, found without our code. A folder that is there is never made again.
"""

import asyncio
import gzip
import hashlib
import json
import os
import shutil
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

WORKSPACE = Path("/tmp/loom-audit-golden/workspace")
"""The same on every machine, since it is on record."""
PERSON = "person:ada"


def tree(root: Path) -> dict[str, str]:
    """What is on disk: path to kind, mode and the hash of the content or the target."""
    found = {}
    for path in sorted(root.rglob("*")):
        mode = path.lstat().st_mode & 0o7777
        name = path.relative_to(root).as_posix()
        if path.is_symlink():
            found[name] = f"symlink {os.readlink(path)}"
        elif path.is_dir():
            found[name] = f"directory {mode:o}"
        else:
            found[name] = f"file {mode:o} {hashlib.sha256(path.read_bytes()).hexdigest()}"
    return found


def fill(root: Path) -> None:
    (root / "src").mkdir(parents=True, mode=0o755)
    (root / "src" / "app.py").write_text("def main():\n    print('hello')\n")
    (root / "read me é.txt").write_text("one\ntwo\nthree\n")
    (root / "data.bin").write_bytes(bytes(range(256)) * 8)
    (root / "link").symlink_to("src/app.py")
    (root / ".loomignore").write_text("*.tmp\n")
    for path in root.rglob("*"):
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() else 0o644)


async def record(root: Path) -> tuple[str, dict[int, dict[str, str]]]:
    from loom_audit import open_store

    trees: dict[int, dict[str, str]] = {}
    with open_store() as store:
        workspace = store.attach(root)

        def seen() -> None:
            trees[workspace.log.head()] = tree(root)

        seen()
        with workspace.session("golden", actor="agent:golden", title="one of each") as session:
            calls: list[tuple[str, dict[str, object]]] = [
                ("read_file", {"path": "src/app.py"}),
                ("write_file", {"path": "src/new.py", "content": "x = 1\n"}),
                (
                    "edit_file",
                    {"path": "src/app.py", "old_string": "hello", "new_string": "good bye"},
                ),
                ("shell_execute", {"command": "mv src/new.py src/old.py; chmod 755 src/old.py"}),
                ("delete_file", {"path": "data.bin"}),
                ("read_file", {"path": "missing.txt"}),
            ]
            for tool, arguments in calls:
                await session.call(tool, arguments)
                seen()
            with session.recording("a block", {"why": "text"}):
                (root / "block.txt").write_text("from a block\n")
                (root / "block.txt").chmod(0o644)
            seen()
            (root / "read me é.txt").write_text("one\nTWO\nthree\n")  # from outside
            await session.call("list_directory", {"path": "."})
        workspace.checkpoint("here", note="a note")
        workspace.carry_out(workspace.plan_undo(), actor=PERSON)
        seen()
        workspace.carry_out(workspace.plan_redo(), actor=PERSON)
        seen()
        deleted = workspace.timeline.calls(CallFilter(tool="delete_file"))[0]
        workspace.carry_out(workspace.plan_revert([deleted.seq or 0]), actor=PERSON)
        seen()
        workspace.carry_out(workspace.plan_rollback("head~1"), actor=PERSON)
        seen()
        (root / ".loomignore").write_text("*.tmp\n*.log\n")
        workspace.accept_scope()
        return head_line(workspace.head()), trees


def main(version: str) -> None:
    folder = Path(__file__).parent / version
    folder.mkdir(parents=True)
    WORKSPACE.parent.mkdir()
    try:
        home = WORKSPACE.parent / "home"
        os.environ["LOOM_AUDIT_HOME"] = str(home)
        os.environ["LOGNAME"] = PERSON.removeprefix("person:")
        os.umask(0o022)
        fill(WORKSPACE)
        head, trees = asyncio.run(record(WORKSPACE))
        with closing(sqlite3.connect(home / "audit.db")) as database:
            database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        content = gzip.compress((home / "audit.db").read_bytes(), mtime=0)
        (folder / "audit.db.gz").write_bytes(content)
        (folder / "head").write_text(head + "\n")
        text = json.dumps(trees, indent=1, ensure_ascii=False)
        (folder / "trees.json").write_text(text + "\n", "utf-8")
    finally:
        shutil.rmtree(WORKSPACE.parent)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[3]))
    from loom_audit.disk.machine.heads import head_line
    from loom_audit.ports import CallFilter

    main(sys.argv[1])
