"""Whatever is printed, nothing recorded reaches the terminal as it is."""

import io
import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from loom_audit.api.face import WorkspaceEntry
from loom_audit.cli.history import history_line
from loom_audit.cli.ls import entry_line
from loom_audit.cli.shared import lines, records
from loom_audit.cli.shared.output import Output, to_json, wants_color
from loom_audit.cli.shared.taking_back.plans import plan_lines
from loom_audit.errors import Conflict
from loom_audit.model.coverage import Coverage
from loom_audit.model.events import Event, FilesChanged, TreeHead
from loom_audit.model.files import BlobId, FileChange, FileState, Move
from loom_audit.model.plans.planning import Note, Plan
from loom_audit.model.plans.request import PlanRequest
from loom_audit.model.records import Call, Checkpoint, RecordedChange
from tests.cli.across.hostile import CORPUS, dangerous, texts
from tests.cli.shells import Shell

AT = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
SHA = BlobId("a" * 64)


def output(*, as_json: bool = False, color: bool = False) -> Output:
    return Output(as_json, io.StringIO(), io.StringIO(), color, color)


def printed(out: Output) -> str:
    assert isinstance(out.stdout, io.StringIO)
    assert isinstance(out.stderr, io.StringIO)
    return out.stdout.getvalue() + out.stderr.getvalue()


def state(size: int = 3, mode: int = 0o644) -> FileState:
    return FileState("file", SHA, mode, size)


def a_call(text: str = "x", **values: object) -> Call:
    fields: dict[str, Any] = {
        "call_id": text,
        "seq": 7,
        "requested": 5,
        "at": AT,
        "session": text,
        "actor": text,
        "tool": text,
        "effect": "write",
        "status": text,
        "coverage": Coverage("partial", (text,)),
        "summary": text,
        "error": text,
        "paths": (text,),
        "changed": 1,
        "reverts": (3,),
        "duration": 1500,
        "undone_by": 9,
    }
    return Call(**fields | values)


def a_plan(text: str) -> Plan:
    return Plan(
        PlanRequest("revert"),
        9,
        text,
        changes=(
            FileChange(text, state(), None),
            FileChange(text + "2", None, state()),
            FileChange("m", state(), FileState("file", BlobId("b" * 64), 0o755, 4)),
        ),
        reverts=(3,),
        moves=(Move(text, text + "2"),),
        already=(text,),
        kept=(Note(text, text, (4,)),),
        blocked=(Note(text, text, (4,)),),
        irreversible=(Note("", text),),
    )


@given(texts)
def test_a_line_shows_control_and_bidi_characters_escaped(text: str) -> None:
    out = output(color=False)
    out.line(text, (text, "red"))
    out.note(text)
    assert not dangerous(printed(out))
    assert printed(out).count("\n") == 2


@given(texts)
def test_recorded_text_keeps_its_lines_and_nothing_else_that_steers(text: str) -> None:
    out = output()
    out.text(text, indent="  ")
    assert not dangerous(printed(out), allowed="\n\t")
    assert printed(out).count("\n") == text.count("\n") + 1


@given(texts)
def test_a_marked_line_stays_one_line(text: str) -> None:
    out = output()
    out.marked(text, "red")
    assert not dangerous(printed(out), allowed="\n\t")
    assert printed(out).count("\n") == 1


@given(texts)
def test_calls_plans_and_histories_with_hostile_names_print_clean(text: str) -> None:
    out = output()
    change = FileChange(text, state(), state(4))
    event = Event("log", 1, text, AT, text, text, FilesChanged((change,), "tool"), b"\0" * 32)
    out.line(*lines.call_line(a_call(text), width=80))
    out.line(*lines.event_line(event))
    out.lines(plan_lines(a_plan(text), {text: [1, 2]}))
    recorded = RecordedChange(1, AT, text, text, "tool", text, (), change)
    out.line(*history_line(recorded, a_call(text), path=True))
    out.line(*entry_line(text, state()))
    assert not dangerous(printed(out))


@given(texts)
def test_values_with_hostile_text_print_clean(text: str) -> None:
    out = output()
    for line in lines.value_lines({text: text, "list": [text], "block": text + "\n" + text}):
        out.marked(line, "")
    assert not dangerous(printed(out), allowed="\n\t")


@given(texts)
def test_json_is_one_ascii_line_that_reads_back_exactly(text: str) -> None:
    line = to_json({"path": text})
    assert line.isascii()
    assert not dangerous(line, allowed="")
    assert json.loads(line) == {"path": text}


