"""How arguments are read, and how a command ends."""

import io
import os
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_audit import errors
from loom_audit.cli.shared import exits
from loom_audit.cli.shared.command import carry_out, wants_json
from loom_audit.cli.shared.invocation import Invocation, SharedOptions
from loom_audit.cli.shared.options import read_choices, workspace_path
from loom_audit.cli.shared.points import is_point, point_text, typed_time
from loom_audit.errors import AuditError, InvalidArguments, InvalidPath
from loom_audit.model.text.times import read_time

NOW = datetime(2026, 1, 2, 12, 0, tzinfo=UTC)


def every_error() -> list[type[AuditError]]:
    found = [value for value in vars(errors).values() if isinstance(value, type)]
    return [one for one in found if issubclass(one, AuditError)]


def test_every_error_has_an_exit_code_with_a_meaning() -> None:
    for kind in every_error():
        code = exits.exit_code(kind.code)
        assert code != exits.OK
        assert exits.MEANINGS[code]


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (errors.ExecutionFailed, 1),
        (errors.ApprovalDenied, 1),
        (errors.InvalidArguments, 2),
        (errors.InvalidPath, 2),
        (errors.IsADirectory, 2),
        (errors.NotADirectory, 2),
        (errors.AuditUnavailable, 3),
        (errors.NotFound, 4),
        (errors.NoWorkspace, 4),
        (errors.Conflict, 5),
        (errors.NotEmpty, 5),
        (errors.Corrupt, 6),
    ],
)
def test_an_error_ends_with_its_exit_code(kind: type[AuditError], code: int) -> None:
    assert exits.exit_code(kind.code) == code


@pytest.mark.parametrize(
    "text",
    [
        "42",
        "head",
        "head~3",
        "@name",
        "session:abc",
        "2026-01-02",
        "2026-01-02T03:04:05Z",
        "10:32",
        "Yesterday",
        "yesterday 17:00",
        "10 minutes ago",
        "a minute ago",
        "2h ago",
    ],
)
def test_points_are_told_from_paths(text: str) -> None:
    assert is_point(text)


@pytest.mark.parametrize(
    "text", ["src", "a.txt", "./42", "head/x", "2026.txt", "", "~/x", "4a", "2h", "10:3", "25:00"]
)
def test_paths_are_told_from_points(text: str) -> None:
    assert not is_point(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-01-01T00:00:00Z", datetime(2026, 1, 1, tzinfo=UTC)),
        ("2026-01-01T02:00:00+02:00", datetime(2026, 1, 1, tzinfo=UTC)),
        ("2h", NOW - timedelta(hours=2)),
        ("30m", NOW - timedelta(minutes=30)),
        ("1w", NOW - timedelta(weeks=1)),
        ("10 minutes ago", NOW - timedelta(minutes=10)),
        ("an hour ago", NOW - timedelta(hours=1)),
        ("a day ago", NOW - timedelta(days=1)),
        ("1 hour ago", NOW - timedelta(hours=1)),
        ("2h ago", NOW - timedelta(hours=2)),
        ("today", datetime(2026, 1, 2, tzinfo=UTC)),
        ("Yesterday", datetime(2026, 1, 1, tzinfo=UTC)),
        ("yesterday 17:00", datetime(2026, 1, 1, 17, tzinfo=UTC)),
        ("today at 9:05", datetime(2026, 1, 2, 9, 5, tzinfo=UTC)),
        ("10:32", datetime(2026, 1, 2, 10, 32, tzinfo=UTC)),
        ("10:32:59", datetime(2026, 1, 2, 10, 32, 59, tzinfo=UTC)),
        ("23:59", datetime(2026, 1, 1, 23, 59, tzinfo=UTC)),
    ],
)
def test_times_are_read(text: str, expected: datetime) -> None:
    assert read_time(text, NOW, UTC) == expected


