"""Small stores with all that a log may hold, each made by sessions as they run, to be forged."""

import asyncio
import gzip
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from loom_audit import AuditedWorkspace, AuditStore, Session, open_store
from loom_audit.api.agents.importing import import_file
from loom_audit.history.ground import continuous_log
from loom_audit.model.events import Draft, FilesChanged
from loom_audit.model.files import FileChange

DATA = Path(__file__).parents[1] / "data"
RELEASES = ("0.1.0", "0.2.0")


def make_stores(folder: Path) -> dict[str, Path]:
    """The folder of each store by what it is, with the heads that were kept of its logs."""
    makers: dict[str, Callable[[Path], None]] = {
        "sessions": _sessions,
        "listed anew": _listed_anew,
        "imported": _imported,
        **{f"of {release}": _written_on(release) for release in RELEASES},
    }
    made = {}
    for name, maker in makers.items():
        home = folder / name
        with _at_home(home):
            maker(folder / f"work of {name}")
        for file in (*home.glob("*.ballast"), *home.glob("*.before-upgrade-*")):
            file.unlink()
        made[name] = home
    return made


@contextmanager
def _at_home(home: Path) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LOOM_AUDIT_HOME", str(home))
        patch.setattr(continuous_log, "MOST_BEHIND", 1_000)  # trees are listed in small logs too
        yield


def _called(session: Session, tool: str, **arguments: Any) -> None:
    result = asyncio.run(session.call(tool, arguments))
    assert result.success, result.error


def _filled(root: Path) -> Path:
    """What there is at first: folders, links, one left out, a name that is not UTF-8."""
    (root / "src" / "deep").mkdir(parents=True)
    (root / "node_modules" / "one").mkdir(parents=True)
    (root / "node_modules" / "one" / "index.js").write_text("1\n")
    for n in range(3):
        (root / "src" / f"{n}.py").write_text(f"def f{n}():\n    return {n}\n" * 9)
    (root / "src" / "deep" / "down.txt").write_text("down\n")
    (root / "link").symlink_to("src/0.py")
    os.link(root / "src" / "1.py", root / "other-name")
    (root / os.fsdecode(b"caf\xe9")).write_text("coffee\n")
    return root


def _sessions(work: Path) -> None:
    with open_store(actor="person:tester") as store:
        workspace = store.attach(_filled(work))
        workspace.checkpoint("start")
        with workspace.session("first", title="one") as session:
            text = "".join(f"line {n}\n" for n in range(900))
            _called(session, "write_file", path="new/long.txt", content=text)
            _called(session, "write_file", path="new/long.txt", content=text + "more\n")
            _called(session, "move_file", **{"from": "src/2.py", "to": "src/moved.py"})
            _called(session, "read_file", path="src/0.py")
            session.run(["sh", "-c", "rm -r src/deep; echo file > src/deep; mkfifo pipe"])
            session.run(["sh", "-c", "rm src/deep; mkdir -p src/deep; echo x > src/deep/x"])
            session.run(["sh", "-c", "mv node_modules other; chmod 700 new; rm link; ln -s a link"])
        (work / "src" / "0.py").write_text("# by hand\n")
        workspace.carry_out(workspace.plan_undo())
        workspace.carry_out(workspace.plan_redo())
        (work / ".loomignore").write_text("new/\n")
        workspace.accept_scope()
        _by_other_programs(workspace, work)
        with workspace.session("second") as session:
            session.run(["sh", "-c", "echo y > src/y; head -c 300000 /dev/urandom > large"])
        workspace.carry_out(workspace.plan_rollback("@start"))
        assert workspace.verify().findings == ()


def _by_other_programs(workspace: AuditedWorkspace, work: Path) -> None:
    foreign = workspace.start_foreign_session("other", seconds=60)
    for call in ("c1", "c2"):
        foreign.begin_call(call, "Bash", {"command": "make"}, effect="execute")
    (work / "by-either.txt").write_text("theirs\n")
    foreign.end_call("c1", "ok", {"output": "done"})
    foreign.end_call("c2", "ok")
    foreign.end_call("c1", "error", {"output": "not after all"})
    foreign.end()


def _listed_anew(work: Path) -> None:
    """An earlier release recorded what cannot be; the folder was listed whole after that."""
    with open_store(actor="person:tester") as store:
        workspace = store.attach(_filled(work))
        with workspace.session("before") as session:
            _called(session, "write_file", path="a/b/c.txt", content="c\n")
    with open_store(actor="person:tester") as store:
        workspace = store.workspace(work)
        state = workspace.timeline.tree()["src/0.py"]
        change = FileChange("src/0.py", state, None), FileChange("link/below", None, state)
        log = workspace.adapters.database.event_log(workspace.id)
        log.append([Draft(FilesChanged(change, "outside"), "", "outside")])
    with open_store(actor="person:tester") as store:
        workspace = store.workspace(work)
        workspace.relist()
        with workspace.session("after") as session:
            session.run(["sh", "-c", "echo x > a/x; rm -r a/b"])
            _called(session, "write_file", path="a/b", content="a file\n")
        workspace.carry_out(workspace.plan_undo())


def _imported(work: Path) -> None:
    """The log of a transcript, which is of no folder, beside one of a folder."""
    with open_store(actor="person:tester") as store:
        import_file(store, DATA / "clients" / "claude-code" / "session.jsonl")
        _few_calls(store, _filled(work))


def _few_calls(store: AuditStore, work: Path) -> None:
    workspace = store.attach(work)
    with workspace.session("later") as session:
        _called(session, "write_file", path="src/0.py", content="x = 1\n" * 40)
        session.run(["sh", "-c", "rm -r src; echo x > src"])
    workspace.carry_out(workspace.plan_undo())


def _written_on(release: str) -> Callable[[Path], None]:
    """The store of a release, upgraded, and written on at the place that it is of."""

    def make(work: Path) -> None:
        home = Path(os.environ["LOOM_AUDIT_HOME"])
        home.mkdir(parents=True)
        packed = DATA / "stores" / release / "audit.db.gz"
        (home / "audit.db").write_bytes(gzip.decompress(packed.read_bytes()))
        with open_store(actor="person:tester") as store:
            [entry] = store.workspaces()
            store.workspace(entry.id).checkpoint("upgraded")
            _few_calls(store, _filled(work))

    return make


def copied(home: Path, folder: Path) -> Path:
    """A copy of a store's folder to be changed."""
    shutil.copytree(home, folder, ignore=shutil.ignore_patterns("locks", "index", "daemon"))
    return folder