@given(texts)
def test_an_error_prints_its_message_and_hint_clean(text: str) -> None:
    out = output()
    out.error(Conflict(text, hint="do: " + text))
    assert printed(out).startswith("error:")
    assert "\nhint: do:" in printed(out)
    assert not dangerous(printed(out))


def test_an_error_with_json_is_one_object_on_standard_error() -> None:
    out = output(as_json=True)
    out.error(Conflict("no", hint="wait", details={"path": "a"}))
    assert isinstance(out.stderr, io.StringIO)
    assert json.loads(out.stderr.getvalue()) == {
        "error": {"code": "CONFLICT", "message": "no", "hint": "wait", "details": {"path": "a"}}
    }


def test_colour_is_put_around_text_that_is_already_escaped() -> None:
    out = output(color=True)
    out.line(("\x1b[2J", "red"))
    assert printed(out) == "\x1b[31m\\x1b[2J\x1b[0m\n"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("stream", "environment", "expected"),
    [
        (Terminal(), {"TERM": "xterm"}, True),
        (Terminal(), {"TERM": "xterm", "NO_COLOR": "1"}, False),
        (Terminal(), {"TERM": "xterm", "NO_COLOR": ""}, True),
        (Terminal(), {"TERM": "dumb"}, False),
        (Terminal(), {}, False),
        (io.StringIO(), {"TERM": "xterm"}, False),
    ],
)
def test_colour_is_for_capable_terminals_without_no_color(
    stream: io.StringIO, environment: dict[str, str], expected: bool
) -> None:
    assert wants_color(stream, environment) is expected


def test_a_call_line_fits_the_terminal() -> None:
    call = a_call("x" * 300, reverts=(), undone_by=None, status="ok")
    out = output()
    out.line(*lines.call_line(call, width=110))
    assert 100 <= len(printed(out).rstrip("\n")) <= 110


def test_a_call_record_has_the_promised_fields() -> None:
    record = records.call_record(a_call(), "id-1")
    promised = ["seq", "id", "at", "session", "actor", "kind", "tool", "call_id", "status"]
    promised += ["coverage", "paths", "reverts"]
    assert list(record)[:9] == promised[:9]
    assert set(promised) <= set(record)
    assert record["kind"] == "call.finished"
    assert record["coverage"] == "partial"
    assert record["at"] == "2026-01-02T03:04:05.678901Z"


def test_an_open_call_is_recorded_as_requested_with_no_number() -> None:
    record = records.call_record(a_call(seq=None), "id-1")
    assert (record["kind"], record["seq"], record["requested"]) == ("call.requested", None, 5)


def test_what_is_printed_as_the_model_has_it_keeps_its_field_names() -> None:
    kept = {
        FileChange: "path before after",
        Move: "source target",
        Note: "path reason calls",
        Checkpoint: "name point seq at note",
        TreeHead: "log size root",
        WorkspaceEntry: "id root attached_at head baseline_done ignore max_file_bytes",
    }
    assert {one: " ".join(one.__struct_fields__) for one in kept} == kept


def test_an_event_record_has_the_same_fields_and_the_whole_fact() -> None:
    change = FileChange("a", None, state())
    event = Event("log", 4, "id", AT, "s", "me", FilesChanged((change,), "tool", "c"), b"\1" * 32)
    record = records.event_record(event)
    assert record["paths"] == ["a"]
    assert record["call_id"] == "c"
    assert record["fact"]["changes"] == [
        {
            "path": "a",
            "before": None,
            "after": {"kind": "file", "blob": SHA, "mode": "0644", "size": 3},
        }
    ]
    assert json.loads(to_json(record)) == record


def test_a_plan_says_what_changes_what_stays_and_what_stops_it() -> None:
    out = output()
    out.lines(plan_lines(a_plan("p"), {"session s": [3]}))
    text = printed(out)
    for part in (
        "revert p  (log at 9)",
        "takes back: 3  of session s",
        "will change:",
        "R p -> p2",
        "M m  (3 B -> 4 B, mode 0644 -> 0755)",
        "already so:",
        "kept as it is:",
        "conflict, choose",
        "cannot be undone:",
        "(call 4)",
    ):
        assert part in text


def test_a_plan_without_changes_says_so() -> None:
    out = output()
    out.lines(plan_lines(Plan(PlanRequest("undo"), 3, "call 2")))
    assert "nothing on disk will change" in printed(out)