def test_a_day_is_that_of_the_zone_and_a_time_of_day_the_last_one_there() -> None:
    east = timezone(timedelta(hours=14))
    late = datetime(2026, 1, 2, 11, tzinfo=UTC)  # the 3rd, 1:00, in the east
    assert read_time("today", late, east) == datetime(2026, 1, 3, tzinfo=east)
    assert read_time("0:59", late, east) == datetime(2026, 1, 3, 0, 59, tzinfo=east)
    assert read_time("1:01", late, east) == datetime(2026, 1, 2, 1, 1, tzinfo=east)


def test_a_local_time_before_the_clocks_changed_has_the_zone_of_then() -> None:
    berlin = ZoneInfo("Europe/Berlin")
    after = datetime(2026, 3, 29, 12, tzinfo=UTC)  # at 2:00 it became 3:00
    assert read_time("yesterday 17:00", after, berlin) == datetime(2026, 3, 28, 16, tzinfo=UTC)


def test_a_date_without_a_zone_is_local() -> None:
    assert typed_time("2026-01-01") == datetime(2026, 1, 1).astimezone(UTC)
    assert datetime.fromisoformat(point_text("2026-01-01")) == typed_time("2026-01-01")


@pytest.mark.parametrize("text", ["head~2", "42", "@2026-01-01", "session:x"])
def test_points_that_are_not_times_stay_as_they_are(text: str) -> None:
    assert point_text(text) == text


@pytest.mark.parametrize(
    "text", ["tomorrow", "", "ago", "2026-13-01", "-1h", "99999999w", "yesterday 25:00", "10:3²"]
)
def test_what_is_not_a_time_is_refused_with_a_hint(text: str) -> None:
    with pytest.raises(InvalidArguments) as caught:
        read_time(text, NOW)
    assert caught.value.hint


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("2016-12-31T23:59:60Z", "a minute has the seconds 00 to 59"),
        ("10:32:60", "a minute has the seconds 00 to 59"),
        ("2301-01-01", "times go to the year 2300"),
        ("9999-12-31T23:59:59Z", "times go to the year 2300"),
        ("12026-01-01T00:00:00Z", "times go to the year 2300"),
        ("12026-01-01", "times go to the year 2300"),
    ],
)
def test_a_leap_second_and_a_year_behind_all_calendars_are_refused_with_a_word(
    text: str, why: str
) -> None:
    with pytest.raises(InvalidArguments, match=why):
        read_time(text, NOW, UTC)
    assert read_time("2300-12-31T23:59:59Z", NOW, UTC).year == 2300


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "work" / "src").mkdir(parents=True)
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    return str(tmp_path / "work")


def test_a_path_typed_outside_the_workspace_is_taken_from_its_root(root: str) -> None:
    assert workspace_path(root, "src/app.py") == "src/app.py"
    assert workspace_path(root, "./src//x/../app.py") == "src/app.py"
    assert workspace_path(root, ".") == ""
    assert workspace_path(root, f"{root}/src") == "src"


