"""The demo: a real session, and its proof, which must fail when something is not equal."""

import html
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from loom_audit.api.face import AuditStore, open_store
from loom_audit.cli.shared.dashboard import usable_port
from loom_audit.demo.proof import listing, prove
from loom_audit.demo.recording import (
    CHECKPOINT,
    Demo,
    demo_store,
    demonstrating,
    what_to_try,
)
from loom_audit.model.conversation import MessageReceived, PromptSubmitted
from loom_audit.ports import CallFilter, EventFilter
from tests.given.demo import run_demo
from tests.processes.forked import Forked
from tests.web.conftest import asking

SAID = (PromptSubmitted, MessageReceived)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory):  # type: ignore[no-untyped-def]
    folder = tmp_path_factory.mktemp("store")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LOOM_AUDIT_HOME", str(folder))
        with open_store() as opened:
            yield opened


@pytest.fixture(scope="module")
def demo(store: AuditStore, tmp_path_factory: pytest.TempPathFactory) -> Demo:
    return run_demo(store, tmp_path_factory.mktemp("demo"))


def test_the_session_has_at_least_25_calls_of_every_kind(store: AuditStore, demo: Demo) -> None:
    calls = store.workspace(demo.root).timeline.calls()
    assert len(calls) == demo.calls >= 25
    assert {call.tool for call in calls} == {
        "read_file",
        "write_file",
        "edit_file",
        "delete_file",
        "move_file",
        "list_directory",
        "search_files",
        "shell_execute",
    }
    assert all(call.coverage.level == "full" for call in calls)


def test_the_calls_do_what_they_are_there_for(store: AuditStore, demo: Demo) -> None:
    timeline = store.workspace(demo.root).timeline
    calls = {call.seq: call for call in timeline.calls()}
    number = demo.numbers
    modules = len(list(Path(demo.copies["checkpoint"], demo.package).glob("*.py")))
    assert calls[number["sed"]].changed >= modules - 1
    assert calls[number["failing tests"]].status == "error"
    assert calls[number["fix"]].status == calls[number["chmod"]].status == "ok"
    gone = {change.path for change in timeline.changes_of(calls[number["rm"]])}
    assert {f"{demo.package}/__init__.py", "toolkit.old/words.py"} <= gone
    assert demo.failed == sum(call.status == "error" for call in calls.values()) == 6


def test_what_is_asked_and_said_is_on_record_around_the_calls(
    store: AuditStore, demo: Demo
) -> None:
    timeline = store.workspace(demo.root).timeline
    first, second = demo.sessions
    told = [event for event in timeline.events() if isinstance(event.fact, SAID)]
    prompts = [(one.session, one.seq) for one in told if isinstance(one.fact, PromptSubmitted)]
    assert [session for session, _ in prompts] == [first, first, second]
    for session, agent in ((first, "agent:demo"), (second, "agent:demo")):
        own = [one for one in told if one.session == session]
        assert isinstance(own[0].fact, PromptSubmitted)
        assert isinstance(own[-1].fact, MessageReceived) and own[-1].actor == agent
        calls = timeline.calls(CallFilter(session=session))
        assert own[0].seq < calls[-1].requested and (calls[0].seq or 0) < own[-1].seq
    # a failed test is older than the last edit of what it tests, and none came after it
    numbers = demo.numbers
    later = timeline.calls(CallFilter(after=numbers["last tests"], session=second))
    assert not [one for one in later if "unittest" in one.summary or "run-tests" in one.summary]
    assert [one.paths for one in later if one.seq == numbers["last edit"]] == [
        ("toolkit/words.py",)
    ]
    last = own[-1].fact
    assert isinstance(last, MessageReceived) and "all tests pass" in last.text


def test_the_review_shows_the_failed_test_and_that_it_is_older_than_the_last_edit(
    store: AuditStore, demo: Demo
) -> None:
    workspace = store.workspace(demo.root)
    with asking(store) as client:
        page = client.get(f"/w/{workspace.id}/s/{demo.sessions[1]}").text
    rows = re.findall(r"<li>.*?</li>", page, re.DOTALL)
    [shown] = [row for row in rows if f'/c/{demo.numbers["last tests"]}"' in row]
    text = " ".join(html.unescape(re.sub("<[^>]+>", " ", shown)).split())
    assert " test " in text and "unittest" in text and " exit 1 older than the last edit" in text
    assert f"toolkit.old/words.py by #{demo.numbers['rm']}" in text


def test_one_call_waits_while_it_is_shown_and_goes_on_when_it_is_answered(
    store: AuditStore, tmp_path: Path
) -> None:
    with demonstrating(store, tmp_path) as made:
        workspace = store.workspace(made.root)
        [question] = workspace.questions.pending()
        assert question.requested == made.numbers["asked"]
        assert (question.tool, question.arguments) == ("delete_file", {"path": "todo.txt"})
        assert what_to_try(made)[0][0] == f"loom-audit deny {question.requested}"
        assert not workspace.timeline.session(made.sessions[1]).ended
        assert made.calls == sum(one.calls for one in workspace.timeline.sessions())
        answered = workspace.questions.answer(question, "denied", actor="person:ada")
        workspace.questions.outcome(question, answered)
    assert Path(made.root, "todo.txt").exists()
    events = [*workspace.timeline.events(EventFilter(session=made.sessions[1]))]
    assert "todo.txt where it is" in events[-2].fact.text
    assert workspace.timeline.session(made.sessions[1]).status == "completed"