def test_a_merged_path_is_shown_once_with_what_is_kept_in_it() -> None:
    changes = (FileChange("m", state(), state(mode=0o755)), FileChange("n", state(), None))
    note = Note("m", "changed later, kept", (4,))
    out = output()
    out.lines(plan_lines(Plan(PlanRequest("revert"), 9, "3", changes=changes, merged=(note,))))
    lines = printed(out).splitlines()
    assert lines[1:] == [
        "will change:",
        "  D n  (3 B)",
        "will be merged with later changes, which are kept:",
        "  P m  (mode 0644 -> 0755): changed later, kept (call 4)",
    ]


@pytest.mark.parametrize(
    ("before", "after", "letter"),
    [
        (None, state(), "A"),
        (state(), None, "D"),
        (state(), FileState("file", BlobId("b" * 64), 0o644, 3), "M"),
        (state(), state(mode=0o755), "P"),
        (state(), FileState("symlink", SHA, 0o777, 3), "T"),
    ],
)
def test_each_change_has_its_letter(
    before: FileState | None, after: FileState | None, letter: str
) -> None:
    assert lines.mark(FileChange("p", before, after))[0] == letter


@pytest.mark.parametrize("text", CORPUS)
def test_the_corpus_is_dangerous_as_it_is(text: str) -> None:
    assert dangerous(text, allowed="")


def test_a_reader_that_leaves_is_not_an_error(audited: Shell) -> None:
    (audited.workspace / "many").mkdir()
    for n in range(2000):
        (audited.workspace / "many" / f"a-rather-long-name-to-fill-the-pipe-{n:05}").touch()
    audited.sh("true")
    import subprocess
    import sys

    process = subprocess.Popen(
        [sys.executable, "-m", "loom_audit", "ls", "-r"],
        cwd=audited.workspace,
        env=audited.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait(30) == 141
    process.stderr.close()


def test_what_a_reader_that_has_left_was_not_shown_is_not_done(audited: Shell) -> None:
    """`loom-audit … 2>&1 | head`: what both are written to has gone."""
    audited.extra["HOME"] = str(audited.home)
    audited.sh("echo new > a.txt")
    audited.call("write_file", path="b.txt", content="x")
    import subprocess
    import sys

    events = len(audited.records("log", "--events"))
    reading, writing = os.pipe()
    os.close(reading)
    for command in (
        "undo",
        "import --recover a.txt --take 2 --yes",
        "workspaces forget . --yes",
        "show 99",
        "no-such",
        "log --no-such",
        "--json show 99",
    ):
        done = subprocess.run(
            [sys.executable, "-m", "loom_audit", *command.split()],
            cwd=audited.workspace,
            env=audited.environment,
            stdout=writing,
            stderr=writing,
        )
        assert done.returncode == 141, command
    os.close(writing)
    assert (audited.workspace / "a.txt").read_text() == "new\n"
    assert (audited.workspace / "b.txt").read_text() == "x"
    assert len(audited.records("log", "--events")) == events


def test_output_works_in_a_locale_that_is_not_utf8(audited: Shell) -> None:
    audited.real = audited.started = True
    audited.extra = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    name = "n\u00e4me\u2192.txt"
    (audited.workspace / name).write_text("\u00e4\n")
    shown = audited("status")
    assert shown.stdout.isascii()
    assert "A n\\xe4me\\u2192.txt" in shown.text
    audited("run", "--", "sh", "-c", 'test -z "$LOOM_AUDIT_ENCODING$PYTHONIOENCODING"')
    (found,) = [r for r in audited.records("ls") if r["path"].startswith("n")]
    assert found["path"] == name
    assert audited("cat", name).stdout == "\u00e4\n".encode()


def test_nothing_to_print_is_said_on_standard_error(audited: Shell) -> None:
    for words, said in (
        (("diff",), "no differences"),
        (("session",), "no sessions yet"),
    ):
        ran = audited(*words)
        assert (ran.text, ran.errors) == ("", f"{said}\n")
        assert audited(*words, "--json").errors == ""


def test_one_is_never_a_plural(shell: Shell, tmp_path: Path) -> None:
    (shell.workspace / "src" / "app.py").unlink()
    (shell.workspace / "src").rmdir()
    assert "\n1 file, " in shell("init").text
    ran = shell("run", "--", "touch", "new")
    assert "1 path changed" in ran.errors
    assert "2 paths as of" in shell("replay", "head", "--to", str(tmp_path / "out")).text
    shell("undo")
    assert "1 path as of" in shell("replay", "head", "--to", str(tmp_path / "again")).text
    assert "1 path, 0 lines" in shell("diff", "--stat", "head~2", "head~1").text
    assert " 1 file, " in shell("log", "--kind", "baseline.finished").text
    (shell.workspace / ".loomignore").write_text("*.o\n")
    shell("scope", "accept")
    assert "1 rule in .loomignore" in shell("doctor", code=None).text
