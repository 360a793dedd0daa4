"""`workspaces forget`: what goes, what stays, and that nothing half-erased is served."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from loom_audit import open_store
from loom_audit.api.agents.clients import Hooks
from loom_audit.api.upkeep import forgetting
from loom_audit.errors import AuditUnavailable, Conflict, Corrupt
from loom_audit.model.events import CheckpointMarked, Draft, WorkspaceForgotten
from loom_audit.ports import EventFilter
from loom_audit.sql.ground.driver import connect, connect_writer
from loom_audit.sql.schema import _statements
from loom_audit.sql.store import places
from loom_audit.verify_alone import main as verify_alone
from tests.cli.shells import Shell, at_terminal, new_shell
from tests.given.watched import Watched
from tests.places.made_store import lay_store
from tests.processes.hooked import HookedClaude

SECRET = "MARKER-of-what-is-forgotten"
LAST = 15
"""The newest version of a file in the other workspace."""

SHARED = "shared by both\n" * 400


def lines(version: int, word: str) -> str:
    """A version of a file that is stored as a delta against the one before."""
    return "".join(f"{n} line of a file\n" for n in range(600)) + f"{word} {version}\n"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The folder of a person with two workspaces whose contents overlap, and a copy of it."""
    place = tmp_path_factory.mktemp("two")
    audited, other = new_shell(place), place / "other"
    lay_store(audited.home)
    audited("init")
    other.mkdir()
    (audited.workspace / "shared.txt").write_text(SHARED)
    (audited.workspace / "large.bin").write_bytes(b"".join(bytes([n]) * 7 for n in range(256)) * 9)
    for version in range(3):  # a line of its own, which is erased first
        audited.call("write_file", path="first.txt", content=lines(version, "first"))
    for version in range(5):
        audited.call("write_file", path="a.txt", content=lines(version, "both"))
    audited.call("write_file", path="secret.txt", content=f"{SECRET} in a file\n")
    audited.call("shell_execute", command=f"echo {SECRET}; head -c 700000 /dev/urandom > huge.bin")
    for name in ("shared.txt", "a.txt"):
        (other / name).write_bytes((audited.workspace / name).read_bytes())
    audited("init", str(other))
    # each is stored against one before, in the end against the other's; the sixteenth, which comes
    # later, against the first
    for version in range(5, LAST + 1):
        audited("--workspace", str(other), "call", "write_file", written(version))
    audited.call("write_file", path="a.txt", content=lines(9, SECRET))
    audited("log", "--search", "MARKER")  # so that there are rows of full text
    assert traces(audited)
    shutil.copytree(place, saved := tmp_path_factory.mktemp("saved") / "two")
    return place, saved


@pytest.fixture
def two(made: tuple[Path, Path]) -> tuple[Shell, Path]:
    """A person with two workspaces, one to be forgotten, and the folder of the other."""
    place, saved = made
    shutil.rmtree(place)
    shutil.copytree(saved, place)
    return Shell(place / "work", place / "home"), place / "other"


def written(version: int) -> str:
    return json.dumps({"path": "a.txt", "content": lines(version, "both")})


@contextmanager
def database(shell: Shell) -> Iterator[Any]:
    with closing(connect(str(shell.database), "ro")) as raw:
        yield raw


def forgotten(shell: Shell) -> dict[str, Any]:
    (found,) = [one for one in shell.records("workspaces") if one.get("forgotten")]
    return found


def check_other(shell: Shell, other: Path) -> None:
    """The workspace that was not forgotten is whole, and nothing of the other is in the store."""
    place = ("--workspace", str(other))
    assert '"findings": []' in shell(*place, "verify", "--json").text
    history = shell.records(*place, "history", "a.txt")
    for one, version in zip(history, range(LAST, 4, -1), strict=False):
        printed = shell(*place, "cat", "a.txt", "--at", str(one["seq"])).text
        assert printed == lines(version, "both")
    assert shell(*place, "cat", "shared.txt", "--at", "3").text == SHARED


def traces(shell: Shell) -> list[str]:
    """The files beside and in the store that hold the secret."""
    files = [path for path in shell.home.rglob("*") if path.is_file()]
    return [str(path) for path in files if SECRET.encode() in path.read_bytes()]