def test_a_path_typed_inside_the_workspace_is_relative_to_where_one_is(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(f"{root}/src")
    assert workspace_path(root, "app.py") == "src/app.py"
    assert workspace_path(root, "../a.txt") == "a.txt"
    assert workspace_path(root, ".") == "src"
    assert workspace_path(root, "..") == ""


@pytest.mark.parametrize("text", ["..", "../x", "/etc/passwd", "src/../../x", "../work2"])
def test_a_path_that_leads_out_is_refused(root: str, text: str) -> None:
    with pytest.raises(InvalidPath):
        workspace_path(root, text)


def test_a_workspace_reached_through_a_symlink_gives_the_same_paths(
    root: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "link").symlink_to(root)
    monkeypatch.chdir(tmp_path / "link" / "src")
    assert workspace_path(root, "app.py") == "src/app.py"
    assert workspace_path(str(tmp_path / "link"), f"{tmp_path}/link/src") == "src"


@given(st.binary(min_size=1, max_size=20).filter(lambda b: b"/" not in b and b"\0" not in b))
def test_any_name_on_disk_can_be_typed(name: bytes) -> None:
    if name in (b".", b".."):
        return
    path = workspace_path("/nowhere/work", os.fsdecode(b"/nowhere/work/d/" + name))
    assert path.encode("utf-8", "surrogateescape") == b"d/" + name


def test_choices_are_read_per_path(root: str) -> None:
    found = read_choices(root, ["a=b.txt=old", "src/app.py=merge", "x=current"])
    assert found == {"a=b.txt": "old", "src/app.py": "merge", "x": "current"}


@pytest.mark.parametrize("text", ["a.txt", "a.txt=", "a.txt=mine", "old"])
def test_a_choice_that_is_none_is_refused(root: str, text: str) -> None:
    with pytest.raises(InvalidArguments):
        read_choices(root, [text])


def test_json_is_wanted_only_by_our_own_arguments() -> None:
    assert wants_json(["log", "--json"])
    assert not wants_json(["run", "--", "tool", "--json"])


def ended(
    raised: BaseException, capsys: pytest.CaptureFixture[str], failure: int | None = None
) -> tuple[int, str]:
    def body(at: Invocation) -> None:
        raise raised

    code = carry_out(SharedOptions(), body, {}, failure=failure)
    return code, capsys.readouterr().err


def test_an_error_is_printed_with_its_hint_and_no_traceback(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, text = ended(errors.NotFound("no such call", hint="look at the log"), capsys)
    assert (code, text) == (4, "error: no such call\nhint: look at the log\n")


def test_an_error_of_the_system_names_the_file(capsys: pytest.CaptureFixture[str]) -> None:
    code, text = ended(FileNotFoundError(2, "No such file or directory", "x.txt"), capsys)
    assert (code, text.splitlines()[0]) == (4, "error: No such file or directory: x.txt")


def test_a_defect_of_ours_is_one_line_and_says_how_to_see_more(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LOOM_AUDIT_DEBUG", raising=False)
    code, text = ended(RuntimeError("oops"), capsys)
    assert code == 1
    assert text.startswith("error: internal error: RuntimeError: oops\nhint: ")
    assert "Traceback" not in text


def test_what_an_interrupt_broke_is_an_interrupt(capsys: pytest.CaptureFixture[str]) -> None:
    """As when Ctrl-C comes while a thread is waited for, and its lock is let go of twice."""

    def interrupted(error: Exception) -> Exception:
        try:
            try:
                raise KeyboardInterrupt
            finally:
                raise error
        except RuntimeError as raised:
            return raised

    code, text = ended(interrupted(RuntimeError("release unlocked lock")), capsys)
    assert (code, text) == (130, "interrupted\n")


def test_a_traceback_is_shown_when_asked_for(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOOM_AUDIT_DEBUG", "1")
    _, text = ended(RuntimeError("oops"), capsys)
    assert "Traceback" in text


def test_ctrl_c_ends_with_130(capsys: pytest.CaptureFixture[str]) -> None:
    assert ended(KeyboardInterrupt(), capsys)[0] == 130


def test_a_failure_of_ours_in_run_is_125_whatever_it_was(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert ended(errors.NoWorkspace("none"), capsys, failure=125)[0] == 125
    assert ended(RuntimeError("oops"), capsys, failure=125)[0] == 125


def test_options_after_the_command_win_over_those_before_it() -> None:
    before = SharedOptions("a.db", "w1", json=False)
    assert before.with_values({"store": "b.db", "workspace": None, "json": True}) == SharedOptions(
        "b.db", "w1", json=True
    )


def test_a_stream_that_is_not_utf8_never_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    from loom_audit.cli.shared.output import open_output

    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii", errors="strict")
    monkeypatch.setattr(sys, "stdout", stream)
    open_output(json=False).line("naïve → \N{PILE OF POO}")
    stream.flush()
    assert raw.getvalue() == b"na\\xefve \\u2192 \\U0001f4a9\n"
