"""Another program writes the same file while we do: neither destroys what the other wrote."""

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

from loom_audit import AuditedWorkspace, AuditError, Session, open_store
from loom_audit.disk.access.system import probe
from loom_audit.history.record.call import OpenCall
from loom_audit.model.events import ContentFound
from loom_audit.model.files import FileState
from tests.crash.programs.beside import holds, other
from tests.crash.programs.faults import check_finishes, check_fold, check_log
from tests.given.cases import some
from tests.oracles.trees import tree_of

MOST = 300


@pytest.fixture
def workspace(home: Path, tmp_path: Path) -> Iterator[AuditedWorkspace]:
    if not probe().renameat2:
        pytest.skip("needs renameat2 with RENAME_EXCHANGE")
    root = tmp_path / "root"
    (root / "inside").mkdir(parents=True)
    (root / "inside" / "file").write_text("mark\n")
    (root / "file").write_text("mark\n")
    with open_store() as store:
        yield store.attach(root)


@pytest.fixture(params=some([10, 80], 1))
def least(request: pytest.FixtureRequest) -> int:
    """How many calls are made, also where the other program was met earlier."""
    return int(request.param)


def many(
    session: Session, make: Callable[[int], tuple[str, dict[str, Any]]], least: int
) -> Counter[str]:
    """Call until some calls have met the other program's doing; how the calls ended."""
    ended: Counter[str] = Counter()

    async def calls() -> None:
        for n in range(MOST):
            tool, arguments = make(n)
            result = await session.call(tool, arguments)
            ended[result.error.code if result.error else "ok"] += 1
            if n >= least and ended["CONFLICT"] >= 3:
                return

    anyio.run(calls)
    return ended


def settled(workspace: AuditedWorkspace) -> None:
    """A command puts on record what nobody saw yet; then log and disk are one."""
    with workspace.session("after") as session:
        result = anyio.run(session.call, "shell_execute", {"command": "true"})
        assert result.success
    assert workspace.status().drift == ()
    check_fold(workspace, tree_of(workspace.root))
    check_finishes(workspace)
    check_log(workspace, [])
    assert workspace.attachment.on_disk.workspace.leftovers() == []


def written(n: int) -> tuple[str, dict[str, Any]]:
    return "write_file", {"path": "file", "content": f"ours {n}\nmark\n"}


def edited(n: int) -> tuple[str, dict[str, Any]]:
    change = {"old_str": "mark", "new_str": f"mark {n}", "replace_all": True}
    return "edit_file", {"path": "file", "edits": [change]}


@pytest.mark.parametrize("make", [written, edited])
def test_a_file_replaced_by_another_program_during_a_write_is_never_destroyed(
    workspace: AuditedWorkspace, make: Callable[[int], tuple[str, dict[str, Any]]], least: int
) -> None:
    with workspace.session("racer") as session, other("replacing", workspace) as said:
        ended = many(session, make, least)
    assert set(ended) <= {"ok", "CONFLICT"}, ended
    assert ended["CONFLICT"], "the race was never met"
    final = (Path(workspace.root) / "file").read_text()
    displaced = {word["displaced"] for word in said}
    lost = [
        word["wrote"]
        for word in said
        if word["wrote"] not in displaced
        and word["wrote"] != final
        and not holds(workspace, word["wrote"])
    ]
    assert lost == []
    settled(workspace)


def test_lines_appended_by_another_program_during_a_write_are_never_destroyed(
    workspace: AuditedWorkspace, least: int
) -> None:
    ended: Counter[str] = Counter()
    with workspace.session("racer") as session, other("appending", workspace) as said:
        for n in range(MOST):
            first = b"ours %d\n" % n
            call = OpenCall(session.writer, "edit", {}, "write", call_id=f"edit-{n}")
            try:
                call.edit("file", partial(with_first_line, first), final=True)
            except AuditError as error:
                ended[error.code] += 1
                call.finish("error", error.to_dict())
            else:
                ended["ok"] += 1
                call.finish("ok", {})
            if n >= least and ended["CONFLICT"] >= 3:
                break
    assert set(ended) <= {"ok", "CONFLICT"}, ended
    settled(workspace)
    assert lost_lines(workspace, said) == []


def lost_lines(workspace: AuditedWorkspace, said: list[dict[str, Any]]) -> list[str]:
    """The lines that the other program wrote into the file and that are nowhere now."""
    states: list[FileState | None] = []
    for recorded in workspace.timeline.history("file", limit=10_000):
        states += (recorded.change.before, recorded.change.after)
    facts = (event.fact for event in workspace.log.read())
    states += (fact.state for fact in facts if isinstance(fact, ContentFound))
    kept = [workspace.blobs.get(state.blob).decode() for state in states if state and state.blob]
    kept.append((Path(workspace.root) / "file").read_text())
    there = {word for text in kept for word in text.splitlines()}
    return [word["line"] for word in said if word["line"] not in there]