def test_all_that_a_log_says_goes_and_what_another_names_stays(two: tuple[Shell, Path]) -> None:
    shell, other = two
    heads = shell.records("head")
    id = shell.records("workspaces")[0]["id"]
    before = shell.tree()
    (plan,) = shell.records("workspaces", "forget", ".", "--dry-run")
    assert plan["dry_run"] and not plan["begun"] and plan["amount"]["contents"] >= 4
    told = shell("workspaces", "forget", ".", "--yes", "--reason", "a customer asked")
    assert "is forgotten" in told.text and shell.tree() == before
    fact = forgotten(shell)
    assert (fact["id"], fact["root"], fact["reason"]) == (
        id,
        str(shell.workspace),
        "a customer asked",
    )
    assert (fact["finished"], fact["contents"]) == (True, plan["amount"]["contents"])
    check_other(shell, other)
    assert traces(shell) == []
    assert not list((shell.home / "index").glob(f"{id}*"))
    # leaves and tree stay, and verify, against a head that was printed before too
    (shell.home / "head").write_text(
        f"loom-audit-head v1 {id} {heads[0]['size']} {heads[0]['root']}\n"
    )
    kept = ("--against", str(shell.home / "head"))
    (said,) = shell.records("--workspace", id, "verify", *kept)
    assert [one["code"] for one in said["findings"]] == ["log.forgotten"]
    assert said["size"] == heads[0]["size"] + 1 and said["unanchored"] == 0
    assert "forgotten" in shell("--workspace", id, "verify").text