def test_a_call_that_nobody_answers_is_cancelled_at_the_end(
    store: AuditStore, tmp_path: Path
) -> None:
    with demonstrating(store, tmp_path) as made:
        pass
    workspace = store.workspace(made.root)
    assert workspace.timeline.call(made.numbers["asked"]).call.status == "cancelled"
    assert not workspace.timeline.open_calls() and not workspace.timeline.open_sessions()
    assert Path(made.root, "todo.txt").exists()


def test_what_a_person_edited_is_on_record_as_from_outside(store: AuditStore, demo: Demo) -> None:
    timeline = store.workspace(demo.root).timeline
    for path in demo.outside:
        newest = timeline.history(path)[0]
        assert (newest.origin, newest.actor) == ("outside", "outside")


def test_the_copies_are_what_the_log_says(store: AuditStore, demo: Demo) -> None:
    timeline = store.workspace(demo.root).timeline
    for name, point in (("start", demo.start), ("checkpoint", demo.checkpoint), ("end", demo.end)):
        on_disk = {os.fsdecode(path) for path in listing(Path(demo.copies[name]))}
        assert on_disk == set(timeline.tree(point))
    tree = timeline.tree(timeline.point(f"@{CHECKPOINT}"))
    assert tree["run-tests.sh"].mode & 0o111
    assert tree["toolkit/upstream.py"].kind == "symlink"
    assert timeline.content(tree["toolkit/logo.png"]).startswith(b"\x89PNG")


@pytest.mark.few(0)
def test_what_to_try_works_command_after_command(tmp_path: Path) -> None:
    with demo_store(tmp_path) as store:
        made = run_demo(store, tmp_path / "demo_folder")
    environment = {**os.environ, **made.environment}
    for text, purpose in what_to_try(made):
        assert purpose
        process = Forked(text.split()[1:], cwd=made.root, env=environment)
        out, errors = process.printed()
        # what came from outside is kept unasked, as the demonstration shows
        code = 7 if "rollback" in text.split() and b"--outside" in errors else 0
        assert process.returncode == code, f"{text}: {errors!r}"
        assert out
    assert Path(made.root, made.package, "__init__.py").exists()


def test_the_proof_holds_and_leaves_the_start(tmp_path: Path) -> None:
    with demo_store(tmp_path) as store:
        made = run_demo(store, tmp_path / "demo_folder")
        proof = prove(store.workspace(made.root), made)
    assert proof.holds
    assert min(proof.compared.values()) > 5
    assert listing(Path(made.root)) == listing(Path(made.copies["start"]))


def test_the_proof_names_every_path_that_is_not_equal(tmp_path: Path) -> None:
    with demo_store(tmp_path) as store:
        made = run_demo(store, tmp_path / "demo_folder")
        Path(made.copies["start"], "README.md").write_text("something else\n")
        Path(made.copies["end"], "run-tests.sh").chmod(0o700)
        Path(made.copies["checkpoint"], "toolkit", "upstream.py").unlink()
        proof = prove(store.workspace(made.root), made)
    assert not proof.holds
    assert {what: list(paths) for what, paths in proof.differences.items() if paths} == {
        "replayed end": ["run-tests.sh"],
        "replayed checkpoint": ["toolkit/upstream.py"],
        "rolled back to start": ["README.md"],
        "rollback undone": ["run-tests.sh"],
        "rolled back again": ["README.md"],
    }


@pytest.mark.few(0)
@pytest.mark.parametrize("package", ["json", "email"])
def test_the_packages_of_every_python_will_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    monkeypatch.setattr("loom_audit.demo.story.PACKAGES", ("no_such_package", package))
    with demo_store(tmp_path) as store:
        made = run_demo(store, tmp_path / "demo_folder")
        assert (made.package, made.failed) == (package, 6)
        assert prove(store.workspace(made.root), made).holds


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """As of somebody who has set nothing of ours, with a folder for temporaries of their own."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("LOOM_AUDIT_")}
    return kept | {"TMPDIR": str(tmp_path), "XDG_STATE_HOME": str(tmp_path / "state")}


def start(environment: dict[str, str], *words: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "loom_audit", "demo", *words],
        cwd=Path(__file__).parents[1],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_the_command_proves_and_exits_zero(tmp_path: Path, environment: dict[str, str]) -> None:
    process = start(environment, "--no-serve", "--json")
    output, errors = process.communicate()
    assert process.returncode == 0, errors
    record = json.loads(output)
    assert record["proven"] is True
    assert record["calls"] >= 25
    assert record["store"] == f"sqlite:///{record['folder']}/home/audit.db"
    assert not (tmp_path / "state").exists()
    shutil.rmtree(record["folder"])


@pytest.mark.few(0)
def test_the_end_of_a_served_demo_says_what_stays_and_how_to_delete_it(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    process = start(environment)
    assert process.stdout is not None
    served = next(line for line in process.stdout if line.startswith("dashboard on http://"))
    assert "Ctrl-C ends it" in served
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate()
    (folder,) = tmp_path.glob("loom-audit-demo-*")
    assert f"all of it is in {folder}; `rm -r {folder}` deletes it" in errors
    assert process.returncode == 130 and (folder / "workspace").is_dir()


def test_a_taken_port_is_said_before_anything_is_recorded(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        process = start(environment, "--port", str(taken.getsockname()[1]))
        output, errors = process.communicate()
    assert process.returncode == 4 and "cannot listen on 127.0.0.1:" in errors
    assert output == "" and not list(tmp_path.iterdir())


def test_where_the_usual_port_is_taken_a_demo_takes_a_free_one() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.MonkeyPatch.context() as patch:
        patch.setattr("loom_audit.cli.shared.dashboard.PORT", taken.getsockname()[1])
        assert usable_port(None) == 0
    with socket.create_server(("127.0.0.1", 0)) as freed:
        port = freed.getsockname()[1]
    assert usable_port(port) == port