@pytest.mark.few(0)
@pytest.mark.parametrize("others", [0, 20])
def test_lines_appended_by_another_program_during_rollbacks_are_never_destroyed(
    workspace: AuditedWorkspace, others: int
) -> None:
    root = Path(workspace.root)
    for n in range(others):
        (root / f"{n}.txt").write_text("before\n")
    workspace.checkpoint("one")
    with workspace.session("racer") as session, session.recording("work"):
        (root / "file").write_text("ours\n")
        for n in range(others):
            (root / f"{n}.txt").write_text("after\n")
    points: list[int | str] = ["@one", workspace.log.head()]
    ended: Counter[str] = Counter()
    pace, next_pace = root.with_name("pace"), root.with_name("next pace")
    pace.write_text("0.1")
    with other("appending", workspace) as said:
        for n in range(MOST):
            began = time.monotonic()
            try:
                workspace.carry_out(workspace.plan_rollback(points[n % 2], outside=True))
                ended["ok"] += 1
            except AuditError as error:
                ended[error.code] += 1
            # on a busy machine the other program is slower too, so that some meet it, some do not
            next_pace.write_text(str(2 * (time.monotonic() - began)))
            next_pace.replace(pace)
            if min(ended["ok"] - 10, ended["CONFLICT"]) >= 3:
                break
    assert set(ended) == {"ok", "CONFLICT"}, ended
    settled(workspace)
    assert lost_lines(workspace, said) == []


def with_first_line(line: bytes, old: bytes | None) -> bytes:
    return line + (old or b"").partition(b"\n")[2]


def test_an_undo_does_not_destroy_what_another_program_writes_meanwhile(
    workspace: AuditedWorkspace, least: int
) -> None:
    ended: Counter[str] = Counter()
    with workspace.session("racer") as session:
        anyio.run(session.call, *written(0))
    with other("replacing", workspace) as said:
        for n in range(MOST):
            plan = workspace.plan_rollback(3 if n % 2 else "head", outside=True)
            try:
                workspace.carry_out(plan)
                ended["ok"] += 1
            except AuditError as error:
                ended[error.code] += 1
            if n >= least and ended["CONFLICT"] >= 3:
                break
    assert set(ended) <= {"ok", "CONFLICT"}, ended
    final = (Path(workspace.root) / "file").read_text()
    displaced = {word["displaced"] for word in said}
    for word in said:
        text = word["wrote"]
        assert text in displaced or text == final or holds(workspace, text)
    settled(workspace)


def test_a_link_swapped_in_during_a_call_leads_nowhere(
    workspace: AuditedWorkspace, tmp_path: Path, least: int
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_text("secret\n")
    (Path(workspace.root) / "link").symlink_to(outside)
    before = tree_of(outside)

    def make(n: int) -> tuple[str, dict[str, Any]]:
        ways: list[tuple[str, dict[str, Any]]] = [
            ("read_file", {"path": "inside/file"}),
            ("write_file", {"path": "inside/file", "content": f"ours {n}\n"}),
            ("write_file", {"path": f"inside/new-{n}", "content": "ours\n"}),
            ("list_directory", {"path": "inside"}),
            ("delete_file", {"path": f"inside/new-{n - 2}"}),
            ("search_files", {"pattern": "secret"}),
            ("shell_execute", {"command": "true"}),
        ]
        return ways[n % len(ways)]

    with workspace.session("racer") as session, other("swapping", workspace) as said:
        results: list[Any] = []

        async def calls() -> None:
            for n in range(max(least, 7 * 4)):
                results.append((make(n), await session.call(*make(n))))

        anyio.run(calls)
    assert said
    assert tree_of(outside) == before
    assert not holds(workspace, "secret\n")
    for _, result in results:
        assert "secret\n" not in result.output
        assert "secret\n" not in json.dumps(result.data)
    codes = {result.error.code for _, result in results if result.error}
    assert codes <= {
        "CONFLICT",
        "INVALID_PATH",
        "IS_A_DIRECTORY",
        "NOT_A_DIRECTORY",
        "NOT_EMPTY",
        "FILE_NOT_FOUND",
        "EXECUTION_ERROR",
    }, codes
    assert any(result.success for (tool, _), result in results if tool[0] == "write_file") or codes