def test_every_store_of_the_lists_says_that_it_is_forgotten(
    two: tuple[Shell, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    shell, _ = two
    id = shell.records("workspaces")[0]["id"]
    shell("workspaces", "forget", id, "--yes")
    assert re.search(rf"{id}  forgotten .* by person:", shell("workspaces").text)
    assert "is forgotten" in shell("--workspace", id, "log", code=4).errors
    assert "no workspace under audit" in shell("log", code=4).errors
    checked = shell("doctor", code=None).text
    assert re.search(rf"forgotten .*, log {id}", checked) and "not in the store" not in checked
    assert verify_alone([str(shell.database)]) == 0
    printed = capsys.readouterr().out
    assert (
        f"forgotten: log {id}" in printed and "\nerased" not in printed and "wrong" not in printed
    )
    assert "forgotten already" in shell("workspaces", "forget", id, "--yes", code=4).errors
    assert "is under audit" in shell("init").text
    assert {one["id"] for one in shell.records("workspaces")} > {id}
    assert '"findings": []' in shell("verify", "--json", code=3).text  # no head is kept of it yet


def test_a_store_with_a_forgotten_log_is_salvaged(two: tuple[Shell, Path], tmp_path: Path) -> None:
    shell, _ = two
    shell("workspaces", "forget", ".", "--yes")
    shell("salvage", "--to", str(tmp_path / "saved"), code=None)
    saved = tmp_path / "saved" / "trees"
    assert [one.read_text() for one in saved.rglob("a.txt")] == [lines(LAST, "both")]


def test_at_a_terminal_it_asks_and_without_one_it_wants_a_yes(two: tuple[Shell, Path]) -> None:
    shell, _ = two
    refused = shell("workspaces", "forget", ".", code=2)
    assert "cannot be brought back" in refused.errors and "--yes" in refused.errors
    code, printed = at_terminal(shell, "workspaces", "forget", ".", answer=b"n\n", after=b"[y/N]")
    assert code == 1 and "nothing was erased" in printed
    assert not any(one.get("forgotten") for one in shell.records("workspaces"))


def test_it_names_copies_and_settings_that_it_does_not_reach(two: tuple[Shell, Path]) -> None:
    shell, _ = two
    backup = shell.home / "audit.db.before-upgrade-0003-x"
    backup.write_bytes(b"")
    settings = shell.workspace / ".claude" / "settings.local.json"
    settings.parent.mkdir()
    settings.write_text('{"hooks": "/home/hooks/hook_client.py"}')
    told = shell("workspaces", "forget", ".", "--yes").errors
    assert f"{backup} is a copy of the whole store" in told and backup.exists()
    assert "`loom-audit connect --remove claude-code`" in told and settings.exists()


def test_a_folder_in_a_workspace_is_not_taken_for_it(two: tuple[Shell, Path]) -> None:
    shell, _ = two
    refused = shell("workspaces", "forget", "src", "--yes", code=2)
    assert f"is in the workspace {shell.workspace}" in refused.errors
    assert "one workspace is to be named" in shell("workspaces", "forget", code=2).errors


def test_it_is_refused_while_a_session_is_open(two: tuple[Shell, Path]) -> None:
    shell, _ = two
    with open_store(str(shell.database)) as store:
        workspace = store.workspace(shell.workspace)
        with workspace.session("tester"):
            refused = shell("workspaces", "forget", ".", "--yes", code=5)
            assert "is open there" in refused.errors
        foreign = workspace.start_foreign_session("other", seconds=3600)
        assert "of other is open" in shell("workspaces", "forget", ".", "--yes", code=5).errors
        foreign.end()
    shell("workspaces", "forget", ".", "--yes")


def test_it_is_refused_while_somebody_watches(two: tuple[Shell, Path]) -> None:
    shell, _ = two
    with open_store(str(shell.database)) as store:
        watched = Watched(store.workspace(shell.workspace))
        with watched.watcher:
            watched.until(lambda: watched.notes)
            refused = shell("workspaces", "forget", ".", "--yes", code=5)
            assert "somebody watches" in refused.errors
    shell("workspaces", "forget", ".", "--yes")


def test_a_workspace_whose_folder_is_gone_can_be_forgotten(two: tuple[Shell, Path]) -> None:
    shell, other = two
    shutil.rmtree(shell.workspace)
    shell("workspaces", "forget", str(shell.workspace), "--yes", cwd=other)
    assert next(one["root"] for one in shell.records("workspaces", cwd=other)) == str(other)


def test_nothing_is_recorded_in_a_log_that_is_forgotten(two: tuple[Shell, Path]) -> None:
    """By a process that had it open before."""
    shell, _ = two
    late = Draft(CheckpointMarked("x", 1), "", "outside")
    with open_store(str(shell.database)) as store:
        workspace = store.workspace(shell.workspace)
        assert workspace.attachment
        shell("workspaces", "forget", ".", "--yes")
        with pytest.raises(Corrupt, match="is forgotten"):
            workspace.checkpoint("late")
        assert not workspace.timeline.calls()
        with pytest.raises(AuditUnavailable, match="forgotten"):
            store.adapters.database.event_log(workspace.id).append([late])


STEPS = [
    "record_forgotten",
    "erase_some",
    "before _unlink",
    pytest.param("erase_some again", marks=pytest.mark.deep),
    pytest.param("before erase_rows", marks=pytest.mark.deep),
    "erase_rows",
    pytest.param("write_anew", marks=pytest.mark.deep),
    pytest.param("discard_all", marks=pytest.mark.deep),
]


@pytest.mark.few(1)
@pytest.mark.parametrize("step", STEPS)
def test_killed_after_any_step_nothing_is_served_and_it_can_be_finished(
    two: tuple[Shell, Path], step: str
) -> None:
    shell, other = two
    id = shell.records("workspaces")[0]["id"]
    program = f"""
import os, sys
from loom_audit import open_store
from loom_audit.api.upkeep import forgetting
from loom_audit.sql.erasing import forgetting as erasing
erasing._AT_ONCE = 1
left = {2 if step == "erase_some again" else 1}
def killed(owner, name):
    real = getattr(owner, name)
    def step(*given, **named):
        global left
        result = None if {step.startswith("before ")} else real(*given, **named)
        left -= 1
        if not left:
            os.kill(os.getpid(), 9)
        return result
    setattr(owner, name, step)
place = {step.removeprefix("before ").split()[0]!r}
owners = {{"record_forgotten": forgetting, "discard_all": forgetting}}
killed(owners.get(place, erasing.Forgetting), place)
with open_store({str(shell.database)!r}) as store:
    forgetting.forget_workspace(store, {id!r})
"""
    environment = shell.environment
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True)
    assert done.returncode == -9, done.stderr.decode()
    assert shell.records("workspaces")[0]["root"] == str(other)
    assert "no workspace" in shell("log", code=4).errors
    assert "is forgotten" in shell("--workspace", id, "log", code=4).errors
    finished = forgotten(shell)["finished"]
    assert not finished and "was interrupted" in shell("workspaces").text
    assert "erasing it was interrupted" in shell("doctor", code=1).text
    check_other(shell, other)
    (doubt,) = shell.records("--workspace", id, "verify", code=None)
    left = step not in ("erase_rows", "write_anew", "discard_all")
    codes = {"log.forgotten", "forget.unfinished"} if left else {"log.forgotten"}
    assert {one["code"] for one in doubt["findings"]} == codes
    shell("workspaces", "forget", id, "--yes")
    assert forgotten(shell)["finished"] and traces(shell) == []
    files = [one for one in (shell.home / "blobs").rglob("*") if one.is_file()]
    assert files == [] and not list((shell.home / "index").glob(f"{id}*"))
    check_other(shell, other)
    shell("--workspace", id, "verify")


@pytest.mark.few(1)
@pytest.mark.parametrize("at_once", [1, 2000])
def test_others_go_on_between_the_steps(
    two: tuple[Shell, Path], monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    """They record a content that was to go, and next versions of a file of which some go."""
    shell, other = two
    secret, place = (shell.workspace / "secret.txt").read_text(), ("--workspace", str(other))
    told = [json.dumps({"path": "secret.txt", "content": secret}), *map(written, range(20, 32))]
    monkeypatch.setattr("loom_audit.sql.erasing.forgetting._AT_ONCE", at_once)
    locked = forgetting._locked

    @contextmanager
    def then_others_go_on(adapters: Any) -> Iterator[None]:
        with locked(adapters):
            yield
        for arguments in told[: 1 if at_once == 1 else len(told)]:
            told.remove(arguments)
            shell(*place, "call", "write_file", arguments)

    monkeypatch.setattr(forgetting, "_locked", then_others_go_on)
    with open_store(str(shell.database)) as store:
        forgetting.forget_workspace(store, shell.workspace)
    while told:
        shell(*place, "call", "write_file", told.pop(0))
    assert '"findings": []' in shell(*place, "verify", "--json").text
    assert shell(*place, "cat", "secret.txt", "--at", "head").text == secret
    history = shell.records(*place, "history", "a.txt")
    for one, version in zip(history, [*range(31, 19, -1), *range(LAST, 4, -1)], strict=False):
        assert shell(*place, "cat", "a.txt", "--at", str(one["seq"])).text == lines(version, "both")


def test_one_workspace_is_forgotten_at_a_time(two: tuple[Shell, Path]) -> None:
    shell, _ = two
    with open_store(str(shell.database)) as store:
        release = store.adapters.lock.acquire("forgetting")
        assert "is still held" in shell("workspaces", "forget", ".", "--yes", code=5).errors
        release()


def test_it_is_not_finished_while_somebody_reads_what_was_erased(
    two: tuple[Shell, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file of the database holds it until the write-ahead log is copied back."""

    def soon(path: str) -> Any:
        raw = connect_writer(path)
        raw.execute("PRAGMA busy_timeout=1")
        return raw

    monkeypatch.setattr("loom_audit.sql.erasing.forgetting.connect_writer", soon)
    shell, other = two
    id = shell.records("workspaces")[0]["id"]
    with open_store(str(shell.database)) as store:
        with database(shell) as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM blob").fetchone()
            with pytest.raises(Conflict, match="somebody reads"):
                forgetting.forget_workspace(store, id)
            assert traces(shell) and not forgotten(shell)["finished"]
        assert forgetting.forget_workspace(store, id).is_finished
    assert traces(shell) == []
    check_other(shell, other)


def test_a_log_that_cannot_be_read_stops_it_before_a_content_goes(two: tuple[Shell, Path]) -> None:
    shell, _ = two
    with closing(connect(str(shell.database), "rw")) as raw:
        damaged = "UPDATE payload SET content = x'00ff' WHERE role = 'keys' AND log = 2 AND seq = 2"
        raw.execute(damaged)
    with database(shell) as raw:
        before = raw.execute("SELECT count(*) FROM blob WHERE encoding <> 'absent'").fetchone()
    refused = shell("workspaces", "forget", ".", "--yes", code=6)
    assert "names cannot be read" in refused.errors and "verify --workspace" in refused.errors
    with database(shell) as raw:
        after = raw.execute("SELECT count(*) FROM blob WHERE encoding <> 'absent'").fetchone()
    assert before == after and not any(one.get("forgotten") for one in shell.records("workspaces"))


def test_a_hook_in_a_folder_that_was_forgotten_meanwhile_is_one_outside(
    two: tuple[Shell, Path], tmp_path: Path
) -> None:
    """The warm process has the workspace open still."""
    shell, _ = two
    with open_store(str(shell.database)) as store:
        hooks = Hooks(store)
        answer = partial(hooks.answer, "claude-code")
        agent = HookedClaude(answer, shell.workspace, tmp_path / "s1.jsonl")
        for name in ("SessionStart", "SessionEnd"):
            agent.hook(name)
        assert not hooks.outside
        shell("workspaces", "forget", ".", "--yes")
        later = HookedClaude(answer, shell.workspace, tmp_path / "s2.jsonl", "s2")
        assert later.hook("SessionStart") == b""
        assert later.before("c1", "Write", {"file_path": "x", "content": "x"}) == b""
        assert hooks.outside == {str(shell.workspace)}
        hooks.close()


def test_an_imported_log_can_be_forgotten(audited: Shell, tmp_path: Path) -> None:
    line = (
        '{"type": "user", "sessionId": "s1", "cwd": "/home/dev/shop", "uuid": "u1", '
        f'"message": {{"role": "user", "content": "{SECRET}"}}}}\n'
    )
    (tmp_path / "s1.jsonl").write_text(line)
    audited("import", str(tmp_path / "s1.jsonl"))
    audited("workspaces", "forget", "import:/home/dev/shop", "--yes")
    assert forgotten(audited)["root"] == "import:/home/dev/shop"
    assert audited.records("import", str(tmp_path / "s1.jsonl"))


STAY = {"log", "event", "tree_node", "dictionary", "alembic_version"}
"""What proofs rest on, and what is of no log."""

OF_CONTENTS = ("blob", "blob_content")
"""The rows of contents that no other log names go."""


def test_of_every_table_it_is_said_what_becomes_of_it() -> None:
    made = (re.match(r"CREATE (?:VIRTUAL )?TABLE (\w+)", sql) for sql in _statements())
    tables = {found[1] for found in made if found}
    placed = [*STAY, *places.OF_LOG, places.PAYLOADS, *OF_CONTENTS, places.FULL_TEXT]
    assert sorted(placed) == sorted({*placed}) and {*placed} == tables


def test_the_rows_of_a_forgotten_log_are_those_that_proofs_rest_on(two: tuple[Shell, Path]) -> None:
    shell, _ = two
    shell("workspaces", "forget", ".", "--yes")
    with database(shell) as raw:
        counts = {
            table: raw.execute(f"SELECT count(*) FROM {table} WHERE log = 1").fetchone()[0]
            for table in ("event", places.PAYLOADS, *places.OF_LOG)
        }
        unnamed = raw.execute("SELECT count(*) FROM blob WHERE encoding = 'absent'").fetchone()
    assert counts.pop("event") > 20 and counts.pop(places.PAYLOADS) == 1
    assert set(counts.values()) == {0} and unnamed == (0,)


def test_the_fact_is_shown_among_events(two: tuple[Shell, Path]) -> None:
    shell, _ = two
    shell("workspaces", "forget", ".", "--yes", "--reason", "why not")
    with open_store(str(shell.database)) as store:
        (entry,) = forgetting.forgotten_workspaces(store)
        log = store.adapters.log(entry.event.log)
        (last,) = log.read(EventFilter.only(log.head()))
    assert isinstance(last.fact, WorkspaceForgotten) and last.fact.reason == "why not"
    assert last.actor.startswith("person:")


CALLS = ("pwrite64", "fsync", "unlink", "ftruncate", "write", "rmdir")


@pytest.mark.deep
@pytest.mark.parametrize("call", CALLS)
def test_killed_at_any_write_it_can_be_finished(made: tuple[Path, Path], call: str) -> None:
    """At every system call of this name; from the fortieth on at every seventh."""
    place, saved = made
    numbers = [*range(1, 40), *range(40, 400, 7)]
    for number in numbers:
        shutil.rmtree(place)
        shutil.copytree(saved, place)
        shell, other = Shell(place / "work", place / "home"), place / "other"
        id = shell.records("workspaces")[0]["id"]
        inject = f"inject={call}:signal=KILL:when={number}"
        words = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", f"trace={call}", "-e", inject]
        words += [sys.executable, "-m", "loom_audit", "workspaces", "forget", id, "--yes"]
        done = subprocess.run(words, env=shell.environment, capture_output=True, cwd=other)
        if done.returncode == 0:
            assert forgotten(shell)["finished"]
            return
        is_there = shell.records("workspaces")[0]["id"] == id
        if is_there:  # it had not begun
            assert '"findings": []' in shell("--workspace", id, "verify", "--json", code=None).text
        check_other(shell, other)
        if is_there or not forgotten(shell)["finished"]:
            shell("workspaces", "forget", id, "--yes")
        assert traces(shell) == []
        assert not [one for one in (shell.home / "blobs").rglob("*") if one.is_file()]
        shell("--workspace", id, "verify")
        check_other(shell, other)
    raise AssertionError("it does not end")
